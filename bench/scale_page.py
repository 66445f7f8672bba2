"""The page of bench/scale.py: what each action of a job costs, and what breaks first beyond the measured ranks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from math import exp, inf, log
from statistics import linear_regression
from typing import Any, Final

from machine import describe_machine

GOAL: Final = 10_000
PER_NODE: Final = 8
"""Real ranks that believe that they share a node."""
ROLES: Final = ("main", "leader", "other")
IDLE_S: Final = 20.0
"""How long the ranks do nothing, so that what they say all the time is counted."""
LARGEST_VALUE: Final = 8 * 2**20
"""Bytes that torch's store takes as one value."""
DESCRIPTORS: Final = 1024, 524_288
"""Usual limits of descriptors: that of a shell, and the one to which a process may raise its own (systemd)."""
PATIENCE_S: Final = 60.0
"""The longest that the server of the store may compute, or rank 0 may send, for a meeting."""
WIRE: Final = 1e9
"""Bytes per second that rank 0 sends, as by a network of 10 Gbit/s."""
SERVER_SHARE: Final = 0.5
"""The largest share of a core that signs of life may take of the server."""
SHORT_CALLS: Final = ("append", "set", "check", "get 1 kB", "wait")
CALLS: Final = ("connect", *SHORT_CALLS, "get 1 MiB")
ACTIONS: Final = {
    "meeting": ("meeting, with the facts of the nodes", "all; rank 0 has the store"),
    "configuration": ("comparing the configuration", "all, by digests"),
    "folder": ("owning the folder", "rank 0"),
    "resume": ("reading a checkpoint", "rank 0, for all"),
    "file list": ("listing the samples", "rank 0, for all"),
    "provenance": ("provenance: git, sources, versions", "rank 0"),
    "staging": ("staging: list, plan, copy", "all"),
    "second staging": ("staging again what is there", "all"),
    "steps": ("steps of an epoch", "all"),
    "evaluation": ("evaluation", "all"),
    "checkpoint": ("writing a checkpoint", "rank 0"),
    "sign of life": (f"signs of life, {IDLE_S:.0f} s", "all"),
    "end": ("end", "all"),
}
Results = dict[str, Any]


class Power:
    """The power of the number of ranks that is nearest to all measured values, by least squares of the logarithms.

    Where a constant hides how a value grows, the straight line through the last two points does not: the larger counts.
    """

    def __init__(self, found: Sequence[Results], value: Callable[[Results], float]) -> None:
        points = [(log(result["ranks"]), log(amount)) for result in found if (amount := value(result)) > 0]
        self.exponent, self.first = 0.0, 0.0
        if points:
            xs, ys = zip(*points, strict=True)
            if len(points) > 1:
                self.exponent, offset = linear_regression(xs, ys)
            else:
                offset = ys[0]
            self.first = exp(offset)
        (self.ranks, self.value), (fewer, before) = ((result["ranks"], value(result)) for result in found[:-3:-1])
        self.slope = max(0.0, (self.value - before) / (self.ranks - fewer))

    def at(self, ranks: float) -> float:
        """Return the value at a number of ranks."""
        return float(max(self.first * ranks**self.exponent, self.value + self.slope * (ranks - self.ranks)))

    def reaches(self, limit: float) -> float:
        """Return the number of ranks at which the value reaches a limit; infinity if it does not grow."""
        line = self.ranks + (limit - self.value) / self.slope if self.slope > 0 else inf
        if self.exponent <= 0 or not self.first:
            return float(line)
        return float(min(line, exp(min(log(limit / self.first) / self.exponent, 700))))


def fit_cost(found: Sequence[Results], action: str, who: str, *names: str) -> Power:
    """Return the power of some counts of an action. who: main, leader or other."""
    return Power(found, lambda result: sum(result["actions"][action].get(who, {}).get(name, 0) for name in names))


