"""Which runs count, what is excluded and why, and what becomes of results that cannot be analysed."""

import re
import statistics
from pathlib import Path

import pytest

from common.errors import UsageError
from compliance.engine import Options, check_paths
from compliance.samples.log import SampleLog
from compliance.samples.package import SamplePackage
from submission.results.page.export import flatten_quantities
from submission.results.sets import Facts, analyse_sets, log_pca, read_facts, summarise_values

NAME = "3.0/Example/example_n64/strong/cosmoflow"
EPOCHS = [25, 24, 26, 27, 25, 24, 28, 30, 22, 26]


@pytest.fixture
def analysed(tmp_path):
    """Return a function that writes a package of one result and returns the result's analysis."""

    def run(package, facts=None):
        package.write(tmp_path / "v3.0" / "Example")
        (one,) = analyse_sets(
            check_paths([str(tmp_path)], Options(details=True)),
            read_facts().update_facts(read_facts(Path(facts)) if facts else Facts()),
        )
        return one

    return run


def test_quantities_are_those_of_the_runs_without_fastest_and_slowest(analysed):
    package = SamplePackage(epochs=EPOCHS).edit_all(lambda log: log.stage("run_start", 60_000))
    one = analysed(package)
    found = flatten_quantities(one)
    kept = sorted(EPOCHS)[1:-1]
    assert found["run_stop_epoch.mean"] == statistics.fmean(kept)
    assert found["run_stop_epoch.std"] == pytest.approx(statistics.stdev(kept))
    assert found["run_stop_epoch.median"] == statistics.median(kept)
    assert (found["run_stop_epoch.min"], found["run_stop_epoch.max"]) == (24, 28)
    assert found["run_stop_epoch_num.mean"] == found["run_stop_epoch.mean"] == found["run_target_epoch.mean"]
    assert [run.why_not for run in one.runs if not run.kept] == ["the slowest run", "the fastest run"]
    assert found["run_staging_time.mean"] == 1 and found["run_compute_budget"] == found["run_time.mean"] / 60 * 64
    assert found["staging_time/run_time"] == pytest.approx(1 / found["run_time.mean"])
    assert found["run_steps.mean"] == pytest.approx(statistics.fmean(kept) * 524288 / 512)
    assert found["run_epoch_time.mean"] == pytest.approx(1 / found["run_epoch_throughput.mean"])
    assert found["run_eval_time.mean"] == pytest.approx(statistics.fmean(kept) * 8 / 60, rel=1e-2)
    assert one.hyperparameters["opt_name"] == "sgd" and "seed" not in one.hyperparameters


def test_throughputs_are_averaged_harmonically():
    found = summarise_values("run_epoch_throughput", [1.0, 3.0])
    assert (found.mean, found.median) == (1.5, 2.0)
    assert found.std == pytest.approx(1 / (2 / 3 - statistics.stdev([1, 1 / 3])) - 1.5)
    assert summarise_values("run_time", [2.0]).std is None


def test_epochs_counted_from_zero_are_one_more(analysed):
    package = SamplePackage().edit_all(lambda log: log.renumber(0))
    found = flatten_quantities(analysed(package))
    assert found["run_stop_epoch.mean"] == found["run_stop_epoch_num.mean"] + 1 == 25


def test_ranks_that_share_samples_explain_units_beyond_the_batch(analysed):
    package = SamplePackage().edit_all(lambda log: log.add("spatial_extents", [4, 2], before="init_stop"))
    one = analysed(package)
    assert one.sharing == 8 and any(note.startswith("8 ranks share each sample") for note in one.notes)


@pytest.mark.parametrize("extents", [[0, 1], [2, 2, 2, 2], [10**9], ["4"], 4, [True, 2], []])
def test_extents_that_make_no_sense_say_nothing(analysed, extents):
    package = SamplePackage().edit_all(lambda log: log.add("spatial_extents", extents, before="init_stop"))
    one = analysed(package)
    assert one.sharing == 1 and not any("share each sample" in note for note in one.notes)


def test_a_run_without_an_end_counts_as_the_slowest(analysed):
    one = analysed(SamplePackage(epochs=EPOCHS).edit(1, lambda log: log.drop("run_stop")))
    out = {run.name: run.why_not for run in one.runs if not run.kept}
    assert out == {"result_1.txt": "run_start or run_stop is missing", "result_9.txt": "the fastest run"}
    assert one.statistics["run_time"].count == 8 and one.notes[0].startswith("result_1.txt does not count")


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda log: log.drop("epoch_stop", 3), "an epoch has no stop"),
        (lambda log: log.drop("eval_error"), "no evaluation before run_stop"),
        (lambda log: log.meta("run_stop", "status", "aborted"), "run_stop states 'aborted'"),
        (lambda log: log.shift("run_stop", -(10**9)), "run_stop is not after run_start"),
        (lambda log: log.renumber(-40), "the last evaluation has epoch_num -16"),
    ],
)
def test_runs_that_cannot_count_say_why(analysed, change, why):
    one = analysed(SamplePackage().edit(2, change))
    assert [run.why_not for run in one.runs if run.name == "result_2.txt"] == [why]


