"""Target, runs, settings and convergence points of a benchmark, as the committee's files state them."""

import json

import pytest

from compliance.committee import facts
from compliance.committee.facts import find_facts, list_benchmarks
from compliance.committee.rule_files import find_rules
from compliance.rcp.points import load_committee_points
from tests.compliance.committee.written import begin, key, needs_rule_files, write_rules

ROUND = "training-9.9"
RUNS = "{'training': {'net': 10, 'odd': -1, 'flag': True}}"
META = f"raise SystemExit('run')\n_OTHER = 1\n_ALL_RESULT_FILE_COUNTS = {RUNS}\n"
POINT = {"BS": 32, "Hyperparams": {"lr": 0.1}, "Epochs to converge": [5, 3, 4, 4]}


@pytest.fixture
def folder(tmp_path):
    """Write the files of a benchmark; return the folder of its rules."""
    rules = tmp_path / "compliance_checker"
    names = ("run_start", "seed", "submission_org", "global_batch_size", "train_samples")
    target = key("eval_accuracy", ATLEAST_ONE_CHECK="v['value'] <= s['goal'] and v['value'] > 0") + key("opt_name")
    files = {"common": "".join(map(key, names)), "closed_net": begin("s['goal'] = 3.3") + target}
    write_rules(rules, files | {"closed_none": key("seed"), "closed_odd": target, "open_net": key("seed")})
    (tmp_path / "benchmark_meta.py").write_text(META)
    for cached in (find_facts, list_benchmarks, facts._read_runs, load_committee_points):
        cached.cache_clear()
    return rules


def write_points(folder, table):
    path = folder.parent / "rcp_checker/training_9.9.0/rcps_net.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(table if isinstance(table, str) else json.dumps(table))
    return load_committee_points(str(folder), ROUND, "net", 10, "samples")


def test_target_runs_and_settings_are_read_from_the_files(folder):
    found = find_facts(str(folder), ROUND, "net")
    assert (found.name, found.runs, found.rounds) == ("net", 10, (ROUND,))
    target = found.target
    assert (target.key, target.value, target.lower_is_better) == ("eval_accuracy", 3.3, True)
    met = {value: target.met(value) for value in (3.3, 3.4, 0, "3", None)}
    assert met == {3.3: True, 3.4: False, 0: False, "3": False, None: False}
    settings = {setting.key: setting.identity for setting in found.settings}
    assert settings == {"global_batch_size": True, "train_samples": False, "opt_name": True}


@pytest.mark.parametrize("benchmark", ["odd", "flag", "none", "open_net", "", None])
def test_a_benchmark_without_target_or_runs_has_no_facts(folder, benchmark):
    assert find_facts(str(folder), ROUND, benchmark) is None


def test_the_benchmarks_of_a_round_have_a_rule_file_and_runs(folder):
    assert list_benchmarks(str(folder), ROUND) == ("net",)
    assert list_benchmarks("", ROUND) == () and find_facts("", ROUND, "net") is None


@pytest.mark.parametrize(
    "text", ["", "_ALL_RESULT_FILE_COUNTS = open('x')", "(", "_ALL_RESULT_FILE_COUNTS = {}", "\0", "#" * 70_000]
)
def test_what_is_no_literal_is_not_run(folder, text):
    (folder.parent / "benchmark_meta.py").write_text(text)
    assert find_facts(str(folder), ROUND, "net") is None


@pytest.mark.parametrize(
    "rules",
    [
        key("seed", CHECK="open('x')"),
        begin("s['goal'] = 1 / 0") + key("eval_accuracy", ATLEAST_ONE_CHECK="v['value'] <= s['goal']"),
    ],
)
def test_a_rule_file_that_is_refused_or_raises_leaves_no_facts(folder, rules):
    write_rules(folder, {"closed_net": rules})
    assert find_facts(str(folder), ROUND, "net") is None


def test_convergence_points_are_read_by_batch_size(folder):
    assert load_committee_points(str(folder), ROUND, "net", 10, "samples") == ()
    load_committee_points.cache_clear()
    more = POINT | {"BS": 16, "samples to converge": [9, 7, 8]}
    low, high = write_points(folder, {"b": POINT, "a": more})
    assert (low.batch_size, low.epochs, low.unit) == (16, (7, 8, 9), "samples")
    assert (high.batch_size, high.mean, high.hyperparameters) == (32, 4, {"lr": 0.1})


@pytest.mark.parametrize(
    "table",
    ["{", "[]", '{"a": 1}', {"a": {"BS": 1}}, {"a": POINT | {"BS": "32"}}, {"a": POINT | {"Epochs to converge": [1]}}],
)
def test_a_broken_table_is_named(folder, table):
    with pytest.raises(ValueError, match=r"rcps_net.json: no table of convergence points"):
        write_points(folder, table)


@needs_rule_files
def test_the_benchmark_that_drops_four_runs_at_each_end_has_no_facts():
    assert find_facts(find_rules(None), "training-4.0", "unet3d") is None


@needs_rule_files
@pytest.mark.parametrize(
    ("round_", "benchmark", "expected"),
    [
        ("training-4.1", "bert", ("eval_accuracy", 0.72, False, 10)),
        ("training-4.1", "llama2_70b_lora", ("eval_accuracy", 0.925, True, 10)),
        ("training-6.1", "llama31_8b", ("eval_accuracy", 3.3, True, 10)),
    ],
)
def test_the_installed_files_state_them_too(round_, benchmark, expected):
    folder = find_rules(None)
    found = find_facts(folder, round_, benchmark)
    assert (found.target.key, found.target.value, found.target.lower_is_better, found.runs) == expected
    assert {"global_batch_size", "opt_base_learning_rate"} <= {setting.key for setting in found.settings}
    assert load_committee_points(folder, round_, benchmark, found.runs, "samples")
    assert benchmark in list_benchmarks(folder, round_)
