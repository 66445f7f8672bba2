"""Parts of a job: equal groups of consecutive ranks that work side by side, each at its own pace.

After `Dist.parts` no collective spans two parts. What the ranks of different parts tell each other goes through the
store of the job: which part takes which piece of work, that one of them was asked to stop, that a rank is lost, and
that all are done. An error of one rank ends the piece of work of its part alone; each piece of work gets new
connections. A rank that does not come back, because its process was killed, ends the job.
"""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final, Generic, Protocol, TypeVar

from common.ending import FAILED, Ending, EndingError
from common.ranks.alarm import Alarm, Stopped, Stores
from common.ranks.launch import LaunchError
from common.ranks.meeting import poll
from common.stop import SIGNALS, STOP


class Ranks(Protocol):
    """What is needed here of a `Dist`, whose file imports this one."""

    def barrier(self) -> None:
        """Wait until all ranks are here."""


D = TypeVar("D", bound=Ranks)

PULSE_S: Final = 1.0
"""How often a rank shows that it lives, and looks whether another was asked to stop."""
LOST_S: Final = 60.0
"""A rank without a sign of life for so long counts as lost."""
STOPPING_LOST_S: Final = 15.0
"""The same after SIGTERM, which a launcher sends that lost a rank, and kills the others 30 s later (torchrun; KillWait
of Slurm): so time is left for them to unwind, which may take GRACE_S. Not less, because a rank that writes its
checkpoint may let no other thread run meanwhile. Other signals come early, and nothing kills soon after them."""
MOST_FAILURES: Final = 3
"""Of calls to the store in a row. A store that is slow may time out once; one that has ended fails each time."""
LONGEST_WAIT_S: Final = 0.5
"""Between two looks of a rank that waits for others."""
NONE_LEFT: Final = -1


class PartError(EndingError):
    """The work of this part ended by an error of one of its ranks, which was shown, or by a stop signal."""


@dataclass(frozen=True, slots=True)
class Job(Generic[D]):
    """What the ranks of a job still have in common when they work in parts.

    connect: connects the ranks of this part under a name; watch: gives what the alarm needs for them, its two stores
    and what ends their collectives; leave: closes their connections. alarm: that of the job; None in a single process.
    """

    rank: int
    world_size: int
    store: Any
    connect: Callable[[str, Alarm], D]
    watch: Callable[[str], tuple[Stores, Callable[[], None]]]
    leave: Callable[[], None]
    alarm: Alarm | None
    expected: tuple[type[BaseException], ...]


