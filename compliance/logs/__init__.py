"""Read result logs and power files, line by line, without trusting them."""