def fit_descriptors(found: Sequence[Results], who: str) -> Power:
    """Return the power of the open descriptors."""
    return Power(found, lambda result: result["descriptors"].get(who, 0))


def bytes_text(count: float) -> str:
    """Return a number of bytes in the unit that suits it."""
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if count >= 10 or unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} TB"


def write_page(result: Results) -> str:
    """Return the Markdown page."""
    sections = (
        *(write_head, write_actions, write_ranks, write_store, write_meetings),
        *(write_staging, write_limits, write_imports),
    )
    return "\n\n".join("\n".join(section(result)) for section in sections if any(section(result))) + "\n"


def write_head(result: Results) -> Iterator[str]:
    machine, found = result["machine"], result["ranks"]
    numbers = [str(ranks["ranks"]) for ranks in found]
    yield "# Performance of many ranks"
    yield ""
    yield (
        f"By `bench/scale.py` on {describe_machine(machine)}. The "
        f"load average was {machine['load']:.1f} when it began, from other work. {', '.join(numbers[:-1])} and "
        f"{numbers[-1]} real ranks train a tiny CosmoFlow on this machine; {PER_NODE} at a time believe that they "
        "share a node. All they say goes by the control plane, as beside accelerators and on CPUs above 256 ranks; "
        "what NCCL adds there was not measured. Each number says which it is: **measured**, on real ranks; **fitted**, "
        "by a power of the number of ranks through all measured numbers; or **simulated**, for ranks that do not "
        "exist. The network is tiny: the steps and checkpoints of a real one send what its weights take."
    )


def write_actions(result: Results) -> Iterator[str]:
    found = result["ranks"]
    yield f"## What each action costs with {found[-1]['ranks']} ranks"
    yield ""
    yield (
        "Measured: sent and received by TCP; messages: segments with data, out and in; connections that open and close "
        "within an action are not seen. Of rank 0; of a leader, the most of the first rank of another node; of "
        "another, the most of the rest. Files: opened by Python; processes: started; of rank 0, and of another. "
        "Fitted, through all numbers of ranks: the power by which the bytes of rank 0 grow, and what it gives for "
        f"{GOAL:,} ranks, or the straight line through the last two if that is more."
    )
    yield ""
    yield (
        "| action | who | rank 0 | messages | a leader | messages | another | messages | power | "
        f"at {GOAL:,}, fitted | files | processes |"
    )
    yield "|---|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|"
    for action, words in ACTIONS.items():
        costs = [found[-1]["actions"][action].get(who, {}) for who in ROLES]
        cells = [*words]
        for cost in costs:
            cells.append(", ".join(bytes_text(cost.get(name, 0)) for name in ("sent", "received")))
            cells.append(", ".join(f"{cost.get(name, 0):,.0f}" for name in ("messages_out", "messages_in")))
        power = fit_cost(found, action, "main", "sent", "received")
        cells += [f"{power.exponent:.2f}", bytes_text(power.at(GOAL))]
        for name in ("files", "processes"):
            cells.append(", ".join(f"{cost.get(name, 0):,.0f}" for cost in (costs[0], costs[-1])))
        yield f"| {' | '.join(cells)} |"
    yield ""
    yield (
        "Nothing is gathered to all ranks. A checkpoint has the same size for any number of them: the random numbers "
        "of a rank follow from seed, rank, epoch and step. What rank 0 sends to stage is mostly the data, along a "
        "tree, and none of it to ranks of its own node, so that the power says too much."
    )


