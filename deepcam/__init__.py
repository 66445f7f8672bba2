"""DeepCAM: tropical cyclones and atmospheric rivers in climate simulations, as a segmentation."""

import common  # noqa: F401  (before torch: it says how OpenMP's threads wait)
