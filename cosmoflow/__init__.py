"""CosmoFlow: cosmological parameters from the distribution of dark matter."""

import common  # noqa: F401  (before torch: it says how OpenMP's threads wait)
