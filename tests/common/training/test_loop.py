"""The training loop on a small problem whose gradients are known: what ends a run, what a stop loses (nothing)."""

import os
import re
import signal
from dataclasses import dataclass, replace
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from common.data.sampling import Batching, draw_permutation
from common.ending import STOPPED, TARGET_MET, TARGET_NOT_MET, Ending
from common.mllog import open_log
from common.precision import Precision, PrecisionConfig
from common.ranks.dist import Dist
from common.ranks.launch import RankPosition
from common.reference import Target
from common.settings.run import TrainConfig
from common.training import checkpoint, loop
from common.training.callbacks import Progress
from common.training.checkpoint import CheckpointConfig, CheckpointError, Checkpoints, Position
from common.training.evaluators import Evaluator
from common.training.faults import Sanity
from common.training.loop import Loop
from common.training.optim import OptimConfig, build
from common.training.profile import ProfileConfig, Profiler
from common.training.step import Polls
from cosmoflow.reference import REFERENCE

DIST = Dist(RankPosition("single", 0, 1, 0, 1, 0, 1), torch.device("cpu"))
X = torch.linspace(-1, 1, 50)[:, None]
Y = 3 * X


@dataclass
class Rows:
    rows: torch.Tensor
    wait_s: float = 0.0


class Line:
    """Fit y = 3x with dropout, so that a resumed run shows whether it drew the same numbers."""

    recorder, communicates, equal_batches = None, False, True
    dist, sets = DIST, dict.fromkeys(("train", "validation"), SimpleNamespace(paths=lambda _: ()))

    def __init__(self, config, at_step=lambda epoch, step: None):
        self.config, self.at_step = config, at_step
        self.batching = Batching(config.global_batch_size, config.tail, config.accumulation)
        torch.manual_seed(1)
        self.model = nn.Sequential(nn.Linear(1, 16), nn.Tanh(), nn.Dropout(0.1), nn.Linear(16, 1))

    def steps(self, epoch):
        return self.batching.steps(len(X))

    def step_samples(self, epoch, step):
        return min(self.config.global_batch_size, len(X) - step * self.config.global_batch_size)

    step_weight = step_samples

    def order(self, epoch):
        return draw_permutation(len(X), 5, epoch)

    def read(self, samples, indices):
        yield from map(Rows, map(torch.from_numpy, indices))

    def prepared(self, batch):
        return batch

    def list_contents(self, split, index):
        return "", ()

    def batches(self, epoch, first_step):
        for batch in self.batching.batches(self.order(epoch), 0, 1, first_step):
            self.at_step(epoch, batch.step)
            for part in batch.parts:
                yield Rows(torch.from_numpy(part))

    def loss(self, model, batch):
        return (model(X[batch.rows]) - Y[batch.rows]).square().sum()

    def penalty(self):
        return 1e-4 * self.model[0].weight.square().sum()

    def evaluate(self):
        return (self.model(X) - Y).abs().mean().item()


class Late(Evaluator):
    """Tells the quality of an epoch after some steps of the next, as ranks of their own do."""

    asked = 0

    def begin(self):
        super().begin()
        self.asked = 0

    def poll(self):
        self.asked += 1
        return float(self.asked > 2), self._quality

    def quality(self, wait):
        return super().quality(wait) if wait else None


def history_of(run):
    run.fit()
    return run.state.history


def run_of(folder, target=0.3, at_step=lambda epoch, step: None, profile=None, kept=None, max_steps=None, **changes):
    config = TrainConfig(**{"epochs": 12, "global_batch_size": 8, **changes})
    folder.mkdir(exist_ok=True)
    task, goal = Line(config, at_step), Target("eval_error", target, lower_is_better=True)
    precision = Precision(PrecisionConfig(dtype="fp32"), DIST.device)
    return Loop(
        problem=task,
        settings=config,
        target=goal,
        optimizer=build(OptimConfig(), task.model.parameters(), 0.1),
        precision=precision,
        rate=lambda epoch, step, steps: 0.02 / (1 + epoch),
        dist=DIST,
        log=open_log(folder / f"log-{len(list(folder.iterdir()))}.txt", True),
        checkpoints=Checkpoints(folder / "checkpoints", "line", CheckpointConfig(**(kept or {})), DIST),
        progress=Progress(goal, quiet=False),
        sanity=Sanity(replace(REFERENCE, target=goal, constant=None), print),
        profiler=Profiler(ProfileConfig(**(profile or {})), folder / "profile", DIST, print),
        evaluator=Evaluator(task, precision),
        constants={"seed": 1, "config": {}},
        max_steps=max_steps,
    )


def resume(*arguments, **changes):
    """Return a run that goes on from the newest checkpoint, and the position of that."""
    run = run_of(*arguments, **changes)
    saved = run.checkpoints.load()
    torch.manual_seed(99)  # whatever a new process has drawn until then
    run.restore(saved)
    return run, saved.position


