"""Refuse combinations of values that cannot work, before anything is made; messages name the keys."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from operator import attrgetter
from typing import Final

from common.config import ConfigError, Override, leaves, shown
from common.settings.run import RunConfig, count_steps

LENGTH: Final = frozenset({"train.epochs", "train.global_batch_size", "train.tail", "data.train_samples"})
"""Keys that decide how many steps a run has."""
MOST: Final = 1 << 16
"""Of layers, channels and all that a network is made of."""


def check_combinations(config: RunConfig, overrides: Sequence[Override]) -> None:
    """Raise ConfigError for what cannot work on any number of ranks. overrides: as given."""
    check_finite(config)
    check_sizes(config)
    check_instances(config)
    asked = keys_of(overrides)
    # With another length alone it is a trial of a recipe.
    check_length(config, _steps(config), None if LENGTH.isdisjoint(asked) else asked)


def check_finite(config: RunConfig) -> None:
    """Raise ConfigError for a number of the configuration that is infinite, or none."""
    for leaf in leaves(type(config)):
        value = attrgetter(leaf.name)(config)
        numbers = value.values() if isinstance(value, dict) else value if isinstance(value, tuple) else (value,)
        for number in numbers:
            if isinstance(number, float) and not math.isfinite(number):
                raise ConfigError(f"{leaf.name} is {number}; expected finite numbers")


def check_sizes(config: RunConfig) -> None:
    """Raise ConfigError for a size in section model that no network has."""
    for leaf in leaves(type(config)):
        value = attrgetter(leaf.name)(config)
        for size in value if isinstance(value, tuple) else (value,):
            if leaf.name.startswith("model.") and type(size) is int and size > MOST:
                raise ConfigError(f"{leaf.name} is {shown(value)}; expected at most {MOST:,}")


def check_instances(config: RunConfig) -> None:
    """Raise ConfigError if instances are asked for with what a job of several cannot do."""
    if config.instances.count == 1:
        return
    if config.train.eval_ranks:
        raise ConfigError(
            f"train.eval_ranks is {config.train.eval_ranks} and instances.count {config.instances.count}; expected 0, "
            "so that the ranks of each instance evaluate it"
        )
    if config.power.source:
        raise ConfigError(
            f"power.source is {config.power.source!r} and instances.count {config.instances.count}, but the meter of a "
            "node cannot tell its instances apart; leave it out, and measure the job with `common.measure power`"
        )
    if config.staging.mode != "none" and config.submission.staging_timed:
        raise ConfigError(
            f"submission.round is {config.submission.round!r}, in which staging is part of each run's time, but the "
            "instances of a job share it before their runs start; set a later submission.round, or staging.mode=none"
        )


def check_length(config: RunConfig, steps: int | None, asked: Collection[str] | None) -> None:
    """Raise ConfigError if a run ends before the warm-up of its learning rate.

    steps: of an epoch, None if they are unknown. asked: look at these keys only; None: at all.
    """
    epochs = config.train.epochs
    for name, end in config.schedule.warmed_up(steps).items():
        if end > epochs and (asked is None or f"schedule.{name}" in asked):
            raise ConfigError(
                f"schedule.{name} is {getattr(config.schedule, name)}, so that the warm-up ends after {end:.4g} "
                f"epochs, but train.epochs is {epochs}; lower the former or raise the latter"
            )


def keys_of(overrides: Sequence[Override]) -> set[str]:
    """Return the dotted keys of overrides."""
    names = ([one.partition("=")[0].strip()] if isinstance(one, str) else one for one in overrides)
    return {key for keys in names for key in keys}


def _steps(config: RunConfig) -> int | None:
    """Return the steps of an epoch as far as the configuration tells: the data are not looked at."""
    samples: int | None = getattr(config.data, "train_samples", None)
    return samples and count_steps(samples, config.train.global_batch_size, config.train.tail)
