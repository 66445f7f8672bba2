"""Hundreds of damaged packages for the comparison with the official package checker; the same ones in every run.

A `Mutation` damages a `SamplePackage`: its files and names, its system description, or the records of some of its logs.
"""

from __future__ import annotations

import json
import math
import random
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from compliance.samples.log import SampleLog
from compliance.samples.package import SYSTEM, SamplePackage
from tests.conformance.variants.logtext import TOKEN

SEED = 20_231_106
PAIRS = 60
RESULTS_FOLDER = f"results/{SYSTEM}"
DESCRIPTION = f"systems/{SYSTEM}.json"
ONE, TWO, ALL = (2,), (2, 3), (1, 2, 3, 4, 5)


class Mutation(NamedTuple):
    """One thing to do to a package, and a name for it."""

    name: str
    apply: Callable[[SamplePackage], Any]


class Base(NamedTuple):
    """A valid package to damage: what `SamplePackage` is made with, or where a published one is in the corpus."""

    benchmark: str = "deepcam"
    round: str = "3.0"
    division: str = "closed"
    scaling: str = "strong"
    published: str = ""

    def package(self, corpus: Path | None = None) -> SamplePackage:
        """Return the valid package."""
        package = SamplePackage(self.benchmark, self.round, self.division, scaling=self.scaling)
        if self.published and corpus:
            _take(package, corpus / f"v{self.round}", self.published)
        return package


def _take(package: SamplePackage, folder: Path, published: str) -> None:
    """Replace logs and system description by published ones: `organisation/system`."""
    organisation, system = published.split("/")
    root = folder / organisation
    logs = sorted((root / "results" / system / package.scaling / package.benchmark).glob("result_*.txt"))
    package.remove(package.folder)
    for number, path in enumerate(logs, 1):
        log = SampleLog(package.benchmark, package.round, package.division)
        lines = path.read_bytes().decode("latin-1").encode().splitlines()
        log.records = [json.loads(line.rpartition(TOKEN)[2]) for line in lines if TOKEN in line]
        package.files[f"{package.folder}/result_{number}.txt"] = log
    package.fields = json.loads((root / "systems" / f"{system}.json").read_bytes())
    package.system()


PLAIN = Base()
OTHERS = (
    Base("oc20", "2.0"),
    Base("deepcam", "1.0", scaling="weak"),
    Base("oc20", "3.0", "open"),
    Base("cosmoflow", "3.0"),
)
PUBLISHED = (
    Base("deepcam", "2.0", published="Dell/32xXE8545x4A100-SXM4-40GB"),
    Base("openfold", "3.0", published="TACC/lonestar6-pytorch"),
)
NUMBERS: tuple[Any, ...] = (512.0, 256.0, "256", True, None, -1, 0, 0.5, 256.5, math.inf, math.nan, [256], 10**30)
SEEDS: tuple[Any, ...] = (
    *(1001, "1001", 1001.0, " 1001 ", 1001.5, True, None, "lucky", ""),
    *([1], {"a": 1}, -7, 0, 10**30, math.nan, math.inf),
)
EPOCHS: tuple[Any, ...] = ("9", None, [9], True, math.nan, math.inf, -1, 10**30, 1e9, 8.9999)
RESULTS: tuple[Any, ...] = ("0.9", None, [0.9], True, math.nan, 0.1, math.inf)
TEXTS: tuple[Any, ...] = (4, None, ["4"], {"a": "4"}, True, "", " 4 ")
DIVISIONS: tuple[Any, ...] = ("Closed", "open", "closed ", None, ["closed"], True, "")
NAMES: tuple[Any, ...] = ("oc20", "cosmoflow", "openfold", "resnet", "DeepCAM", None, ["deepcam"], "common", "", 3)


def edited(name: str, change: Callable[[SampleLog], Any], numbers: tuple[int, ...] = ONE) -> Mutation:
    """Return a mutation of some logs."""

    def apply(package: SamplePackage) -> None:
        for number in numbers:
            if isinstance(package.files.get(_path(package, number)), SampleLog):
                package.edit(number, change)

    which = {ONE: "one log", TWO: "two logs", ALL: "five logs"}[numbers]
    return Mutation(f"{name} in {which}", apply)


