"""DeepCAM: tropical cyclones and atmospheric rivers in climate simulations, as a segmentation."""

import common  # noqa: F401  (which says where Python is too old for the others)
