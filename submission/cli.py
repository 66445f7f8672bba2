"""The console script `mlperf-hpc`: every command of the suite under one name, besides `python -m MODULE`.

It is above all other modules, and imports that of a command only when the command is called: the checker starts
without torch.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Final

from common.benchmarks import (
    PACKAGES,
    SHARED,
    PluginError,
    choose_plugins,
    find_package,
    import_facts,
    list_benchmarks,
    require_package,
)
from common.command import PROGRAM, UsageError, as_called, checked_output, suggest_name
from common.extras import missing_extra
from compliance import __version__

BENCHMARK: Final = "BENCHMARK"
"""Placeholder for the package of a benchmark, which the user names after the command."""
COMMANDS: Final = {
    "Check results": {
        "check": ("compliance.check", "check logs, result sets, packages and repositories"),
        "rcp": ("compliance.rcp.__main__", "show reference convergence points, or record a table of your own"),
    },
    "Make data": {
        "synthesize": ("BENCHMARK.synthesize", "generate data from physics: the mini problem, or full-size samples"),
        "fetch": ("BENCHMARK.fetch", "download published data, verify and unpack them"),
        "split": ("BENCHMARK.split", "split published files into training and validation (deepcam)"),
        "summarize": ("BENCHMARK.summarize", "compute statistics of the training data (deepcam)"),
        "prepare": ("BENCHMARK.prepare", "convert published data; list and verify checksums"),
    },
    "Train": {
        "train": ("BENCHMARK.train", "train to the quality target and write the result log"),
        "evaluate": ("BENCHMARK.evaluate", "measure the quality of a checkpoint on the validation set"),
        "predict": ("BENCHMARK.predict", "write the predictions of a checkpoint"),
        "baselines": ("BENCHMARK.baselines", "show what classical methods reach on the mini problem"),
        "export": ("common.export", "write the weights of a checkpoint as safetensors"),
        "convert_checkpoint": ("BENCHMARK.convert_checkpoint", "convert weights from the reference code, or to it"),
    },
    "Measure": {
        "measure": ("BENCHMARK.measure", "measure training steps in minutes, without a dataset"),
        "study": ("submission.study.__main__", "make runs over axes, and fit and draw their curves; papers as presets"),
        "accept": ("submission.accept.__main__", "measure several times, and compare the machine with its baseline"),
        "measure roofline": ("common.measure.__main__", "measure what the machine allows, and what limits these steps"),
        "measure power": ("common.measure.__main__", "record the power of this node"),
        "measure dlio": ("common.measure.__main__", "write a workload for DLIO, to test storage"),
    },
    "Submit": {
        "round": ("submission.round.__main__", "train all runs of a round, package and check them"),
        "system": ("submission.system.__main__", "describe this machine or the nodes of a job, or check a description"),
        "assemble": ("submission.assemble.__main__", "make a submission package from the logs of finished runs"),
        "manifest": ("submission.manifest", "verify that no file of a package has changed"),
    },
    "Read results": {
        "summary": ("submission.summary", "show results or runs as tables, or compare two results"),
        "report": ("submission.report", "write results as a page, and analyse them: scaling, variation, projections"),
    },
}
"""The module and summary of each command, by group. Commands that no benchmark has are not shown.

The second word of a command in two words is the first argument of its module.
"""
RENAMED: Final = {
    "compare": "python -m submission.summary A --compare B (a measurement: python -m submission.summary fom.json)",
    "analysis": "python -m submission.report PATH... --data FOLDER",
    "cost": "python -m submission.summary PATH... --runs",
}
"""The present call of each command that had another name."""
ALL_COMMANDS: Final = {name: command for commands in COMMANDS.values() for name, command in commands.items()}

HEAD: Final = f"""\
usage: {PROGRAM} COMMAND ...

Train the MLPerf HPC benchmarks, check result logs, make and compare submissions.
"""
FROM: Final = "--benchmarks-from"
SUITE_ONLY: Final = "--no-plugins"
EXAMPLES: Final = f"""
examples:
  {PROGRAM} check logs/                         PASS or FAIL, with every finding
  {PROGRAM} train cosmoflow mini train.seed=7   the mini problem, on a laptop
  {PROGRAM} train cosmoflow --list-configs      configurations by name
  {PROGRAM} round --config mini --runs 1        one run of each benchmark, a package and a report
  {PROGRAM} {FROM} DIR COMMAND       also benchmarks whose packages are in DIR
  {PROGRAM} {SUITE_ONLY} COMMAND                benchmarks of the suite only, no installed ones

`{PROGRAM} COMMAND --help` shows the options of a command. Each command is also a module, for launchers:
`torchrun --nproc-per-node 4 -m cosmoflow.train mini`, `python -m compliance.check logs/`."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; return its exit status, 2 for an unknown command, or 1 if an extra is missing."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    try:
        _obey_options(words)
        if not words or words[0] in ("-h", "--help", "help"):
            return _print(render_usage(), 0 if words else 2)
        if words[0] in RENAMED:
            return answer_renamed(words[0])
        if words[0] == "--version":
            return _print(f"mlperf-hpc-suite {__version__}", 0)
        if words[1:] in (["-h"], ["--help"]) and (text := render_benchmark_usage(words[0])):
            return _print(text, 0)
        module, rest = resolve_command(words)
    except UsageError as error:
        return _print(f"error: {error}", 2)
    return _run_module(module, rest)


