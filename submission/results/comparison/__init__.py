"""Two results, or two rounds, side by side."""
