"""Two results side by side: hyperparameters, convergence, times and systems."""

import json
from dataclasses import replace

import pytest

from compliance.samples.log import SampleLog
from compliance.samples.package import SamplePackage
from submission.summary import main as summary
from tests.measurement import STEPS

CONFIG = {
    "output_dir": "run-1",
    "train": {"epochs": 16, "global_batch_size": 512, "seed": 4},
    "optim": {"name": "sgd", "betas": [0.9, 0.999], "eps": 1e-08},
    "schedule": {"base_lr": 0.006, "decay": {"19": 0.5, "21": 0.25}, "kind": "piecewise"},
    "data": {"data_dir": "here", "augment": "none"},
    "submission": {"org": "Example University"},
    "dist": {"device": "cpu"},
}


@pytest.fixture
def compare(call):
    """Compare two results; return what is written."""
    return lambda a, b, *options, status=0: call(summary, a, "--compare", b, *options, status=status)


@pytest.fixture
def compared(compare):
    """Compare as JSON; return the comparisons."""
    return lambda *arguments: json.loads(compare(*arguments, "--format", "json").out)["comparisons"]


def lines(comparison, title):
    """Return the lines of the section with this title, by name."""
    return {
        line["what"]: line
        for section in comparison["sections"]
        if section["title"].startswith(title)
        for line in section["lines"]
    }


def write(path, log):
    path.write_bytes(log.bytes())
    return path


def with_config(log, **changes):
    config = CONFIG | changes
    sections = {name: config.get(name, {}) for name in ("train", "optim", "schedule", "data")}
    named = {f"{name}.{key}" for name, keys in sections.items() for key in keys} - {"train.seed", "data.data_dir"}
    facts = {"source_sha256": "ab12", "versions": {"torch": "2.13"}}
    return log.add("provenance", {**facts, "config": config, "hyperparameters": sorted(named)})


@pytest.fixture
def packages(tmp_path):
    """Return two submissions; the second has another rate, an extra key, slower convergence, and one different run."""
    a = SamplePackage("cosmoflow", runs=10, epochs=25)
    settings = {"opt_base_learning_rate": 0.012, "gradient_accumulation_steps": 2}
    b = SamplePackage("cosmoflow", runs=10, epochs=30, settings=settings)
    b.edit(3, lambda log: log.set("dropout", 0.5)).system(accelerator_model_name="faster", host_memory_capacity="1 TB")
    return a.write(tmp_path / "A"), b.write(tmp_path / "B")


def test_packages(packages, compared):
    (comparison,) = compared(*packages)
    assert comparison["benchmark"] == "cosmoflow"
    assert comparison["a"]["name"] == "A/example_n64/strong/cosmoflow"
    logged = lines(comparison, "Hyperparameters")
    assert (logged["opt_base_learning_rate"]["a"], logged["opt_base_learning_rate"]["b"]) == (0.006, 0.012)
    assert "a" not in logged["gradient_accumulation_steps"] and logged["gradient_accumulation_steps"]["b"] == 2
    assert logged["dropout"]["b"] == {"varied": [{"value": 0.0, "runs": 9}, {"value": 0.5, "runs": 1}]}
    assert logged["opt_name"]["a"] == logged["opt_name"]["b"] == "sgd"
    system = lines(comparison, "System")
    assert system["accelerator_model_name"]["b"] == "faster" and "host_networking" not in system
    assert not lines(comparison, "Configuration"), "B's logs have none"


