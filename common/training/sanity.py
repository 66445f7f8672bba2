"""Signs that a network does not learn: one line each, once, and the run goes on."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Final

from common.reference import Reference

EVALUATIONS: Final = 3
"""So many in a row show a sign."""
MARGIN: Final = 0.02
"""By so much, of its own size, a quality must be better than that of a constant."""
FAR: Final = 100
"""An error of so many times that of a constant is implausible."""
JUMP: Final = 10_000
"""A loss of so many times another is a jump."""


class Sanity:
    """Looks at what a run finds anyhow, and says what is odd. say: prints a line."""

    def __init__(self, reference: Reference, say: Callable[[str], None]) -> None:
        self._target, self._constant, self._say = reference.target, reference.constant, say
        self._said: set[str] = set()
        self._loss = 0.0

    def has_jumped(self, loss: float) -> bool:
        """Tell, once, whether a loss is far above or far below the one before."""
        least, most = sorted((loss, self._loss or loss))
        jumped = most > JUMP * least and "jump" not in self._said
        self._loss = loss
        if jumped:
            self._said.add("jump")
        return jumped

    def is_implausible(self, quality: float) -> bool:
        """Tell whether a quality is not finite, or an error far above that of a constant."""
        far = FAR * (self._constant or math.inf) if self._target.lower_is_better else math.inf
        return not quality < far

    def look_at_norms(self, norms: Sequence[float]) -> None:
        """Look at the norms of the gradients of steps."""
        if 0.0 in norms:
            self._warn(
                "gradient",
                "the gradient of a step is exactly 0, so that no weight learns from it: see whether the inputs are all "
                "alike, the learning rate was too high at the start (units that are never active again), or the loss "
                "does not depend on the network",
            )

    def look_at_qualities(self, qualities: Sequence[float]) -> None:
        """Look at the qualities of all evaluations so far."""
        latest, key = qualities[-EVALUATIONS:], self._target.key
        if len(latest) < EVALUATIONS:
            return
        if self._constant is not None:
            bound = self._constant * (1 - MARGIN if self._target.lower_is_better else 1 + MARGIN)
            if not any(self._target.better(quality, bound) for quality in latest):
                self._warn(
                    "constant",
                    f"{key} is {latest[-1]:.4g} and was no better in the {EVALUATIONS - 1} evaluations before; a "
                    f"constant prediction has {self._constant:g}: see whether inputs and truth belong "
                    "together and are in the format that the network expects, and the learning rate",
                )
        if len(set(latest)) == 1:
            self._warn(
                "unchanged",
                f"{key} is {latest[-1]:.4g} in {EVALUATIONS} evaluations, to the last digit: the network does not "
                "change, or predicts the same for each sample",
            )

    def _warn(self, sign: str, text: str) -> None:
        if sign not in self._said:
            self._said.add(sign)
            self._say(f"warning: {text}")
