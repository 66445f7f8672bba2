"""The results as tables: a short one on the terminal, and the page docs/performance/gpu.md."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from gpu.networks import ASSUMED, NETWORKS, OC20_EDGES, Ceilings, Network, ceilings_of
from gpu.results import MARKS, ResultsError, Row, describe_fault, read_results, read_rows
from gpu.sections import PARTS, SECTIONS, name_part
from gpu.variants import COLD, GONE, GRAPHS, KEEP_FROM, OPTIONS, PLAIN, Option

NOT_MEASURED: Final = "*not measured*"
STEPS: Final = ("step", "with files", "evaluation")
TILED: Final = ("block 1, fused", "triplets")
"""Layers that are measured with other tiles, after their own."""
IDENTITY: Final = (
    *("what", "network", "batch", "variant", "model", "format", "name", "kind", "layer", "way", "tile"),
    *("tuned", "fused", "workers", "kernel"),
)
"""What tells measurements apart; of the same, the last is shown that is right."""


def result_files(paths: Iterable[Path]) -> list[Path]:
    """Return the files of results among these files and in these folders."""
    return [path for given in paths for path in (sorted(given.glob("*.json")) if given.is_dir() else [given])]


def latest(rows: Iterable[Row]) -> list[Row]:
    """Return the rows without those that were measured again later."""
    found: dict[tuple[Any, ...], Row] = {}
    for row in rows:
        key = tuple(row.get(name) for name in IDENTITY)
        if key not in found or describe_fault(found[key]) or not describe_fault(row):
            found[key] = row
    return list(found.values())


def table(head: str, rows: Iterable[str]) -> Iterator[str]:
    """Yield a Markdown table; the head's columns that begin with a > are numbers."""
    columns = head.split(" | ")
    yield "| " + " | ".join(column.removeprefix(">") for column in columns) + " |"
    yield "|" + "|".join("---:" if column.startswith(">") else "---" for column in columns) + "|"
    yield from rows


def name_variant(row: Row) -> str:
    """Return the name of a row's variant, and whether its steps could not be recorded."""
    return row["variant"] + (" (not recorded)" if "note" in row else "")


# -- steps ---------------------------------------------------------------------------------------------------


def step_cells(network: Network, row: Row, reached: Ceilings) -> list[str]:
    """Return the numbers of a row of training steps."""
    share = row["edges"] / OC20_EDGES if "edges" in row else 1.0
    eager, planned = (row["batch"] * floor for floor in network.floors_ms(reached, share))
    flop = share * row["batch"] * network.flop
    seconds = [f"{row[key]:.1f}" if key in row else "" for key in ("warm_s", "warm_up_s", "until_recorded_s")]
    return [
        f"{row['per_s']:,.0f}",
        f"{row['ms']:.2f} ({row['ms_again']:.2f})",
        f"{row['ms'] / eager:.1f} ×",
        f"{row['ms'] / planned:.1f} ×",
        f"{flop / row['ms'] / 1e9:.0f}",
        f"{row['per_s'] / network.published:.1f} ×",
        f"{row['memory_mb'] / 1e3:.1f}",
        f"{row['wait_share']:.1%}",
        f"{row['host_ms']:.2f}",
        f"{row['waits']}",
        *seconds,
    ]


STEP_HEAD: Final = (
    "rows | variant | >batch | >samples/s | >ms (again) | >over floor, eager | >over floor, planned | >TFLOP/s | "
    ">over published | >GB | >waiting for data | >host, ms | >waits | >first steps, s | "
    ">warm-up, s | >until recorded, s"
)


def steps(network: Network, rows: list[Row], reached: Ceilings) -> Iterator[str]:
    """Yield the lines of a network's steps."""
    for row in rows:
        if row["what"] not in STEPS or row.get("network") != network.name:
            continue
        fault = describe_fault(row)
        cells = [fault] if fault or "ms" not in row else step_cells(network, row, reached)
        if row["what"] == "evaluation" and len(cells) > 1:
            cells[2:6] = [""] * 4  # the floors are those of training
        names = [row["what"], name_variant(row), f"{row['batch']}"]
        padding = [""] * (STEP_HEAD.count(" | ") + 1 - len(names) - len(cells))
        yield f"| {' | '.join([*names, *cells, *padding])} |"