def write_ranks(result: Results) -> Iterator[str]:
    found = result["ranks"]
    yield "## By the number of ranks"
    yield ""
    yield (
        "Measured: the bytes of a meeting; descriptors, threads and private memory once a job is up; of rank 0, a "
        "leader and another. All share the cores of this machine, so that a meeting takes long. For comparison a plain "
        "process group of torch, by gloo, which connects all ranks with all, met just before."
    )
    yield ""
    yield (
        "| ranks | meeting | bytes of rank 0 | of a leader | of another | descriptors | threads | private memory | "
        "plain group | bytes of its rank 0 | descriptors |"
    )
    yield "|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|"
    for ranks in found:
        meeting, plain = ranks["actions"]["meeting"], ranks["plain"]
        moved = [bytes_text(sum_bytes(meeting[who])) if who in meeting else "" for who in ROLES]
        descriptors, threads, memory = (
            ", ".join(f"{ranks[name][who]:.0f}" for who in ROLES if who in ranks[name])
            for name in ("descriptors", "threads", "private_mb")
        )
        yield (
            f"| {ranks['ranks']} | {meeting['main']['wall_us'] / 1e6:.1f} s | {' | '.join(moved)} | {descriptors} | "
            f"{threads} | {memory} MB | {plain['wall_us'] / 1e6:.1f} s | {bytes_text(sum_bytes(plain))} | "
            f"{plain['descriptors']:.0f} |"
        )
    fitted = [
        *(fit_cost(found, "meeting", who, "sent", "received") for who in ROLES),
        *(fit_descriptors(found, who) for who in ROLES),
    ]
    plain = Power(found, lambda ranks: sum_bytes(ranks["plain"]))
    powers = [f"{power.exponent:.2f}" for power in fitted]
    yield ""
    yield (
        f"Fitted, as powers of the number of ranks: bytes of a meeting {powers[0]} (rank 0), {powers[1]} (leader), "
        f"{powers[2]} (another), in a plain group {plain.exponent:.2f}; descriptors {powers[3]}, {powers[4]}, "
        f"{powers[5]}. At {GOAL:,} ranks that gives rank 0 {bytes_text(fitted[0].at(GOAL))} in a meeting, and "
        f"{bytes_text(plain.at(GOAL))} in a plain group."
    )


def sum_bytes(counts: Results) -> float:
    """Return what was sent and received."""
    return float(counts.get("sent", 0) + counts.get("received", 0))


def write_store(result: Results) -> Iterator[str]:
    store = result["store"]
    calls = ", ".join(f"{name} {store[name]['cpu_us']:.0f} µs" for name in CALLS)
    yield f"## The store with {store['clients']:,} clients"
    yield ""
    yield (
        f"Measured: all are connected at once, and {store['at_once']} call at the same time. CPU time of the server "
        f"for a call: {calls}. A connection takes {store['memory_kb']:.1f} kB of its memory. {GOAL:,} clients connect "
        "within "
        f"{GOAL * store['connect']['cpu_us'] / 1e6:.1f} s of its CPU time. Not in it: torch looks up the name of each "
        "client in the DNS, in the one thread of the server, until a lookup fails. A name server that takes 10 ms "
        f"for each delays {GOAL:,} connections by {GOAL * 0.01:.0f} s; `/etc/hosts` or a cache on the node of rank 0 "
        "help."
    )


def write_meetings(result: Results) -> Iterator[str]:
    meetings = result["meetings"]
    yield f"## Meetings of {meetings[0]['ranks']:,} ranks and more"
    yield ""
    yield (
        "Simulated: what rank 0 does with the facts of ranks that do not exist. Each has left in a real store of torch "
        "the cores it may use, of 256, its accelerator and its addresses; each hears where it is, and the address of "
        "the first rank of its group in the control plane. Bytes are those of the values; the frames of the store and "
        "of TCP are in the measured numbers above."
    )
    yield ""
    yield "| ranks | on a node | rank 0 | CPU | sent, received | largest message |"
    yield "|---:|---:|---:|---:|---:|---:|"
    for meeting in meetings:
        yield (
            f"| {meeting['ranks']:,} | {meeting['per_node']} | {meeting['wall_s']:.1f} s | {meeting['cpu_s']:.1f} s | "
            f"{bytes_text(meeting['sent'])}, {bytes_text(meeting['received'])} | {bytes_text(meeting['largest'])} |"
        )


