"""Where a resource of Redfish has the watts of a whole node, and which watts are of a part of it or of several nodes.

Source: DSP0268, the schemas Power, EnvironmentMetrics, Sensor and Chassis. What vendors give instead:
mrlhansen/idrac_exporter#121 (Fujitsu), #173 (Inspur).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

from common.values import is_number

EXAMPLE: Final = "/redfish/v1/Chassis/ID/Power"
EXPECTED: Final = (
    f"expected a resource of the node's chassis: {EXAMPLE}, …/ID/EnvironmentMetrics or …/ID/Sensors/SENSOR"
)
CHASSIS: Final = re.compile(r"(https://[^/]+/redfish/v1/Chassis/[^/?#]+)/[^?#]+")
METRICS: Final = re.compile(r"/redfish/v1/Chassis/[^/]+/EnvironmentMetrics/?")
TOTAL: Final = re.compile(r"(power_)?total_?power", re.IGNORECASE)
"""The names of the sensor of a whole chassis where it names no context, such as those of OpenBMC."""
NO_NODE: Final = (
    "Card Cartridge Component Module IPBasedDrive StorageEnclosure PowerStrip Rack Row Pod RackGroup".split()
)
"""Types of a chassis that is less than a node, or more."""
OEM: Final = (
    ("Oem", "ts_fujitsu", "ChassisPowerConsumption", "CurrentPowerConsumptionW"),
    ("Oem", "Public", "TotalPower"),
)


def find_chassis(url: str) -> str | None:
    """Return the address of the chassis that a resource belongs to, None if the address does not say."""
    match = CHASSIS.match(url)
    return match[1] if match else None


def find_node_watts(resource: Any, path: str, chassis: Any) -> float:
    """Return the first watts of the whole node in a resource.

    In this order: PowerControl[0].PowerConsumedWatts, PowerWatts.Reading, Reading of a sensor, Oem.
    path: of the resource on its controller. chassis: the chassis that it belongs to, {} if unknown.
    Raises ValueError, with the reason, if there are none.
    """
    kind = _get(chassis, "ChassisType")
    if kind in NO_NODE:
        raise ValueError(f"the power of a chassis of type {kind}, not of a node; {EXPECTED}")
    parts = []
    for key, watts, part in _list_watts(resource, path):
        if part:
            parts.append(f"{key} is the power of {part}, not of the whole node")
        elif is_number(watts):
            return float(watts)
    raise ValueError(f"{parts[0] if parts else 'no power of the node'}; {EXPECTED}")


def _list_watts(resource: Any, path: str) -> Iterator[tuple[str, Any, str]]:
    """Yield the key and the value of each reading, and the part of the node that it is of, "" for the whole."""
    context = _get(resource, "PowerControl", 0, "PhysicalContext")
    watts = _get(resource, "PowerControl", 0, "PowerConsumedWatts")
    yield "PowerControl[0]", watts, "" if watts is None or context in (None, "Chassis") else str(context)
    watts = _get(resource, "PowerWatts", "Reading")
    yield "PowerWatts", watts, "" if watts is None or METRICS.fullmatch(path) else f"the resource {path}"
    if _get(resource, "ReadingType") == "Power" or _get(resource, "ReadingUnits") == "W":
        context, name = _get(resource, "PhysicalContext"), str(_get(resource, "Id"))
        whole = context == "Chassis" or (context is None and TOTAL.fullmatch(name))
        yield "Reading", _get(resource, "Reading"), "" if whole else str(context or name)
    for keys in OEM:
        yield ".".join(keys), _get(resource, *keys), ""


def _get(value: Any, *keys: str | int) -> Any:
    """Return the value below these keys and numbers, None if there is none."""
    for key in keys:
        try:
            value = value[key]
        except (LookupError, TypeError):
            return None
    return value