def test_convergence_and_times(packages, compared):
    (comparison,) = compared(*packages)
    convergence = lines(comparison, "Convergence")
    per_run = convergence["epochs to target, per run"]
    assert (per_run["a"], per_run["b"]) == ([25] * 10, [30] * 10)
    assert convergence["samples to target, mean"]["b"] == 30 * 524_288
    assert convergence["steps to target, mean"]["b"] == 30 * 1024
    assert lines(comparison, "Runs")["convergence"]["a"] == "RCP passed"
    curve = lines(comparison, "eval_error")
    assert len(curve) == 8 and {"epoch 1", "epoch 25"} <= set(curve)
    assert curve["epoch 25"]["a"] == pytest.approx(0.1239, rel=1e-2)
    assert curve["epoch 25"]["b"] == pytest.approx(0.124 * (1 + 5 / 30), rel=1e-2)
    time = lines(comparison, "Time")
    assert time["eval, mean, min"]["a"] == pytest.approx(25 * 8 / 60, rel=1e-2)
    assert time["eval, mean, min"]["b"] == pytest.approx(30 * 8 / 60, rel=1e-2)
    assert time["init, mean, min"]["a"] == pytest.approx(10 / 60, rel=0.01)
    assert time["time of an epoch, mean, min"]["a"] == pytest.approx(200 / 60, rel=0.01)
    assert time["training, samples/s"]["a"] == pytest.approx(524_288 / 200, rel=0.01)
    assert time["training, samples/s per accelerator (node)"]["a"] == pytest.approx(524_288 / 200 / 64, rel=0.01)
    score = lines(comparison, "Score")["time to train, min"]
    assert score["b"] / score["a"] == pytest.approx(30 / 25, rel=0.01)


def test_staging_is_that_of_the_score(tmp_path, compared):
    package = SamplePackage()
    for number, minutes in enumerate((1, 2, 3, 4, 5, 6, 7, 8, 9, 60), 1):
        package.edit(number, lambda log, ms=60_000 * minutes: log.stage("run_start", ms))
    (comparison,) = compared(*(package.write(tmp_path / name) for name in "AB"))
    staging = lines(comparison, "Time, means of all runs")["staging, mean as in the score, min"]
    assert staging["a"] == pytest.approx(5.5) and "staging, mean, min" not in lines(comparison, "Time")


def test_what_a_float_of_32_bits_keeps_of_a_value_is_the_value(tmp_path, compare):
    logs = [
        write(tmp_path / f"{at}.txt", SampleLog(run=at, settings={"opt_base_learning_rate": rate}))
        for at, rate in enumerate((0.0055, 0.005499999970197678))
    ]
    assert "differs" not in compare(*logs).out


def test_times_of_different_clocks_have_no_ratio(tmp_path, compare, compared):
    a = SamplePackage(round_="2.0").edit_all(lambda log: log.stage("run_start", 30 * 60_000)).write(tmp_path / "A")
    b = SamplePackage().edit_all(lambda log: log.stage("init_stop", 30 * 60_000)).write(tmp_path / "B")
    (comparison,) = compared(a, b)
    about, score = lines(comparison, "Runs")["staging"], lines(comparison, "Score")
    assert (about["a"], about["b"]) == ("inside the time", "outside the time")
    assert score["time to train, min"]["a"] == score["time to train with staging, min"]["a"]
    assert score["time to train, min"]["b"] == score["time to train without staging, min"]["b"]
    text = {line.split(",")[0].strip(): line for line in compare(a, b).out.splitlines()}
    assert text["time to train"].endswith("clocks differ") and text["run_start to run_stop"].endswith("clocks differ")
    assert text["time to train with staging"].endswith("1.000")


def test_rates_per_accelerator_are_those_of_an_instance(tmp_path, compared):
    weak = SamplePackage(scaling="weak", runs=16).start_together()
    a, b = (weak.system(number_of_nodes=nodes).write(tmp_path / nodes) for nodes in ("256", "16"))
    (comparison,) = compared(a, b)
    rate = lines(comparison, "Time")["training, samples/s per accelerator (node)"]
    assert rate["b"] == pytest.approx(16 * rate["a"])


def test_the_configurations_in_logs_of_this_suite_are_compared(tmp_path, compare, compared):
    a = write(tmp_path / "a.txt", with_config(SampleLog()))
    section = {"base_lr": 0.003, "decay": {}, "kind": "piecewise"}
    b = write(tmp_path / "b.txt", with_config(SampleLog(run=1), output_dir="run-2", schedule=section))
    (comparison,) = compared(a, b)
    keys = lines(comparison, "Configuration")
    assert set(keys) == {"schedule.base_lr", "schedule.decay"}, "of equal ones only the number"
    assert '{"19": 0.5, "21": 0.25}' in compare(a, b).out