def test_success_without_the_target_counts_by_its_time_and_says_so(analysed):
    one = analysed(SamplePackage(epochs=EPOCHS).edit(1, lambda log: log.last_evaluation(0.9)))
    assert [run.kept for run in one.runs if run.name == "result_1.txt"] == [True]
    assert "1 run with status success but without the target: counted by time, as in the paper" in one.notes


def test_all_runs_of_a_throughput_result_count(analysed):
    one = analysed(SamplePackage("oc20", scaling="weak", runs=12).start_together())
    assert one.statistics["run_time"].count == 12 and all(run.kept for run in one.runs)


def test_an_epoch_that_begins_before_the_end_of_the_run_is_not_missed(analysed):
    """Some programs start the next epoch before the evaluation that ends the run."""
    package = SamplePackage().edit(2, lambda log: log.add("epoch_start", None, before="run_stop", epoch_num=26))
    one = analysed(package)
    assert [run.why_not for run in one.runs if run.name == "result_2.txt"] in ([""], ["the fastest run"])


@pytest.mark.parametrize(
    ("key", "lost"),
    [("train_samples", "run_steps"), ("eval_samples", "run_eval_throughput"), ("global_batch_size", "run_steps")],
)
def test_counts_that_no_run_can_have_are_not_used(analysed, key, lost):
    one = analysed(SamplePackage().edit_all(lambda log: log.set(key, 10**308)))
    assert one.mean("run_time") > 0 and one.mean("run_epoch_time") > 0
    assert one.mean(lost) is None


def test_one_run_and_different_batch_sizes(tmp_path):
    (tmp_path / "result_0.txt").write_bytes(SampleLog(run=1).bytes())
    (one,) = analyse_sets(check_paths([str(tmp_path)], Options(details=True)), read_facts())
    assert one.statistics["run_time"].count == 1 and one.pca is None and flatten_quantities(one)["run_time.std"] is None
    assert any("1 run: none is left out" in note for note in one.notes)
    package = SamplePackage().edit(2, lambda log: log.set("global_batch_size", 256))
    (one,) = analyse_sets(check_paths([package.write(tmp_path / "Example")], Options(details=True)), read_facts())
    assert flatten_quantities(one)["batch_size/units"] is None and any(
        "global_batch_size" in note for note in one.notes
    )


def test_facts_exclude_staging_and_normalise(analysed, tmp_path):
    facts = tmp_path / "facts.yaml"
    facts.write_text(
        f"staging_excluded:\n  {NAME}: it warms a cache\n"
        f"reference_epochs:\n  {NAME}: {{epochs: [10, 50, 60, 90], reason: agreed}}\n"
    )
    package = SamplePackage(epochs=EPOCHS).edit_all(lambda log: log.stage("run_start", 60_000))
    before, one = analysed(package), analysed(package, str(facts))
    factor = 55 / statistics.fmean(sorted(EPOCHS)[1:-1])
    assert one.excluded == {"run_staging_time": "it warms a cache", "normalised": "agreed"}
    assert one.mean("run_staging_time") is None and one.ratios["staging_time/run_time"] is None
    assert one.mean("run_stop_epoch") == pytest.approx(55)
    assert one.mean("run_time") == pytest.approx(before.mean("run_time") * factor)
    assert one.mean("run_epoch_throughput") == pytest.approx(before.mean("run_epoch_throughput"))


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("staging: {}", "unknown key staging; did you mean staging_excluded"),
        ("staging_excluded: 3", "staging_excluded: expected a mapping of a name"),
        ("staging_excluded: {cosmoflow: why}", '"cosmoflow" names no result; expected round/organisation'),
        (f"staging_excluded:\n  {NAME}:", "expected text"),
        (f"power_cap_watts:\n  {NAME}: -3", "expected a number above 0 and below 1e+09; got -3"),
        (f"reference_epochs:\n  {NAME}: {{epochs: [3, 3, 0], reason: x}}", "expected a number above 0"),
        (f"reference_epochs:\n  {NAME}: {{epochs: [3, 4, 5]}}", "reason is missing; expected text"),
        (f"reference_epochs:\n  {NAME}: {{epochs: [3], reason: x}}", "at least 3 runs"),
        ("a: b: c", "not valid YAML"),
    ],
)
def test_errors_in_a_file_of_facts_name_the_place(tmp_path, text, wanted):
    path = tmp_path / "mine.yaml"
    path.write_text(text)
    with pytest.raises(UsageError, match=f"^{re.escape(str(path))}(?s:.*){re.escape(wanted)}"):
        read_facts(path)


def test_principal_components():
    """Points on a line through the origin of the logarithms: one component explains everything."""
    found = log_pca([(10, 1), (100, 10), (1000, 100)])
    assert found.explained == pytest.approx(1) and found.correlation == pytest.approx(1)
    assert found.first == pytest.approx((0.5**0.5, 0.5**0.5))
    still = log_pca([(10, 1), (10, 2), (10, 3)])
    assert still.correlation is None and still.first == pytest.approx((0, 1), abs=1e-12)