def summary(result: dict[str, Any], earlier: list[dict[str, Any]]) -> str:
    """Return the short table that is printed last; earlier: results of the same card, for its ceilings."""
    rows = latest(read_rows([result]))
    reached = ceilings_of(read_rows([*earlier, result]))
    lines = [f"{reached.flop_per_s / 1e12:.0f} TFLOP/s, {reached.bytes_per_s / 1e12:.2f} TB/s"]
    for row in rows:
        if row["what"] not in STEPS:
            continue
        network = NETWORKS[row["network"]]
        line = f"{row['network']:<10}{row['what']:<14}{name_variant(row):<49}{row['batch']:>4} "
        if describe_fault(row) or "ms" not in row:
            lines.append(f"{line} {describe_fault(row)[:100]}")
            continue
        cells = step_cells(network, row, reached)
        lines.append(f"{line}{cells[0]:>8}/s {cells[1]:>18} ms  {cells[2]:>7} {cells[3]:>7} of floors  {cells[6]} GB")
    return "\n".join([*lines, *gates(rows)])


# -- what it decides -----------------------------------------------------------------------------------------


def gates(rows: list[Row]) -> Iterator[str]:
    """Yield what is right and what is not, of what is not a time."""
    right = [row for row in rows if row["what"] == "right"]
    if right:
        wrong = [f"{row['network']} {row['model']} {row['format']}" for row in right if describe_fault(row)]
        said = f"{len(right) - len(wrong)} of {len(right)} networks and formats agree with float64"
        yield f"right: {said}{'; not ' + ', '.join(wrong) if wrong else ''}"
    smoke = [row for row in rows if row["what"] == "smoke"]
    if smoke:
        faults = [f"{row['network']}, {row['variant']}: {describe_fault(row)}" for row in smoke if describe_fault(row)]
        yield f"recorded steps: {'; '.join(faults) or 'the losses are those of launched ones'}"
    for row in rows:
        if row["what"] == "kernels":
            yield f"kernel tests: {describe_fault(row) or str(row['passed']) + ' passed'}"
    equal = [row for row in rows if row["what"] == "equal runs"]
    if equal:
        other = [row["network"] for row in equal if describe_fault(row)]
        same = [row["network"] for row in equal if not describe_fault(row)]
        said = f"equal bits in {', '.join(same) or 'none'}{'; not shown in ' + ', '.join(other) if other else ''}"
        yield f"mini problems trained twice: {said}"
    timed = [row for row in rows if row["what"] == "step" and "waits" in row]
    if timed:
        waiting = [f"{row['network']}, {row['variant']}" for row in timed if row["waits"]]
        yield f"waits of the host for the device: {', '.join(waiting) or f'none in {len(timed)} variants'}"
    for row in rows:
        if row["what"] == "with files" and "ms" in row and (alone := time_of(rows, "step", row)):
            yield f"{row['network']} from files, {row['variant']}: {alone / row['ms']:.0%} of the rate of steps alone"


def time_of(rows: list[Row], what: str, like: Row) -> float | None:
    """Return the shorter of the two times of the valid row like this one but for `what`."""
    for row in rows:
        same = row["what"] == what and all(row.get(key) == like[key] for key in ("network", "batch", "variant"))
        if same and "ms" in row and not describe_fault(row):
            return min(float(row["ms"]), float(row["ms_again"]))
    return None


def gains(option: Option, rows: list[Row]) -> dict[tuple[str, int], float]:
    """Return the share of a step that the option takes away, by network and batch, of the last pair measured."""
    found = {}
    for network in option.networks:
        for batch in dict.fromkeys(row["batch"] for row in rows if row.get("network") == network and "batch" in row):
            for without, with_it in option.pairs:
                like = {"network": network, "batch": batch}
                before, after = (time_of(rows, option.rows, like | {"variant": v.name}) for v in (without, with_it))
                if before and after:
                    found[network, batch] = 1 - after / before
    return found


def verdict(option: Option, measured: dict[tuple[str, int], float]) -> str:
    """Return whether an option stays: keep, delete or deleted, or open as long as what decides is not measured."""
    if option.deleted:
        return "deleted"
    if measured and max(measured.values()) >= KEEP_FROM:
        return "keep"
    if not measured or (option.decisive and option.decisive not in measured):
        return "open"
    return "delete"