def test_several_benchmarks_and_scalings(tmp_path, compared):
    def both(root, **runs):
        SamplePackage("deepcam", runs=5).write(root)
        return SamplePackage("oc20", scaling="weak", **runs).with_time_to_train().write(root)

    a, b = both(tmp_path / "A", runs=6), both(tmp_path / "B", runs=7)
    found = compared(a, b)
    assert [one["benchmark"] for one in found] == ["deepcam", "oc20", "oc20"]
    assert [lines(one, "Score").keys() & {"models/min"} for one in found] == [set(), set(), {"models/min"}]
    (only,) = compared(a, b, "--benchmark", "deepcam")
    assert only["benchmark"] == "deepcam"
    # Strong compared with weak, named as folders.
    (mixed,) = compared(*(f"{a}/results/example_n64/{scaling}/oc20" for scaling in ("strong", "weak")))
    assert lines(mixed, "Runs")["scaling"]["b"] == "weak"


def test_curves_are_interpolated_between_evaluations(tmp_path, compared):
    """Evaluations of openfold are counted in samples, so different batch sizes have different counts."""
    a = write(tmp_path / "a.txt", SampleLog("openfold", epochs=2))
    b = write(tmp_path / "b.txt", SampleLog("openfold", epochs=4, settings={"global_batch_size": 192}))
    (comparison,) = compared(a, b)
    curve = lines(comparison, "eval_accuracy")
    assert list(curve) == ["sample 10,240", "sample 20,480"]
    # 10,240 samples lie between b's evaluations at 7,680 (0.575) and 15,360 (0.65).
    assert curve["sample 10,240"]["b"] == pytest.approx(0.6, rel=1e-2)
    assert lines(comparison, "Convergence")["steps to target, mean"]["b"] == 160
    time = lines(comparison, "Time")
    assert {"init, mean, min", "staging, mean as in the score, min", "train, mean, min", "eval, mean, min"} <= set(time)
    assert time["train, mean, min"]["b"] == pytest.approx(2 * time["train, mean, min"]["a"], rel=0.01)


@pytest.mark.parametrize(
    ("form", "heading", "row"),
    [
        ("table", "Hyperparameters, as logged", "opt_base_learning_rate"),
        ("markdown", "**Hyperparameters, as logged**", "| opt_base_learning_rate |"),
    ],
)
def test_tables_for_people(packages, compare, form, heading, row):
    text = compare(*packages, "--format", form).out
    assert heading in text and "0.0 (9 runs), 0.5 (1 run)" in text and "only B" in text
    found = next(line for line in text.splitlines() if line.strip().startswith(row))
    assert "0.006" in found and "differs" in found


def test_hostile_text_stays_text(tmp_path, compare):
    log = with_config(SampleLog(), optim={"x\x1b[31m": "</code>|$(reboot)\x1b[31m"})
    log.set("opt_name", "<script>\x1b]0;x\x07 | a\n")
    a, b = write(tmp_path / "a.txt", log), write(tmp_path / "b.txt", with_config(SampleLog(run=1)))
    text = compare(a, b).out
    assert "\x1b" not in text and "\x07" not in text
    text = compare(a, b, "--format", "markdown").out
    assert "\x1b" not in text and "<script>" not in text and "</code>|" not in text


@pytest.mark.parametrize("damage", ["empty", "no times", "no evaluations", "odd values"])
def test_damaged_logs_are_compared_as_far_as_they_go(damage, tmp_path, compare):
    log = SampleLog()
    if damage == "empty":
        log.drop("run_start").drop("run_stop")
    elif damage == "no times":
        log.times(lambda _: 1_694_000_000_000)
    elif damage == "no evaluations":
        log.drop("eval_error").drop("train_samples")
    else:
        log.set("global_batch_size", 0).set("train_samples", "many").set("number_of_nodes", [1]).evaluation(3, "NaN")
    a, b = write(tmp_path / "a.txt", log), write(tmp_path / "b.txt", SampleLog(run=1))
    for form in ("table", "markdown", "json"):
        compare(a, b, "--format", form)
        compare(b, a, "--format", form)


