"""The configuration of a run, as the train command resolves it: what no run can have is refused, without torch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from common.config import Override, load, sources
from common.named_configs import find_config
from common.settings.run import RunConfig
from common.training.combinations import check_combinations
from common.training.division import check_division


def resolve_config(
    cls: type[RunConfig],
    given: str,
    overrides: Sequence[Override] = (),
    check_network: Callable[[Any], None] = lambda config: None,
) -> RunConfig:
    """Return the configuration of a name or file with overrides; ConfigError if no run can have it.

    cls: the benchmark's Config. check_network: raises ConfigError for a network that cannot be made, which takes torch.
    """
    file = find_config(cls.reference.name, given)

    def check(config: RunConfig) -> None:
        check_combinations(config, overrides)
        check_network(config)

    config = load(cls, file, overrides, check)
    check_division(config, sources(file, overrides))
    return config
