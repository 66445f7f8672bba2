"""The command on logs of MLPerf Training: which suite and round judge them, and what is not judged."""

import pytest

from compliance.check import main
from compliance.committee import rule_files
from compliance.samples.log import SampleLog
from tests.compliance.committee.written import RUN, key, needs_rule_files, write_log, write_rules

BENCHMARK = "v['value'] == 'llama31_8b'"


@pytest.fixture
def folder(empty_folder):
    """Write rule files of two rounds, and a log that meets them; work in their folder."""
    rules = key("submission_benchmark", CHECK=BENCHMARK) + key("eval_accuracy", ATLEAST_ONE_CHECK="v['value'] <= 3.3")
    write_rules(empty_folder / "rules", {"common": rules, "training_6.1.0/common.yaml": rules})
    write_log(empty_folder / "log.txt")
    return empty_folder


@pytest.fixture
def check(folder, capsys):
    """Return a function that checks log.txt: its exit status, and what it prints."""

    def run(*options):
        try:
            status = main(["log.txt", "--no-config", *options])
        except SystemExit as end:
            status = end.code
        return status, "".join(capsys.readouterr())

    return run


RULES = ("--committee-rules", "rules")


def test_the_first_line_names_suite_round_and_why(check):
    status, text = check(*RULES, "--round", "9.9")
    assert status == 0
    assert text.startswith("Round 9.9 of MLPerf Training (as asked for), profile strict, log log.txt\n")


def test_a_log_of_a_training_benchmark_is_judged_by_the_round_of_its_time(check, folder):
    write_log(
        folder / "log.txt", start=1_790_000_000_000
    )  # after the last known round began, so by the newest there is
    status, text = check(*RULES)
    assert status == 0 and text.startswith("Round 9.9 of MLPerf Training (its logs are of that time")
    write_log(folder / "log.txt")
    assert check(*RULES)[1].startswith("Round 4.0 of MLPerf Training (its logs are of that time")


def test_the_folder_names_the_round(folder, capsys):
    place = folder / "training_results_v6.1"
    place.mkdir()
    (folder / "log.txt").rename(place / "log.txt")
    assert main([str(place / "log.txt"), "--no-config", *RULES]) == 0
    assert capsys.readouterr().out.startswith("Round 6.1 of MLPerf Training (a folder above is named so)")


def test_a_log_of_hpc_stays_one(check, folder):
    (folder / "log.txt").write_bytes(SampleLog().bytes())
    status, text = check(*RULES)
    assert status == 0 and text.startswith("Round 3.0 of MLPerf HPC (")


def test_a_log_of_training_is_not_one_of_hpc_if_that_is_asked_for(check):
    status, text = check("--usage", "hpc")
    assert status == 1 and "MLPerf HPC" in text.splitlines()[0] and "log of MLPerf Training" in text


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--round", "9.9"], "there is no round '9.9'"),
        (["--round", "9.9", "--usage", "hpc", *RULES], "there is no round '9.9'"),
        (["--round", "six"], "write it as 3.0 or"),
        (["--committee-rules", "none"], "no rule files in it"),
    ],
)
def test_a_round_or_folder_that_is_not_there_ends_with_status_2(check, options, said):
    status, text = check(*options)
    assert status == 2 and said in text and text.count("\n") == 1


@pytest.mark.parametrize("round_", ["9.9", "v9.9", "9.9.0", "training-9.9"])
def test_a_round_that_only_training_has_implies_the_suite(check, round_):
    status, text = check(*RULES, "--round", round_)
    assert status == 0 and text.startswith("Round 9.9 of MLPerf Training")


def test_a_round_that_both_suites_have_is_that_of_hpc_unless_usage_says_otherwise(check, folder):
    write_rules(folder / "rules", {"training_3.0.0/common.yaml": key("seed")})
    assert "3.0 of MLPerf HPC" in check(*RULES, "--round", "3.0")[1].splitlines()[0]
    for options in (["--round", "3.0", "--usage", "training"], ["--round", "training-3.0"]):
        assert "3.0 of MLPerf Training" in check(*RULES, *options)[1].splitlines()[0]


def test_a_broken_root_file_ends_with_status_2_and_one_line(check, folder):
    write_rules(folder / "rules", {"common": key("seed", CHECK="open('x')")})
    status, text = check(*RULES, "--round", "9.9")
    assert status == 2 and text.count("\n") == 1
    assert "common.yaml: not readable: line 3, Call is not allowed" in text


def test_a_refused_file_that_the_log_needs_leaves_it_unjudged(check, folder):
    common = key("submission_division", POST="enqueue_config('training_9.9.0/{}_common.yaml'.format(v['value']))")
    write_rules(folder / "rules", {"common": common, "closed_common": key("seed", CHECK="open('x')")})
    status, text = check(*RULES, "--round", "9.9")
    assert status == 1 and "not judged: " in text and "closed_common.yaml: not readable: line 3" in text
    assert "INCOMPLETE" in text and "PASS" not in text


@pytest.mark.parametrize("profile", ["strict", "official"])
def test_without_rule_files_a_log_is_not_judged(check, monkeypatch, profile):
    rule_files.find_rules.cache_clear()
    monkeypatch.setattr(rule_files, "find_spec", lambda name: None)
    status, text = check("--round", "6.1", "--profile", profile)
    rule_files.find_rules.cache_clear()
    assert (
        status == 1
        and "not judged: " in text
        and "pip install" in text
        and "mlperf-logging" in text
        and "PASS" not in text
    )


def test_a_result_whose_number_of_runs_no_file_states_is_not_judged(folder, capsys):
    place = folder / "llama31_8b"
    place.mkdir()
    (folder / "log.txt").rename(place / "result_0.txt")
    assert main([str(place), "--no-config", *RULES, "--round", "9.9"]) == 1
    text = capsys.readouterr().out
    assert (
        "INCOMPLETE: 1 log not judged as a result" in text
        and "the runs and the target of this benchmark are not known" in text
    )


def test_a_refusal_of_the_committee_has_key_line_and_text(check, folder):
    write_log(folder / "log.txt", [("seed", 1), ("submission_benchmark", "other"), *RUN[1:]])
    status, text = check(*RULES, "--round", "9.9")
    assert (
        status == 1
        and "COM01" in text
        and f"log.txt:2: submission_benchmark breaks a rule (expected: {BENCHMARK})" in text
    )


@needs_rule_files
def test_the_installed_rule_files_judge_where_no_folder_is_named(check):
    status, text = check("--round", "6.1")
    assert status == 1 and "Round 6.1 of MLPerf Training" in text and "submission_org is not logged" in text
