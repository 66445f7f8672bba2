"""Make submission folders, good and bad, from `compliance.samples.log`, for examples, tests and the demo."""

from __future__ import annotations

import json
import os
import posixpath
from collections.abc import Callable, Mapping
from copy import deepcopy
from hashlib import sha256
from pathlib import Path
from typing import Any, Self

from common.provenance import hash_files
from common.record import CONVERSION_EFFICIENCY, POWER_READING, POWER_START, POWER_STOP
from common.reference import FULL
from compliance.benchmarks import require_reference
from compliance.logs.power import ESTIMATE
from compliance.model.layout import IMPLEMENTATIONS, PROVENANCE_FILE, README_FILE, SCRIPTS
from compliance.rules.package import FIELDS
from compliance.samples.log import SampleLog, SampleRecords, make_record, varied


class SamplePower(SampleRecords):
    """The records of one power file; every method that changes it returns self."""

    def __init__(self, start_ms: int, stop_ms: int, host: str) -> None:
        """Make the file of a measurement from start_ms to stop_ms, in ms since 1970."""
        self.start_ms, self.stop_ms, self.host = start_ms, stop_ms, host
        self.records = []

    @classmethod
    def node(cls, start_ms: int, stop_ms: int, number: int) -> Self:
        """Return the file of a node that is read every second; each node draws a different power."""
        log = cls(start_ms, stop_ms, f"node_{number}")
        log.add(POWER_START, None, start_ms).add(CONVERSION_EFFICIENCY, 0.94, start_ms, measurement_type="AC")
        for at, time_ms in enumerate([*range(start_ms + 1000, stop_ms, 1000), stop_ms]):
            log.add(POWER_READING, 400.5 + 20 * number + round(13 * varied(start_ms, number, at), 3), time_ms)
        return log.add(POWER_STOP, None, stop_ms)

    @classmethod
    def switch(cls, start_ms: int, stop_ms: int, number: int) -> Self:
        """Return the file of a switch whose power is estimated."""
        log = cls(start_ms, stop_ms, f"sw_{number}")
        return log.add(CONVERSION_EFFICIENCY, 1.0, start_ms).add(ESTIMATE, 150.0, start_ms)

    def add(self, key: str, value: Any, time_ms: float, **metadata: Any) -> Self:
        """Append a record."""
        own = {"file": "meter.py", "lineno": 40, "host": self.host}
        self.records.append(make_record(key, value, time_ms, own | metadata))
        return self

    def keep(self, wanted: Callable[[int, dict[str, Any]], bool]) -> Self:
        """Keep the readings for which `wanted(number, record)` is true; the number counts from 0."""
        dropped = [record for at, record in enumerate(self.records_of(POWER_READING)) if not wanted(at, record)]
        self.records = [record for record in self.records if record not in dropped]
        return self

    def set(self, key: str, value: Any, which: int = 0, **metadata: Any) -> Self:
        """Change the value of a record of the key."""
        record = self.records_of(key)[which]
        record["value"] = value
        record["metadata"].update(metadata)
        return self

    def convert(self, change: Callable[[list[float]], list[float]]) -> Self:
        """Replace the readings, in the order of time, by as many others."""
        readings = self.records_of(POWER_READING)
        for record, watts in zip(readings, change([record["value"] for record in readings]), strict=True):
            record["value"] = watts
        return self

    def shift(self, by_ms: float, first: int = 0, last: int | None = None) -> Self:
        """Move the times of the records from `first` up to but excluding `last`."""
        for record in self.records[first:last]:
            record["time_ms"] += by_ms
        return self


Content = SampleLog | bytes
Damage = Callable[[SamplePower], Any]
SYSTEM = "example_n64"


