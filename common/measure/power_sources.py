"""Where readings of power come from: a command or a file that the user names, and counters of parts of a node."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from common.errors import UsageError
from common.measure.devices import POWERCAP
from common.programs import QUOTED_LETTERS, ask_program
from common.record import NODE_SCOPE, PARTS_SCOPE, PARTS_SOURCES
from common.values import is_number

READ_TIMEOUT_S: Final = 2.0
COMMAND_TIMEOUT_S: Final = 1.8
"""Shorter, so that a command is killed before nobody waits for it any more."""
MOST_WATTS: Final = 1e6
"""More than a node can draw."""
LIKELY: Final = (10, 50_000)
"""The watts of a node."""
UNITS: Final = {"milliwatts": (1e-3, "/ 1000"), "microwatts": (1e-6, "/ 1000000"), "kilowatts": (1e3, "* 1000")}
"""Other units of meters, in watts, and how to convert them; power1_input of Linux has microwatts."""
FILE_FRESH_S: Final = 2.0
"""A file that does not change for so long is that of a meter that stopped."""
FILE_TAIL: Final = 4096
NAMED: Final = {"command": "COMMAND", "file": "PATH"}
"""Sources whose scope and unit the user states, and what follows these."""
SCOPES: Final = {"node": NODE_SCOPE, "device": PARTS_SCOPE}
WATTS, JOULES = "watts", "joules"
NVIDIA_SMI: Final = "nvidia-smi --query-gpu=power.draw --format=csv,noheader,nounits"
REPLACED: Final = {
    "ipmi": r'ipmitool{} dcmi power reading | sed -n "s/.*Instantaneous[^0-9]*\([0-9]*\) Watts/\1/p; /deactivated/p"',
    "redfish": "curl -sSf --netrc{} | "
    r'jq ".PowerControl[0] | select((.PhysicalContext // \"Chassis\") == \"Chassis\").PowerConsumedWatts"',
}
"""Sources until version 0.3, and the commands that read the same; {} stands for their setting."""


class ReadingError(Exception):
    """There is no reading now; the message says why."""


@dataclass(frozen=True, slots=True)
class Clock:
    """The time since 1970 and the time since any moment, both in seconds, and how to wait."""

    wall: Callable[[], float] = time.time
    monotonic: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep


def is_watts(value: Any) -> bool:
    """Tell whether a value can be the power of a node."""
    return is_number(value) and 0 <= value <= MOST_WATTS


def suggest_unit(number: float) -> str:
    """Return the unit that a reading may have in place of watts, and how to convert it; "" if a node may draw it."""
    for name, (scale, change) in {} if LIKELY[0] <= number <= LIKELY[1] else UNITS.items():
        if LIKELY[0] <= number * scale <= LIKELY[1]:
            source = f"'command:node:watts:COMMAND | awk \"{{print \\$1 {change}}}\"'"
            return f": is it in {name}? Convert it in the source, such as {source} (of a file COMMAND is `cat FILE`)"
    return ""


# -- the text that names a source ------------------------------------------------------------------------------


def parse_source(text: str, option: str) -> tuple[str, str, str, str]:
    """Return name, setting, scope and unit of a source; raise UsageError unless there is such a source.

    text: NAME:SETTING (nvml, rapl) or NAME:SCOPE:UNIT:SETTING (command, file). scope: NODE or PARTS. option: where the
    text was given, for the message. Nothing is opened.
    """
    name, _, setting = text.partition(":")
    if name in REPLACED:
        setting = setting or ("URL" if name == "redfish" else "")
        command = REPLACED[name].format(setting and f" {setting}")
        raise UsageError(f"{option} {name} was removed; give instead, in single quotes: command:node:watts:{command}")
    if name == "rapl" or text == "nvml":
        return name, setting, PARTS_SCOPE, WATTS
    if name not in NAMED:
        example = f"command:node:watts:{f'cat {text}' if os.path.isfile(text) else 'COMMAND'}"
        names = ", ".join((*NAMED, *PARTS_SOURCES))
        raise UsageError(f"{option} is {text!r}; expected one of {names}, such as {example!r}")
    scope, _, rest = setting.partition(":")
    unit, _, rest = rest.partition(":")
    if scope not in SCOPES or unit not in (WATTS, JOULES) or not rest.strip():
        raise UsageError(
            f"{option} is {text!r}; expected {name}:SCOPE:UNIT:{NAMED[name]}, with node or device as SCOPE, and watts "
            "or joules as UNIT, to which COMMAND converts other units"
        )
    return name, rest, SCOPES[scope], unit


def open_source(text: str, clock: Clock, option: str = "power.source") -> tuple[str, Meter]:
    """Return the name and the source that a text names; raise UsageError if it cannot be used."""
    name, setting, scope, unit = parse_source(text, option)
    if name == "rapl":
        return name, open_rapl(Path(setting or POWERCAP), clock)
    if name == "file":
        return name, Meter(setting, NumberFile(Path(setting), clock).read_text, scope, unit, clock)
    command = NVIDIA_SMI if name == "nvml" else setting
    if name == "nvml" and shutil.which("nvidia-smi") is None:
        raise UsageError("nvidia-smi: not found; install it, or name another source")
    return name, Meter(command, lambda: read_command(command), scope, unit, clock)


# -- commands and files ----------------------------------------------------------------------------------------


@dataclass(slots=True)
class Meter:
    """A command or file whose text is the watts of a node or of devices, or the joules that they have used so far.

    name: the command or the path. scope: NODE, whose text is one number, or PARTS, with one in each line to be added.
    """

    name: str
    read_text: Callable[[], str]
    scope: str
    unit: str
    clock: Clock
    _last_joules: tuple[float, float] | None = None  # the last joules, and when they were read
    _lines: int = 0  # of the first reading

    def read_watts(self) -> float:
        """Return the watts; of joules their mean since the counter last rose."""
        try:
            number = self._read_number()
            return self._derive_watts(number) if self.unit == JOULES else number
        except ReadingError as error:
            raise ReadingError(f"{self.name}: {error}") from None

    def _read_number(self) -> float:
        text = self.read_text()
        of_node = self.scope == NODE_SCOPE
        try:
            # 1_000 is a number for Python alone.
            numbers = [float("none" if "_" in line else line) for line in ([text] if of_node else text.split("\n"))]
        except ValueError:
            numbers = []
        total = sum(numbers)
        off = of_node and self.unit == WATTS and total == 0  # a node that answers draws power
        if not numbers or not is_number(total) or min(numbers) < 0 or off:
            expected = "one number above 0" if of_node else "a number in each line"
            raise ReadingError(f"expected {self.unit}, {expected}, not {' '.join(text.split())[:QUOTED_LETTERS]!r}")
        self._lines = self._lines or len(numbers)
        if len(numbers) != self._lines:  # a device is missing, or back
            self._last_joules = None
            raise ReadingError(f"expected {self._lines} numbers as at first, not {len(numbers)}")
        return total

    def _derive_watts(self, joules: float) -> float:
        now_s = self.clock.monotonic()
        earlier, since_s = self._last_joules or (joules, now_s)
        if joules != earlier or self._last_joules is None:
            self._last_joules = joules, now_s
        if joules <= earlier:
            raise ReadingError(f"waiting until the counter rises above {joules:g} J")
        return (joules - earlier) / (now_s - since_s)


def read_command(command: str) -> str:
    """Return what a shell command prints, without spaces around it; kill it with its children if it takes long."""
    answer = ask_program("sh", "-c", command, limit_s=COMMAND_TIMEOUT_S)
    if answer.problem or not answer.output.strip():
        raise ReadingError(answer.explain_unread())
    return answer.output.strip()


@dataclass(slots=True)
class NumberFile:
    """A file whose last complete line is a number, and that changes with every reading of its meter."""

    path: Path
    clock: Clock
    _seen: tuple[int, int] | None = None
    _changed_s: float = float("-inf")

    def __post_init__(self) -> None:
        if not self.path.is_file():
            raise UsageError(f"{self.path}: no such file; start the meter that writes it first")

    def read_text(self) -> str:
        """Return the last line; the file must have changed within FILE_FRESH_S."""
        try:
            with self.path.open("rb") as file:
                status = os.fstat(file.fileno())
                file.seek(max(status.st_size - FILE_TAIL, 0))
                text = file.read(FILE_TAIL).decode(errors="replace")
        except OSError as error:
            raise ReadingError(str(error.strerror)) from error
        now, version = self.clock.monotonic(), (status.st_mtime_ns, status.st_ino)
        if self._seen not in (None, version):
            self._changed_s = now
        self._seen = version
        if self._changed_s < 0:
            kernels = f"one of the kernel's is read by command:node:watts:cat {self.path}"
            raise ReadingError(f"waiting until it changes, to know that its meter runs; {kernels}")
        if now - self._changed_s > FILE_FRESH_S:
            raise ReadingError("unchanged; the meter seems to have stopped")
        # What follows the last line break may be half a number.
        complete = text.rpartition("\n")[0] or text
        return complete.rstrip().rpartition("\n")[2]


# -- processors ------------------------------------------------------------------------------------------------


def open_rapl(root: Path, clock: Clock) -> Meter:
    """Return the meter of the processor packages of a powercap tree of the kernel; memory is not counted.

    A counter that wraps costs one reading. Raises UsageError if there are no packages that can be read.
    """
    try:
        # intel-rapl:0:1 is a part of intel-rapl:0.
        zones = [zone for zone in sorted(root.glob("intel-rapl:*")) if zone.name.count(":") == 1]
        counters = [zone / "energy_uj" for zone in zones if (zone / "name").read_text().startswith("package-")]
        _list_joules(counters)
    except (OSError, ValueError) as error:
        raise UsageError(f"{root}: energy counters cannot be read ({error}); they may need root") from error
    if not counters:
        raise UsageError(f"{root}: expected intel-rapl:N with name package-*; found none")

    def read_text() -> str:
        try:
            return _list_joules(counters)
        except (OSError, ValueError) as error:
            raise ReadingError(str(error)) from error

    return Meter(str(root), read_text, PARTS_SCOPE, JOULES, clock)


def _list_joules(counters: Sequence[Path]) -> str:
    return "\n".join(str(int(path.read_text()) / 1e6) for path in counters)