def _obey_options(words: list[str]) -> None:
    """Take the options off the words before the command and obey them; UsageError for those that cannot be."""
    folders, suite_only = [], False
    while words and words[0].partition("=")[0] in (FROM, SUITE_ONLY):
        option, equals, folder = words.pop(0).partition("=")
        if option == SUITE_ONLY and not equals:
            suite_only = True
        elif option == FROM and (folder := folder if equals else words.pop(0) if words else ""):
            folders.append(folder)
        else:
            raise UsageError(f"expected {FROM} DIR or {SUITE_ONLY}, and then a command")
    choose_plugins(folders, suite_only)


def answer_renamed(name: str) -> int:
    """Print the present call of a command that had another name; return the exit status."""
    return _print(as_called(f"error: {name} is now {RENAMED[name]}"), 2)


def render_usage() -> str:
    """Return the text of `mlperf-hpc --help`."""
    lines = [HEAD]
    for group, commands in COMMANDS.items():
        lines.append(f"{group}:")
        for name, (module, summary) in commands.items():
            command = f"{name} {BENCHMARK}" if module.startswith(BENCHMARK) else name
            lines += [f"  {command:<30}{summary}"] if _benchmarks_with(module) or command == name else []
        lines.append("")
    return "\n".join([*lines, f"{BENCHMARK}: {', '.join(list_benchmarks())}", EXAMPLES])


def render_benchmark_usage(name: str) -> str:
    """Return the text of `mlperf-hpc COMMAND --help` for a command of a benchmark, "" for any other."""
    module, summary = ALL_COMMANDS.get(name, ("", ""))
    benchmarks = _benchmarks_with(module)
    if not benchmarks:
        return ""
    example = f"{PROGRAM} {name} {benchmarks[0]} --help"
    others = "".join(f"\n  {PROGRAM} {name} {word:<12}{text}" for word, text in _second_words(name).items())
    also = f"also:{others}\n\n" if others else ""
    return (
        f"usage: {PROGRAM} {name} {{{','.join(benchmarks)}}} ...\n\n{summary}\n\n{also}`{example}` shows the options."
    )


def resolve_command(words: Sequence[str]) -> tuple[str, list[str]]:
    """Return the module that a command line names, and its arguments.

    Raises UsageError for a command or a benchmark that does not exist.
    """
    name, *rest = words
    if " ".join(words[:2]) in ALL_COMMANDS and rest:
        return ALL_COMMANDS[" ".join(words[:2])][0], rest
    module, _ = ALL_COMMANDS.get(name, ("", ""))
    if module and not module.startswith(BENCHMARK):
        return module, rest
    if rest and _has_module(rest[0], module):
        return module.replace(BENCHMARK, rest[0]), rest[1:]
    package = find_package(rest[0]) if rest and module else None
    if package and package.origin:
        require_package(package.name)  # says what else is wrong with it
        raise UsageError(f"benchmark {package.name!r} of {package.origin} has no {module.partition('.')[2]}.py")
    benchmarks = _benchmarks_with(module)
    if not benchmarks:
        raise UsageError(
            f"unknown command {name!r}{suggest_name(name, ALL_COMMANDS)}; {PROGRAM} --help lists the commands"
        )
    others = list(_second_words(name))
    expected, choices = f"a benchmark{' or a command' * bool(others)}", [*benchmarks, *others]
    problem = f"{rest[0]!r} is not {expected}{suggest_name(rest[0], choices)}" if rest else f"{expected} is missing"
    raise UsageError(f"{problem}; usage: {PROGRAM} {name} {{{','.join(choices)}}} ...")


def _second_words(name: str) -> dict[str, str]:
    """Return the second word and the summary of each command in two words that begins with a name."""
    words = ((command.partition(" "), summary) for command, (_, summary) in ALL_COMMANDS.items())
    return {second: summary for (first, _, second), summary in words if first == name and second}


def _benchmarks_with(module: str) -> list[str]:
    """Return the benchmarks that have the module of a command, [] for a command without a benchmark."""
    return [name for name in list_benchmarks() if _has_module(name, module)] if module.startswith(BENCHMARK) else []


def _has_module(benchmark: str, module: str) -> bool:
    """Tell whether a benchmark has the module of a command; False for a command without a benchmark."""
    first, _, name = module.partition(".")
    package = find_package(benchmark) if first == BENCHMARK else None
    return package is not None and (package.folder / f"{name}.py").exists()


def _print(text: str, status: int) -> int:
    """Print a text, on standard error if the exit status is not 0; return the status."""
    with checked_output():
        print(text, file=sys.stderr if status else sys.stdout)
    return status


def _run_module(module: str, arguments: Sequence[str]) -> int:
    package, _, command = module.partition(".")
    if package not in (*PACKAGES, *SHARED):
        try:
            import_facts(require_package(package))
        except PluginError as error:
            return _print(f"error: {error}", 2)
    if command == "train":  # what needs no network is answered without torch
        from common.commands.train import answer_at_once

        answer_at_once(package, arguments)
    try:
        status: int = import_module(module).main(arguments)
    except ModuleNotFoundError as error:
        problem = missing_extra(error, module)
        if problem is None:
            raise
        print(f"error: {problem}", file=sys.stderr)
        return 1
    return status


if __name__ == "__main__":
    sys.exit(main())