@pytest.mark.parametrize("key", ["epoch_num", "train_samples", "number_of_nodes", "system"])
def test_huge_numbers_are_no_traceback(key, tmp_path, compared):
    package = SamplePackage()
    if key == "system":
        package.system(number_of_nodes=10**308, accelerators_per_node=1e308)
    elif key == "epoch_num":
        package.edit_all(lambda log: log.numbers(lambda _: 1e308))
    else:
        package.edit_all(lambda log: log.set(key, 1e308))
    huge, usual = package.write(tmp_path / "A"), SamplePackage().write(tmp_path / "B")
    for pair in ((huge, usual), (usual, huge)):
        (comparison,) = compared(*pair)
        assert comparison["benchmark"] == "cosmoflow"


def test_epochs_are_those_of_the_check_without_a_ratio_where_logs_count_them_from_0_and_1(tmp_path, compare, compared):
    a = SamplePackage().edit_all(lambda log: log.renumber(0))
    sides = a.write(tmp_path / "A"), SamplePackage().write(tmp_path / "B")
    (comparison,) = compared(*sides)
    convergence = lines(comparison, "Convergence")
    epochs = convergence["epochs to target, mean"]
    assert (epochs["a"], epochs["b"]) == (24, 25)
    for line in (convergence["steps to target, mean"], *lines(comparison, "eval_error").values()):
        assert line["a"] == pytest.approx(line["b"], rel=1e-2)
    text = {line.split(",")[0].strip(): line for line in compare(*sides).out.splitlines()}
    assert text["steps to target"].endswith("1.000") and "counted from 0 and 1" in text["epochs to target"]


def test_the_mean_of_epochs_is_that_of_the_score_and_left_out_evaluations_are_counted(tmp_path, call, compared):
    epochs = [24, 25, 25, 26, 25, 25, 24, 25, 26, 29]
    path = SamplePackage(epochs=epochs).write(tmp_path / "A")
    (comparison,) = compared(path, path)
    assert lines(comparison, "Convergence")["epochs to target, mean"]["a"] == (sum(epochs) - 24 - 29) / 8
    titles = [section["title"] for section in comparison["sections"]]
    assert "eval_error, mean of the runs that reached the epoch (8 of 29 evaluations)" in titles
    (row,) = json.loads(call(summary, path, "--format", "json").out)["results"]
    assert row["convergence"] == lines(comparison, "Convergence")["epochs to target, mean"]["a"]


def many(folder, results):
    """Write a submission of cosmoflow; results: {system: arguments of its package}."""
    for system, (accelerators, arguments) in results.items():
        package = SamplePackage("cosmoflow", **arguments).system(accelerators_per_node=str(accelerators))
        package.write(folder)
        for part in ("results/example_n64", "systems/example_n64.json"):
            (folder / part).rename(folder / part.replace("example_n64", system))
    return folder


def systems(comparisons):
    return [(one["a"]["name"].split("/")[1], one["b"]["name"].split("/")[1]) for one in comparisons]


def test_several_results_are_paired_by_division_organisation_and_system(tmp_path, compare, compared):
    a = {"s4": (4, {}), "s16": (16, {}), "free": (4, {"division": "open"})}
    b = {"s16": (16, {}), "t4": (4, {}), "open": (8, {"division": "open"})}
    first, second = many(tmp_path / "1" / "Us", a), many(tmp_path / "2" / "Us", b)
    out, error = compare(first, second, "--format", "json")
    assert systems(json.loads(out)["comparisons"]) == [("free", "open"), ("s16", "s16")]
    assert error.startswith("not compared") and "2 results (Us/s4/strong/cosmoflow, Us/t4/strong/cosmoflow)" in error
    assert systems(compared(first, many(tmp_path / "Them", b))) == [("free", "open")]


