"""The page that comparisons of training steps write."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from machine import describe_machine

Results = dict[str, list[dict[str, Any]]]


@dataclass(frozen=True)
class Page:
    """What the page of a benchmark says beside its numbers.

    step, peer: sentences that tell what a step is, and what it is compared with.
    bytes_per_sample: what an unfused training step in half precision moves.
    least_ratio: the peer's CPU time over ours that is the goal.
    """

    title: str
    script: str
    step: str
    peer: str
    bytes_per_sample: float
    least_ratio: float = 1

    def table(self, results: Results, machine: dict[str, Any]) -> str:
        """Return the part of the page about this benchmark, in Markdown."""
        sides = [
            side for found in results.values() for result in found for side in (result["ours"], result.get("peer"))
        ]
        versions = {name: number for side in sides if side for name, number in side["versions"].items()}
        lines = [
            f"## {self.title}",
            "",
            f"`{self.script}`, {describe_machine(machine)}, "
            f"{', '.join(f'{name} {number}' for name, number in versions.items())}. Load average "
            f"{machine['load']:.1f} before, from other work, and {machine['load_at_end']:.1f} at the end, with this. "
            f"{self.step} {self.peer}",
        ]
        sections = {
            "one core": self.one_core,
            "all cores": all_cores,
            "reading": reading,
            "accelerator": self.accelerator,
        }
        for section, found in results.items():
            lines += ["", *sections[section](found)]
        return "\n".join(lines) + "\n"

    def one_core(self, found: list[dict[str, Any]]) -> Iterator[str]:
        """Yield the comparison: CPU time per sample decides, whatever else the machine does."""
        yield "### One thread"
        yield ""
        yield "| network | batch | format | peer | ours (least–most) | ratio | of the peak | peer's memory | ours |"
        yield "|---|---:|---|---:|---:|---:|---:|---:|---:|"
        for result in found:
            case, ours, peer = result["case"], result["ours"], result.get("peer")
            batch, ratio = case["batch"], ratio_of(result)
            spread = "–".join(f"{bound(ours['cpu_s_of_turns']) / batch * 1e3:.1f}" for bound in (min, max))
            rate = ours["flops_per_sample"] * batch / ours["cpu_s"]
            cells = [
                result["network"],
                f"{batch}",
                case["dtype"],
                f"{peer['cpu_s'] / batch * 1e3:.1f} ms" if peer else "",
                f"{ours['cpu_s'] / batch * 1e3:.1f} ms ({spread})",
                mark_missed(f"{ratio:.2f}", ratio <= self.least_ratio) if ratio else "",
                f"{rate / ours['flop_per_cpu_s']:.0%}",
                f"{peer['memory_mb']:.0f} MB" if peer else "",
                f"{ours['memory_mb']:.0f} MB",
            ]
            yield f"| {' | '.join(cells)} |"

    def accelerator(self, found: list[dict[str, Any]]) -> Iterator[str]:
        """Yield the speed of one accelerator beside the floors of counting."""
        peak, copied = (max(result["ours"][key] for result in found) for key in ("flop_per_s", "copied_bytes_per_s"))
        flops = found[0]["ours"]["flops_per_sample"]
        yield "### One accelerator"
        yield ""
        yield (
            "Seconds between events of the device. "
            f"Ceilings: {peak / flops:.0f} samples/s at {peak / 1e12:.0f} TFLOP/s of a matrix product, "
            f"{copied / self.bytes_per_sample:.0f} at {copied / 1e12:.1f} TB/s of a copy, if no layers are fused."
        )
        yield ""
        yield "| batch | format | step | samples/s | of the peak | of the copy rate | memory |"
        yield "|---:|---|---:|---:|---:|---:|---:|"
        for result in found:
            case, ours = result["case"], result["ours"]
            rate = case["batch"] / ours["wall_s"]
            yield (
                f"| {case['batch']} | {case['dtype']} | {ours['wall_s'] * 1e3:.2f} ms | {rate:.0f} "
                f"| {rate * flops / peak:.1%} | {rate * self.bytes_per_sample / copied:.1%} "
                f"| {ours['device_memory_mb']:.0f} MB |"
            )


def ratio_of(result: dict[str, Any]) -> float | None:
    """Return the peer's CPU time over ours; None without a peer."""
    return result["peer"]["cpu_s"] / result["ours"]["cpu_s"] if "peer" in result else None


def mark_missed(text: str, missed: bool) -> str:
    """Return a cell of a table, bold where it misses a goal."""
    return f"**{text}**" if missed else text


def all_cores(found: list[dict[str, Any]]) -> Iterator[str]:
    """Yield the elapsed time, which other work on the machine lengthens on both sides."""
    yield "### All cores, elapsed"
    yield ""
    yield "| network | batch | format | peer, step | ours, step | ratio | samples/s | of the peak |"
    yield "|---|---:|---|---:|---:|---:|---:|---:|"
    for result in found:
        case, ours, peer = result["case"], result["ours"], result.get("peer")
        theirs = f"{peer['wall_s'] * 1e3:.0f} ms" if peer else ""
        ratio = f"{peer['wall_s'] / ours['wall_s']:.2f}" if peer else ""
        samples_per_s = case["batch"] / ours["wall_s"]
        yield (
            f"| {result['network']} | {case['batch']} | {case['dtype']} | {theirs} | {ours['wall_s'] * 1e3:.0f} ms "
            f"| {ratio} | {samples_per_s:.1f} | {samples_per_s * ours['flops_per_sample'] / ours['flop_per_s']:.0%} |"
        )


def reading(found: list[dict[str, Any]]) -> Iterator[str]:
    """Yield what the steps are like when the loader reads their samples from files in the page cache."""
    yield "### With the loader, all cores"
    yield ""
    yield "| network | batch | format | files | waiting for data | samples/s | CPU per sample |"
    yield "|---|---:|---|---|---:|---:|---:|"
    for result in found:
        case, ours = result["case"], result["ours"]
        batch = case["batch"]
        yield (
            f"| {result['network']} | {batch} | {case['dtype']} | {result['files']} | {ours['wait_share']:.1%} "
            f"| {batch / ours['wall_s']:.1f} | {ours['cpu_s'] / batch * 1e3:.1f} ms |"
        )


METHOD = """\
# Training steps beside a peer

CPU time is user + system of all threads, per sample; medians of turns that ours and the peer take, both in the row's
format. Ratio: the peer's time over ours; the goal is more than 1, OC20's 3; a missed goal is **bold**. Peak: the
FLOP/s of a matrix product, per CPU second with one thread. Memory is that of the process. Least and most are equal
where each side made a single step. Other work on the machine lengthens what is elapsed, on both sides. With the loader:
files in the page cache, usual settings, its threads beside those that compute. Threads of OpenMP wait as in training
(`GOMP_SPINCOUNT=3000`).
"""


def write_page(parts: Iterable[tuple[Page, dict[str, Any]]]) -> str:
    """Return the Markdown page of several benchmarks with their records."""
    return "\n".join([METHOD, *(page.table(record["results"], record) for page, record in parts)])
