"""Per-sample predictions: their files, how good they are, and pictures of them."""