def option_line(option: Option, rows: list[Row]) -> str:
    measured = gains(option, rows)
    by_network: dict[str, list[str]] = {}
    for (network, batch), gain in sorted(measured.items()):
        by_network.setdefault(network, []).append(f"{gain:.1%} at {batch}")
    said = "; ".join(f"{network} {', '.join(parts)}" for network, parts in by_network.items())
    return f"| `{option.key}` | {option.by} | {said or NOT_MEASURED} | {verdict(option, measured)} |"


def decisions(rows: list[Row]) -> Iterator[str]:
    """Yield what the numbers decide, in some lines: rates, options, and what is right."""
    for network in NETWORKS.values():
        if line := rate_line(network, rows):
            yield f"* {line}"
    yield from (f"* {line}" for line in starts(rows))
    by_verdict: dict[str, list[str]] = {}
    for option in OPTIONS:
        by_verdict.setdefault(verdict(option, gains(option, rows)), []).append(f"`{option.key}`")
    for word in ("keep", "delete", "deleted", "open"):
        if word in by_verdict:
            yield f"* options, {word}: {', '.join(by_verdict[word])}"
    yield from (f"* {line}" for line in (*gates(rows), *tiles(rows)))


def starts(rows: list[Row]) -> Iterator[str]:
    """Yield the seconds that the start of training takes."""
    timed = [row for row in rows if row["what"] == "step" and "warm_s" in row]
    if timed:
        longest = {
            name: max((row["warm_s"] for row in timed if row["network"] == name), default=None) for name in NETWORKS
        }
        said = ", ".join(f"{name} {seconds:.1f} s" for name, seconds in longest.items() if seconds is not None)
        yield f"the first steps of a process, in which cuDNN chooses its algorithms: {said}"
    for warmed in timed:
        cold = GRAPHS.with_keys(COLD).name
        for row in timed:
            same = row["network"] == warmed["network"] and row["batch"] == warmed["batch"] and row["variant"] == cold
            if same and "warm_up_s" in warmed and "until_recorded_s" in row:
                yield (
                    f"{row['network']}, from run_start until a recorded step: {row['until_recorded_s']:.1f} s, after "
                    f"{warmed['warm_up_s']:.1f} s of warm-up {warmed['until_recorded_s']:.1f} s"
                )


def tiles(rows: list[Row]) -> Iterator[str]:
    """Yield the best of the other tiles of each kernel that has been tried with some."""
    by_layer: dict[str, list[Row]] = {}
    for row in rows:
        if row["what"] == "layer" and row.get("way") != "torch" and "ms" in row and row.get("layer") in TILED:
            by_layer.setdefault(row["layer"], []).append(row)
    for layer, (first, *others) in by_layer.items():
        if others:
            best = min(others, key=lambda row: row["ms"])
            name = best.get("tile") or best["way"]
            gain = 1 - best["ms"] / first["ms"]
            yield f"tiles of {layer}: {name} takes {gain:.1%} of its time away, the best of {len(others)}"


def choose_best(rows: Iterable[Row]) -> Row:
    """Return the row with the highest rate, of those that the suite still has if there are any."""
    return max(rows, key=lambda row: (row["variant"] not in GONE, row["per_s"]))


def rate_line(network: Network, rows: list[Row]) -> str:
    """Return a network's best rates at its batch and at the smallest, "" if there are none."""
    valid = [row for row in rows if row["what"] == "step" and row.get("network") == network.name and "per_s" in row]
    said = []
    for batch in sorted({row["batch"] for row in valid}, key=lambda batch: (batch != network.batch, batch))[:2]:
        here = [row for row in valid if row["batch"] == batch]
        best = choose_best(here)
        plain = [row["per_s"] for row in here if row["variant"] == PLAIN.name]
        over = f", {best['per_s'] / plain[0]:.1f} × {PLAIN.name}" if plain else ""
        published = f", {best['per_s'] / network.published:.1f} × the published H100" if batch == network.batch else ""
        said.append(f"{best['per_s']:,.0f} samples/s at batch {batch} ({best['variant']}){over}{published}")
    return f"{network.title}: {'; '.join(said)}" if said else ""


# -- the page ------------------------------------------------------------------------------------------------


