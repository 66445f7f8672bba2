"""Members of an ensemble from the command line: what they draw, stage and log, and how several are evaluated."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

import compliance
from common.config import load
from common.data.sampling import draw_samples
from common.ranks.dist import make_single_dist
from tests.problems import SAME, STAGED, curve, flat, run_process, torchrun

pytestmark = pytest.mark.one_benchmark


@pytest.fixture
def members(run, data):
    """Train three instances, one of them by itself; return what evaluates their folder."""
    bagged = ("train.epochs=1", "output_dir=job", "instances.bagging=bootstrap")
    run(*bagged, "instances.count=2", "instances.ranks=1")
    run(*bagged, "instances.first=2")
    return f"data.data_dir={data}"


@pytest.mark.exhaustive
def test_two_ranks_with_staged_data_have_the_curve_of_one(case, config, run, capsys):
    """The log says how samples were drawn, and the checker that this is not a result."""
    kind = "bootstrap" if case.name == "deepcam" else "poisson"
    bagged = (f"instances.bagging={kind}", "train.epochs=2", "train.tail=drop")
    assert run(*bagged, "output_dir=one") == 4
    assert f"bagging: {kind}, instance 0 draws" in capsys.readouterr().out
    words = ("train", config, *bagged, "output_dir=two", *case.shared, *STAGED)
    assert "NOT reached" in run_process(*torchrun(2), "-m", case.name, *words).stdout
    assert flat(curve("two")) == pytest.approx(flat(curve("one")), **SAME)
    assert curve("one")[0] != pytest.approx(run("train.epochs=2", "output_dir=all") and curve("all")[0], abs=1e-6)
    found = {one.rule: one for one in compliance.check_logs(["one/result_0.txt"]).findings if one.severity == "error"}
    assert found.keys() == {"QUA01", "QUA03", "SET15"} and f'bagging "{kind}"' in found["SET15"].message
    assert "bagging" not in Path("all/result_0.txt").read_text().replace('"bagging": "none"', "")


def test_a_problem_orders_and_stages_what_is_drawn(case, config):
    def problem(*overrides):
        return case.train.BENCHMARK.problem(load(case.train.Config, Path(config), overrides), make_single_dist(), 14)

    bagged, plain = problem("instances.bagging=bootstrap", "instances.first=3"), problem()
    drawn = draw_samples("bootstrap", 11, 3, 24)
    assert sorted(bagged.order(0)) == drawn.tolist() and (bagged.order(0) != bagged.order(1)).any()
    assert (bagged.order(1) == drawn[plain.order(1)]).all() and sorted(plain.order(0)) == list(range(24))
    kept = [None, *drawn]
    names = {name for name, number in plain.staged_files().items() if "train" not in name or number in kept}
    assert set(bagged.staged_files()) == names


def test_the_table_has_members_and_ensemble(case, members, capsys):
    assert case.evaluate.main(["job", "-o", "all.json", members]) == 1
    said = capsys.readouterr().out
    found = json.loads(Path("all.json").read_text())
    qualities = [member["quality"] for member in found["members"]]
    assert qualities == pytest.approx([curve(f"job/instance_{number}")[0][1] for number in range(3)], rel=1e-5)
    assert found["mean"] == pytest.approx(np.mean(qualities)) and found["spread_ddof_0"] == np.std(qualities)
    assert "An ensemble is not an MLPerf result." in said and f"ensemble  {found['ensemble']:.6g}" in said
    if case.name == "deepcam":
        assert "mean of class probabilities" in said and found["mean_squares"] is None
    else:
        mse = found["mean_squares"]
        assert mse["ensemble"] == pytest.approx(mse["members"] - mse["variance"], abs=1e-6) and mse["variance"] > 0


@pytest.mark.exhaustive
def test_two_ranks_find_the_ensemble_of_one(case, members):
    case.evaluate.main(["job", "-o", "one.json", members])
    found = json.loads(Path("one.json").read_text())
    two_ranks = run_process(*torchrun(2), "-m", case.name, "evaluate", "job", members)
    assert f"ensemble  {found['ensemble']:.4g}"[:-1] in two_ranks.stdout


@pytest.mark.exhaustive
def test_one_run_twice_or_one_seed_is_no_ensemble(case, members, capsys):
    shutil.copytree("job/instance_1", "twin")
    newest, twin = (f"{folder}/checkpoints/epoch-0001-step-0000000.pt" for folder in ("job/instance_1", "twin"))
    for runs, message in (
        (("job", "job/instance_1"), f"{newest}: given twice"),
        (("job/instance_1", f"./job/../{newest}"), "given twice"),
        (("job/instance_1", "job/instance_2", "twin"), f"{newest} and {twin}: both runs have the seed 12"),
    ):
        assert case.evaluate.main([*runs, members]) == 2
        error = capsys.readouterr().err
        assert message in error and error.count("\n") == 1
    assert case.evaluate.main(["job/instance_1", members]) == 1
    assert capsys.readouterr().out.splitlines()[-1].startswith(f"{newest}: ")


@pytest.mark.exhaustive
def test_out_of_bag_each_sample_is_judged_by_those_that_did_not_draw_it(case, config, members, capsys):
    assert case.evaluate.main(["job", "--out-of-bag", "-o", "out.json", members]) == 1
    found = json.loads(Path("out.json").read_text())
    drawn = [set(draw_samples("bootstrap", 11, instance, 24).tolist()) for instance in range(3)]
    left_out = [set(range(24)) - one for one in drawn]
    assert [member["samples"] for member in found["members"]] == list(map(len, left_out))
    assert found["samples"] == len(set.union(*left_out)) < 24
    assert f"{found['samples'] / 24:.1%} of 24 training samples have an out-of-bag member" in capsys.readouterr().out
    two_ranks = run_process(*torchrun(2), "-m", case.name, "evaluate", "job", "--out-of-bag", members)
    assert f"ensemble  {found['ensemble']:.4g}"[:-1] in two_ranks.stdout
    # One member by hand, a sample at a time.
    problem = case.train.BENCHMARK.problem(load(case.train.Config, Path(config)), make_single_dist(), 11)
    path = "job/instance_2/checkpoints/epoch-0001-step-0000000.pt"
    problem.model.load_state_dict(torch.load(path, weights_only=True)["state"]["model"])
    problem.model.eval()
    with torch.no_grad(), problem.evaluating():
        batches = problem.read(problem.sets["train"], (np.array([one]) for one in sorted(left_out[2])))
        total, count = sum(problem.score(problem.prepared(batch)) for batch in batches).tolist()
    assert found["members"][2]["quality"] == pytest.approx(total / count, rel=1e-4)


def test_members_that_do_not_go_together_have_a_clear_error(case, run, members, capsys):
    network = {"cosmoflow": "model.fc1=8", "deepcam": "model.width=0.25", "oc20": "model.hidden=8"}[case.name]
    key = network.partition("=")[0]
    run("train.epochs=1", "output_dir=other", network)
    run("train.epochs=1", "output_dir=fewer", "data.train_samples=20")
    capsys.readouterr()
    for other, message in (("other", f"{key} is "), ("fewer", "data.train_samples is 20, but null in")):
        assert case.evaluate.main(["job", other, members]) == 2
        error = capsys.readouterr().err
        assert message in error and error.count("\n") == 1 and "the same network and data" in error
    assert case.evaluate.main(["fewer", "--out-of-bag", members]) == 2
    assert "trained without bagging (instances.bagging=none)" in capsys.readouterr().err


def test_shards_of_all_samples_are_not_drawn_from(config, run, capsys):
    if "height" not in Path(config).read_text():
        pytest.skip("only DeepCAM shuffles within shards")
    assert run("instances.bagging=poisson", "data.shuffle=rank") == 2
    assert "set data.shuffle=global" in capsys.readouterr().err