def test_a_run_ends_when_the_target_is_met(tmp_path, capsys):
    run = run_of(tmp_path)
    assert run.fit().how == TARGET_MET
    qualities = [epoch.quality for epoch in run.state.history]
    assert qualities[-1] <= 0.3 and all(quality > 0.3 for quality in qualities[:-1])
    assert 1 < len(qualities) < 12
    said = capsys.readouterr()
    assert said.out.count("epoch") == len(qualities) and "reached" in said.out and "\r" not in said.err


def test_the_log_has_each_epoch_and_its_evaluation(tmp_path):
    run = run_of(tmp_path, target=1e-9, epochs=2)
    assert run.fit().how == TARGET_NOT_MET
    keys = [line.split('"key": "')[1].split('"')[0] for line in run.log.path.read_text().splitlines()]
    assert (
        keys
        == [
            *("epoch_start", "epoch_stop", "learning_rate", "tracked_stats", "eval_start", "eval_stop", "eval_error"),
        ]
        * 2
    )


def test_parts_of_a_step_give_the_whole_step(tmp_path):
    losses = {}
    for parts in (1, 3):
        run = run_of(tmp_path, target=1e-9, epochs=3, accumulation=parts)
        run.problem.model[2].p = 0.0
        losses[parts] = [epoch.loss for epoch in history_of(run)]
    assert losses[1] == pytest.approx(losses[3], rel=1e-5)


def test_training_goes_on_while_an_epoch_is_evaluated(tmp_path):
    expected = history_of(run_of(tmp_path / "at_once"))
    late = run_of(tmp_path / "late")
    late.evaluator = Late(late.problem, late.precision)
    assert late.fit().how == TARGET_MET
    assert [(e.epoch, e.loss, e.quality) for e in late.state.history] == [
        (e.epoch, e.loss, e.quality) for e in expected
    ]
    events = [re.search(r'"key": "(\w+)".*"epoch_num": (\d+)', line) for line in late.log.path.open()]
    last = len(expected)
    # The next epoch had started when the target was met, and ended with it.
    assert [(key, int(epoch)) for key, epoch in (event.groups() for event in events)][-5:] == [
        *((key, last) for key in ("tracked_stats", "eval_start")),
        ("epoch_start", last + 1),
        *((key, last) for key in ("eval_stop", "eval_error")),
    ]
    # The newest checkpoint has the weights that met it.
    again, position = resume(tmp_path / "late")
    assert position == Position(last, 0) and history_of(again)[-1].quality == expected[-1].quality


class Judge(Late):
    """Gives the qualities that it is told, at once or late; the network is not asked."""

    def __init__(self, run, late):
        super().__init__(run.problem, run.precision)
        self.run, self.late = run, late

    def begin(self):
        self.asked, self._quality = 0, QUALITIES[self.run.state.history[-1].epoch - 1]

    def quality(self, wait):
        return super().quality(wait or not self.late)


QUALITIES = (0.9, 0.5, 0.7, 0.5, 0.4, 0.8, 0.6)
BEST_SO_FAR = (1, 2, 2, 2, 5, 5, 5)


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("every_epochs", [0, 1, 3])
@pytest.mark.parametrize("stop_at", [(1, 2), (4, 0), (5, 3), (6, 2)])
def test_the_best_checkpoint_is_kept_beside_the_newest(tmp_path, late, every_epochs, stop_at):
    def stop(epoch, step):
        if (epoch, step) == stop_at:
            ask_to_stop()

    whole = run_of(tmp_path / "whole", target=1e-9, epochs=7, kept={"keep": 9})
    whole.evaluator = Judge(whole, late)
    whole.fit()
    config = {"best": True, "keep": 1, "every_epochs": every_epochs}
    first = run_of(tmp_path / "run", target=1e-9, epochs=7, at_step=stop, kept=config)
    first.evaluator = Judge(first, late)
    assert first.fit().how == STOPPED
    folder = first.checkpoints.folder
    assert checkpoint.load(folder / "best.pt").content["position"] == [BEST_SO_FAR[stop_at[0] - 1], 0]
    second, _ = resume(tmp_path / "run", target=1e-9, epochs=7, kept=config)
    second.evaluator = Judge(second, late)
    second.fit()
    assert len(second.checkpoints.list_files()) == 1 and not list(folder.glob("*.tmp"))
    content = checkpoint.load(folder / "best.pt").content
    expected = checkpoint.load(tmp_path / "whole/checkpoints/epoch-0005-step-0000000.pt").content
    assert content["position"] == [5, 0]
    for name, tensor in expected["state"]["model"].items():
        assert torch.equal(content["state"]["model"][name], tensor)


LAST_STEP = 6


def ask_to_stop():
    os.kill(os.getpid(), signal.SIGUSR1)


class LatePolls(Polls):
    """Reads loss and stop requests one poll late, as on an accelerator."""

    def __init__(self, dist):
        super().__init__(dist)
        self.late = 1


