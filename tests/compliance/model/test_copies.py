"""Copies of runs are found however their times are edited, and no others."""

from array import array
from itertools import combinations
from random import Random

import pytest
from msgspec.structs import asdict, replace

from compliance.check import main
from compliance.engine import Options, check_paths
from compliance.logs.fingerprint import EXACT_MS, KEPT, NO_FINGERPRINT, alike, fingerprint, match_values, value_keys
from compliance.logs.log import parse_log
from compliance.logs.run import parse_run
from compliance.model.copies import find_copies
from compliance.model.judging import Case, JudgedRun
from compliance.model.result_set import ResultSet
from compliance.samples.log import SampleLog
from compliance.samples.package import SamplePackage


def of(log):
    return fingerprint(parse_log(log.bytes()))


def jittered(by_ms):
    chance = Random(by_ms)
    return lambda time_ms: time_ms + chance.randint(-by_ms, by_ms)


@pytest.mark.parametrize("benchmark", ["cosmoflow", "deepcam", "oc20", "openfold"])
@pytest.mark.parametrize(
    ("change", "tolerance_ms"),
    [
        (lambda time_ms: time_ms + 86_400_000, EXACT_MS),
        (lambda time_ms: round(time_ms * 0.97), EXACT_MS),
        (lambda time_ms: round(time_ms * 1.0001), EXACT_MS),
        (jittered(5), 10),
    ],
    ids=["shifted", "scaled", "scaled by little", "jittered"],
)
def test_edited_times_are_alike(benchmark, change, tolerance_ms):
    like = alike(of(SampleLog(benchmark)), of(SampleLog(benchmark).times(change)))
    assert like and like.tolerance_ms <= tolerance_ms and like.equal >= 0.9 * like.count


