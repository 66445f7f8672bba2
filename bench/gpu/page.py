"""The results as tables: a short one on the terminal, and the page docs/performance/gpu.md."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final

from gpu.networks import ASSUMED, NETWORKS, OC20_EDGES, Ceilings, Network, ceilings_of
from gpu.sections import RUNS, of_run

Row = dict[str, Any]
NOT_MEASURED: Final = "*not measured*"
STEPS: Final = ("step", "with files", "without files", "evaluation")
MARKS: Final = ("wrong", "error", "late", "under_way")


def rows_of(results: Iterable[dict[str, Any]]) -> list[Row]:
    """Return the rows of all sections of several results."""
    return [row for one in results for section in one["sections"].values() for row in section["rows"]]


def table(head: str, rows: Iterable[str]) -> Iterator[str]:
    """Yield a Markdown table; the head's columns that begin with a > are numbers."""
    columns = head.split(" | ")
    yield "| " + " | ".join(column.removeprefix(">") for column in columns) + " |"
    yield "|" + "|".join("---:" if column.startswith(">") else "---" for column in columns) + "|"
    yield from rows


def state(row: Row) -> str:
    """Return what is wrong with a row, "" if nothing is."""
    return next((f"{mark.replace('_', ' ')}: {row[mark]}" for mark in MARKS if mark in row), "")


def named(row: Row) -> str:
    """Return the name of a row's variant, and whether its steps could not be recorded."""
    return row["variant"] + (" (not recorded)" if "note" in row else "")


def step_cells(network: Network, row: Row, reached: Ceilings) -> list[str]:
    """Return the numbers of a row of training steps."""
    share = row["edges"] / OC20_EDGES if "edges" in row else 1.0
    eager, planned = (row["batch"] * floor for floor in network.floors_ms(reached, share))
    seconds = row["ms"] / 1e3
    flop, moved = share * row["batch"] * network.flop, share * row["batch"] * network.bytes_eager
    return [
        f"{row['per_s']:,.0f}",
        f"{row['ms']:.2f} ({row['ms_again']:.2f})",
        f"{row['ms'] / eager:.1f} ×",
        f"{row['ms'] / planned:.1f} ×",
        f"{flop / seconds / 1e12:.0f}",
        f"{moved / seconds / 1e12:.1f}",
        f"{row['per_s'] / network.published:.1f} ×",
        f"{row['memory_mb'] / 1e3:.1f}",
        f"{row['wait_share']:.1%}",
        f"{row['host_ms']:.2f}",
        f"{row['waits']}",
    ]


STEP_HEAD: Final = (
    "what | variant | >batch | >samples/s | >ms (again) | >over floor, eager | >over floor, planned | >TFLOP/s | "
    ">TB/s, counted eager | >over published | >GB | >waiting for data | >host, ms | >waits"
)


def steps(network: Network, rows: list[Row], reached: Ceilings) -> Iterator[str]:
    """Yield the lines of a network's steps."""
    for row in rows:
        if row["what"] not in STEPS or row.get("network") != network.name:
            continue
        cells = [state(row)] if state(row) or "ms" not in row else step_cells(network, row, reached)
        if row["what"] == "evaluation" and len(cells) > 1:
            cells[2:7] = [""] * 5  # the floors are those of training
        names = [row["what"], named(row), f"{row['batch']}"]
        padding = [""] * (STEP_HEAD.count("|") + 1 - len(names) - len(cells))
        yield f"| {' | '.join([*names, *cells, *padding])} |"


def summary(results: list[dict[str, Any]]) -> str:
    """Return the short table that is printed last."""
    rows = rows_of(results)
    reached = ceilings_of(rows)
    lines = [f"{reached.flop_per_s / 1e12:.0f} TFLOP/s, {reached.bytes_per_s / 1e12:.2f} TB/s"]
    for row in rows:
        if row["what"] not in STEPS:
            continue
        network = NETWORKS[row["network"]]
        line = f"{row['network']:<10}{row['what']:<14}{named(row):<49}{row['batch']:>4} "
        if state(row) or "ms" not in row:
            lines.append(f"{line} {state(row)[:100]}")
            continue
        cells = step_cells(network, row, reached)
        lines.append(f"{line}{cells[0]:>8}/s {cells[1]:>18} ms  {cells[2]:>7} {cells[3]:>7} of floors  {cells[7]} GB")
    right = [row for row in rows if row["what"] == "right"]
    wrong = [row for row in right if state(row)]
    lines.append(f"right: {len(right) - len(wrong)} of {len(right)}")
    lines += [f"  {row['network']} {row['model']} {row['format']}: {state(row)}" for row in wrong]
    return "\n".join(lines)