def write_staging(result: Results) -> Iterator[str]:
    plan = result["staging"]
    yield f"## Staging {plan['files']:,} files again"
    yield ""
    yield (
        f"Measured, for the second of two ranks of a node, with all files where they are (`staging.keep`): "
        f"{plan['cpu_s']:.1f} s of CPU, without what the file system does, and at most {plan['own_mb']:.0f} MB of "
        f"memory of its own. The list of the files, {plan['list_mb']:.0f} MB, is in memory once per node. All ranks "
        f"reduce 16 bytes for each file, {bytes_text(16 * plan['files'])}, and later 2, "
        f"{bytes_text(2 * plan['files'])}, for any number of nodes. What its node lacks a rank learns by files in the "
        "`stage_dir`."
    )


def find_limits(result: Results) -> list[tuple[float, str]]:
    """Return the number of ranks at which something breaks, and what, the first one first."""
    found, store, meeting = result["ranks"], result["store"], result["meetings"][0]
    # The ranks began with the first limit.
    limit = DESCRIPTORS[found[-1]["descriptor_limit"]["other"] > DESCRIPTORS[0]]
    limits = [
        (fit_descriptors(found, who).reaches(limit), f"descriptors of {text} where {limit:,} are allowed (fitted)")
        for who, text in (("main", "rank 0"), ("leader", "a leader"), ("other", "another rank"))
    ]
    sent = fit_cost(found, "meeting", "main", "sent").reaches(PATIENCE_S * WIRE)
    limits.append((sent, f"rank 0 sending {PATIENCE_S:.0f} s for a meeting, at {bytes_text(WIRE)}/s (fitted)"))
    largest = meeting["ranks"] * LARGEST_VALUE / meeting["largest"]
    limits.append((largest, "the largest value of the store, 8 MiB: the names of the nodes (simulated, in proportion)"))
    call_us = max(store[name]["cpu_us"] for name in SHORT_CALLS)
    calls = fit_cost(found, "meeting", "main", "messages_in").reaches(PATIENCE_S / call_us * 1e6)
    text = f"a meeting of {PATIENCE_S:.0f} s of the store's CPU time, {call_us:.0f} µs a message (fitted)"
    limits.append((calls, text))
    signs = fit_cost(found, "sign of life", "main", "messages_in").reaches(SERVER_SHARE * IDLE_S / call_us * 1e6)
    limits.append((signs, f"signs of life taking {SERVER_SHARE:.0%} of a core of rank 0 (fitted)"))
    return sorted(limits)


def write_limits(result: Results) -> Iterator[str]:
    yield f"## What breaks first on the way to {GOAL:,} ranks"
    yield ""
    yield "| ranks | what |"
    yield "|---:|---|"
    limits = find_limits(result)
    for ranks, what in limits:
        yield f"| {'never' if ranks > 1e9 else f'{ranks:,.0f}'} | {what} |"
    first, what = limits[0]
    yield ""
    yield f"First, {'beyond' if first > GOAL else 'before'} {GOAL:,}: at {first:,.0f} ranks, {what}."


def write_imports(result: Results) -> Iterator[str]:
    if not (counts := result["imports"]):
        return
    torch, plain, ours = (counts[name] for name in ("torch", "step", "training"))
    yield "## Imports from a shared file system"
    yield ""
    yield (
        "Measured, but for the last number: before the ranks meet each looks up thousands of files. `import torch` "
        f"makes {torch:,} calls about files (strace), a plain script that makes one step {plain:,}, a training of "
        f"one step {ours:,}, without its samples. So {plain / ours:.0%} of them are torch's own, and {GOAL:,} ranks "
        f"ask a shared file system {GOAL * ours / 1e6:,.0f} million times at once. Give each node a copy of the "
        "environment: a squashfs image that is mounted there, as Apptainer does, or an archive that one rank per node "
        "unpacks into its memory or disk. The shared file system then opens one file per node."
    )
