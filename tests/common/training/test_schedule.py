"""The schedule against the reference's formula, published recipes and its own limits."""

import math
from dataclasses import make_dataclass

import pytest

from common.settings.keys import list_hyperparameters
from common.settings.optim import BoundarySchedule, EpochSchedule, StepSchedule
from common.settings.run import TrainConfig


def logged(schedule, global_batch_size):
    """Return what a log states of a schedule."""
    config = make_dataclass("Config", [("schedule", type(schedule)), ("train", TrainConfig)])
    entries = list_hyperparameters(config(schedule, TrainConfig(global_batch_size=global_batch_size)))
    return {key: value for key, value in entries.items() if key != "global_batch_size"}


STOCK = EpochSchedule(decay={32: 0.25, 64: 0.125})
"""The reference's cosmo.yaml."""


@pytest.mark.parametrize(
    ("config", "global_batch_size", "expected"),
    [
        # Warm-up starts at the base and ends at the peak.
        (STOCK, 256, [0.001, 0.00175, 0.0025, 0.00325, 0.004, 0.004, 0.004]),
        # The order of decay does not matter, and warm-up comes first.
        (
            EpochSchedule(warmup_epochs=4, decay={64: 0.125, 2: 0.5}),
            128,
            [0.001, 0.00125, 0.0015, 0.00175, 0.001, 0.001],
        ),
        (EpochSchedule(0.012, "none", warmup_epochs=0, decay={32: 0.25}), 1024, [0.012] * 33 + [0.003]),
        (EpochSchedule(scaling="linear", warmup_epochs=0), 576, [0.009]),
        (EpochSchedule(scaling="sqrt", warmup_epochs=0), 576, [0.003]),
        (EpochSchedule(scaling="none", warmup_epochs=0), 576, [0.001]),
    ],
)
def test_rates_of_the_first_epochs(config, global_batch_size, expected):
    rates = [config.rate(global_batch_size, epoch) for epoch in range(len(expected))]
    assert rates == pytest.approx(expected)


def test_a_decay_counts_after_its_epoch():
    """Key 32 is epoch_num 33 of the log, the last one at the peak."""
    at = {epoch: STOCK.rate(256, epoch) for epoch in (31, 32, 33, 64, 65, 127)}
    assert at == pytest.approx({31: 0.004, 32: 0.004, 33: 0.001, 64: 0.001, 65: 0.0005, 127: 0.0005})


@pytest.mark.parametrize(
    ("config", "global_batch_size", "expected"),
    [
        # As the log of TACC in round 1.0 states it, which the reference's code wrote, but for the list of factors.
        (STOCK, 128, (0.002, 4, 2.0, [32, 64], [0.25, 0.125])),
        (
            EpochSchedule(0.006, "linear", 128, 6, decay={23: 0.0625, 19: 0.5, 21: 0.25, 22: 0.125}),
            512,
            (0.024, 6, 4.0, [19, 21, 22, 23], [0.5, 0.25, 0.125, 0.0625]),
        ),
        (EpochSchedule(0.012, "none", warmup_epochs=0, decay={32: 0.25}), 1024, (0.012, 0, 1.0, [32], 0.25)),
        (EpochSchedule(kind="cosine", cosine_epochs=9), 64, (0.001, 4, 1.0, [], [])),
    ],
)
def test_the_log_states_the_peak(config, global_batch_size, expected):
    names = "warmup_epochs warmup_factor decay_boundary_epochs decay_factor".split()
    keys = ["opt_base_learning_rate", *(f"opt_learning_rate_{name}" for name in names)]
    assert logged(config, global_batch_size) == dict(zip(keys, expected, strict=True))


def test_cosine_changes_with_each_step():
    config = EpochSchedule(base_lr=0.1, base_batch_size=8, warmup_epochs=1, kind="cosine", cosine_epochs=3)
    steps = [config.rate(16, epoch, step, 2) for epoch in range(4) for step in range(2)]
    half = 0.1 * (1 + 0.5**0.5)
    assert steps == pytest.approx([0.1, 0.15, 0.2, half, 0.1, 0.2 - half, 0, 0])


