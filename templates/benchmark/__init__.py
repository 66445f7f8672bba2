"""New Benchmark: the thermal diffusivity of a plate from a picture of its temperature."""

from common.extras import explain_missing

explain_missing(__name__)
