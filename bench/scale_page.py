"""The page of bench/scale.py: what each action of a job costs, and what breaks first beyond the measured ranks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from math import sqrt
from typing import Any, Final

from machine import describe_machine

GOAL: Final = 10_000
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


class Line:
    """The straight line through what the two largest numbers of ranks have given."""

    def __init__(self, found: Sequence[Results], value: Callable[[Results], float]) -> None:
        (self.ranks, self.value), (fewer, before) = ((result["ranks"], value(result)) for result in found[:-3:-1])
        self.slope = (self.value - before) / (self.ranks - fewer)

    def at(self, ranks: float) -> float:
        """Return the value at a number of ranks, but at least what was measured."""
        return max(self.value, self.value + self.slope * (ranks - self.ranks))

    def reaches_for_all(self, limit: float) -> float:
        """Return the number of ranks at which the value of a rank, times the ranks, reaches a limit."""
        slope, first = max(self.slope, 1e-9), max(0.0, self.value - self.slope * self.ranks)
        return (sqrt(first**2 + 4 * slope * limit) - first) / (2 * slope)

    def reaches(self, limit: float) -> float:
        """Return the number of ranks at which the line reaches a value; infinity if it does not grow."""
        return self.ranks + (limit - self.value) / self.slope if self.slope > 0 else float("inf")


def cost_line(found: Sequence[Results], action: str, who: str, *names: str) -> Line:
    """Return the line of some counts of an action. who: main or other."""
    return Line(found, lambda result: sum(result["actions"][action][who].get(name, 0) for name in names))


def descriptor_line(found: Sequence[Results], who: str) -> Line:
    return Line(found, lambda result: result["descriptors"][who])


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
        f"Measured by `bench/scale.py` on {describe_machine(machine)}. The "
        f"load average was {machine['load']:.1f} when it began, from other work. {', '.join(numbers[:-1])} and "
        f"{numbers[-1]} real ranks train a tiny CosmoFlow on this machine, by gloo; eight at a time believe that they "
        f"share a node. What is said of {GOAL:,} ranks is **extrapolated**, by a straight line through the two "
        "largest numbers, which is too much for messages along trees. The network is tiny: the steps and checkpoints "
        "of a real one send what its weights take."
    )


def write_actions(result: Results) -> Iterator[str]:
    found = result["ranks"]
    yield f"## What each action costs with {found[-1]['ranks']} ranks"
    yield ""
    yield (
        "Sent and received by TCP; messages: segments with data, out and in; connections that open and close within "
        "an action are not seen. Another: the most of any rank but 0. Files: opened by Python; processes: started. "
        "Of rank 0, and of another rank. +/rank: what one more rank adds to the bytes of rank 0, and its bytes at "
        f"{GOAL:,}."
    )
    yield ""
    yield f"| action | who | rank 0 | messages | another | messages | +/rank | at {GOAL:,} | files | processes |"
    yield "|---|---|---:|---:|---:|---:|---:|---:|---:|---:|"
    for action, words in ACTIONS.items():
        costs = [found[-1]["actions"][action][who] for who in ("main", "other")]
        cells = [*words]
        for cost in costs:
            cells.append(", ".join(bytes_text(cost.get(name, 0)) for name in ("sent", "received")))
            cells.append(", ".join(f"{cost.get(name, 0):,.0f}" for name in ("messages_out", "messages_in")))
        line = cost_line(found, action, "main", "sent", "received")
        cells += [bytes_text(max(0.0, line.slope)), bytes_text(line.at(GOAL))]
        for name in ("files", "processes"):
            cells.append(", ".join(f"{cost.get(name, 0):,.0f}" for cost in costs))
        yield f"| {' | '.join(cells)} |"
    yield ""
    yield (
        "Nothing is gathered to all ranks. A checkpoint has the same size for any number of them: the random numbers "
        "of a rank follow from seed, rank, epoch and step."
    )


def write_ranks(result: Results) -> Iterator[str]:
    yield "## By the number of ranks"
    yield ""
    yield (
        "Rank 0, then the most of another. All share the cores of this machine, so that a meeting takes long; a plain "
        "process group of torch met just before, by gloo, too."
    )
    yield ""
    yield "| ranks | meeting | of a plain group | CPU until a rank has met | descriptors | threads | private memory |"
    yield "|---:|---:|---:|---:|---:|---:|---:|"
    for ranks in result["ranks"]:
        meeting = ranks["actions"]["meeting"]
        seconds = ", ".join(f"{meeting[who]['cpu_us'] / 1e6:.2f}" for who in ("main", "other"))
        descriptors, threads, memory = (
            ", ".join(f"{ranks[name][who]:.0f}" for who in ("main", "other"))
            for name in ("descriptors", "threads", "private_mb")
        )
        yield (
            f"| {ranks['ranks']} | {meeting['main']['wall_us'] / 1e6:.1f} s | {ranks['plain_s']:.1f} s | {seconds} s "
            f"| {descriptors} | {threads} | {memory} MB |"
        )


def write_store(result: Results) -> Iterator[str]:
    store = result["store"]
    calls = ", ".join(f"{name} {store[name]['cpu_us']:.0f} µs" for name in CALLS)
    yield f"## The store with {store['clients']:,} clients"
    yield ""
    yield (
        f"All are connected at once, and {store['at_once']} call at the same time. CPU time of the server for a call: "
        f"{calls}. A connection takes {store['memory_kb']:.1f} kB of its memory. {GOAL:,} clients connect within "
        f"{GOAL * store['connect']['cpu_us'] / 1e6:.1f} s of its CPU time. Not in it: torch looks up the name of each "
        "client in the DNS, in the one thread of the server, until a lookup fails. A name server that takes 10 ms "
        f"for each delays {GOAL:,} connections by {GOAL * 0.01:.0f} s; `/etc/hosts` or a cache on the node of rank 0 "
        "help."
    )


def write_meetings(result: Results) -> Iterator[str]:
    meetings = result["meetings"]
    yield f"## The meeting of {meetings[0]['ranks']:,} ranks"
    yield ""
    yield (
        "What rank 0 does with the facts of ranks that do not exist: each has left in a real store of torch the cores "
        "it may use, of 256, its accelerator and its addresses. The groups of torch, which follow, are not in it."
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
    yield f"## Staging {plan['files']:,} files to {plan['nodes']:,} nodes again"
    yield ""
    yield (
        f"What one rank does when all files are there (`staging.keep`): {plan['cpu_s']:.1f} s of CPU, without what "
        f"its file system does, and {plan['peak_mb'] - plan['before_mb']:.0f} MB of memory, its list of the files "
        f"among it. It receives the list, {bytes_text(plan['list_bytes'])}; all ranks reduce the facts of the files, "
        f"{bytes_text(plan['facts_bytes'])}, and a mask of them, {bytes_text(plan['mask_bytes'])}, for "
        "any number of nodes. What its node lacks a rank learns by files in the `stage_dir`."
    )


def find_limits(result: Results) -> list[tuple[float, str]]:
    """Return the number of ranks at which something breaks, and what, the first one first."""
    found, store = result["ranks"], result["store"]
    # The ranks began with the first limit.
    limit = DESCRIPTORS[found[-1]["descriptor_limit"]["other"] > DESCRIPTORS[0]]
    limits = [
        (descriptor_line(found, who).reaches(limit), f"descriptors of {text} where {limit:,} are allowed")
        for who, text in (("main", "rank 0"), ("other", "another rank"))
    ]
    received = cost_line(found, "meeting", "other", "received")
    wire = f"rank 0 sending {PATIENCE_S:.0f} s for a meeting, at {bytes_text(WIRE)}/s"
    limits.append((received.reaches_for_all(PATIENCE_S * WIRE), wire))
    limits.append(
        (
            received.reaches(LARGEST_VALUE),
            "the largest value of the store (8 MiB), if a rank's meeting received one alone",
        )
    )
    call_us = max(store[name]["cpu_us"] for name in SHORT_CALLS)
    meeting = cost_line(found, "meeting", "main", "messages_in").reaches(PATIENCE_S / call_us * 1e6)
    limits.append((meeting, f"a meeting of {PATIENCE_S:.0f} s of the store's CPU time, {call_us:.0f} µs a message"))
    signs = cost_line(found, "sign of life", "main", "messages_in").reaches(SERVER_SHARE * IDLE_S / call_us * 1e6)
    limits.append((signs, f"signs of life taking {SERVER_SHARE:.0%} of a core of rank 0"))
    return sorted(limits)


def write_limits(result: Results) -> Iterator[str]:
    yield f"## What breaks first on the way to {GOAL:,} ranks"
    yield ""
    yield "| ranks | what |"
    yield "|---:|---|"
    limits = find_limits(result)
    for ranks, what in limits:
        yield f"| {'never' if ranks == float('inf') else f'{ranks:,.0f}'} | {what} |"
    first, what = limits[0]
    yield ""
    yield f"First, {'beyond' if first > GOAL else 'before'} {GOAL:,}: at {first:,.0f} ranks, {what}."
    yield ""
    yield (
        "That is of ranks which are all connected to each other, as they are here. Of over 1,000 only those connect "
        "that send to each other (gloo's lazy connections), so that a meeting grows with the ranks and no longer with "
        "their square; this page does not measure that, `TORCH_GLOO_LAZY_INIT=1 python bench/scale.py` does. With 32 "
        "ranks and torch 2.13 some then aborted at the end."
    )


def write_imports(result: Results) -> Iterator[str]:
    if not (counts := result["imports"]):
        return
    torch, plain, ours = (counts[name] for name in ("torch", "step", "training"))
    yield "## Imports from a shared file system"
    yield ""
    yield (
        f"Before the ranks meet each looks up thousands of files: `import torch` makes {torch:,} calls about files "
        f"(strace), a plain script that makes one step {plain:,}, a training of one step {ours:,}, its samples not "
        f"counted. So {plain / ours:.0%} of them are torch's own, and {GOAL:,} ranks ask a shared file system "
        f"{GOAL * ours / 1e6:,.0f} million times at once. Give each node a copy of the environment: a squashfs image "
        "that is mounted there, as Apptainer does, or an archive that one rank per node unpacks into its memory or "
        "disk. The shared file system then opens one file per node."
    )
