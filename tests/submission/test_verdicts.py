"""Whatever shows a result shows the verdict of the package made of the same logs, and shows it before the score."""

import re
from contextlib import suppress
from pathlib import Path

import pytest

from compliance.check import main as check
from compliance.engine import Options, check_paths
from compliance.samples.package import SamplePackage
from submission.report import main as report
from submission.summary import main as summary

CASES = {
    "a result that passes": SamplePackage,
    "one run that may fail": lambda: SamplePackage().edit(1, lambda log: log.last_evaluation(0.2)),
    "two runs that fail": lambda: SamplePackage().edit_all(lambda log: log.last_evaluation(0.2), 2),
    "no seeds": lambda: SamplePackage().edit_all(lambda log: log.drop("seed")),
    "too fast a convergence": lambda: SamplePackage(epochs=12),
    "another setting in one run": lambda: SamplePackage().edit(3, lambda log: log.set("opt_weight_decay", 0.1)),
    "missing runs": lambda: SamplePackage(runs=8),
}
IN_GATE = ("one run that may fail", "no seeds", "missing runs")
FORMATS = ("text", "json", "sarif", "markdown", "junit", "github")
SCORE = re.compile(r"RCP passed|models/min|\b8[0-9]\.[0-9]{2}\b")
"""What may only stand after a verdict: the sample runs take more than 80 minutes."""


def write_kinds(package: SamplePackage, folder: Path) -> dict[str, list[str]]:
    """Write the logs in every way that a user may have them; return the paths to name, by kind of input."""
    root = Path(package.write(folder / "Example"))
    logs = sorted((root / package.folder).glob("result_*.txt"))
    for kind in ("runs", "jobs"):
        (folder / kind).mkdir()
        for number, log in enumerate(logs):
            name = log.name if kind == "runs" else f"slurm-{7000 + number}.out"
            (folder / kind / name).write_bytes(log.read_bytes())
    named = [str(path) for path in sorted((folder / "jobs").iterdir())]
    return {
        "package": [str(root)],
        "repository": [str(folder)],
        "result": [str(root / package.folder)],
        "folder": [str(folder / "runs")],
        "folder of jobs": [str(folder / "jobs")],
        "files": named,
    }


@pytest.mark.parametrize(
    "case", [name if name in IN_GATE else pytest.param(name, marks=pytest.mark.exhaustive) for name in CASES]
)
def test_each_output_of_each_input_shows_the_verdict_of_the_package(case, tmp_path, capfd):
    inputs = write_kinds(CASES[case](), tmp_path)
    judged = check_paths(inputs["package"], Options())
    verdict = judged.verdict_of(judged.sets[0])

    def run(command, *arguments):
        with suppress(SystemExit):
            status = command(list(arguments))
        said = capfd.readouterr()
        assert said.out, said.err
        first = None if "github" in arguments else SCORE.search(said.out)  # whose annotations stand alone
        assert re.search(rf"\b{verdict}\b", said.out[: first.start()] if first else said.out), (arguments, said.out)
        return status

    for paths in inputs.values():
        for format_ in FORMATS:
            assert run(check, *paths, "--format", format_) == (verdict in ("FAIL", "INCOMPLETE"))
        run(check, *paths, "--verbose")
        for format_ in ("table", "csv", "json", "markdown"):
            run(summary, *paths, "--format", format_)
    for side in ("folder", "package"):
        for format_ in ("table", "json", "markdown"):
            run(summary, *inputs[side], "--compare", inputs["folder of jobs"][0], "--format", format_)
        report([*inputs[side], "-o", str(tmp_path / f"{side}.html")])
        assert f'class="badge {verdict.lower()}"' in (tmp_path / f"{side}.html").read_text()


def test_logs_that_are_told_apart_into_no_result_are_not_judged_as_one(tmp_path, capfd):
    """More runs than a result has, and a sweep: nothing is said of runs that are missing, which may be of another."""
    sweep = SamplePackage(runs=4)
    for number in range(1, 5):
        sweep.edit(number, lambda log, rate=number / 1000: log.set("opt_base_learning_rate", rate))
    for name, package in {"more": SamplePackage(runs=12), "sweep": sweep}.items():
        (tmp_path / name).mkdir()
        paths = write_kinds(package, tmp_path / name)["folder of jobs"]
        found = check_paths(paths, Options())
        assert (found.verdict, found.exit_code) == ("INCOMPLETE", 1)
        assert {finding.rule for finding in found.findings if finding.severity == "error"} == {"RUN24"}
        for command, *arguments in ((check,), (check, "-v"), (check, "--format", "sarif"), (summary,)):
            command([*paths, *arguments])
            assert "not judged as a result" in capfd.readouterr().out or command is summary


def test_a_log_alone_is_judged_as_a_log_and_says_so(tmp_path, capfd):
    path = write_kinds(SamplePackage(runs=8), tmp_path)["files"][0]
    for arguments in ([path], [path, "-v"], [path, "--format", "json"], [path, "--follow"]):
        assert check(arguments) == 0
        assert "not judged as a result" in capfd.readouterr().out
    assert check([str(tmp_path / "jobs"), "--profile", "official"]) == 0
    assert "not judged as a result" in capfd.readouterr().out