def _numbered(log: SampleLog, value: Any, which: int) -> None:
    log.meta(log.reference.target.key, "epoch_num", value, which)


def _shortened(package: SamplePackage, epochs: int, count: int = 99) -> None:
    for path in sorted(path for path in package.files if "/result_" in path)[:count]:
        if isinstance(package.files[path], SampleLog):
            _numbered(package.files[path], epochs, -1)


def _path(package: SamplePackage, number: int) -> str:
    return f"{package.folder}/result_{number}.txt"


def _bytes(package: SamplePackage, edit: Callable[[bytes], bytes]) -> None:
    if _path(package, 2) in package.files:
        package.change(_path(package, 2), edit)


def _copied(package: SamplePackage, name: str) -> None:
    package.file(name, "")
    package.files[f"{package.folder}/{name}"] = package.files[_path(package, 1)]


def _to_link(package: SamplePackage, target: str) -> None:
    package.remove(_path(package, 2)).link("result_2.txt", target)


def _described(package: SamplePackage, fields: dict[str, Any]) -> None:
    if DESCRIPTION in package.files:
        package.replace(DESCRIPTION, json.dumps(package.fields | fields).encode())


def _rewritten(package: SamplePackage, edit: Callable[[bytes], bytes]) -> None:
    if DESCRIPTION in package.files:
        package.change(DESCRIPTION, edit)


def _beside(package: SamplePackage, name: str) -> str:
    return f"{package.folder.rpartition('/')[0]}/{name}"


def _rescaled(package: SamplePackage, name: str) -> None:
    package.move(package.folder.rpartition("/")[0], f"results/{SYSTEM}/{name}")


def _flat(package: SamplePackage) -> None:
    package.move(package.folder, f"results/{SYSTEM}/{package.benchmark}")


def _unknown(package: SamplePackage) -> None:
    for number in (1, 2, 3):
        package.replace(_beside(package, f"resnet/result_{number}.txt"), b"nothing\n")


# -- the table ----------------------------------------------------------------------------------------------------

