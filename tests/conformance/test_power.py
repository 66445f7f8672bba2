"""Power: the profile `official` against the power checker of mlperf-logging, energy against its summarizer."""

import logging
import os

import pytest

from compliance.engine import Options, check_paths
from compliance.samples.package import SamplePackage

pytest.importorskip("mlperf_logging")
pytest.importorskip("pandas")

from mlperf_logging.package_checker.power_checker import PowerChecker
from mlperf_logging.result_summarizer import result_summarizer as summarizer

FOLDER = "results/example_n64/strong/deepcam/power"
EDITS = {
    "valid": lambda package: package,
    "one run missing": lambda package: package.remove(f"{FOLDER}/result_2"),
    "two runs missing": lambda package: package.remove(f"{FOLDER}/result_2").remove(f"{FOLDER}/result_3"),
    "all missing": lambda package: package.remove(FOLDER).file("power/readme.txt", ""),
    "gap in the numbers": lambda package: package.move(
        f"{FOLDER}/result_1/node_1.txt", f"{FOLDER}/result_1/node_7.txt"
    ),
    "no number": lambda package: package.move(f"{FOLDER}/result_1/node_1.txt", f"{FOLDER}/result_1/node_a.txt"),
    "same number": lambda package: package.file("power/result_1/node_01.txt", ""),
    "one node less": lambda package: package.remove(f"{FOLDER}/result_3/node_1.txt"),
    "one switch less": lambda package: package.remove(f"{FOLDER}/result_3/sw_0.txt"),
    "missing shifts the blame": lambda package: package.remove(f"{FOLDER}/result_1").remove(
        f"{FOLDER}/result_2/node_1.txt"
    ),
    "two counts": lambda package: package.remove(f"{FOLDER}/result_1/sw_0.txt").remove(f"{FOLDER}/result_2/node_1.txt"),
    "empty folder": lambda package: package.remove(f"{FOLDER}/result_4").file("power/result_4/notes.md", ""),
    "a failing log and a missing folder": lambda package: package.remove(f"{FOLDER}/result_2").edit(
        4, lambda log: log.last_evaluation(0.1)
    ),
    "files that hold nothing": lambda package: package.file("power/result_1/node_0.txt", "").file(
        "power/result_2/node_1.txt", ""
    ),
}


def official_verdict(root, failing):
    """Return whether the package checker accepts the folder, given the names of the logs that fail."""
    folder = os.path.join(root, os.path.dirname(FOLDER))
    files = sorted(os.path.join(folder, name) for name in os.listdir(folder) if name.endswith(".txt"))
    logging.disable(logging.CRITICAL)
    try:
        _, blamed = PowerChecker("3.0.0").check_power(os.path.join(folder, "power"), files)
    except Exception:  # a traceback of the tool: the folder did not pass
        return False
    finally:
        logging.disable(logging.NOTSET)
    return len(blamed | failing) <= 1


@pytest.mark.parametrize("name", EDITS)
def test_official_profile_says_what_the_power_checker_says(name, tmp_path):
    package = EDITS[name](SamplePackage("deepcam").power())
    root = package.write(tmp_path / "Example")
    report = check_paths([root], Options(profile="official"))
    failing = {os.path.basename(run.path).removesuffix(".txt") for run in report.sets[0].failing}
    assert (report.verdict != "FAIL") == official_verdict(root, failing)
    assert {f.rule for f in report.findings if f.rule.startswith("POW")} <= {"POW01", "POW02"}


def official_energy(results, run):
    milliseconds = run.stop_ms - run.start_ms
    return summarizer._compute_total_power(results.folder, run.path, milliseconds, "3.0.0")


@pytest.mark.parametrize(("margin_ms", "tolerance"), [(0, 1e-12), (1000, 2e-3)])
def test_energy_is_that_of_the_official_summarizer(margin_ms, tolerance, tmp_path, capsys):
    """Equal where exactly the run was measured; the official formula takes in what was measured around it."""
    root = SamplePackage("deepcam").power(margin_ms=margin_ms).write(tmp_path / "Example")
    results = check_paths([root], Options()).sets[0]
    for run in results.runs:
        assert run.energy_joules == pytest.approx(official_energy(results, run), rel=tolerance)
    minutes, joules, _ = summarizer._compute_strong_score_standalone(
        "deepcam", results.system, True, results.folder, "hpc", "3.0.0"
    )
    assert results.score.minutes == pytest.approx(minutes, rel=1e-12)
    assert results.energy_joules == pytest.approx(joules, rel=tolerance)


def test_the_official_mean_of_throughput_energy_is_no_total(tmp_path, capsys):
    """The official tool averages all but the least energy and shows it in three columns; ours is the sum."""
    root = SamplePackage("deepcam", scaling="weak", runs=6).power(margin_ms=0).write(tmp_path / "Example")
    results = check_paths([root], Options()).sets[0]
    _, power = summarizer._compute_weak_score_standalone(
        "deepcam", results.system, True, results.folder, "hpc", "3.0.0"
    )
    joules = sorted(run.energy_joules for run in results.runs)
    assert len(power) == 3 and list(power.values()) == pytest.approx([sum(joules[1:]) / 5] * 3)
    assert results.energy_joules == pytest.approx(sum(joules))
