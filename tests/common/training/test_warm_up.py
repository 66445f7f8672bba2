"""Warming up changes nothing but what is recorded, to the last bit, at the start of a run and when it goes on."""

import copy
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from common.precision import Precision, PrecisionConfig
from common.ranks.dist import make_single_dist
from common.settings.run import TrainConfig
from common.training import optim
from common.training.optim import OptimConfig
from common.training.step import Step, warm_up, warms_up
from tests.problems import ROOT, run_process, torchrun
from tests.tape import Tapes


class Batch(tuple):
    """A batch that nobody waits for."""

    wait_s = 0.0


class Problem:
    """A network with running statistics and dropout."""

    communicates, equal_batches, penalty = False, True, staticmethod(lambda: None)

    def __init__(self, recorder):
        torch.manual_seed(1)
        self.recorder, self.evaluated = recorder, 0
        self.model = nn.Sequential(
            nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.Dropout(0.5), nn.Flatten(), nn.Linear(8, 2)
        )

    def loss(self, model, batch):
        return model(batch[0]).square().sum()

    def synthetic_steps(self):
        for size in (3, 2):
            yield [Batch((torch.rand(size, 1, 4, 4),))] * 2

    def evaluate_synthetic(self):
        self.evaluated += not self.model.training


def state(step):
    """Return all that a run goes on from."""
    parts = (step.problem.model.state_dict(), step.optimizer.state_dict(), step.precision.state_dict())
    return copy.deepcopy((*parts, torch.get_rng_state()))


def equal(one, other):
    """Tell whether nested states are equal to the bit; what one of them has not yet is 0 in the other."""
    if isinstance(one, dict):
        return all(equal(one.get(key, 0), other.get(key, 0)) for key in one.keys() | other.keys())
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(equal, one, other))
    if isinstance(one, torch.Tensor) or isinstance(other, torch.Tensor):
        return bool((torch.as_tensor(one) == torch.as_tensor(other)).all())
    return one == other or (one == 0 and not any(map(torch.any, other.values())))


@pytest.mark.parametrize("tapes", [None, Tapes()], ids=["plain", "recorded"])
@pytest.mark.parametrize("name", ["sgd", "adam", "adamw", "lamb", "muon"])
def test_training_goes_on_as_without_it(name, tapes):
    finals = []
    for warm in (False, True):
        problem, precision = Problem(tapes), Precision(PrecisionConfig("fp32"), torch.device("cpu"))
        config = OptimConfig(name=name, weight_decay=0.0 if name in ("sgd", "muon") else 0.01)
        optimizer = optim.build(config, problem.model.parameters(), torch.tensor(0.1))
        step, batches = Step(problem, optimizer, precision, make_single_dist()), torch.rand(4, 3, 1, 4, 4)
        for number, x in enumerate(batches):
            if warm and number in (0, 3):  # before the first step, and as when a checkpoint was loaded
                step = Step(problem, optimizer, precision, make_single_dist())
                before = state(step)
                assert warm_up(problem, precision, make_single_dist(), step) > 0
                assert equal(before, state(step)) and step.results.tolist() == [0, 0]
            step(iter([Batch((x,))] * 2), 2, 6.0, 0.1)
        finals.append(state(step))
        assert problem.evaluated == (2 if warm else 0)
    assert equal(*finals)
    assert not tapes or tapes.recorded


def test_it_is_for_accelerators_and_for_what_is_recorded():
    problem = SimpleNamespace(recorder=None)
    assert not warms_up(TrainConfig(), problem, torch.device("cpu"))
    assert warms_up(TrainConfig(), problem, torch.device("cuda"))
    assert warms_up(TrainConfig(), SimpleNamespace(recorder=Tapes()), torch.device("cpu"))
    assert not warms_up(TrainConfig(warm_up="off"), problem, torch.device("cuda"))


def test_the_wrapper_rehearses_once_and_changes_nothing():
    problem, ranks, wrapped = Problem(None), make_single_dist(), []
    precision = Precision(PrecisionConfig("fp32"), torch.device("cpu"))
    ranks.world_size, ranks.sharing, ranks.reduces_in_backward = 2, make_single_dist(), True
    ranks.wrap = lambda module: wrapped.append(module) or module
    passes = []
    problem.model.register_forward_hook(lambda *_: passes.append(1))
    step = Step(problem, optim.build(OptimConfig(), problem.model.parameters(), 0.1), precision, ranks)
    before = state(step)
    step.wrap_network()
    assert wrapped == [problem.model] and len(passes) == 2 and equal(before, state(step))
    assert step.results.tolist() == [0, 0] and all(parameter.grad is None for parameter in problem.model.parameters())
    step(iter([Batch((torch.rand(3, 1, 4, 4),))]), 1, 3.0, 0.1)
    assert wrapped == [problem.model] and len(passes) == 3
    problem.model[0].weight.requires_grad_(False)
    with pytest.raises(ValueError, match=r"requires_grad .* freeze layers in `attach`"):
        step(iter([Batch((torch.rand(3, 1, 4, 4),))]), 1, 3.0, 0.1)


@pytest.mark.parametrize("case", ["cosmoflow"], indirect=True)
def test_no_step_waits_for_buckets_or_for_ranks_that_evaluate(config):
    """Both ranks that train end in epoch 2, at the step by which the evaluation is known: see tests/events.py."""
    overrides = ("train.epochs=2", "train.eval_ranks=1", "train.global_batch_size=2", "train.target=0.9")
    done = run_process(*torchrun(3), ROOT / "tests/events.py", "cosmoflow", config, *overrides, timeout=120)
    assert "reached after 1 epoch" in done.stdout, done.stderr
    first, second = (Path(f"events_{rank}").read_text().split() for rank in range(2))
    for events in (first, second):
        begin = events.index("run")
        assert {"wrap", "rebuild", "broadcast"} <= set(events[:begin])
        assert events[begin + 1 :][:12] == ["step"] * 12 and not {"wrap", "rebuild"} & set(events[begin:])
    later = second[second.index("evaluation") :]
    assert set(later[later.index("step") : later.index("quality")]) == {"step"} and 10 <= later.count("step") <= 12
    assert [event for event in first if event != "broadcast"] == [event for event in second if event != "broadcast"]