LINES = {
    "a list": TOKEN + b"[1, 2]",
    "null": TOKEN + b"null",
    "a number": TOKEN + b"3",
    "no JSON": TOKEN + b"{",
    "no metadata": TOKEN + b'{"time_ms": 1, "key": "k", "value": 1}',
    "no value": TOKEN + b'{"time_ms": 1, "key": "k", "metadata": {}}',
    "time as text": TOKEN + b'{"time_ms": "soon", "key": "k", "value": 1, "metadata": {}}',
    "no time": TOKEN + b'{"time_ms": null, "key": "k", "value": 1, "metadata": {}}',
    "deep": TOKEN + b'{"time_ms": 1, "key": "k", "metadata": {}, "value": ' + b"[" * 12_000 + b"]" * 12_000 + b"}",
    "another key": TOKEN + b'{"time_ms": 1, "key": "k", "value": 1, "metadata": {}}',
    "text": b"epoch 1",
    "an empty token": TOKEN,
}
FILES: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda data: b"",
    "of text only": lambda data: b"hello\n",
    "in UTF-16": lambda data: data.decode().encode("utf-16"),
    "cut in half": lambda data: data[: len(data) // 2],
    "with CRLF": lambda data: data.replace(b"\n", b"\r\n"),
    "with a byte order mark": lambda data: b"\xef\xbb\xbf" + data,
    "with Latin-1 bytes": lambda data: b"caf\xe9\n" + data,
    "twice": lambda data: data + data,
}
DESCRIPTIONS: dict[str, Callable[[bytes], bytes]] = {
    "with a byte order mark": lambda text: b"\xef\xbb\xbf" + text,
    "with a Latin-1 byte": lambda text: text.replace(b"some", b"caf\xe9", 1),
    "with UTF-8": lambda text: text.replace(b"some", "café".encode(), 1),
    "in UTF-16": lambda text: text.decode().encode("utf-16"),
    "as a list": lambda text: b"[" + text + b"]",
    "as text": lambda text: b'"closed"',
    "as null": lambda text: b"null",
    "as a number": lambda text: b"3",
    "empty": lambda text: b"",
    "with a comma more": lambda text: text.rstrip()[:-1] + b",}",
    "with NaN": lambda text: text.replace(b'"some"', b"NaN", 1),
    "with division twice": lambda text: text.replace(b"{", b'{"division": "open", ', 1),
    "deep": lambda text: text.replace(b'"some"', b"[" * 12_000 + b"]" * 12_000, 1),
    "with text behind": lambda text: text + b"x",
}
BESIDE = {
    "a file in results": "results/notes.md",
    "a file in the system": f"{RESULTS_FOLDER}/notes.md",
    "a folder with a file in the system": f"{RESULTS_FOLDER}/medium/notes.md",
    "a folder with a folder in the system": f"{RESULTS_FOLDER}/medium/deepcam/notes.md",
    "an empty benchmark": f"{RESULTS_FOLDER}/weak/deepcam/notes.md",
    "an unknown benchmark": f"{RESULTS_FOLDER}/strong/resnet/result_1.txt",
    "a system without description": "results/other/strong/deepcam/result_1.txt",
    "a system without description or known benchmark": "results/other/strong/resnet/x.txt",
    "a system without benchmarks": "results/other/strong/x.txt",
    "an empty system": "results/other/x.txt",
    "power of one run": f"{RESULTS_FOLDER}/strong/deepcam/power/result_1/node_0.txt",
    "documentation": "documentation/README.md",
}
PARAMETERS = (
    "rcp-bypass",
    "rcp-bypass\n",
    "seed-checker-bypass",
    "x\nrcp-bypass",
    "x\x0crcp-bypass",
    "rcp_bypass",
    "\xff",
)
CAUSES: dict[str, Callable[[SamplePackage], Any]] = {
    "too fast": lambda package: _shortened(package, 2),
    "two misses": lambda package: [package.edit(n, lambda log: log.meta("run_stop", "status", "no")) for n in TWO],
    "a seed twice": lambda package: package.edit(2, lambda log: log.set("seed", 1001)),
    "no seed": lambda package: package.edit(2, lambda log: log.drop("seed")),
}
MUTATIONS: tuple[Mutation, ...] = (
    Mutation("valid", lambda package: package),
    *(
        edited(f"batch size {value!r}", lambda log, v=value: log.set("global_batch_size", v), numbers)
        for value in NUMBERS
        for numbers in (ONE, ALL)
    ),
    edited("no batch size", lambda log: log.drop("global_batch_size")),
    edited("no batch size", lambda log: log.drop("global_batch_size"), ALL),
    edited("two equal batch sizes", lambda log: log.double("global_batch_size")),
    edited("two batch sizes", lambda log: log.double("global_batch_size", value=99)),
    *(edited(f"seed {value!r}", lambda log, v=value: log.set("seed", v)) for value in SEEDS),
    *(edited(f"seed {value!r}", lambda log, v=value: log.set("seed", v), ALL) for value in ("lucky", 7, None)),
    edited("no seed", lambda log: log.drop("seed")),
    edited("no seed", lambda log: log.drop("seed"), ALL),
    edited("its seed twice", lambda log: log.double("seed")),
    edited("a second seed", lambda log: log.double("seed", value=77)),
    edited("another's seed as second", lambda log: log.double("seed", value=1001)),
    edited("another's seed from another line", lambda log: log.set("seed", 1001).meta("seed", "lineno", 7)),
    edited("another's seed from a text line", lambda log: log.set("seed", 1001).meta("seed", "lineno", "104")),
    edited("another's seed from line 104.0", lambda log: log.set("seed", 1001).meta("seed", "lineno", 104.0)),
    *(
        mutation
        for field in ("file", "lineno")
        for mutation in (
            edited(f"no {field} of the seed", lambda log, f=field: log.meta("seed", f, None)),
            edited(f"a list as {field} of the seed", lambda log, f=field: log.meta("seed", f, [1])),
        )
    ),
    *(
        edited(f"{where} epoch_num {value!r}", lambda log, v=value, w=which: _numbered(log, v, w))
        for value in EPOCHS
        for where, which in (("first", 0), ("last", -1))
    ),
    edited("no epoch_num", lambda log: log.meta(log.reference.target.key, "epoch_num", None)),
    edited("infinite epochs", lambda log: _numbered(log, math.inf, -1), TWO),
    *(edited(f"last result {value!r}", lambda log, v=value: log.last_evaluation(v)) for value in RESULTS),
    edited("a miss", lambda log: log.last_evaluation(0.5), TWO),
    edited("a result after the run", lambda log: log.add_evaluation(0.9, after="run_stop")),
    edited("no results", lambda log: log.drop(log.reference.target.key)),
    Mutation("too fast", lambda package: _shortened(package, 2)),
    *(Mutation(f"{faster} runs much faster", lambda package, n=faster: _shortened(package, 2, n)) for faster in (1, 3)),
    *(
        edited(f"status {status!r}", lambda log, s=status: log.meta("run_stop", "status", s))
        for status in ("aborted", None, "success ", ["success"])
    ),
    edited("status 'aborted'", lambda log: log.meta("run_stop", "status", "aborted"), TWO),
    edited("no run_stop", lambda log: log.drop("run_stop")),
    edited("no run_stop", lambda log: log.drop("run_stop"), TWO),
    edited("two run_stop", lambda log: log.double("run_stop")),
    edited("no number of nodes", lambda log: log.drop("number_of_nodes")),
    edited("dead before its settings", lambda log: log.cut("number_of_nodes")),
    edited("dead in the middle", lambda log: log.cut("epoch_stop")),
    *(
        edited(f"benchmark {value!r}", lambda log, v=value: log.set("submission_benchmark", v), numbers)
        for value in NAMES
        for numbers in (ONE, ALL)
    ),
    edited("no benchmark", lambda log: log.drop("submission_benchmark")),
    edited("two benchmarks", lambda log: log.double("submission_benchmark", value="oc20")),
    *(edited(f"division {value!r}", lambda log, v=value: log.set("submission_division", v)) for value in DIVISIONS),
    edited("division 'open'", lambda log: log.set("submission_division", "open"), ALL),
    edited("another learning rate", lambda log: log.set("opt_lr", 0.1)),
    edited("unknown schedule", lambda log: log.set("scheduler_type", "poly")),
    *(
        Mutation(f"line {name}", lambda package, line=line: _bytes(package, lambda data: data + line + b"\n"))
        for name, line in LINES.items()
    ),
    *(Mutation(f"a log {name}", lambda package, e=edit: _bytes(package, e)) for name, edit in FILES.items()),
    Mutation("a run less", lambda package: package.remove(_path(package, 2))),
    Mutation("no runs", lambda package: package.rename_runs("run_{}.txt")),
    Mutation("a copy as a run more", lambda package: _copied(package, "result_99.txt")),
    *(
        Mutation(f"as {name}", lambda package, n=name: package.move(_path(package, 2), f"{package.folder}/{n}"))
        for name in ("result_a.txt", "result_.txt", "result_2.log", "Result_2.txt", ".result_2.txt", "result_2 .txt")
    ),
    *(
        Mutation(f"with {name}", lambda package, n=name: package.file(n, "text"))
        for name in ("notes.md", "result_9.log", "node.txt", "sub/notes.md", "pruned_results/notes.md")
    ),
    Mutation("a folder named result_66.txt", lambda package: package.file("result_66.txt/notes.md", "text")),
    Mutation("a folder for a log", lambda p: p.remove(_path(p, 2)).file("result_2.txt/notes.md", "text")),
    Mutation("a link to nothing", lambda package: package.link("result_66.txt", "nowhere")),
    Mutation("a link to nothing for a log", lambda package: _to_link(package, "nowhere")),
    Mutation("a link to another log", lambda package: _to_link(package, "result_1.txt")),
    Mutation("a copied log", lambda package: package.copy(1, 2)),
    Mutation("pruned logs", lambda package: package.prune(2)),
    Mutation("bad pruned logs", lambda package: package.prune(2, lambda log: log.drop("run_stop"))),
    *(
        Mutation(f"scaling.json {text}", lambda package, t=text: package.file("scaling.json", t))
        for text in ('{"scaling_factor": 1.2}', "no JSON", "[]")
    ),
    Mutation("scaling.json as folder", lambda package: package.file("scaling.json/a", "")),
    *(
        Mutation(f"{field} {value!r}", lambda package, f=field, v=value: _described(package, {f: v}))
        for field in ("accelerators_per_node", "framework", "number_of_nodes", "hw_notes", "system_type")
        for value in TEXTS
    ),
    *(
        Mutation(f"described division {value!r}", lambda package, v=value: _described(package, {"division": v}))
        for value in DIVISIONS
    ),
    *(
        Mutation(f"without {field}", lambda package, f=field: package.system(**{f: None}))
        for field in ("division", "cooling", "submitter")
    ),
    *(
        Mutation(f"description {name}", lambda package, e=edit: _rewritten(package, e))
        for name, edit in DESCRIPTIONS.items()
    ),
    *(
        Mutation(f"systems/{name} with text", lambda package, n=name: package.replace(f"systems/{n}", b"x"))
        for name in ("other.json", ".hidden.json", "other.JSON", "notes.txt", "dir.json/x")
    ),
    Mutation("a second description", lambda package: package.replace("systems/b.json", package.files[DESCRIPTION])),
    Mutation("an empty second description", lambda package: package.replace("systems/b.json", b"{}")),
    Mutation("no description", lambda package: package.remove(DESCRIPTION)),
    Mutation("no systems", lambda package: package.remove("systems")),
    Mutation("no results", lambda package: package.remove("results")),
    Mutation("results as a file", lambda package: package.remove("results").replace("results", b"")),
    Mutation("another system name", lambda package: package.move(RESULTS_FOLDER, "results/other")),
    *(
        Mutation(f"{name!r} for the scaling", lambda package, n=name: _rescaled(package, n))
        for name in ("medium", "Strong", "strong ", "weak")
    ),
    *(
        Mutation(f"in folder {name}", lambda package, n=name: package.move(package.folder, _beside(package, n)))
        for name in ("resnet", "DeepCam", "cosmoflow", "oc20", "openfold")
    ),
    Mutation("flat", _flat),
    Mutation("flat, one run", lambda package: _flat(package.remove(_path(package, 2)))),
    Mutation("flat, with a folder inside", lambda package: _flat(package.file("sub/x", ""))),
    *(Mutation(f"with {name}", lambda package, p=path: package.replace(p, b"text\n")) for name, path in BESIDE.items()),
    Mutation("an unknown benchmark with a run that fails", _unknown),
    *(
        Mutation(
            f"{name}, {place} {text!r}",
            lambda package, p=place, t=text, c=cause: (c(package), package.file(p, t)),
        )
        for place in ("package_checker_params", "../../package_checker_params")
        for text in PARAMETERS
        for name, cause in CAUSES.items()
    ),
    Mutation("parameters as folder", lambda package: package.file("package_checker_params/x", "")),
    Mutation(
        "parameters in Latin-1",
        lambda package: package.replace(f"{RESULTS_FOLDER}/package_checker_params", b"caf\xe9\n"),
    ),
)
"""Every single damage."""


class Case(NamedTuple):
    """A damaged package: a name of its own, what it was before, and the damages."""

    name: str
    base: Base
    mutations: tuple[Mutation, ...]

    def write(self, folder: Path, corpus: Path | None) -> Path:
        """Write the package and return its path."""
        package = self.base.package(corpus)
        for number, one in enumerate(self.mutations):
            # The first damage may have taken away what the second would change.
            with suppress(*((IndexError, KeyError) if number else ())):
                one.apply(package)
        return Path(package.write(folder / "Example"))


def cases(published: bool) -> Iterator[Case]:
    """Yield every damage alone on one base, every seventh on each other one, and pairs."""
    for one in MUTATIONS:
        yield Case(one.name, PLAIN, (one,))
    valid, *damages = MUTATIONS
    for start, base in enumerate(OTHERS + (PUBLISHED if published else ())):
        for one in (valid, *damages[start::7]):
            yield Case(f"{' '.join(base)}: {one.name}", base, (one,))
    rng = random.Random(SEED)
    for number in range(PAIRS):
        one, other = rng.sample(damages, 2)
        yield Case(f"pair {number}: {one.name}; {other.name}", PLAIN, (one, other))
