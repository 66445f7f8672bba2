"""Refuse a run of the closed division whose configuration is not one of the closed division."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from common.closed import compare
from common.config import ConfigError, shown, to_dict
from common.provenance import shown_path
from common.settings.run import RunConfig

NOWHERE: Final[Mapping[str, str]] = {}
OPEN: Final = "or train in the open division: submission.division=open"


def check_division(config: RunConfig, sources: Mapping[str, str] = NOWHERE) -> None:
    """Raise ConfigError, with all keys at fault, if a closed run departs from what the closed division asks for.

    sources: where the values of keys come from, for the message.
    """
    if config.submission.division != "closed":
        return
    reference, round_ = config.reference, config.submission.round
    refused = compare(to_dict(config, shown_path), reference, round_).refused
    if not refused:
        return
    places = [f" ({sources[row.key]})" if row.key in sources else "" for row, _ in refused]
    lines = [
        f"  {row.key} is {shown(value)}{place}; closed: {row.allowed.text} ({row.cite})"
        for (row, value), place in zip(refused, places, strict=True)
    ]
    raise ConfigError(
        "\n".join(
            (
                f"submission.division is closed, but {reference.name} in round {round_} does not allow:",
                *lines,
                f"train with the values of the closed division, {OPEN}",
            )
        )
    )


def check_samples(config: RunConfig, train_samples: int, eval_samples: int) -> None:
    """Raise ConfigError if a closed run has found other numbers of samples than its dataset has."""
    if config.submission.division != "closed":
        return
    dataset, round_ = config.reference.dataset, config.submission.round
    for name, found, counts in (
        ("train_samples", train_samples, dataset.train_samples.get(round_)),
        ("eval_samples", eval_samples, dataset.eval_samples.get(round_)),
    ):
        if counts is not None and found not in counts:
            raise ConfigError(
                f"data.{name}: {config.data.data_dir} has {found:,}, but the closed division trains on the whole "
                f"dataset, {' or '.join(f'{count:,}' for count in counts)}: take all of it, {OPEN}"
            )