def test_a_part_of_a_run_is_alike():
    log = SampleLog()
    log.records = log.records[: len(log.records) * 2 // 3]
    assert alike(of(SampleLog()), of(log))


def test_whole_seconds_and_constant_intervals_prove_nothing():
    one, other = (of(SampleLog(run=run).times(lambda ms: ms // 250_000 * 250_000)) for run in (1, 2))
    assert len(one.lengths) > 10 and alike(one, other) is None


def regular(run, epochs, epoch_ms, step_ms):
    """Return the fingerprint of a run whose epochs, and evaluations, take the same time within a percent."""
    log, chance, now = SampleLog(run=run, epochs=epochs), Random(run), 1_700_000_000_000.0
    usual = {"epoch_stop": epoch_ms, "eval_stop": epoch_ms / 7, "init_stop": epoch_ms / 3}
    for record in log.records:
        lasts = usual.get(record["key"], 2)
        now += chance.gauss(lasts, 0.01 * lasts)
        record["time_ms"] = int(now // step_ms * step_ms)
    return of(log)


@pytest.mark.parametrize("step_ms", [1, 1000])
@pytest.mark.parametrize("epoch_ms", [1_500, 9_000, 60_000])
@pytest.mark.parametrize("epochs", [4, 12])
def test_regular_runs_are_no_copies(epochs, epoch_ms, step_ms):
    runs = [regular(run, epochs, epoch_ms, step_ms) for run in range(30)]
    assert not any(alike(one, other) for one, other in combinations(runs, 2))


def test_jittered_copies_of_short_epochs_are_found_within_a_result():
    """They share no key: each time moves by some milliseconds, the clock by three percent, and no result stays."""
    for number in range(20):
        runs = [run_of(short_epochs(run)) for run in range(4)]
        copy = short_epochs(number % 4).times(lambda ms: round(ms * 0.97)).times(jittered(3))
        for record in copy.records_of("eval_error"):
            record["value"] *= 1 + 1e-3 * Random(record["value"]).random()
        results = ResultSet("a result", Case("3.0"), runs=[*runs, run_of(copy)])
        assert [copies.kind for copies in find_copies([results])] == ["times"]


def short_epochs(run):
    """Return a log whose epochs take two seconds, some more and some less."""
    log, chance, now = SampleLog(run=run, epochs=24), Random(run), 1_700_000_000_000
    for record in log.records:
        now += round(chance.gauss(2_000, 60)) if record["key"] == "epoch_stop" else 1
        record["time_ms"] = now
    return log


def rounded(run, decimals):
    run.values[:] = array("d", [round(value, decimals) for value in run.values])
    return run


def test_rounding_hides_no_equal_results():
    assert len(match_values(of(SampleLog()), rounded(of(SampleLog()), 6))) == len(of(SampleLog()).values)
    keys, others = (set(value_keys(run)[0]) for run in (of(SampleLog()), rounded(of(SampleLog()), 6)))
    assert len(keys & others) > KEPT / 2


def changed(run, part, chance):
    """Return the run with each result changed by up to a part of itself."""
    return replace(run, values=array("d", [value * (1 + part * chance.uniform(-1, 1)) for value in run.values]))


@pytest.mark.parametrize("benchmark", ["cosmoflow", "deepcam", "oc20", "openfold"])
@pytest.mark.parametrize("part", [1e-5, 3e-5])
def test_results_changed_in_the_fifth_digit_agree_and_share_keys(benchmark, part):
    run, chance = of(SampleLog(benchmark)), Random(1)
    one, other = (changed(run, part, chance) for _ in range(2))
    assert len(match_values(one, other)) == len(run.values) > 0
    assert {*value_keys(one)[0]} & {*value_keys(other)[0]}


def test_results_changed_in_the_third_digit_and_few_results_prove_nothing():
    run, chance = of(SampleLog()), Random(1)
    assert match_values(run, changed(run, 1e-3, chance)) == []
    few = replace(run, values=run.values[:4])
    assert match_values(few, changed(few, 3e-5, chance)) == []


def test_runs_that_begin_alike_before_they_learn_are_no_copies():
    def learning_late(chance):
        values = [
            0.49 + chance.gauss(0, 1e-5) + max(0, number - 9) * chance.uniform(0.02, 0.04) for number in range(20)
        ]
        return replace(NO_FINGERPRINT, values=array("d", values))

    runs = [learning_late(Random(number)) for number in range(20)]
    assert not any(match_values(one, other) for one, other in combinations(runs, 2))


@pytest.mark.parametrize("value", [float("inf"), float("nan"), 0.0])
def test_a_result_that_is_no_number_agrees_with_none(value):
    run = of(SampleLog())
    damaged = replace(run, values=array("d", [value, *run.values[1:]]))
    assert len(match_values(damaged, run)) == len(match_values(run, damaged)) == len(run.values) - 1


def test_roughly_rounded_results_prove_nothing():
    one, other = (rounded(of(SampleLog(run=run)), 1) for run in (1, 2))
    assert not match_values(one, other) and match_values(of(SampleLog()), of(SampleLog()))


def test_results_that_do_not_change_prove_nothing():
    one, other = of(SampleLog(run=1)), of(SampleLog(run=2))
    for run in (one, other):
        run.values[:-4] = array("d", [0.3333333333333333] * (len(run.values) - 4))
    assert len(one.values) > 8 and not match_values(one, other)


def graft(log, other, count, after=0):
    """Put `count` results of another run into a log, `after` places later than they were there."""
    results, others = (each.records_of("eval_error") for each in (log, other))
    for at in range(4, 4 + count):
        results[at + after]["value"] = others[at]["value"]
    return log


@pytest.mark.parametrize(("count", "after"), [(2, 0), (3, -3), (5, 2)])
def test_a_part_of_another_run_is_found_at_any_place(count, after):
    runs = [run_of(SampleLog(run=run)) for run in range(3)]
    grafted = run_of(graft(SampleLog(run=3), SampleLog(run=1), count, after))
    copies = find_copies([ResultSet("a result", Case("3.0"), runs=[*runs, grafted])])
    assert [(each.kind, each.pairs) for each in copies] == [("values", [(runs[1], grafted)])]
    assert len(match_values(runs[1].fingerprint, grafted.fingerprint)) == count


def test_one_result_or_two_apart_or_of_few_digits_prove_no_part():
    run, other = of(SampleLog(run=1)), of(SampleLog(run=2))
    for values in ([run.values[3]], [run.values[3], 0.5, run.values[4]], [run.values[3]] * 2):
        assert not match_values(run, replace(other, values=array("d", [*other.values[:5], *values])))
    for kind in "df":  # a result of five digits has more of them where it was of single precision
        few = replace(run, values=array("d", array(kind, [round(value, 5) for value in run.values])))
        assert not match_values(few, replace(other, values=array("d", [*other.values[:12], *few.values[3:6]])))


def test_a_result_that_repeats_is_one_key():
    run = of(SampleLog(run=1))
    runs = [
        JudgedRun("", case=Case("3.0"), fingerprint=replace(NO_FINGERPRINT, values=array("d", [*values] * 3)))
        for values in (run.values[:2], run.values[1:3])
    ]
    assert find_copies([ResultSet("a result", Case("3.0"), runs=runs)]) == []


def test_scaled_results_beside_the_losses_of_another_run_are_found():
    def trained(run, losses):
        log = SampleLog(run=run, benchmark="deepcam")
        for number, record in enumerate(log.records_of("epoch_stop")):
            log.add("train_loss", Random(losses + number).random(), time_ms=record["time_ms"], before="run_stop")
        return run_of(log)

    runs = [trained(run, losses) for run, losses in ((1, 0), (2, 100), (3, 200), (4, 100))]
    copies = find_copies([ResultSet("a result", Case("3.0"), runs=runs)])
    assert [each.pairs for each in copies] == [[(runs[1], runs[3])]]


def test_evaluations_left_out_hide_no_copy():
    log = SampleLog().times(lambda time_ms: time_ms + 86_400_000)
    for key in ("eval_start", "eval_stop", "eval_error"):
        for which in (14, 11, 9, 6, 4, 1):
            log.drop(key, which)
    assert alike(of(SampleLog()), of(log))


@pytest.mark.exhaustive
def test_two_thousand_runs_of_few_epochs_are_no_copies():
    runs = [run_of(SampleLog(run=number, epochs=4 + number % 5)) for number in range(2000)]
    found = [ResultSet(f"result {at}", Case("3.0"), runs=runs[at : at + 50]) for at in range(0, 2000, 50)]
    assert find_copies(found) == []
    copy = run_of(SampleLog(run=77, epochs=6).times(lambda ms: ms + 9_999_999))
    found.append(ResultSet("copies", Case("3.0"), runs=[copy]))
    assert [copies.second.folder for copies in find_copies(found)] == ["copies"]


def run_of(log):
    return JudgedRun(**asdict(parse_run(log.bytes(), f"result_{log.run}.txt")), case=Case("3.0"))


# -- other trees -------------------------------------------------------------------------------------------


def named(report):
    return [(found.rule, found.severity) for found in report.findings if found.severity in ("error", "warning")]


@pytest.fixture
def mine(tmp_path):
    return SamplePackage().write(tmp_path / "mine" / "Example")


def test_copies_of_another_tree_are_found(tmp_path, mine):
    other = SamplePackage().edit_all(lambda log: log.times(lambda time_ms: time_ms + 86_400_000))
    other.write(tmp_path / "v3.0" / "Other")
    report = check_paths([mine], Options(against=(str(tmp_path / "v3.0"),)))
    assert named(report) == [("RUN12", "error")] and report.against == [(str(tmp_path / "v3.0"), 10)]
    assert "10 logs of Example" in report.findings[-1].message and len(report.runs) == 10


def test_a_result_of_another_round_may_be_submitted_again(tmp_path, mine):
    SamplePackage().write(tmp_path / "v2.0" / "Example")
    report = check_paths([mine], Options(against=(str(tmp_path / "v2.0"),)))
    assert named(report) == [("RUN12", "warning")]


def test_another_copy_of_the_same_submission_is_not_compared(tmp_path, mine):
    SamplePackage().write(tmp_path / "v3.0" / "Example")
    for other in (tmp_path / "v3.0", tmp_path / "mine"):
        assert named(check_paths([mine], Options(against=(str(other),)))) == []


def test_time_to_train_and_throughput_may_share_runs(tmp_path):
    package = SamplePackage(scaling="weak", runs=10)
    package.files |= {path.replace("/weak/", "/strong/"): log for path, log in package.files.items()}
    assert ("RUN12", "warning") in named(check_paths([package.write(tmp_path / "Example")], Options()))


def test_a_tree_without_logs_is_an_error(tmp_path, mine, capsys):
    (tmp_path / "empty").mkdir()
    for tree, words in (("none", "no such"), ("empty", "no logs")):
        with pytest.raises(SystemExit) as stopped:
            main([mine, "--against", str(tmp_path / tree)])
        assert stopped.value.code == 2 and words in capsys.readouterr().err
