"""Whatever shows a result shows the verdict of the package made of the same logs, and shows it before the score."""

import csv
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


def write_sweep(folder):
    sweep = SamplePackage(runs=4)
    for number in range(1, 5):
        sweep.edit(number, lambda log, rate=number / 1000: log.set("opt_base_learning_rate", rate))
    return write_kinds(sweep, folder)["folder of jobs"]


def write_instances(folder):
    instances = SamplePackage(scaling="weak", runs=10)
    for number in range(1, 11):
        instances.edit(number, lambda log: log.times(lambda ms, end=log.clock_ms: ms - end + 1_690_000_000_000))
    return write_kinds(instances, folder)["folder of jobs"]


def write_runs(kind, runs=8):
    return lambda folder: write_kinds(SamplePackage(runs=runs), folder)[kind]


OFFICIAL = ["--profile", "official"]
UNJUDGED = {
    "more runs than a result has": write_runs("folder of jobs", 12),
    "a sweep": write_sweep,
    "instances that start at once": write_instances,
    "a log alone": lambda folder: write_runs("files")(folder)[:1],
    "a folder, by the official tool": lambda folder: [*write_runs("folder")(folder), *OFFICIAL],
    "a log, by the official tool": lambda folder: [*write_runs("files")(folder)[:1], *OFFICIAL],
    "two folders, by the official tool": lambda folder: [
        *write_runs("folder", 10)(folder), str(folder / "jobs"), *OFFICIAL
    ],
}  # fmt: skip


UNTELLABLE = ("more runs than a result has", "a sweep", "instances that start at once")


@pytest.mark.parametrize("kind", UNJUDGED)
def test_logs_that_are_no_result_pass_as_none(kind, tmp_path, capfd):
    """Nothing is said of runs that are missing, and no mean, fit or row is made of them."""
    given = UNJUDGED[kind](tmp_path)
    formats = [(check, name) for name in ("text", "json", "sarif", "markdown")]
    for command, name in [*formats, *((summary, name) for name in ("table", "csv", "json", "markdown"))]:
        assert command([*given, "--format", name]) == (command is check and kind in UNTELLABLE)
        said = capfd.readouterr().out
        assert re.search("not.judged", said.lower()) and "runs are missing" not in said, (command, name, said)
    if OFFICIAL[0] not in given:
        assert summary([given[0], "--compare", given[-1]]) == 0
        assert "not judged as a result" in capfd.readouterr().out
    page, data = tmp_path / "page.html", tmp_path / "data"
    assert report([*given, "-o", str(page), "--data", str(data)]) == 0
    text, rows = page.read_text(), list(csv.DictReader((data / "results.csv").open()))
    assert "not judged as a result" in text and "add the missing runs" not in text
    assert text.count('class="badge pass"') == text.count("Only single logs were judged, not a result") <= 1
    assert len(rows) == 1 + kind.startswith("two folders") and not {row["run_time.mean"] for row in rows} - {""}
    assert {row["verdict"] for row in rows} <= {"NOT JUDGED", "INCOMPLETE"} and not (data / "fits.csv").exists()


def test_a_log_that_is_followed_says_so(tmp_path, capfd):
    assert check([write_runs("files")(tmp_path)[0], "--follow"]) == 0
    assert "not judged as a result" in capfd.readouterr().out
