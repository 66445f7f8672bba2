"""The page of results: one HTML file, no network, no script needed."""
