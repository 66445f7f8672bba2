"""Names of the records in a power file: those of mlperf-logging, and our scope."""

import re
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
"""Sources that always have this scope; command and file have the one that their user states."""
NODE_FILE: Final = re.compile(r"node_\d+\.txt")
PARTS_FILE: Final = re.compile(rf"({'|'.join(OF_PARTS)}|command|file)_\d+\.txt")
"""Names of the power files that a training or a measurement writes, by their scope."""
