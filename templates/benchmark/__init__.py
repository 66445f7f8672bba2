"""New Benchmark: the thermal diffusivity of a plate from a picture of its temperature."""

import common  # noqa: F401  (before torch: it says how OpenMP's threads wait)