def test_the_division_of_a_result_is_that_of_its_system(tmp_path, compared):
    a = SamplePackage(round_="0.7").system(division="open").write(tmp_path / "A")
    (comparison,) = compared(a, SamplePackage(round_="0.7").write(tmp_path / "B"))
    division = lines(comparison, "Runs")["division"]
    assert (division["a"], division["b"]) == ("open", "closed")


def test_rounds_are_compared_organisation_by_organisation(tmp_path, compared):
    for round_, names in (("v2.0", ("FUJITSU", "Solo", "Third")), ("v3.0", ("Fujitsu", "Third", "Alone"))):
        for name in names:
            SamplePackage("deepcam").write(tmp_path / round_ / name)
    found = compared(tmp_path / "v2.0", tmp_path / "v3.0")
    names = [(one["a"]["name"].split("/")[0], one["b"]["name"].split("/")[0]) for one in found]
    assert names == [("FUJITSU", "Fujitsu"), ("Third", "Third")]
    (own,) = compared(tmp_path / "v2.0" / "Third", tmp_path / "v3.0")
    assert own["b"]["name"].startswith("Third/")


def test_wrong_use(packages, tmp_path, compare):
    a, b = packages
    other = SamplePackage("deepcam").write(tmp_path / "C")
    for name in ("first/one", "first/two", "second/three", "second/four"):
        SamplePackage("cosmoflow").write(tmp_path / name)
    for arguments, said in (
        ([a, b, "--runs"], "--runs is not for --compare"),
        ([a, b, "--format", "csv"], "a comparison is table, markdown or json"),
        ([a, "nowhere"], "no such file or folder: nowhere"),
        ([a, other], "has cosmoflow"),
        ([a, b, "--benchmark", "oc20"], "expected results of oc20 on both sides"),
        ([a, __file__], "has none"),
        ([tmp_path / "first", tmp_path / "second"], "name the folder of one result each, such as"),
    ):
        assert said in compare(*arguments, status=2).err
    compare(a, b, "--format", "html", status=2)
    assert "hold the same 10 logs (result_1.txt" in compare(a, a).err
    assert "the same" not in compare(a, b).err


def measurement(path, **changes):
    full = {"units": 4, "network": "full", "samples_per_s": 8.0, "samples_per_s_per_unit": 2.0}
    replace(STEPS, **full | changes).write_file(path)
    return path


def test_a_measurement_and_published_results(tmp_path, call):
    title, _, _, first, *rest = call(summary, measurement(tmp_path / "fom.json")).out.splitlines()
    assert "not an MLPerf result" in title and len(rest) == 7
    # LBNL on 64 V100: epochs of 262,144 samples
    assert first.split()[:3] == ["0.7", "LBNL", "corigpu_n64_tf1.15.0"]
    units, batch, rate, each, ratio = first.split()[-5:]
    assert (units, batch, rate, each) == ("64", "64", "676", "10.6")
    assert float(ratio) == pytest.approx(2 / (676 / 64), rel=0.01)


@pytest.mark.parametrize(
    ("changes", "words", "told"),
    [
        ({"network": "mini"}, [], "published results have the full one"),
        ({"benchmark": "nosuch"}, [], "nosuch"),
        ({"benchmark": "openfold"}, [], "no published results of openfold"),
        ({}, ["--format", "json"], "choose table or markdown"),
        ({}, ["--benchmark", "oc20"], "--benchmark is not for a measurement"),
        ({}, ["--rules", "own.py"], "--rules is not for a measurement"),
    ],
)
def test_a_measurement_that_cannot_be_compared(changes, words, told, tmp_path, call, monkeypatch):
    monkeypatch.setattr("compliance.cli.load_rules", list)  # own.py is not read
    assert told in call(summary, measurement(tmp_path / "fom.json", **changes), *words, status=2).err
