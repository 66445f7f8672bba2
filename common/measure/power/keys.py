"""Names of the records in a power file (those of mlperf-logging, and our scope), and limits for reading power."""

import re
from collections.abc import Sequence
from typing import Final

from common.errors import UsageError

START: Final = "power_measurement_start"
STOP: Final = "power_measurement_stop"
READING: Final = "power_reading"
EFFICIENCY: Final = "conversion_eff"
NODE: Final = "node"
"""The scope of readings of a whole node."""
PARTS: Final = "estimate of parts"
"""The scope of readings of some parts of a node, such as its processors."""
OF_PARTS: Final = ("rapl", "nvml")
"""Sources with this scope; their files have these names. A test compares this list with the sources."""
NODE_FILE: Final = re.compile(r"node_\d+\.txt")
PARTS_FILE: Final = re.compile(rf"({'|'.join(OF_PARTS)})_\d+\.txt")
"""Names of the power files that a training or a measurement writes, by their scope."""
SLOWEST_S, FASTEST_S = 1.0, 0.05


def check_settings(interval_s: float, efficiency: float, dc: bool, names: Sequence[str]) -> None:
    """Raise UsageError for values that cannot be used. dc: direct current is measured; names: of the three."""
    interval_name, efficiency_name, dc_name = names
    if not FASTEST_S <= interval_s <= SLOWEST_S:
        raise UsageError(f"{interval_name} is {interval_s:g}; expected {FASTEST_S:g} to {SLOWEST_S:g} seconds")
    if not 0 < efficiency <= 1 or (dc and efficiency != 1):
        expected = f"1 with {dc_name}: nothing is converted" if dc else "a share, above 0 and at most 1"
        raise UsageError(f"{efficiency_name} is {efficiency:g}; expected {expected}")
