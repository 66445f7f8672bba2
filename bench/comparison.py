"""Compare training steps of this suite with those of a peer, in the same run: the part that all benchmarks share."""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import machine
from records import add_keep_option, keep_record, write_record
from table import Page, Results, ratio_of
from workers import Case, Worker

# Workers inherit how OpenMP's threads wait in training: this sets a variable that is read when torch is loaded.
import common  # noqa: F401

ROOT = Path(__file__).resolve().parents[1]


@dataclass(frozen=True)
class Peer:
    """What ours is compared with: a script, the Python that runs it, and its case for one of ours, None for no peer."""

    script: str
    python: str = sys.executable
    case: Callable[[Case], Case | None] = lambda case: case


@dataclass(frozen=True)
class Comparison:
    """What a benchmark gives.

    script: our side.
    one_core: cases on one thread, in each number format, against the peer. all_cores: in the best format, against the
        peer. reading: on all cores, with the loader. accelerator: the last of them with the loader too.
    kinds: of files that the loader reads; synthesize(folder, case, kind) makes some for a case.
    """

    name: str
    page: Page
    script: str
    peer: Peer | None
    one_core: tuple[Case, ...]
    all_cores: tuple[Case, ...]
    reading: tuple[Case, ...]
    accelerator: tuple[Case, ...]
    kinds: tuple[str, ...]
    synthesize: Callable[[Path, Case, str], None]

    def measured(self, case: Case, turns: int, folder: Path | None = None) -> dict[str, Any]:
        """Return what a step of the case took on both sides; with a folder, of ours with the loader on its files."""
        starts: dict[str, Callable[[], Worker]] = {
            "ours": partial(Worker, self.script, sys.executable, case, *([str(folder)] if folder else []))
        }
        if self.peer and not folder and case.device == "cpu" and (theirs := self.peer.case(case)):
            starts["peer"] = partial(Worker, self.peer.script, self.peer.python, theirs)
        if case.alone:
            sides = {side: alternate({side: start()}, 1)[side] for side, start in starts.items()}
        else:
            sides = alternate({side: start() for side, start in starts.items()}, turns)
        if len({side["parameters"] for side in sides.values()}) != 1:
            sys.exit(f"the networks differ: {sides}")
        result = {"case": asdict(case), "network": case.network, **sides}
        tell(case, result, f" from {folder.name} files" if folder else "")
        return result

    def measure_each(self, turns: int, facts: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yield sections with a result each: one core, all cores, with reading; or those of the accelerator."""
        dtypes, best = facts["dtypes"], {"threads": facts["cores"], "dtype": facts["dtypes"][-1]}
        if facts["device"] != "cpu":
            sections = {"accelerator": [replace(case, device=facts["device"], **best) for case in self.accelerator]}
            reading = sections["accelerator"][-1:]
        else:
            sections = {
                "one core": [replace(case, dtype=dtype) for case in self.one_core for dtype in dtypes],
                "all cores": [replace(case, **best) for case in self.all_cores],
            }
            reading = [replace(case, **best) for case in self.reading]
        for section, cases in sections.items():
            for case in cases:
                yield section, self.measured(case, turns)
        for result in self._reading(reading, turns):
            yield "reading", result

    def _reading(self, cases: Iterable[Case], turns: int) -> Iterable[dict[str, Any]]:
        with tempfile.TemporaryDirectory(prefix=f"bench-{self.name}-") as name:
            for number, case in enumerate(cases):
                for kind in self.kinds:
                    folder = Path(name, str(number), kind)
                    self.synthesize(folder, case, kind)
                    yield self.measured(case, turns, folder) | {"files": kind}


def alternate(workers: dict[str, Worker], turns: int) -> dict[str, dict[str, Any]]:
    """Return what each worker says, made by turns; all have warmed up before the first."""
    try:
        facts = {side: worker.read() for side, worker in workers.items()}
        found: dict[str, list[dict[str, Any]]] = {side: [] for side in workers}
        for _ in range(turns):
            for side, worker in workers.items():
                found[side].append(worker.turn())
    finally:
        for worker in workers.values():
            worker.close()
    return {side: summary(facts[side], found[side]) for side in workers}


def summary(facts: dict[str, Any], turns: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the facts with the medians of the turns, and each turn's CPU seconds per step."""
    medians = {key: median(turn[key] for turn in turns) for key in turns[0]}
    return facts | medians | {"cpu_s_of_turns": [turn["cpu_s"] for turn in turns]}


def tell(case: Case, result: dict[str, Any], files: str) -> None:
    """Print a line about the result to standard error."""
    ours, ratio = result["ours"]["cpu_s"] / case.batch * 1e3, ratio_of(result)
    against = f", {ratio:.2f} of the peer's" if ratio else ""
    where = f"threads {case.threads}" if case.device == "cpu" else case.device
    print(
        f"{case.network} batch {case.batch} {case.dtype} {where}{files}: {ours:.1f} ms CPU per sample{against}",
        file=sys.stderr,
    )


def run_module(*words: object) -> None:
    """Run a module of this suite, without its output."""
    command = [sys.executable, "-m", *map(str, words)]
    subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.DEVNULL)


def facts_of(device: str) -> dict[str, Any]:
    """Return what is measured on: `machine.about`, cores, the device, and the formats that it computes best."""
    code = (
        "import torch; from common.device import find_device_type;"
        "from common.precision import Precision, PrecisionConfig;"
        f"kind = find_device_type({device!r}); print(kind, Precision(PrecisionConfig(), torch.device(kind)).name)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True, capture_output=True, text=True)
    kind, best = done.stdout.split()
    dtypes = ["fp32"] if best == "fp32" else ["fp32", best]
    return machine.about() | {"cores": machine.cores(), "device": kind, "dtypes": dtypes}


def run(comparison: Comparison, given: argparse.Namespace) -> int:
    """Measure, print the tables, write them if asked to; return 1 if the peer takes less CPU time somewhere."""
    if given.beside:
        page = replace(comparison.page, peer="The peer is this suite as it is in another checkout.")
        peer = Peer(str(given.beside.resolve() / "bench" / comparison.script))
        comparison = replace(comparison, page=page, peer=peer)
    facts = facts_of(given.device)
    results: Results = {}
    for section, result in comparison.measure_each(given.turns or (3 if given.quick else 5), facts):
        results.setdefault(section, []).append(result)
        facts["load_at_end"] = machine.about()["load"]
        if given.keep:  # after each, so that an interrupted run keeps what it measured
            write_record(comparison.name, {**facts, "results": results})
    print(comparison.page.table(results, facts))
    if given.keep:
        keep_record(comparison.name, {**facts, "results": results})
    ratios = [ratio_of(result) for result in results.get("one core", [])]
    return 0 if all(ratio is None or ratio > 1 for ratio in ratios) else 1


def parser(doc: str | None) -> argparse.ArgumentParser:
    """Return a parser of the arguments that all comparisons have, to which a benchmark adds its own."""
    arguments = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--quick", action="store_true", help="small networks only")
    arguments.add_argument("--device", default="cpu", help="cpu (default), cuda, or auto for the accelerator")
    arguments.add_argument("--turns", type=int, help="turns of each side (default: 5, or 3 with --quick)")
    arguments.add_argument(
        "--beside", type=Path, metavar="CHECKOUT", help="the peer is this suite as it is in another checkout"
    )
    add_keep_option(arguments)
    return arguments
