"""Steps as an accelerator needs them: nothing in them waits for it, and they can be recorded and replayed."""

import contextlib
import re
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn

from common.config import load
from common.data.prefetch import map_tensors
from common.precision import Precision
from common.ranks.dist import Dist, make_single_dist
from common.training import optim
from common.training.checkpoint import load as load_checkpoint
from common.training.step import Step
from tests.problems import SAME, curve, flat, run_process, torchrun
from tests.tape import NeverWaits, Tapes, leave_out_autocast, record_on


def trained(folder):
    """Return the curve of a run and the weights of its last checkpoint."""
    content = load_checkpoint(Path(folder), None).content
    return curve(folder), {name: tensor.tolist() for name, tensor in content["state"]["model"].items()}


@pytest.mark.one_benchmark
def test_recorded_runs_are_plain_ones_with_and_without_warm_up(case, run, monkeypatch, capsys):
    run("output_dir=plain", *case.recorded)
    tapes = Tapes()
    record_on(tapes, monkeypatch.setattr)
    run("output_dir=recorded")
    assert tapes.recorded >= 3 and tapes.played > 2 * tapes.recorded and not tapes.alive
    assert "train.graph" not in capsys.readouterr().out  # all shapes of the run were warmed up
    run("output_dir=cold", "train.warm_up=off")
    assert trained("recorded") == trained("plain") == trained("cold")
    stops = [(Path(folder) / "result_0.txt").read_text().count('"warm_up_s"') for folder in ("recorded", "cold")]
    assert stops == [1, 0]


EQUAL = ("train.global_batch_size=4", "train.tail=drop")


def test_neither_a_step_nor_an_evaluation_waits_for_the_device(case, config, monkeypatch):
    made = load(case.train.Config, Path(config), ["train.epochs=1"])
    if made.optim.name == "adamw":  # torch's own, which refuses the meta device
        made = replace(made, optim=replace(made.optim, name="lamb"))
    host, device = case.train.BENCHMARK.problem(made, make_single_dist(), 1), torch.device("meta")
    problem = case.train.BENCHMARK.problem(made, Dist(make_single_dist().position, device), 1)
    leave_out_autocast(monkeypatch)
    optimizer = optim.build(made.optim, problem.model.parameters(), 0.1)
    step = Step(problem, optimizer, Precision(made.precision, device), problem.dist)
    with contextlib.closing(host.read(host.sets["train"], iter([host.order(0)[:5]] * 2))) as read:
        # With shapes but no data.
        batches = [map_tensors(batch, lambda tensor: tensor.to("meta")) for batch in read]
    step(iter([problem.prepared(batches[0])]), 1, 5.0, 0.1)  # the optimizer makes its state
    with NeverWaits():
        batch = problem.prepared(batches[1])
        step(iter([batch]), 1, 5.0, 0.1)
    problem.model.eval()
    with torch.no_grad(), NeverWaits():
        problem.score(batch)


@pytest.mark.parametrize(
    "work",
    [lambda x: x[x > 0], lambda x: x.sum().item(), lambda x: x + torch.ones(3), torch.nonzero, lambda x: x.cpu()],
)
def test_what_waits_is_found(work):
    with pytest.raises((AssertionError, RuntimeError)), NeverWaits():
        work(torch.zeros(3, device="meta"))


def test_what_a_number_of_python_decides_is_found_by_the_tape():
    weight, scale = nn.Parameter(torch.ones(2)), [1.0]

    def work():
        with torch.no_grad():
            weight.add_(scale[0])

    replay = Tapes().record(work)
    assert weight.tolist() == [1, 1]  # nothing was done yet
    scale[0] = 5.0
    replay()
    assert weight.tolist() == [2, 2]


@pytest.mark.exhaustive
@pytest.mark.one_benchmark
def test_two_ranks_that_record_have_the_curve_of_one(case, config, run):
    # Ranks that share statistics, or record their messages, do it together: their batches must be of one size.
    run("output_dir=one", *EQUAL)

    def train(*overrides):
        script = Path(__file__).with_name("recorded.py")
        done = run_process(*torchrun(2), script, case.name, config, *EQUAL, *overrides, timeout=120)
        assert "NOT reached after 4 epochs" in done.stdout, done.stderr
        ends = re.findall(r"recorded (\d+), alive (\d+)", done.stdout)
        assert len(ends) >= 2 and all(int(made) >= 2 and alive == "0" for made, alive in ends), done.stdout
        return done.stdout

    assert "train.graph" not in train("output_dir=two", *case.shared)
    two, one = flat(curve("two")), flat(curve("one"))
    assert two[::2] == pytest.approx(one[::2], **SAME)
    assert two[1::2] == pytest.approx(one[1::2], abs=1e-3)  # rounding may turn the class of a pixel near a tie
    # Without warm-up, and with the messages in the recordings where batches are of one size: the same bits.
    recorded = [] if case.shared else ["dist.record_reduction=true"]  # refused where ranks share statistics
    said = train("output_dir=other", "train.warm_up=off", *recorded, *case.shared)
    assert ("not all batches have equal parts" in said) == (case.name == "oc20")
    assert trained("other") == trained("two")
