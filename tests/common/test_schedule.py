"""The schedule against the reference's formula, published recipes and its own limits."""

import pytest

from common.schedule import ScheduleConfig, logged, rate

STOCK = ScheduleConfig(decay={32: 0.25, 64: 0.125})
"""The reference's cosmo.yaml."""


def rates(config, global_batch_size, epochs):
    return [rate(config, global_batch_size, epoch) for epoch in range(epochs)]


def test_warm_up_starts_at_the_base_and_ends_at_the_peak():
    assert rates(STOCK, 256, 7) == pytest.approx([0.001, 0.00175, 0.0025, 0.00325, 0.004, 0.004, 0.004])


def test_a_decay_counts_after_its_epoch():
    """Key 32 is epoch_num 33 of the log, the last one at the peak."""
    at = {epoch: rate(STOCK, 256, epoch) for epoch in (31, 32, 33, 64, 65, 127)}
    assert at == pytest.approx({31: 0.004, 32: 0.004, 33: 0.001, 64: 0.001, 65: 0.0005, 127: 0.0005})


def test_the_order_of_decay_does_not_matter_and_warm_up_comes_first():
    config = ScheduleConfig(warmup_epochs=4, decay={64: 0.125, 2: 0.5})
    assert rates(config, 128, 6) == pytest.approx([0.001, 0.00125, 0.0015, 0.00175, 0.001, 0.001])


def test_no_warm_up_epochs():
    config = ScheduleConfig(base_lr=0.012, scaling="none", warmup_epochs=0, decay={32: 0.25})
    assert rates(config, 1024, 34) == pytest.approx([0.012] * 33 + [0.003])


def test_scaling():
    peaks = {scaling: rate(ScheduleConfig(scaling=scaling), 576, 4) for scaling in ("linear", "sqrt", "none")}
    assert peaks == pytest.approx({"linear": 0.009, "sqrt": 0.003, "none": 0.001})


@pytest.mark.parametrize(
    ("config", "global_batch_size", "expected"),
    [
        # As the log of TACC in round 1.0 states it, which the reference's code wrote, but for the list of factors.
        (STOCK, 128, (0.002, 4, 2.0, [32, 64], [0.25, 0.125])),
        (
            ScheduleConfig(0.006, "linear", 128, 6, decay={23: 0.0625, 19: 0.5, 21: 0.25, 22: 0.125}),
            512,
            (0.024, 6, 4.0, [19, 21, 22, 23], [0.5, 0.25, 0.125, 0.0625]),
        ),
        (ScheduleConfig(0.012, "none", warmup_epochs=0, decay={32: 0.25}), 1024, (0.012, 0, 1.0, [32], 0.25)),
        (ScheduleConfig(kind="cosine", cosine_epochs=9), 64, (0.001, 4, 1.0, [], [])),
    ],
)
def test_the_log_states_the_peak(config, global_batch_size, expected):
    facts = logged(config, global_batch_size)
    names = (
        "base_learning_rate learning_rate_warmup_epochs learning_rate_warmup_factor learning_rate_decay_boundary_epochs"
    )
    assert list(facts) == [f"opt_{name}" for name in names.split()] + ["opt_learning_rate_decay_factor"]
    assert tuple(facts.values()) == expected


def test_cosine_changes_with_each_step():
    config = ScheduleConfig(base_lr=0.1, base_batch_size=8, warmup_epochs=1, kind="cosine", cosine_epochs=3)
    steps = [rate(config, 16, epoch, step, 2) for epoch in range(4) for step in range(2)]
    half = 0.1 * (1 + 0.5**0.5)
    assert steps == pytest.approx([0.1, 0.15, 0.2, half, 0.1, 0.2 - half, 0, 0])


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"base_lr": 0.0}, "base_lr is 0.0"),
        ({"base_batch_size": 0}, "base_batch_size is 0"),
        ({"warmup_epochs": -1}, "warmup_epochs is -1"),
        ({"decay": {0: 0.5}}, "decay has 0: 0.5"),
        ({"decay": {3: 0.0}}, "decay has 3: 0.0"),
        ({"kind": "cosine", "cosine_epochs": 4}, "cosine_epochs above warmup_epochs = 4"),
        ({"kind": "cosine", "cosine_epochs": 9, "decay": {5: 0.5}}, "no decay"),
    ],
)
def test_impossible_values_are_refused(values, message):
    with pytest.raises(ValueError, match=message):
        ScheduleConfig(**values)
