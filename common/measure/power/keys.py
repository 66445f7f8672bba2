"""What the records of a power file are called: those of mlperf-logging, and the scope that this suite adds."""

from typing import Final

START: Final = "power_measurement_start"
STOP: Final = "power_measurement_stop"
READING: Final = "power_reading"
EFFICIENCY: Final = "conversion_eff"
NODE: Final = "node"
"""The scope of readings of a whole node."""
PARTS: Final = "estimate of parts"
"""The scope of readings of some parts of a node, such as its processors."""
OF_PARTS: Final = ("rapl", "nvml")
"""Sources with this scope, by which their files are called; a test compares them with what the sources say."""