class SamplePackage:
    """The files of one organisation's folder; every method that changes it returns self."""

    def __init__(
        self, benchmark: str = "cosmoflow", round_: str = "3.0", division: str = "closed", **runs: Any
    ) -> None:
        """Make a package; `runs`: scaling, runs (their number), epochs (one for all, or a list), settings, variant."""
        self.benchmark, self.round, self.division = benchmark, round_, division
        self.scaling: str = runs.get("scaling", "strong")
        self.files: dict[str, Content] = {}
        self.links: dict[str, str] = {}
        self.waivers: dict[str, str] = {}
        self.folder = self._result_folder(self.scaling)
        self._count = runs.get("runs", require_reference(benchmark).runs)
        self._epochs = runs.get("epochs")
        self._same = {"settings": runs.get("settings"), "variant": runs.get("variant", FULL)}
        self._add_runs(self.folder, self._count, 0)
        self.fields: dict[str, Any] = dict.fromkeys(FIELDS, "some") | {
            "submitter": "Example University",
            "division": division,
            "status": "onprem",
            "system_name": SYSTEM,
            "number_of_nodes": "16",
            "host_processors_per_node": "2",
            "accelerators_per_node": "4",
            "framework": "PyTorch",
        }
        self.system()
        self.code()

    def _result_folder(self, scaling: str) -> str:
        middle = [] if self.round == "0.7" else [scaling]
        return posixpath.join("results", SYSTEM, *middle, self.benchmark)

    def _add_runs(
        self, folder: str, count: int, first: int, change: Callable[[SampleLog], Any] = lambda log: log
    ) -> None:
        for number in range(count):
            length = self._epochs[number] if isinstance(self._epochs, list) else self._epochs
            log = SampleLog(self.benchmark, self.round, self.division, first + number + 1, length, **self._same)
            change(log)
            self.files[f"{folder}/result_{number + 1}.txt"] = log

    def _find_log(self, number: int) -> SampleLog:
        log = self.files[f"{self.folder}/result_{number}.txt"]
        assert isinstance(log, SampleLog)
        return log

    def edit_all(self, change: Callable[[SampleLog], Any], count: int | None = None) -> Self:
        """Change all logs of the result, or the first of them: result_1.txt and so on."""
        for number in range(1, (count or self._count) + 1):
            self.edit(number, change)
        return self

    def edit(self, number: int, change: Callable[[SampleLog], Any]) -> Self:
        """Change the log result_<number>.txt."""
        change(self._find_log(number))
        return self

    def by_suite(self, changes: Mapping[str, Any] | None = None) -> Self:
        """Add the records of this suite to all logs, see `SampleLog.by_suite`, and code of the hash that they state."""
        files = {f"{folder}/train.py": b"print('training')\n" for folder in ("common", self.benchmark)}
        hash_ = hash_files(("common", self.benchmark), files, files.__getitem__)
        self.edit_all(lambda log: log.by_suite(changes).provenance(source_sha256=hash_))
        folder = f"benchmarks/{self.benchmark}/{IMPLEMENTATIONS}/torch"
        self.files |= {f"{folder}/{name}": content for name, content in files.items()}
        return self

    def record_files(self) -> Self:
        """Add the provenance.json that lists the files as they are now."""
        contents = {path: file if isinstance(file, bytes) else file.bytes() for path, file in self.files.items()}
        files = {path: {"bytes": len(data), "sha256": sha256(data).hexdigest()} for path, data in contents.items()}
        record = {
            "organisation": "Example",
            "complete": True,
            "incomplete": {},
            "logs": {},
            "configurations": {},
            "implementations": {},
            "files": files,
        }
        return self.replace(PROVENANCE_FILE, json.dumps(record).encode())

    def copy(self, source: int, target: int) -> Self:
        """Replace one log by a copy of another."""
        self.files[f"{self.folder}/result_{target}.txt"] = deepcopy(self._find_log(source))
        return self

    def copy_to(self, system: str) -> Self:
        """Submit the same logs also for a second system."""
        for path, content in list(self.files.items()):
            self.files[path.replace(SYSTEM, system)] = deepcopy(content)
        return self

    def prune(self, count: int, change: Callable[[SampleLog], Any] = lambda log: log) -> Self:
        """Add pruned logs, each changed by `change`."""
        self._add_runs(f"{self.folder}/pruned_results", count, 500, change)
        return self

    def power(
        self, node: Damage | None = None, switch: Damage | None = None, nodes: int = 2, margin_ms: int = 1000
    ) -> Self:
        """Make the runs short, on few nodes, and measure them from margin_ms before to after; call it last.

        node, switch: change node_1.txt and sw_0.txt of the first run.
        """
        self.system(number_of_nodes=str(nodes))
        for number in range(1, self._count + 1):
            log, folder = self._find_log(number), f"{self.folder}/power/result_{number}"
            first = log.records[0]["time_ms"]
            # Runs are made shorter before power files are written for them.
            log.set("number_of_nodes", nodes).times(lambda time_ms, first=first: first + (time_ms - first) // 20)  # type: ignore[misc]
            start_ms, stop_ms = (log.records_of(key)[-1]["time_ms"] for key in ("run_start", "run_stop"))
            files = [SamplePower.node(start_ms - margin_ms, stop_ms + margin_ms, at) for at in range(nodes)]
            files.append(SamplePower.switch(start_ms, stop_ms, 0))
            for file, change in zip(files[-2:], (node, switch), strict=True):
                if change is not None and number == 1:
                    change(file)
            self.files |= {f"{folder}/{file.host}.txt": file.bytes() for file in files}
        return self

    def with_time_to_train(self) -> Self:
        """Add a time-to-train result of other runs of the same system and benchmark."""
        self._add_runs(self._result_folder("strong"), require_reference(self.benchmark).runs, 200)
        return self

    def start_together(self) -> Self:
        """Let all runs start at the same time (the times still differ a little)."""
        return self.edit_all(lambda log: log.times(lambda time_ms: time_ms - (log.run - 1) * 10_000_000))

    def system(self, **fields: Any) -> Self:
        """Change fields of the system description; None removes one."""
        self.fields = {name: value for name, value in (self.fields | fields).items() if value is not None}
        self.files[f"systems/{SYSTEM}.json"] = json.dumps(self.fields, indent=1).encode()
        return self

    def rename_folder(self, name: str) -> Self:
        """Give the result folder, and that of its code, another benchmark's name."""
        self.move(f"benchmarks/{self.benchmark}", f"benchmarks/{name}")
        return self.move(self.folder, posixpath.join(posixpath.dirname(self.folder), name))

    def rename_runs(self, pattern: str) -> Self:
        """Give the logs other names: `pattern` with {} for the number."""
        for number in range(1, self._count + 1):
            self.files[f"{self.folder}/{pattern.format(number)}"] = self.files.pop(f"{self.folder}/result_{number}.txt")
        return self

    def file(self, name: str, text: str) -> Self:
        """Add a file, relative to the result folder."""
        return self.replace(posixpath.normpath(posixpath.join(self.folder, name)), text.encode())

    def code(self, implementation: str = "torch") -> Self:
        """Add an implementation, and how the system runs it."""
        benchmark = f"benchmarks/{self.benchmark}"
        own = f"{benchmark}/{SYSTEM}"
        self.files[f"{benchmark}/{IMPLEMENTATIONS}/{implementation}/train.py"] = b"print('training')\n" * 150
        self.files[f"{own}/{SYSTEM}_{implementation}.json"] = json.dumps({"implementation": implementation}).encode()
        self.files[f"{own}/{README_FILE}"] = b"# How to run\n"
        self.files |= {f"{own}/{script}": b"#!/usr/bin/env bash\necho done\n" for script in SCRIPTS}
        return self

    def link(self, name: str, target: str) -> Self:
        """Add a symbolic link, relative to the result folder."""
        self.links[posixpath.normpath(posixpath.join(self.folder, name))] = target
        return self

    def waive(self, name: str, reason: str = "agreed in review") -> Self:
        """Check the package with a waiver of this name."""
        self.waivers[name] = reason
        return self

    def replace(self, path: str, content: bytes) -> Self:
        """Set the contents of a file, relative to the package."""
        self.files[path] = content
        return self

    def change(self, path: str, edit: Callable[[bytes], bytes]) -> Self:
        """Change the bytes of a file, relative to the package."""
        content = self.files[path]
        return self.replace(path, edit(content if isinstance(content, bytes) else content.bytes()))

    def move(self, old: str, new: str) -> Self:
        """Move a file or folder."""
        for path in [path for path in self.files if f"{path}/".startswith(f"{old}/")]:
            self.files[new + path[len(old) :]] = self.files.pop(path)
        return self

    def remove(self, path: str) -> Self:
        """Remove a file or folder."""
        self.files = {p: c for p, c in self.files.items() if p != path and not p.startswith(path + "/")}
        return self

    def write(self, folder: str | os.PathLike[str]) -> str:
        """Write everything into a folder and return its path."""
        root = Path(folder)
        for path in (*self.files, *self.links):
            (root / path).parent.mkdir(parents=True, exist_ok=True)
        for path, content in self.files.items():
            (root / path).write_bytes(content if isinstance(content, bytes) else content.bytes())
        for path, target in self.links.items():
            (root / path).symlink_to(target)
        return os.fspath(folder)
