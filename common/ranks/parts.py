"""Parts of a job: equal groups of consecutive ranks that work side by side, each at its own pace.

Once they are formed, no collective spans two parts. What the ranks of different parts tell each other goes through
the store of the job: which part takes which piece of work, that one of them was asked to stop, that a rank is lost, and
that all are done. An error of one rank ends the piece of work of its part alone; each piece of work gets new
connections. A rank that does not come back, because its process was killed, ends the job.
"""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Callable, Iterator
from typing import Any, Final

import torch.distributed as td

from common.ending import FAILED, Ending, EndingError
from common.errors import LaunchError
from common.ranks.alarm import LOOKS_PER_S, PULSE_S, Alarm
from common.ranks.dist import Dist
from common.ranks.groups import leave_group
from common.ranks.meeting import AnsweringStore
from common.stop import STOP

BEAT_S: Final = 5.0
"""Between two signs of life of a rank."""
LOST_S: Final = 60.0
"""A rank without a sign of life for so long counts as lost."""
STOPPING_LOST_S: Final = 15.0
"""The same after SIGTERM, which a launcher sends that lost a rank, and kills the others 30 s later (torchrun; KillWait
of Slurm): so time is left for them to unwind, which may take GRACE_S. Not less, because a rank that writes its
checkpoint may let no other thread run meanwhile. Other signals come early, and nothing kills soon after them."""
LONGEST_WAIT_S: Final = 0.5
"""Between two looks of a rank that waits for others."""


class PartError(EndingError):
    """The work of this part ended by an error of one of its ranks, which was shown, or by a stop signal."""


