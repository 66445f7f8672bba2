"""Train with candidates on, in a process: `python -m gpu.candidates NAME,... NETWORK ARGUMENTS...`, bench/ on the path.

Candidates are faster paths that no device has timed, see common/candidate.py.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import sys
from collections.abc import Iterable, Iterator

from common.candidate import try_candidates

NETWORKS = ("cosmoflow", "deepcam", "oc20")


@contextlib.contextmanager
def switch_on(names: Iterable[str]) -> Iterator[None]:
    """Switch candidates on inside the body; RuntimeError for a name that there is not."""
    chosen = list(names)
    for network in NETWORKS if chosen else ():  # modules register their candidates
        for module in ("train", "kernels"):
            if importlib.util.find_spec(f"{network}.{module}"):
                importlib.import_module(f"{network}.{module}")
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(try_candidates(*chosen))
        except KeyError as error:
            raise RuntimeError(f"no such candidate: {error.args[0]}") from None
        yield


if __name__ == "__main__":
    candidates, network, *arguments = sys.argv[1:]
    with switch_on(filter(None, candidates.split(","))):
        sys.exit(importlib.import_module(f"{network}.train").main(arguments))
