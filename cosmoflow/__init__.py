"""CosmoFlow: cosmological parameters from the distribution of dark matter."""

import common  # noqa: F401  (which says where Python is too old for the others)
