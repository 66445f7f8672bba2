"""The configuration of a run, as the train command resolves it: what no run can have is refused, without torch.

Messages name the keys. A run of the closed division has its configuration, too.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from operator import attrgetter
from typing import Any, Final, TypeVar

from common.config import ConfigError, Override, list_leaves, list_sources, load, quote_value, to_dict
from common.installed import find_config
from common.measure.power_sources import parse_source
from common.own_code import find_registered, import_all
from common.provenance import shown_path
from common.reference import Reference
from common.settings.keys import compare_closed
from common.settings.optim import LOG_NAMES
from common.settings.run import RunConfig, count_steps

C = TypeVar("C", bound=RunConfig)
LENGTH: Final = frozenset({"train.epochs", "train.global_batch_size", "train.tail", "data.train_samples"})
"""Keys that decide how many steps a run has."""
MOST: Final = 1 << 16
"""Of layers, channels and all that a network is made of."""
OPEN: Final = "or train in the open division: submission.division=open"


def resolve_config(
    cls: type[C],
    name: str,
    overrides: Sequence[Override] = (),
    check_network: Callable[[Any], None] = lambda config: None,
) -> C:
    """Return the configuration of a name or file with overrides; ConfigError if no run can have it.

    cls: the benchmark's Config. check_network: raises ConfigError for a network that cannot be made, which takes torch.
    """
    file = find_config(cls.reference.name, name)

    def check(config: C) -> None:
        import_all(config.train.imports)
        check_combinations(config, overrides)
        check_network(config)

    config = load(cls, file, overrides, check)
    check_closed_division(config, list_sources(file, overrides))
    return config


# -- combinations of values ----------------------------------------------------------------------------------


def check_combinations(config: RunConfig, overrides: Sequence[Override]) -> None:
    """Raise ConfigError for what cannot work on any number of ranks. overrides: as given."""
    _check_numbers(config)
    _check_names(config)
    _check_instances(config)
    if config.staging.source and config.submission.staging_timed:
        raise ConfigError(
            f"submission.round is {config.submission.round!r}, in which staging is part of a run's time, but what "
            "staging.source names is copied before the run is set up; set a later submission.round, or data.data_dir"
        )
    samples: int | None = getattr(config.data, "train_samples", None)  # the data are not looked at
    steps = samples and count_steps(samples, config.train.global_batch_size, config.train.tail)
    keys = keys_of(overrides)
    # With another length alone it is a trial of a recipe.
    check_length(config, steps, None if LENGTH.isdisjoint(keys) else keys)


def _check_numbers(config: RunConfig) -> None:
    """Raise ConfigError for a number that is not finite, and for a size in section model that no network has."""
    for leaf in list_leaves(type(config)):
        value = attrgetter(leaf.name)(config)
        numbers = value.values() if isinstance(value, dict) else value
        for number in numbers if isinstance(value, dict | tuple) else (value,):
            if isinstance(number, float) and not math.isfinite(number):
                raise ConfigError(f"{leaf.name} is {number}; expected finite numbers")
            if leaf.name.startswith("model.") and type(number) is int and number > MOST:
                raise ConfigError(f"{leaf.name} is {quote_value(value)}; expected at most {MOST:,}")


def _check_names(config: RunConfig) -> None:
    """Raise UsageError for names that nothing registers, and for a source of power that there is not."""
    if config.optim.name not in LOG_NAMES:
        find_registered("optimizer", config.optim.name, "optim.name", LOG_NAMES)
    if config.train.problem is not None:
        find_registered("problem", config.train.problem, "train.problem")
    if config.power.source:
        parse_source(config.power.source, "power.source")


def _check_instances(config: RunConfig) -> None:
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


def check_length(config: RunConfig, steps: int | None, keys: Collection[str] | None) -> None:
    """Raise ConfigError if a run ends before the warm-up of its learning rate.

    steps: of an epoch, None if they are unknown. keys: look at these only; None: at all.
    """
    epochs = config.train.epochs
    for name, end in config.schedule.warmed_up(steps).items():
        if end > epochs and (keys is None or f"schedule.{name}" in keys):
            raise ConfigError(
                f"schedule.{name} is {getattr(config.schedule, name)}, so that the warm-up ends after {end:.4g} "
                f"epochs, but train.epochs is {epochs}; lower the former or raise the latter"
            )


def keys_of(overrides: Sequence[Override]) -> set[str]:
    """Return the dotted keys of overrides."""
    names = ([text.partition("=")[0].strip()] if isinstance(text, str) else text for text in overrides)
    return {key for keys in names for key in keys}


# -- the closed division -------------------------------------------------------------------------------------


def check_closed_division(config: RunConfig, sources: Mapping[str, str]) -> None:
    """Raise ConfigError, with all keys at fault, if a closed run departs from what the closed division asks for.

    sources: where the values of keys come from, for the message.
    """
    if config.submission.division != "closed":
        return
    reference, round_ = config.reference, config.submission.round
    lines = []
    for row, value in compare_closed(to_dict(config, shown_path), reference, round_).refused:
        source = f" ({sources[row.key]})" if row.key in sources else ""
        lines.append(f"  {row.key} is {quote_value(value)}{source}; closed: {row.allowed.text} ({row.cite})")
    if lines:
        first = f"submission.division is closed, but {reference.name} in round {round_} does not allow:"
        raise ConfigError("\n".join((first, *lines, f"train with the values of the closed division, {OPEN}")))


def check_sample_counts(config: RunConfig, train_samples: int, eval_samples: int) -> None:
    """Raise ConfigError if a closed run has found other numbers of samples than its dataset has."""
    if config.submission.division != "closed":
        return
    for name, samples, whole in find_other_counts(config, config.reference, train_samples, eval_samples):
        raise ConfigError(
            f"data.{name}: {config.data.data_dir} has {samples:,}, but the closed division trains on the whole "
            f"dataset, {whole}: take all of it, {OPEN}"
        )


def find_other_counts(
    config: RunConfig, reference: Reference, train_samples: int, eval_samples: int
) -> Iterator[tuple[str, int, str]]:
    """Yield each number of samples that is not its dataset's, as name, number, and what it is in the dataset."""
    for name, samples, by_round in (
        ("train_samples", train_samples, reference.dataset.train_samples),
        ("eval_samples", eval_samples, reference.dataset.eval_samples),
    ):
        counts = by_round.get(config.submission.round, (samples,))
        if samples not in counts:
            yield name, samples, " or ".join(f"{count:,}" for count in counts)