class Parts(Generic[D]):
    """The parts of a job, as seen by one rank. size: ranks of a part. number: of this rank's part; count: of all."""

    def __init__(self, job: Job[D], size: int) -> None:
        self.size, self.number, self.count = size, job.rank // size, job.world_size // size
        self.is_main = job.rank % size == 0
        self._job, self._turns = job, 0
        self._ended = threading.Event()
        self._pulse = threading.Thread(target=self._beat, name="pulse", daemon=True)
        if job.world_size > 1:
            self._pulse.start()

    def take(self, pieces: int) -> int | None:
        """Return the number of the next piece of work of `pieces` that no part has taken; the same in all of the part.

        None if there is none left, or the job was asked to stop.
        """
        turn, self._turns = f"turn/{self.number}/{self._turns}", self._turns + 1
        if self.is_main:
            taken = NONE_LEFT if STOP.number else self._job.store.add("taken", 1) - 1
            self._job.store.set(turn, str(taken if taken < pieces else NONE_LEFT))
        taken = int(self._read(turn))
        return None if taken == NONE_LEFT else taken

    @contextlib.contextmanager
    def together(self, name: str) -> Iterator[D]:
        """Yield the Dist of this part, with new connections, for a piece of work of this name, which is used once.

        An error on one of its ranks ends the work on all of them: it is shown, and PartError is raised. Raises
        LaunchError if a rank does not come back.
        """
        stores, cut = self._job.watch(name)
        alarm = Alarm(stores, self._job.rank, self.size, cut, self._job.expected)
        alarm.of_part(self._job.alarm, 30.0, name)  # s, for a rank to unwind, such as from a step of training
        try:
            with alarm:
                # A rank that waits here shows that it lives; inside the call of torch that connects them it cannot.
                self._meet(f"part/{name}", self.size)
                dist = self._job.connect(name, alarm)
                yield dist
                dist.barrier()
        except BaseException as error:
            self._check_job(alarm)
            ending = alarm.report(error)
            self._check_job(alarm)
            if not alarm.all_unwound:
                raise LaunchError(f"a rank that works on {name} was killed, or is stuck; {ending.text}") from None
            self._job.leave()
            raise PartError(ending) from None
        self._job.leave()

    def tell(self, key: str, text: str) -> None:
        """Leave a text for the other ranks; never a result, since strangers may reach the store."""
        self._job.store.set(f"told/{key}", text)

    def told(self, key: str) -> str | None:
        """Return a text that a rank has left; None if there is none."""
        name = f"told/{key}"
        return self._job.store.get(name).decode() if self._job.store.check([name]) else None

    def meet(self, name: str) -> None:
        """Wait until all ranks of the job are here, however long that takes."""
        self._meet(name, self._job.world_size)

    def _meet(self, name: str, ranks: int) -> None:
        self._job.store.add(f"met/{name}", 1)
        _wait(lambda: bool(self._job.store.add(f"met/{name}", 0) >= ranks))

    def end(self) -> None:
        """Wait for all ranks; the store ends with rank 0, so that it leaves last."""
        self.meet("end")
        self._job.store.add("left", 1)
        if self._job.rank == 0:
            _wait(lambda: bool(self._job.store.add("left", 0) >= self._job.world_size), LOST_S)

    def close(self) -> None:
        """End the thread of this rank; it must not be inside a call of torch when the process ends."""
        self._ended.set()
        if self._pulse.is_alive():
            self._pulse.join(PULSE_S * 5)

    def _read(self, key: str) -> str:
        _wait(lambda: bool(self._job.store.check([key])))
        return str(self._job.store.get(key).decode())

    def _check_job(self, alarm: Alarm) -> None:
        """Raise what ends the job, if it ends: then an error of this part is only a consequence. alarm: of the part."""
        try:
            if self._job.alarm:
                self._job.alarm.check()
        except Stopped:
            alarm.release()
            raise

    def _beat(self) -> None:
        """Show that this rank lives; pass on a request to stop; on rank 0, look for ranks that are lost."""
        seen, failures = dict.fromkeys(range(self._job.world_size), (0, 0)), 0
        while failures < MOST_FAILURES and not self._ended.wait(PULSE_S):
            try:
                if self._show_life(seen):
                    return
                failures = 0
            except RuntimeError:  # if the store ended with rank 0, the alarm of the job finds that
                failures += 1

    def _show_life(self, seen: dict[int, tuple[int, int]]) -> bool:
        """Do it once; return whether this ended the job. seen: as in `_lost`."""
        notes = self._job.store
        notes.add(f"alive/{self._job.rank}", 1)
        if STOP.number:
            notes.set("stop", str(int(STOP.number)))
        elif notes.check(["stop"]):
            number = notes.get("stop").decode()  # of a store that may be open to others
            STOP.ask(next((known for known in SIGNALS if str(int(known)) == number), 0))
        if self._job.rank or (lost := _lost(notes, seen)) is None or not self._job.alarm:
            return False
        cause = f"rank {lost} shows no sign of life: it was killed, or its node is lost"
        self._job.alarm.trip(Ending(FAILED, cause))
        return True


def _lost(notes: Any, seen: dict[int, tuple[int, int]]) -> int | None:
    """Return a rank whose count has not changed for too long; called every PULSE_S.

    seen: the last count of each rank, and how many calls found it unchanged. Calls and not seconds, so that a job
    that was suspended as a whole has lost no rank.
    """
    most = (STOPPING_LOST_S if STOP.number == signal.SIGTERM else LOST_S) / PULSE_S
    for rank, (before, unchanged) in seen.items():
        count = notes.add(f"alive/{rank}", 0)
        seen[rank] = (count, 0 if count != before else unchanged + 1)
        if seen[rank][1] > most:
            return rank
    return None


def _wait(done: Callable[[], bool], most_s: float = float("inf")) -> None:
    """Wait until something is done, by short sleeps: a signal is not heard inside a call of torch."""
    any(done() for _ in poll(most_s, 0.005, LONGEST_WAIT_S))
