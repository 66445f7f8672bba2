"""Show the progress of a run: a live line, and a final line per epoch.

Only rank 0 shows it. The live line appears on a terminal only.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from tqdm import tqdm

from common.bar import duration
from common.reference import Target

if TYPE_CHECKING:
    from common.training.callbacks import Epoch


class Progress:
    """Shows a run. quiet: show nothing, for ranks other than 0.

    label: begins each line of one of several trainings, which have no live line.
    """

    def __init__(self, target: Target, quiet: bool, label: str = "") -> None:
        self.target, self.quiet, self.label = target, quiet, label
        self._bar: Any = None

    def print_line(self, text: str) -> None:
        """Print a line above the live line."""
        if not self.quiet:
            tqdm.write(self.label + text, file=sys.stdout)
            sys.stdout.flush()

    def begin_epoch(self, epoch: int, steps: int, done: int) -> None:
        """Start the live line of an epoch (counted from 1); `done` of its steps were done before."""
        self.close()
        hidden = True if self.quiet or self.label else None  # None: shown on a terminal only
        self._bar = tqdm(total=steps, initial=done, desc=f"epoch {epoch}", unit="step", leave=False, disable=hidden)

    def show_step(self, loss: float | None) -> None:
        """Advance the live line by a step; loss: the latest, None if it is not new."""
        if loss is not None:
            self._bar.set_postfix_str(f"loss {loss:.4f}", refresh=False)
        self._bar.update()

    def show_evaluation(self) -> None:
        """Show on the live line that the network is being evaluated."""
        self._bar.set_description("validation")

    def show_epoch(self, last: Epoch, epochs: int) -> None:
        """Print the line of an epoch, of so many at most; the next one may have started."""
        left = (epochs - last.epoch) * (last.train_s + last.eval_s)
        goal = f"target {self.target.range_text}"
        self.print_line(
            f"epoch {last.epoch:3}/{epochs}  loss {last.loss:.4f}  {self.target.key} {last.quality:.4f}"
            f"  ({goal}{', reached' if self.target.met(last.quality) else ''})"
            f"  {last.samples_per_s:,.1f} samples/s  {duration(last.train_s + last.eval_s)}"
            f"  {'ETA <= ' + duration(left) if left else 'last epoch'}"
        )

    def close(self) -> None:
        """Remove the live line."""
        if self._bar is not None:
            self._bar.close()
