"""New Benchmark: the thermal diffusivity of a plate from a picture of its temperature."""

import common  # noqa: F401  (which says where Python is too old for the others)