def page(paths: Iterable[Path]) -> str:
    """Return the page of these files of results, card by card."""
    files = list(paths)
    if not files:
        raise ResultsError("no results there; expected FILE.json or a folder with some, see --part")
    results = [read_results(path) for path in files]
    lines = [*introduction(files), ""]
    for name, measured in group_by_card(results).items():
        lines += [*card(name, measured), ""]
    return "\n".join(map(wrapped, lines)).rstrip() + "\n"


def group_by_card(results: Iterable[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    """Return the results of each card, by its name."""
    cards: dict[str, list[dict[str, Any]]] = {}
    for result in results:
        cards.setdefault(result["machine"]["device"].partition(",")[0], []).append(result)
    return cards


def wrapped(line: str) -> str:
    """Return a line of prose as lines of at most 120 characters; tables stay as they are."""
    if line.startswith("|"):
        return line
    return textwrap.fill(line, 120, break_on_hyphens=False, subsequent_indent="  " if line.startswith("*") else "")


def introduction(files: Sequence[Path]) -> Iterator[str]:
    yield "# Performance on a GPU"
    yield ""
    yield (
        f"Written by `bench/gpu.py --page` from the results in {', '.join(path.name for path in files)}. "
        "[guide/gpu.md](../guide/gpu.md) says how to measure a card in 15 minutes."
    )
    yield ""
    yield (
        "A step is everything from the stored record on the device to the updated weights, in bf16 with weights, "
        "statistics and optimizer in float32. Times are medians of at least 20 steps, between events of the device; in "
        "parentheses those of as many more. Networks are compared with references in float64 before they are timed; a "
        "wrong one is not timed."
    )


def card(name: str, results: list[dict[str, Any]]) -> Iterator[str]:
    """Yield all that was measured on one card."""
    rows = latest(read_rows(results))
    reached = ceilings_of(rows)
    yield f"## {name}"
    yield ""
    for machine in {json.dumps(result["machine"], sort_keys=True): result["machine"] for result in results}.values():
        yield (
            f"* {machine['date']}: {machine['device']}; torch {machine['torch']}, CUDA {machine['cuda']}, Triton "
            f"{machine['triton']}, Python {machine['python']}; commit {machine['commit']}, sources "
            f"{machine['sources'][:10]}"
        )
    yield from decisions(rows)
    yield ""
    yield "### Wrong, late or missing"
    yield ""
    yield from faults(results)
    yield ""
    yield "### Options"
    yield ""
    yield (
        f"The share of a step that an option takes away, by local batch. It stays if that is {KEEP_FROM:.0%} or more "
        "somewhere, and is deleted if not; it is open as long as the measurement that decides is missing."
    )
    yield ""
    yield from table("option | measured by | gain | verdict", (option_line(option, rows) for option in OPTIONS))
    yield ""
    yield from floors(rows, reached)
    yield ""
    yield from networks(rows, reached)
    yield from others(rows)
    yield ""
    yield from sections(results)


def faults(results: list[dict[str, Any]]) -> Iterator[str]:
    """Yield what is wrong, late or missing, a line each."""
    measured = {name: section for result in results for name, section in result["sections"].items()}
    missing = [name for names in PARTS.values() for name in names if name not in measured]
    lines = []
    if missing:
        lines.append(f"* not measured: {', '.join(missing)}")
    for name, section in measured.items():
        if section["status"] != "done":
            lines.append(f"* {name}: {section['status']}, {section['error']}".rstrip(", "))
        for row in section["rows"]:
            if fault := describe_fault(row):
                names = [f"{row[key]}" for key in IDENTITY if row.get(key) not in (None, "")]
                lines.append(f"* {name}: {', '.join(names)}: {fault}")
    yield from lines or ["Nothing."]


def floors(rows: list[Row], reached: Ceilings) -> Iterator[str]:
    """Yield ceilings and floors."""
    ceilings = [row for row in rows if row["what"] == "ceiling" and not describe_fault(row)]
    yield "### Ceilings and floors"
    yield ""
    yield (
        f"{'Measured' if reached != ASSUMED else 'Assumed for one H200'}: {reached.flop_per_s / 1e12:.0f} TFLOP/s of a "
        f"product in bf16, {reached.bytes_per_s / 1e12:.1f} TB/s, read and written, of a copy or of the kernel that "
        "moves its least bytes faster. A floor is the time of the operations plus that of the bytes, per sample of a "
        "training step: with torch's own operations (eager), and with the kernels that are planned. Expected is a "
        "share of the rate at the floor of this card. Published: samples per second of an H100, the fastest closed "
        "results per accelerator of round 3.0, at local batches of 1, 8 and 16."
    )
    yield ""
    head = (
        "network | >batch | >GFLOP | >GB, eager | >GB, planned | >floor, eager | >floor, planned | >published | "
        ">expected as is | >expected with all | >measured as is | >measured with all"
    )
    yield from table(head, (floor_line(network, rows, reached) for network in NETWORKS.values()))
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
    plain = [row["per_s"] for row in fits if row["variant"] == PLAIN.name]
    others = [row for row in fits if row["variant"] != PLAIN.name]
    best = max(others, key=lambda row: (row["variant"] not in GONE, row["per_s"]), default=None)
    cells = [
        network.title,
        f"{network.batch}",
        f"{network.flop / 1e9:,.1f}",
        f"{network.bytes_eager / 1e9:.2f}",
        f"{network.bytes_planned / 1e9:.2f}",
        f"{eager:.2f} ms",
        f"{planned:.2f} ms",
        f"{network.published:g}/s",
        *(
            f"{1e3 * low / floor:,.0f}–{1e3 * high / floor:,.0f}/s"
            for (low, high), floor in ((network.as_is, eager), (network.goal, planned))
        ),
        f"{plain[-1]:,.0f}/s" if plain else NOT_MEASURED,
        f"{best['per_s']:,.0f}/s" if best else NOT_MEASURED,
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


def networks(rows: list[Row], reached: Ceilings) -> Iterator[str]:
    """Yield the steps of each network."""
    yield "### Steps"
    yield ""
    for network in NETWORKS.values():
        lines = list(steps(network, rows, reached))
        yield f"{network.title}: {'' if lines else NOT_MEASURED}".rstrip()
        yield ""
        if lines:
            yield from table(STEP_HEAD, lines)
            yield ""
    yield (
        "Waits: calls that wait for the device, in 10 steps. First steps: the 22 before those that are timed, in which "
        "cuDNN chooses its algorithms, once in a process, and steps are recorded. Warm-up: before run_start. Until "
        "recorded: from run_start until the device has done the fourth step, the first that is recorded if nothing was "
        "warmed up."
    )


NUMBERS: Final = (
    "ms ms_again forward_ms both_ms floor_ms launched_ms per_s relative_error output_error gradient_error times loss "
    "memory_mb seconds run_s warm_up_s until_recorded_s epochs quality graphed passed failed "
    "bytes_per_s memory_percent arithmetic_percent occupancy_percent registers"
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
                numbers = [f"{key} {number(row[key])}" for key in NUMBERS if row.get(key) is not None]
                if what == "rank" and row.get("name") == "all-reduce":
                    numbers = ["recorded; one rank: nothing is sent"]
                lines.append(f"| {', '.join(filter(None, names))} | {describe_fault(row) or ', '.join(numbers)} |")
        yield from table("case | result", lines)


def number(value: Any) -> str:
    return f"{value:,.4g}" if isinstance(value, float) else f"{value}"


def sections(results: Sequence[dict[str, Any]]) -> Iterator[str]:
    """Yield what became of the sections."""
    yield "### Sections"
    yield ""
    measured = {name: section for result in results for name, section in result["sections"].items()}
    shown = [section for section in SECTIONS if name_part(section) or section.name in measured]
    lines = (
        f"| {name_part(section) or 'none'} | {section.name} | {section.about} | {section.seconds} | "
        f"{outcome(measured.get(section.name))} |"
        for section in shown
    )
    yield from table("part | section | measures | >s, expected | result", lines)


def outcome(section: dict[str, Any] | None) -> str:
    """Return what became of a section, in words."""
    if section is None:
        return NOT_MEASURED
    said = f"{section['status']}, {len(section['rows'])} cases in {section['seconds']:.0f} s"
    for mark in MARKS:
        if count := sum(mark in row for row in section["rows"]):
            said += f", {count} {mark.replace('_', ' ')}"
    return said
