"""New Benchmark: the thermal diffusivity of a plate from a picture of its temperature."""
