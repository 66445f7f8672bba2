"""Where readings of power come from: meters of the whole node, and counters of parts of it."""

from __future__ import annotations

import base64
import json
import os
import re
import selectors
import shlex
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from http.client import HTTPException
from pathlib import Path
from typing import Any, Final, Protocol
from urllib.error import HTTPError
from urllib.parse import urlsplit
from urllib.request import Request, urlopen

from common.errors import UsageError
from common.measure.power.keys import NODE, PARTS
from common.measure.power.limits import POWERCAP
from common.measure.power.redfish import EXAMPLE, find_chassis, find_node_watts
from common.values import is_number

READ_TIMEOUT_S: Final = 2.0
PROGRAM_TIMEOUT_S: Final = 1.8
"""Shorter, so that a program is killed before nobody waits for it any more."""
MOST_WATTS: Final = 1e6
"""More than a node can draw."""
FILE_FRESH_S: Final = 2.0
"""A file that does not change for so long is that of a meter that stopped."""
PACKAGE_WATTS: Final = 1000
"""More than a processor package can draw: decides how often its counter may have wrapped."""
LARGEST_REPLY: Final = 1 << 20
FILE_TAIL: Final = 4096
IPMI_WATTS: Final = re.compile(r"Instantaneous power reading:\s*(\d+(?:\.\d+)?)\s*Watts")
IPMI_STATE: Final = re.compile(r"Power reading state is:\s*(\w+)")


class ReadingError(Exception):
    """There is no reading now; the message says why."""


@dataclass(frozen=True, slots=True)
class Clock:
    """The time since 1970 and the time since any moment, both in seconds, and how to wait."""

    wall: Callable[[], float] = time.time
    monotonic: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep


class Source(Protocol):
    """Gives readings of power. scope: NODE or PARTS."""

    @property
    def scope(self) -> str:
        """NODE or PARTS: what the readings include."""

    def read_watts(self) -> float:
        """Return the power in watts; raise ReadingError if there is no reading."""


@dataclass(frozen=True, slots=True)
class Program:
    """A program whose output `parse` turns into watts."""

    words: Sequence[str]
    parse: Callable[[str], float]
    scope: str = NODE

    def __post_init__(self) -> None:
        if not self.words or shutil.which(self.words[0]) is None:
            name = self.words[0] if self.words else "no program"
            raise UsageError(f"{name}: not found; install it, or name another source")

    def read_watts(self) -> float:
        """Return what the program says; it is killed with its children after PROGRAM_TIMEOUT_S."""
        try:
            process = subprocess.Popen(
                self.words,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=os.environ | {"LC_ALL": "C"},
                start_new_session=True,
            )
        except OSError as error:
            raise ReadingError(f"{self.words[0]}: {error.strerror}") from error
        with process:
            try:
                output, errors = _read_output(process)
            except ReadingError as error:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                raise ReadingError(f"{self.words[0]}: {error}") from None
        if process.returncode:
            words = errors.strip() or output.strip()  # nvidia-smi complains on its standard output
            last = "".join(filter(str.isprintable, words.rpartition("\n")[2]))[:200]
            raise ReadingError(f"{self.words[0]}: exit status {process.returncode}" + (f": {last}" if last else ""))
        return self.parse(output)


def _read_output(process: subprocess.Popen[bytes]) -> tuple[str, str]:
    """Return what a program prints, and the end of its complaints; ReadingError if it takes long or prints much."""
    end_s = time.monotonic() + PROGRAM_TIMEOUT_S
    timeout_error = ReadingError(f"no answer within {PROGRAM_TIMEOUT_S:g} s")
    output, errors = bytearray(), bytearray()
    assert process.stdout is not None and process.stderr is not None
    with selectors.DefaultSelector() as pipes:
        pipes.register(process.stdout, selectors.EVENT_READ, output)
        pipes.register(process.stderr, selectors.EVENT_READ, errors)
        while pipes.get_map():
            ready = pipes.select(end_s - time.monotonic())
            if not ready or time.monotonic() > end_s:
                raise timeout_error
            for pipe, _ in ready:
                part = os.read(pipe.fd, FILE_TAIL)
                if not part:
                    pipes.unregister(pipe.fileobj)
                pipe.data.extend(part)
            if len(output) > LARGEST_REPLY:
                raise ReadingError(f"printed more than {LARGEST_REPLY:,} bytes; expected watts")
            del errors[:-FILE_TAIL]
    try:
        process.wait(max(end_s - time.monotonic(), 0))
    except subprocess.TimeoutExpired:
        raise timeout_error from None
    return output.decode(errors="replace"), errors.decode(errors="replace")