@pytest.mark.parametrize(
    ("kind", "values", "message"),
    [
        (EpochSchedule, {"base_lr": 0.0}, "base_lr is 0.0"),
        (EpochSchedule, {"base_batch_size": 0}, "base_batch_size is 0"),
        (EpochSchedule, {"warmup_epochs": -1}, "warmup_epochs is -1"),
        (EpochSchedule, {"decay": {0: 0.5}}, "decay has 0: 0.5"),
        (EpochSchedule, {"decay": {3: 0.0}}, "decay has 3: 0.0"),
        (EpochSchedule, {"kind": "cosine", "cosine_epochs": 4}, "cosine_epochs above warmup_epochs = 4"),
        (EpochSchedule, {"kind": "cosine", "cosine_epochs": 9, "decay": {5: 0.5}}, "no decay"),
        (StepSchedule, {"eta_min": 0.001}, "eta_min 0.001"),
        (StepSchedule, {"warmup_factor": 0.5}, "warmup_factor 0.5"),
        (StepSchedule, {"decay_rate": 0.0}, "decay_rate is 0.0"),
        (StepSchedule, {"milestones": (5, 5)}, "rising numbers"),
        (StepSchedule, {"kind": "cosine_annealing"}, "t_max of at least 1"),
        (BoundarySchedule, {"base_lr": 1.0, "warmup_factor": 1.5}, "warmup_factor is 1.5"),
        (BoundarySchedule, {"base_lr": 1.0, "boundaries": (4, 2)}, "rising"),
    ],
)
def test_impossible_values_are_refused(kind, values, message):
    with pytest.raises(ValueError, match=message):
        kind(**values)


# -- in steps ------------------------------------------------------------------------------------------------


def by_steps(schedule, count, steps=7):
    """Return the rates of the first steps, of epochs with `steps` each."""
    return [schedule.rate(64, number // steps, number % steps, steps) for number in range(count)]


@pytest.mark.parametrize(
    ("schedule", "expected"),
    [
        # Steps count from 1: step W is the first at the full rate, and the milestones count from there.
        (
            StepSchedule(0.4, warmup_steps=4, milestones=(3, 5), decay_rate=0.5),
            [0.1, 0.2, 0.3, 0.4, 0.4, 0.4, 0.4, 0.2, 0.2, 0.1, 0.1],
        ),
        (StepSchedule(0.1, warmup_steps=4, warmup_factor=3.0), [0.15, 0.2, 0.25, 0.3, 0.3, 0.3]),
        (StepSchedule(1.0, milestones=(2,)), [1.0, 1.0, 0.1, 0.1]),
        # As in the reference: the peak at step W, eta_min at step W + T.
        (
            StepSchedule(0.4, warmup_steps=3, kind="cosine_annealing", t_max=4, eta_min=0.2),
            [0.4 / 3, 0.8 / 3, *(0.3 + 0.1 * math.cos(math.pi * step / 4) for step in range(5)), 0.2, 0.2],
        ),
    ],
)
def test_rates_of_the_first_steps(schedule, expected):
    assert by_steps(schedule, len(expected)) == pytest.approx(expected)


def test_cosine_annealing_ends_at_its_least_rate():
    """Against torch's, which is the same until t_max and then rises again."""
    torch = pytest.importorskip("torch")
    schedule = StepSchedule(0.5, kind="cosine_annealing", t_max=6, eta_min=0.1)
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.5)
    theirs = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=6, eta_min=0.1)
    expected = []
    for _ in range(7):
        expected.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        theirs.step()
    assert by_steps(schedule, 9) == pytest.approx([*expected, 0.1, 0.1])


def test_the_log_of_steps():
    multistep = StepSchedule(0.0055, 400, milestones=(800,))
    assert logged(multistep, 2048) == {
        "opt_lr": 0.0055,
        "scheduler_type": "multistep",
        "scheduler_milestones": [800],
        "scheduler_decay_rate": 0.1,
        "scheduler_lr_warmup_steps": 400,
        "scheduler_lr_warmup_factor": 1.0,
    }
    cosine = logged(StepSchedule(0.00155, kind="cosine_annealing", t_max=9000), 128)
    assert (cosine["scheduler_t_max"], cosine["scheduler_eta_min"]) == (9000, 0.0)
    assert "scheduler_milestones" not in cosine


def test_boundaries_count_from_the_first_step():
    """As the reference's: a fifth at first, the full rate in step `warmup_steps`, less from each boundary on."""
    schedule = BoundarySchedule(1.0, warmup_steps=4, warmup_factor=0.2, boundaries=(6, 8))
    assert by_steps(schedule, 10) == pytest.approx([0.2, 0.4, 0.6, 0.8, 1.0, 1.0, 0.1, 0.1, 0.01, 0.01])
    assert logged(schedule, 256) == {
        "opt_base_learning_rate": 1.0,
        "opt_learning_rate_warmup_steps": 4,
        "opt_learning_rate_warmup_factor": 0.2,
        "opt_learning_rate_decay_boundary_steps": [6, 8],
        "opt_learning_rate_decay_factor": 0.1,
    }
