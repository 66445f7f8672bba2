"""CosmoFlow: cosmological parameters from the distribution of dark matter."""