def parse_watts(text: str) -> float:
    """Return the number of watts in a text that has nothing else."""
    try:
        return float("none" if "_" in text else text)  # 1_000 is a number for Python alone
    except ValueError:
        raise ReadingError(f"expected watts, one number, not {text.strip()[:80]!r}") from None


def is_watts(value: Any) -> bool:
    """Tell whether a value can be the power of a node."""
    return is_number(value) and 0 <= value <= MOST_WATTS


def ipmi_watts(text: str) -> float:
    """Return the reading in the output of `ipmitool dcmi power reading`.

    The state after it does not count: some controllers give right watts and call the reading deactivated
    (openbmc/phosphor-host-ipmid#167). A node that answers draws more than 0 W.
    """
    match, state = IPMI_WATTS.search(text), IPMI_STATE.search(text)
    if match is None or not 0 < float(match[1]) <= MOST_WATTS:
        facts = f" ({match[1]} W, state {state[1] if state else 'not given'})" if match else ""
        raise ReadingError(f"ipmitool: the board management controller gives no power reading{facts}")
    return float(match[1])


def sum_of_watts(text: str) -> float:
    """Return the sum of the numbers in the lines of nvidia-smi, one for each GPU in the order of their indices."""
    if not text.strip():
        raise ReadingError("nvidia-smi: no GPU")
    total = 0.0
    for index, line in enumerate(text.splitlines()):
        try:
            total += parse_watts(line)
        except ReadingError as error:
            raise ReadingError(f"nvidia-smi: GPU {index}: {error}") from None
    return total


@dataclass(slots=True)
class Redfish:
    """The power of a chassis as its board management controller gives it over HTTPS. Untested on hardware.

    url: of a resource of the chassis, see `common.measure.power.redfish`.
    """

    url: str
    user: str
    password: str
    scope: str = NODE
    _chassis: Any = None

    def read_watts(self) -> float:
        """Return the watts of the whole chassis."""
        try:
            if self._chassis is None:
                self._chassis = self._read_chassis()
            return find_node_watts(self._read_resource(self.url), urlsplit(self.url).path, self._chassis)
        except (OSError, HTTPException, ValueError) as error:
            raise ReadingError(f"{self.url}: {error}") from error

    def _read_chassis(self) -> Any:
        """Return the chassis that the resource belongs to, {} if the controller does not give it."""
        address = find_chassis(self.url)
        try:
            return self._read_resource(address) if address else {}
        except HTTPError:
            return {}

    def _read_resource(self, url: str) -> Any:
        """Return a resource; the credentials are not passed on to where the controller may redirect."""
        request = Request(url, headers={"Accept": "application/json"})
        token = base64.b64encode(f"{self.user}:{self.password}".encode()).decode()
        request.add_unredirected_header("Authorization", f"Basic {token}")
        with urlopen(request, timeout=READ_TIMEOUT_S) as reply:
            return json.loads(reply.read(LARGEST_REPLY))


@dataclass(slots=True)
class WattFile:
    """A file whose last complete line is a number of watts, and that changes with every reading of its meter."""

    path: Path
    clock: Clock
    scope: str = NODE
    _seen: tuple[int, int] | None = None
    _changed_s: float = float("-inf")

    def __post_init__(self) -> None:
        if not self.path.is_file():
            raise UsageError(f"{self.path}: no such file; start the meter that writes it first")

    def read_watts(self) -> float:
        """Return the last line; the file must have changed within FILE_FRESH_S."""
        try:
            with self.path.open("rb") as file:
                status = os.fstat(file.fileno())
                file.seek(max(status.st_size - FILE_TAIL, 0))
                text = file.read(FILE_TAIL).decode(errors="replace")
        except OSError as error:
            raise ReadingError(f"{self.path}: {error.strerror}") from error
        now, version = self.clock.monotonic(), (status.st_mtime_ns, status.st_ino)
        if self._seen not in (None, version):
            self._changed_s = now
        self._seen = version
        if self._changed_s < 0:
            raise ReadingError(f"{self.path}: waiting until it changes, to know that its meter runs")
        if now - self._changed_s > FILE_FRESH_S:
            raise ReadingError(f"{self.path}: unchanged; the meter seems to have stopped")
        # What follows the last line break may be half a number.
        complete = text.rpartition("\n")[0] or text
        return parse_watts(complete.rstrip().rpartition("\n")[2])


