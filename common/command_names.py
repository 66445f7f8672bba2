"""The commands of the console script `mlperf-hpc`: what its help lists, and by what name texts call a module."""

from __future__ import annotations

import re
from functools import cache
from typing import Final, NamedTuple

from common.version import PROGRAM

BENCHMARK: Final = "BENCHMARK"
"""Placeholder for the package of a benchmark, which the user names after the command."""


class Command(NamedTuple):
    """A command, or a group of commands.

    module: the module that it runs, and the module's first argument if it has one; "": a group. summary: for --help.
    argument: what the help shows after the name.
    """

    module: str
    summary: str
    argument: str = ""


GROUPS: Final = {
    "Check results": {
        "check": Command("compliance.check", "check logs, result sets, packages and repositories", "PATH"),
        "rcp": Command("", "show reference convergence points, or record some", "COMMAND"),
        "rcp show": Command("compliance.rcp.__main__ show", "show the tables of convergence points"),
        "rcp record": Command("compliance.rcp.__main__ record", "make a table from reference runs, or add runs to it"),
        "demo": Command("compliance.demo", "make example logs, good and bad, and check them"),
    },
    "Train": {
        "data": Command("", "make, download, convert and verify datasets", "COMMAND"),
        "data synthesize": Command(
            "BENCHMARK.synthesize", "generate data from physics: the mini problem, or full-size samples"
        ),
        "data fetch": Command("BENCHMARK.fetch", "download published data, verify and unpack them"),
        "data prepare": Command("BENCHMARK.prepare", "convert published data; list and verify checksums"),
        "data split": Command("BENCHMARK.split", "split published files into training and validation (deepcam)"),
        "data summarize": Command("BENCHMARK.summarize", "compute statistics of the training data (deepcam)"),
        "train": Command("BENCHMARK.train", "train to the quality target and write the result log"),
        "evaluate": Command("BENCHMARK.evaluate", "measure the quality of a checkpoint"),
        "predict": Command("BENCHMARK.predict", "write the predictions of a checkpoint"),
        "weights": Command("", "export the weights of a checkpoint", "COMMAND"),
        "weights export": Command("common.export", "write the weights of a checkpoint as safetensors"),
        "new-benchmark": Command("common.new_benchmark", "write a benchmark of your own as a package", "NAME"),
    },
    "Measure": {
        "measure": Command("BENCHMARK.measure", "measure training steps in minutes, without a dataset"),
        "measure roofline": Command(
            "common.measure.__main__ roofline", "measure what the machine allows, and what limits these steps"
        ),
        "measure power": Command("common.measure.__main__ power", "record the power of this node"),
        "accept": Command("submission.accept.__main__", "compare this machine with its baseline", "BASELINE"),
        "study": Command("submission.study.__main__", "make runs over axes, and fit and draw their curves", "PLAN"),
    },
    "Submit": {
        "round": Command("submission.round.__main__", "train all runs of a round, package and check them"),
        "submit": Command("", "describe the machine, make a package, verify its files", "COMMAND"),
        "submit system": Command(
            "submission.system.__main__", "describe this machine or the nodes of a job, or check a description"
        ),
        "submit assemble": Command(
            "submission.assemble.__main__", "make a submission package from the logs of finished runs"
        ),
        "submit manifest": Command("submission.manifest", "verify that no file of a package has changed"),
        "summary": Command("submission.summary", "show results as tables, or compare two of them", "PATH"),
        "report": Command("submission.report", "write results as a page, and analyse them", "PATH"),
        "integrations": Command("submission.integrations", "write what ReFrame, JUBE, Ramble, Spack run", "DIR"),
    },
}
"""The commands by the heading of the help. A command of two words follows its first word, which the help shows."""
COMMANDS: Final = {name: command for commands in GROUPS.values() for name, command in commands.items()}
RENAMED: Final = {
    **{word: f"{PROGRAM} data {word}" for word in ("synthesize", "fetch", "prepare", "split", "summarize")},
    **{word: f"{PROGRAM} submit {word}" for word in ("system", "assemble", "manifest")},
    **dict.fromkeys(
        ("baselines", "evaluate baselines"), "python bench/baselines.py BENCHMARK, in a clone of the suite"
    ),
    "export": f"{PROGRAM} weights export",
    **dict.fromkeys(
        ("convert_checkpoint", "weights convert"),
        "python bench/parity/convert.py BENCHMARK IN OUT, in a clone of the suite",
    ),
    "measure dlio": "DLIO's own workload of CosmoFlow: dlio_benchmark workload=cosmoflow_h100",
    "compare": "python -m submission.summary A --compare B (a measurement: python -m submission.summary fom.json)",
    "analysis": "python -m submission.report PATH... --data FOLDER",
    "cost": "python -m submission.summary PATH... --runs",
}
"""The present call of each command that had another name."""


def replace_modules(text: str, program: str) -> str:
    """Return the text with the commands `python -m MODULE` as those of the program."""
    names = _list_modules()

    def rename(match: re.Match[str]) -> str:
        package, module = match.groups()
        if name := names.get(f"{package}.{module}"):
            return f"{program} {name}"
        name = names.get(f"{BENCHMARK}.{module}")
        return f"{program} {name} {package}" if name else match[0]

    return re.sub(r"python -m (\w+)\.(\w+)", rename, text)


@cache
def _list_modules() -> dict[str, str]:
    """Return the name of the command that runs each module."""
    names = {}
    for name, command in COMMANDS.items():
        module, *arguments = command.module.replace(".__main__", "").split() or [""]
        names[module] = name.removesuffix("".join(f" {word}" for word in arguments))
    return names