class Parts:
    """The parts of a job, as seen by one rank. size: ranks of a part. number: of this rank's part; count: of all."""

    def __init__(self, dist: Dist, size: int, expected: tuple[type[BaseException], ...] = ()) -> None:
        """Form the parts, by the last collective call of `dist`, whose own connections end.

        expected: errors that are shown without a traceback. ValueError if `size` does not divide the number of ranks.
        """
        dist.check_divisor(size)
        self.size, self.number, self.count = size, dist.rank // size, dist.world_size // size
        self.is_main = dist.rank % size == 0
        self._dist, self._alarm, self._expected, self._turns = dist, dist.alarm, expected, 0
        self._passed_on = False
        dist.find_nodes()  # for the pieces of work, when no rank may call all others
        self._shared = td.PrefixStore("parts", self._alarm.store if self._alarm else td.HashStore())
        self._store: Any = AnsweringStore(self._shared, LOST_S)
        self._roll = Roll(self._store, dist.world_size)
        dist.close()
        dist.leave = self._leave_last
        if self._alarm:
            self._alarm.pulse = self._show_life

    def take_piece(self, pieces: int) -> int | None:
        """Return the number of the next piece of work of `pieces` that no part has taken; the same in all of the part.

        None if there is none left, or the job was asked to stop.
        """
        turn, self._turns = f"turn/{self.number}/{self._turns}", self._turns + 1
        if self.is_main:
            self._store.set(turn, str(pieces if STOP.number else self._store.add("taken", 1) - 1))
        self._wait_until(lambda: bool(self._store.check([turn])))
        text = self._store.get(turn)[:9]
        piece = int(text) if text.isdigit() else pieces  # strangers may reach the store
        return piece if piece < pieces else None

    @contextlib.contextmanager
    def work_together(self, name: str) -> Iterator[Dist]:
        """Yield the Dist of this part, with new connections, for a piece of work of this name, which is used once.

        An error on one of its ranks ends the work on all of them: it is shown, and PartError is raised. Raises
        LaunchError if a rank does not come back.
        """
        store = td.PrefixStore(f"alarm/{name}", self._shared)
        alarm = Alarm(store, self._dist.rank, self.size, self._expected, self._alarm)
        alarm.work = f"{name}: "
        try:
            with alarm:
                # A rank that waits here shows that it lives; inside the call of torch that connects them it cannot.
                self.meet_ranks(f"part/{name}", self.size)
                first, store = self.number * self.size, td.PrefixStore(f"ranks/{name}", self._shared)
                dist = self._dist.rejoin_ranks(range(first, first + self.size), store, alarm)
                yield dist
                dist.barrier()
        except BaseException as error:
            alarm.check_job()
            ending = alarm.report_error(error)
            alarm.check_job()
            if not alarm.all_unwound:
                raise LaunchError(f"a rank that works on {name} was killed, or is stuck; {ending.text}") from None
            leave_group()
            raise PartError(ending) from None
        leave_group()

    def leave_text(self, key: str, text: str) -> None:
        """Leave a text for the other ranks; never a result, since strangers may reach the store."""
        self._store.set(key, text)

    def read_text(self, key: str) -> str | None:
        """Return a text that a rank has left; None if there is none."""
        return self._store.get(key).decode() if self._store.check([key]) else None

    def meet_ranks(self, name: str, ranks: int | None = None) -> None:
        """Wait until this many ranks, by default all of the job, are here, however long that takes."""
        self._store.add(f"met/{name}", 1)
        self._wait_until(lambda: bool(self._store.add(f"met/{name}", 0) >= (ranks or self._dist.world_size)))

    def _leave_last(self) -> None:
        """Wait for all ranks; the store ends with rank 0, so that it leaves last."""
        self.meet_ranks("end")
        self._store.add("left", 1)
        if self._dist.rank == 0:
            self._wait_until(lambda: bool(self._store.add("left", 0) >= self._dist.world_size), LOST_S)

    def _wait_until(self, done: Callable[[], bool], most_s: float = float("inf")) -> None:
        """Wait until something is done, by short sleeps: a signal is not heard inside a call of torch."""
        any(done() for _ in STOP.poll(most_s, 0.005, max(LONGEST_WAIT_S, self._dist.world_size / LOOKS_PER_S)))

    def _show_life(self, beat: int) -> None:
        """Pass on a request to stop, show that this rank lives, and on rank 0 look for ranks that are lost."""
        if STOP.number and not self._passed_on and self._alarm:
            self._alarm.pass_on_stop(STOP.number)
            self._passed_on = True
        if beat % round(BEAT_S / PULSE_S) == 0:
            self._roll.answer(self._dist.rank)
            if self._dist.rank == 0 and self._alarm and (lost := self._roll.find_lost()) is not None:
                cause = f"rank {lost} shows no sign of life: it was killed, or its node is lost"
                self._alarm.end_job(Ending(FAILED, cause))


class Roll:
    """The signs of life of the ranks: each notes the number of the call that it has heard last; see `find_lost`."""

    def __init__(self, store: Any, ranks: int) -> None:
        self._store, self._ranks, self._heard, self._waits = store, ranks, -1, 0

    def answer(self, rank: int) -> None:
        """Answer the latest call of rank 0, once."""
        number = self._store.add("call", 0)
        if number != self._heard:
            self._store.set(f"alive/{rank}", str(number))
            self._store.add(f"answers/{number}", 1)
            self._heard = number

    def find_lost(self) -> int | None:
        """Call again if all ranks have answered; return one that has not for too long. For rank 0, every BEAT_S.

        Calls and not seconds, so that a job that was suspended as a whole has lost no rank.
        """
        number = self._store.add("call", 0)
        if self._store.add(f"answers/{number}", 0) >= self._ranks:
            self._waits = 0
            self._store.add("call", 1)
            return None
        self._waits += 1
        if self._waits <= (STOPPING_LOST_S if STOP.number == signal.SIGTERM else LOST_S) / BEAT_S:
            return None
        self._waits = 0
        # This returns what a key has without waiting for it.
        heard = (self._store.compare_set(f"alive/{rank}", "", "") for rank in range(self._ranks))
        return next((rank for rank, answer in enumerate(heard) if answer != str(number).encode()), None)
