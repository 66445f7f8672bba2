"""The page that `bench/cosmoflow.py` writes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

PUBLISHED = 224
"""Samples per second of an H100 at local batch 1: the fastest published closed result per accelerator (round 3.0)."""
GOAL = 4 * PUBLISHED
FLOPS_PER_SAMPLE = 192.09e9
BYTES_PER_SAMPLE = 2.1e9
"""What an unfused training step in half precision moves per sample, mostly in the first block."""


def ratio_of(result: dict[str, Any]) -> float | None:
    """Return our CPU time over the peer's; None without a peer."""
    return result["ours"]["cpu_s"] / result["peer"]["cpu_s"] if "peer" in result else None


def table(results: dict[str, list[dict[str, Any]]], machine: dict[str, Any]) -> str:
    """Return the Markdown page."""
    sides = [
        result[side] for found in results.values() for result in found for side in ("ours", "peer") if side in result
    ]
    versions = {name: number for side in sides for name, number in side["versions"].items()}
    lines = [
        "# Performance of training CosmoFlow",
        "",
        f"Measured by `bench/cosmoflow.py` on {machine['date']}: {machine['machine']}, Python {machine['python']}, "
        f"{', '.join(f'{name} {number}' for name, number in versions.items())}. The load average was "
        f"{machine['load']:.1f} when it began, from other work. "
        "The same again: `python bench/cosmoflow.py -o docs/performance-cosmoflow`.",
        "A step is log(1 + counts), forward, backward and SGD with momentum. Medians of turns of ours and the peer's; "
        "CPU time is user + system of all threads. The peer is the same network in Keras on TensorFlow. Idle threads "
        "sleep (`OMP_WAIT_POLICY=passive`): on a busy machine spinning made steps several times longer.",
    ]
    for section, found in results.items():
        lines += ["", *SECTIONS[section](found)]
    return "\n".join(lines) + "\n"


def one_core(found: list[dict[str, Any]]) -> Iterator[str]:
    """Yield the comparison: CPU time per sample decides, whatever else the machine does."""
    yield "## One thread"
    yield ""
    yield (
        "CPU time per sample; in the last two columns the memory of the process. Ratio: our time over the peer's; "
        "the goal is less than 1. Peak: the FLOP per CPU second of a matrix product."
    )
    yield ""
    yield "| network | batch | format | peer | ours (least–most) | ratio | goal | of the peak | peer | ours |"
    yield "|---|---:|---|---:|---:|---:|---|---:|---:|---:|"
    for result in found:
        case, ours, peer = result["case"], result["ours"], result.get("peer")
        batch, ratio = case["batch"], ratio_of(result)
        spread = "–".join(f"{bound(ours['cpu_s_of_turns']) / batch * 1e3:.1f}" for bound in (min, max))
        rate = ours["flops_per_sample"] * batch / ours["cpu_s"]
        share = f"{rate / 1e9:.0f} of {ours['flop_per_cpu_s'] / 1e9:.0f} GFLOP/s, {rate / ours['flop_per_cpu_s']:.0%}"
        cells = [
            result["network"],
            f"{batch}",
            case["dtype"],
            f"{peer['cpu_s'] / batch * 1e3:.1f} ms" if peer else "",
            f"{ours['cpu_s'] / batch * 1e3:.1f} ms ({spread})",
            f"{ratio:.2f}" if ratio else "",
            ("met" if ratio < 1 else "**missed**") if ratio else "",
            share,
            f"{peer['memory_mb']:.0f} MB" if peer else "",
            f"{ours['memory_mb']:.0f} MB",
        ]
        yield f"| {' | '.join(cells)} |"


def all_cores(found: list[dict[str, Any]]) -> Iterator[str]:
    """Yield the elapsed time, which other work on the machine lengthens on both sides."""
    yield "## All cores, elapsed"
    yield ""
    yield "| network | batch | format | peer, step | ours, step | ratio | samples/s |"
    yield "|---|---:|---|---:|---:|---:|---:|"
    for result in found:
        case, ours, peer = result["case"], result["ours"], result.get("peer")
        theirs = f"{peer['wall_s'] * 1e3:.0f} ms" if peer else ""
        ratio = f"{ours['wall_s'] / peer['wall_s']:.2f}" if peer else ""
        yield (
            f"| {result['network']} | {case['batch']} | {case['dtype']} | {theirs} | {ours['wall_s'] * 1e3:.0f} ms "
            f"| {ratio} | {case['batch'] / ours['wall_s']:.1f} |"
        )


def reading(found: list[dict[str, Any]]) -> Iterator[str]:
    """Yield what the steps are like when the loader reads their samples from files in the page cache."""
    yield "## With the loader, all cores"
    yield ""
    yield "Files in the page cache, the loader at its usual settings, its threads beside those that compute."
    yield ""
    yield "| network | batch | format | files | of the time waiting for data | samples/s | CPU per sample |"
    yield "|---|---:|---|---|---:|---:|---:|"
    for result in found:
        case, ours = result["case"], result["ours"]
        batch = case["batch"]
        yield (
            f"| {result['network']} | {batch} | {case['dtype']} | {result['files']} | {ours['wait_share']:.1%} "
            f"| {batch / ours['wall_s']:.1f} | {ours['cpu_s'] / batch * 1e3:.1f} ms |"
        )


def accelerator(found: list[dict[str, Any]]) -> Iterator[str]:
    """Yield the speed of one accelerator beside the published one and the floors of counting."""
    peak, copied = (max(result["ours"][key] for result in found) for key in ("flop_per_s", "copied_bytes_per_s"))
    yield "## One accelerator"
    yield ""
    yield (
        "Seconds between events of the device. "
        f"Published: {PUBLISHED} samples/s of an H100 at local batch 1; goal: {GOAL}. "
        f"Ceilings: {peak / FLOPS_PER_SAMPLE:.0f} samples/s at {peak / 1e12:.0f} TFLOP/s of a matrix product, "
        f"{copied / BYTES_PER_SAMPLE:.0f} at {copied / 1e12:.1f} TB/s of a copy, if no layers are fused."
    )
    yield ""
    yield "| batch | format | step | samples/s | over published | of the peak | of the copy rate | memory |"
    yield "|---:|---|---:|---:|---:|---:|---:|---:|"
    for result in found:
        case, ours = result["case"], result["ours"]
        rate = case["batch"] / ours["wall_s"]
        of_peak, of_copies = rate * FLOPS_PER_SAMPLE / peak, rate * BYTES_PER_SAMPLE / copied
        yield (
            f"| {case['batch']} | {case['dtype']} | {ours['wall_s'] * 1e3:.2f} ms | {rate:.0f} "
            f"| {rate / PUBLISHED:.1f} × | {of_peak:.1%} | {of_copies:.1%} | {ours['device_memory_mb']:.0f} MB |"
        )


SECTIONS = {"one core": one_core, "all cores": all_cores, "reading": reading, "accelerator": accelerator}
