"""Record the power of a node."""
