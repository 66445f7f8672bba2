"""Settings, batch sizes and seeds of the runs of one result."""

import pytest

from compliance.logs.run import SEEDS_KEPT
from compliance.samples.package import SamplePackage
from tests.compliance.judged import check_package, find_all


def errors(found):
    return sorted({finding.rule for finding in found.findings if finding.severity == "error"})


@pytest.mark.parametrize("profile", ["strict", "official"])
@pytest.mark.parametrize("numbers", [(3,), range(1, 11)])
def test_a_batch_size_written_as_a_fraction_is_the_same(numbers, profile, tmp_path):
    package = SamplePackage()
    for number in numbers:
        package.edit(number, lambda log: log.set("global_batch_size", 512.0))
    found = check_package(package, tmp_path, profile)
    assert found.verdict in ("PASS", "WARN") and not errors(found)
    assert found.sets[0].batch_size == 512 and type(found.sets[0].batch_size) is int
    assert found.sets[0].convergence.case == "exact"


def test_a_run_that_died_early_is_one_finding(tmp_path):
    package = SamplePackage("deepcam").edit(3, lambda log: log.cut("number_of_nodes"))
    found = check_package(package, tmp_path)
    (results,) = found.sets
    assert found.verdict == "WARN" and results.batch_size == 256 and results.convergence.passed
    assert {finding.rule for finding in results.findings if finding.severity in ("error", "warning")} == {
        "OFFICIAL",
        "RUN02",
    }


def test_a_run_that_died_without_a_batch_size_does_not_converge(tmp_path):
    package = SamplePackage("deepcam").edit_all(lambda log: log.cut("number_of_nodes"), 2)
    assert check_package(package, tmp_path).sets[0].convergence.case == "insufficient convergence"


def test_runs_that_end_well_state_the_same_settings(tmp_path):
    found = check_package(SamplePackage().edit(4, lambda log: log.drop("dropout")), tmp_path)
    (silent,) = find_all(found, "RUN20")
    assert errors(found) == ["RUN20"] and silent.message.startswith("no dropout in result_4.txt;")


@pytest.mark.parametrize("profile", ["strict", "official"])
def test_a_second_seed_does_not_hide_a_shared_one(profile, tmp_path):
    package = SamplePackage().edit_all(lambda log: log.set("seed", 42).double("seed", value=9000 + log.run))
    found = check_package(package, tmp_path, profile)
    (shared,) = find_all(found, "RUN04")
    assert errors(found) == ["RUN04"]
    assert shared.message.startswith("duplicate seed 42: also in result_1.txt, result_2")


def test_the_official_tool_refuses_a_run_that_repeats_its_seed(tmp_path):
    found = check_package(SamplePackage().edit(2, lambda log: log.double("seed")), tmp_path, "official")
    assert errors(found) == ["RUN04"]


def test_a_seed_too_long_for_a_number_is_told_from_a_text(tmp_path):
    found = check_package(SamplePackage().edit(2, lambda log: log.set("seed", 10**400)), tmp_path)
    (message,) = {finding.message for finding in find_all(found, "SET08")}
    assert message.endswith("a number of more than 308 digits")


def test_the_runs_of_a_result_were_made_by_one_version_of_the_code(tmp_path):
    other = {"source_sha256": "6" * 64}
    package = SamplePackage().by_suite().edit(3, lambda log: log.provenance(**other))
    (found,) = check_package(package, tmp_path / "closed").findings
    assert (found.rule, found.severity, found.line) == ("RUN20", "error", 3)
    assert found.path.endswith("result_3.txt") and f'; "{"6" * 56}… in result_3.txt' in found.message
    package = SamplePackage(division="open").by_suite().edit(3, lambda log: log.provenance(**other))
    assert [(one.rule, one.severity) for one in check_package(package, tmp_path / "open").findings] == [
        ("RUN20", "warning")
    ]