@dataclass(slots=True)
class Rapl:
    """The processor packages of a powercap tree of the kernel; memory and what else is below them is not counted."""

    root: Path
    clock: Clock
    scope: str = PARTS
    _ranges_uj: dict[Path, int] = field(default_factory=dict)  # of each energy counter, at which it wraps
    _last_uj: dict[Path, int] = field(default_factory=dict)
    _last_s: float = 0.0

    def __post_init__(self) -> None:
        try:
            for folder in sorted(self.root.glob("intel-rapl:*")):
                # intel-rapl:0:1 is a part of intel-rapl:0.
                if folder.name.count(":") == 1 and (folder / "name").read_text().startswith("package-"):
                    self._ranges_uj[folder / "energy_uj"] = int((folder / "max_energy_range_uj").read_text())
            self._last_uj = self._read_counters()
        except (OSError, ValueError) as error:
            raise UsageError(f"{self.root}: energy counters cannot be read ({error}); they may need root") from error
        if not self._ranges_uj:
            raise UsageError(f"{self.root}: expected intel-rapl:N with name package-*; found none")
        self._last_s = self.clock.monotonic()

    def _read_counters(self) -> dict[Path, int]:
        return {path: int(path.read_text()) for path in self._ranges_uj}

    def read_watts(self) -> float:
        """Return the mean power since the previous call; counters may have wrapped once."""
        try:
            counters_uj = self._read_counters()
        except (OSError, ValueError) as error:
            raise ReadingError(f"{self.root}: {error}") from error
        now = self.clock.monotonic()
        seconds, self._last_s = now - self._last_s, now
        most_uj, total_uj, unknown = PACKAGE_WATTS * seconds * 1e6, 0, seconds <= 0
        for path, range_uj in self._ranges_uj.items():
            used_uj = counters_uj[path] - self._last_uj[path]
            used_uj += range_uj if used_uj < 0 else 0
            unknown = unknown or most_uj >= range_uj or not 0 <= used_uj <= most_uj
            total_uj += used_uj
        self._last_uj = counters_uj
        if unknown:
            raise ReadingError(f"{self.root}: a counter was reset, or may have wrapped more than once")
        return total_uj / 1e6 / seconds


def _open_redfish(setting: str, _clock: Clock) -> Source:
    if not re.fullmatch(r"https://[^/@\s]+/\S+", setting):
        raise UsageError(f"expected redfish:https://HOST{EXAMPLE}, without credentials")
    user, password = (os.environ.get(f"REDFISH_{name}", "") for name in ("USER", "PASSWORD"))
    if not user or not password:
        raise UsageError("redfish takes its credentials from REDFISH_USER and REDFISH_PASSWORD; set both")
    return Redfish(setting, user, password)


def _open_nvml(setting: str, _clock: Clock) -> Source:
    if setting:
        raise UsageError("nvml takes no setting")
    query = ("nvidia-smi", "--query-gpu=power.draw", "--format=csv,noheader,nounits")
    return Program(query, sum_of_watts, PARTS)


def _split_words(text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError as error:
        raise UsageError(f"{text!r}: {error}") from None


SOURCES: Final[Mapping[str, Callable[[str, Clock], Source]]] = {
    "ipmi": lambda setting, _: Program(("ipmitool", *_split_words(setting), "dcmi", "power", "reading"), ipmi_watts),
    "redfish": _open_redfish,
    "rapl": lambda setting, clock: Rapl(Path(setting or POWERCAP), clock),
    "nvml": _open_nvml,
    "command": lambda setting, _: Program(_split_words(setting), parse_watts),
    "file": lambda setting, clock: WattFile(Path(setting), clock),
}


def open_source(text: str, clock: Clock) -> tuple[str, Source]:
    """Return the name and the source of `NAME` or `NAME:SETTING`; raise UsageError if it cannot be used.

    `check_power_source` has accepted the name.
    """
    name, _, setting = text.partition(":")
    return name, SOURCES[name](setting, clock)