@pytest.mark.parametrize("evaluator", [Evaluator, Late])
@pytest.mark.parametrize("stop_at", [(1, 0), (1, 3), (1, LAST_STEP)])
def test_a_stopped_run_goes_on_as_if_nothing_had_been(tmp_path, stop_at, evaluator):
    def stop(epoch, step):
        if (epoch, step) == stop_at:
            ask_to_stop()

    whole = history_of(run_of(tmp_path / "whole", target=1e-9, epochs=4))
    first = run_of(tmp_path / "parts", target=1e-9, epochs=4, at_step=stop)
    first.evaluator = evaluator(first.problem, first.precision)
    ending = first.fit()
    # In the last step it is too late for this epoch: it is evaluated, and the run stops before the next.
    epochs = stop_at[0] + (stop_at[1] == LAST_STEP)
    assert ending == Ending(STOPPED, "SIGUSR1", epochs) and len(first.state.history) == epochs
    second, position = resume(tmp_path / "parts", target=1e-9, epochs=4)
    assert position == Position(epochs, 0 if stop_at[1] == LAST_STEP else stop_at[1] + 1)
    assert [(e.epoch, e.loss, e.quality, e.learning_rate) for e in history_of(second)] == [
        (e.epoch, e.loss, e.quality, e.learning_rate) for e in whole
    ]


def test_a_request_to_stop_during_an_evaluation_is_heard_after_it(tmp_path):
    """And not in the next epoch: a system that preempts a job gives it seconds."""

    class Stopping(Evaluator):
        def begin(self):
            super().begin()
            ask_to_stop()

    run = run_of(tmp_path, target=1e-9, epochs=4)
    run.evaluator = Stopping(run.problem, run.precision)
    assert run.fit() == Ending(STOPPED, "SIGUSR1", 1)
    assert resume(tmp_path, target=1e-9, epochs=4)[1] == Position(1, 0)


@pytest.mark.parametrize(("stop_at", "max_steps"), [((1, 2), 11), ((0, 3), 7), ((1, 0), 9)])
def test_a_run_ends_after_the_steps_that_it_may_make(tmp_path, stop_at, max_steps):
    """Seven steps an epoch: the last one is cut, and evaluated, at the rate of a whole one; a stop changes nothing."""
    whole = run_of(tmp_path / "whole", target=1e-9, max_steps=max_steps)
    steps, rate = [], whole.rate
    whole.rate = lambda *step: steps.append(step) or rate(*step)
    assert whole.fit() == Ending(TARGET_NOT_MET, epochs=-(-max_steps // 7))
    assert list(dict.fromkeys(steps)) == [(number // 7, number % 7, 7) for number in range(max_steps)]
    stopped = run_of(tmp_path / "parts", 1e-9, lambda *step: step == stop_at and ask_to_stop(), max_steps=max_steps)
    assert stopped.fit().how == STOPPED
    resumed, _ = resume(tmp_path / "parts", target=1e-9, max_steps=max_steps)
    assert [(e.loss, e.quality) for e in history_of(resumed)] == [(e.loss, e.quality) for e in whole.state.history]


@pytest.mark.parametrize("evaluator", [Evaluator, Late])
def test_late_answers_change_nothing_but_when_a_run_stops(tmp_path, monkeypatch, evaluator):
    monkeypatch.setattr(loop, "Polls", LatePolls)
    late = run_of(tmp_path / "late", target=1e-9, epochs=3)
    late.evaluator = evaluator(late.problem, late.precision)
    late = history_of(late)
    stopped = run_of(tmp_path / "stopped", epochs=3, at_step=lambda epoch, step: step == 2 and ask_to_stop())
    assert stopped.fit().cause == "SIGUSR1"
    resumed, position = resume(tmp_path / "stopped", target=1e-9, epochs=3)
    assert position == Position(0, 4)  # step 3 was on its way when the request of step 2 was read
    assert [(e.loss, e.quality) for e in history_of(resumed)] == [(e.loss, e.quality) for e in late]
    monkeypatch.undo()
    plain = history_of(run_of(tmp_path / "plain", target=1e-9, epochs=3))
    assert [(e.loss, e.quality) for e in late] == [(e.loss, e.quality) for e in plain]


def test_a_run_at_its_target_has_nothing_to_resume(tmp_path):
    epochs = len(history_of(run_of(tmp_path)))
    again, _ = resume(tmp_path)
    assert again.fit().how == TARGET_MET and len(again.state.history) == epochs


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"optimizer": None}, "AttributeError"),
        ({"optimizer": {"state": {}, "param_groups": []}}, "different number of parameter groups"),
        ({"history": [{"a": 1}]}, "unexpected keyword argument 'a'"),
        ({"history": []}, "its history has 0 epochs; expected 2"),
        ({"loss": None}, "TypeError"),
    ],
)
def test_a_run_does_not_go_on_from_a_forged_state(tmp_path, changes, says):
    run = run_of(tmp_path, target=1e-9, epochs=2)
    run.fit()
    path = run.checkpoints.list_files()[-1]
    content = torch.load(path)
    torch.save({**content, "state": {**content["state"], **changes}}, path)
    with pytest.raises(CheckpointError, match=rf"epoch-0002-step-0000000.pt: the run cannot go on from it .*{says}"):
        resume(tmp_path, target=1e-9, epochs=2)