# -- the page ------------------------------------------------------------------------------------------------


def page(paths: Iterable[Path]) -> str:
    """Return the page of these files of results; without any it says what is planned, and that nothing is measured."""
    results = [json.loads(path.read_text(encoding="utf-8")) for path in paths]
    rows = rows_of(results)
    lines = [*introduction(results), "", *floors(rows), "", *networks(rows), "", *sections(results), *others(rows)]
    return "\n".join(map(wrapped, lines)) + "\n"


def wrapped(line: str) -> str:
    """Return a line of prose as lines of at most 120 characters; tables stay as they are."""
    if line.startswith("|"):
        return line
    return textwrap.fill(line, 120, break_on_hyphens=False, subsequent_indent="  " if line.startswith("*") else "")


def introduction(results: list[dict[str, Any]]) -> Iterator[str]:
    yield "# Performance on a GPU"
    yield ""
    if results:
        yield "Measured by `bench/gpu.py`:"
        yield ""
        for one in results:
            about = one["machine"]
            yield (
                f"* run {about['run'] or 'without a number'}, {about['date']}: {about['device']}; torch "
                f"{about['torch']}, CUDA {about['cuda']}, Triton {about['triton']}, Python {about['python']}; commit "
                f"{about['commit']}, sources {about['sources'][:10]}"
            )
    else:
        yield (
            "Nothing on this page is measured yet: times and rates are counted, or expected from counting. "
            "`bench/gpu.py` measures them, in three runs of at most ten minutes on one GPU."
        )
    yield ""
    yield (
        "A step is everything from the stored record on the device to the updated weights, in bf16 with weights, "
        "statistics and optimizer in float32. Times are medians of at least 20 steps, between events of the device; in "
        "parentheses those of as many more. Networks are compared with references in float64 before they are timed; a "
        "wrong one is not timed. Run it again (`--help` tells what the machine needs):"
    )
    yield ""
    yield "```"
    for number in RUNS:
        yield f"python bench/gpu.py --run {number} -o run{number}.json"
    yield "python bench/gpu.py --page run1.json run2.json run3.json > docs/performance/gpu.md"
    yield "```"


def floors(rows: list[Row]) -> Iterator[str]:
    """Yield ceilings and floors."""
    reached = ceilings_of(rows)
    measured = reached != ASSUMED
    yield "## Ceilings and floors"
    yield ""
    yield (
        f"{'Measured' if measured else 'Assumed for one H200'}: {reached.flop_per_s / 1e12:.0f} TFLOP/s of a product "
        f"in bf16, {reached.bytes_per_s / 1e12:.1f} TB/s of a copy, read and written. A floor is the time of the "
        "operations plus that of the bytes, per sample of a training step: with torch's own operations (eager), and "
        "with the kernels that are planned. Published: samples per second of an H100, the fastest closed results per "
        "accelerator of round 3.0, at local batches of 1, 8 and 16."
    )
    yield ""
    head = (
        "network | >batch | >GFLOP | >GB, eager | >GB, planned | >floor, eager | >floor, planned | >published | "
        ">expected as is | >expected with all | >measured as is | >measured with all"
    )
    yield from table(head, (floor_line(network, rows, reached) for network in NETWORKS.values()))
    ceilings = [row for row in rows if row["what"] == "ceiling" and not state(row)]
    if ceilings:
        yield ""
        yield from table("ceiling | >measured", map(ceiling_line, ceilings))