def test_other_libraries_are_one_warning_for_a_result(tmp_path):
    package = SamplePackage().by_suite()
    package.edit_all(lambda log: log.versions(torch=f"2.{log.run}", numpy=f"2.{log.run}", mpi4py=None), 3)
    (found,) = check_package(package, tmp_path).findings
    assert (found.rule, found.severity) == ("RUN20", "warning")
    assert "torch is" in found.message and "numpy is" in found.message


def test_a_provenance_of_many_versions_stays_small(tmp_path):
    package = SamplePackage().by_suite()
    package.edit(3, lambda log: log.versions(**{f"library {number}": "x" * 200 for number in range(1000)}))
    package.edit(4, lambda log: log.versions(**{f"library {number}": "1" for number in range(1000)}))
    found = check_package(package, tmp_path)
    assert [len(run.software) for run in found.runs[2:4]] == [3, 20] and found.verdict == "PASS"


@pytest.mark.parametrize(("profile", "severity"), [("strict", "error"), ("official", "skipped")])
def test_a_run_of_very_many_seeds_is_not_taken_as_compared(profile, severity, tmp_path):
    package = SamplePackage().edit(2, many_seeds)
    found = check_package(package, tmp_path, profile)
    assert len(found.runs[1].seeds) == SEEDS_KEPT and found.runs[1].seed_count == SEEDS_KEPT + 5
    (bounded,) = find_all(found, "RUN04")
    assert bounded.severity == severity and bounded.path.endswith("result_2.txt")
    assert bounded.message.startswith("10005 seeds are logged, of which only the first 10000 are compared")


def many_seeds(log):
    (seed,) = log.records_of("seed")
    at = log.records.index(seed)
    log.records[at : at + 1] = [seed | {"value": 5000 + number} for number in range(SEEDS_KEPT + 5)]


@pytest.mark.parametrize(
    "fail",
    [
        lambda log: log.last_evaluation(0.2).drop("seed"),
        lambda log: log.cut("seed"),
        lambda log: log.cut("init_start"),  # the first record: the file is empty
    ],
)
def test_one_failed_run_may_lack_its_seed_or_everything(fail, tmp_path):
    found = check_package(SamplePackage().edit(2, fail), tmp_path)
    assert found.verdict == "WARN" and len(found.tolerated) == 1


@pytest.mark.parametrize(
    "state", [lambda log: log.add("quality_target", "none"), lambda log: log.by_suite({"train.target": "none"})]
)
def test_a_run_without_a_target_is_no_failure_that_is_tolerated_and_gives_no_score(state, tmp_path):
    package = SamplePackage().edit(2, state)
    found = check_package(package, tmp_path)
    assert found.verdict == "FAIL" and not found.tolerated
    (results,) = check_package(package, tmp_path, "official").sets
    assert results.score.minutes is None and results.score.rejected == ("result_2.txt",)
    (warning,) = find_all(results.runs[1], "QUA01")
    assert warning.severity == "warning" and "train.target=null" in warning.fix


def test_a_killed_pruned_log_is_one_cause(tmp_path):
    package = SamplePackage(scaling="weak").with_time_to_train()
    package.prune(1, lambda log: log.drop("eval_error", -1).drop("eval_stop", -1).drop("run_stop"))
    found = check_package(package, tmp_path)
    causes = {finding.rule: finding.cause for finding in found.findings if finding.severity == "error"}
    assert causes == {"ORD05": "", "QUA01": "ORD05", "RUN11": "ORD05"}


@pytest.mark.parametrize(("round_", "severity"), [("2.0", "warning"), ("3.0", "error")])
def test_missing_seeds_are_one_cause(round_, severity, tmp_path):
    package = SamplePackage(round_=round_).edit_all(lambda log: log.drop("seed"))
    found = check_package(package, tmp_path / f"hpc_results_v{round_}")
    missing, note = sorted((one for one in found.findings if one.rule in ("RUN03", "SET08")), key=lambda one: one.rule)
    assert (missing.severity, missing.cause, note.cause) == (severity, "", "RUN03")
    assert f"(an {severity}" in note.message or f"(a {severity}" in note.message