def floor_line(network: Network, rows: list[Row], reached: Ceilings) -> str:
    eager, planned = network.floors_ms(reached)
    fits = [
        row
        for row in rows
        if row["what"] == "step"
        and row.get("network") == network.name
        and row["batch"] == network.batch
        and "ms" in row
    ]
    plain = [row["per_s"] for row in fits if row["variant"] == "torch, eager"]
    best = [row["per_s"] for row in fits if row["variant"] != "torch, eager"]
    cells = [
        network.title,
        f"{network.batch}",
        f"{network.flop / 1e9:,.1f}",
        f"{network.bytes_eager / 1e9:.2f}",
        f"{network.bytes_planned / 1e9:.2f}",
        f"{eager:.2f} ms",
        f"{planned:.2f} ms",
        f"{network.published:g}/s",
        f"{network.as_is}/s",
        f"{network.goal}/s",
        f"{plain[-1]:,.0f}/s" if plain else NOT_MEASURED,
        f"{max(best):,.0f}/s" if best else NOT_MEASURED,
    ]
    return f"| {' | '.join(cells)} |"


def ceiling_line(row: Row) -> str:
    parts = [f"{row['ms']:.3g} ms"] if "ms" in row else []
    for key, unit, factor in (("flop_per_s", "TFLOP/s", 1e-12), ("bytes_per_s", "GB/s", 1e-9)):
        if key in row:
            parts.append(f"{row[key] * factor:,.0f} {unit}")
    for key in ("us", "host_us"):
        if key in row:
            parts.append(f"{row[key]:.2f} µs{' of the host' if key == 'host_us' else ''}")
    return f"| {row['name']}{' in ' + row['format'] if 'format' in row else ''} | {', '.join(parts)} |"


def networks(rows: list[Row]) -> Iterator[str]:
    """Yield the steps of each network."""
    yield "## Steps"
    yield ""
    reached = ceilings_of(rows)
    for network in NETWORKS.values():
        lines = list(steps(network, rows, reached))
        yield f"{network.title}: {'' if lines else NOT_MEASURED}".rstrip()
        yield ""
        if lines:
            yield from table(STEP_HEAD, lines)
            yield ""
    yield (
        "Waits: calls that wait for the device, in 10 steps. Counted eager: the bytes of torch's own operations over "
        "the time; a step with fewer of them moves less."
    )


def sections(results: list[dict[str, Any]]) -> Iterator[str]:
    """Yield the plan of the runs, with what became of it."""
    yield "## Runs"
    for number in RUNS:
        yield ""
        yield f"Run {number}, {sum(section.seconds for section in of_run(number))} s:"
        yield ""
        lines = (
            f"| {section.name} | {section.seconds} | {section.expected} | {section.decision} | "
            f"{outcome(results, number, section.name)} |"
            for section in of_run(number)
        )
        yield from table("section | >s | expected | decision | measured", lines)


def outcome(results: list[dict[str, Any]], number: int, name: str) -> str:
    """Return what became of a section, in words."""
    found = [one["sections"][name] for one in results if one["machine"]["run"] == number and name in one["sections"]]
    if not found:
        return NOT_MEASURED
    rows = found[-1]["rows"]
    said = f"{found[-1]['status']}, {len(rows)} cases in {found[-1]['seconds']:.0f} s"
    for mark in MARKS:
        if count := sum(mark in row for row in rows):
            said += f", {count} {mark.replace('_', ' ')}"
    return said


NUMBERS: Final = (
    "ms ms_again forward_ms both_ms floor_ms launched_ms per_s relative_error output_error gradient_error times "
    "memory_mb seconds run_s epochs quality graphed"
).split()
ELSEWHERE: Final = {*STEPS, "ceiling"}


def others(rows: list[Row]) -> Iterator[str]:
    """Yield all other results: names, then numbers."""
    for what in dict.fromkeys(row["what"] for row in rows if row["what"] not in ELSEWHERE):
        yield ""
        yield f"### {what.capitalize()}"
        yield ""
        lines = []
        for row in rows:
            if row["what"] == what:
                names = [
                    f"{value}" for key, value in row.items() if isinstance(value, str) and key not in ("what", *MARKS)
                ]
                numbers = [f"{key} {shown(row[key])}" for key in NUMBERS if row.get(key) is not None]
                lines.append(f"| {', '.join(filter(None, names))} | {state(row) or ', '.join(numbers)} |")
        yield from table("case | result", lines)


def shown(value: Any) -> str:
    return f"{value:,.4g}" if isinstance(value, float) else f"{value}"
