"""The results as tables: a short one on the terminal, and the page docs/performance/gpu.md, a screen for each card."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from gpu.networks import NETWORKS, PUBLISHED, Ceilings, Network, Published, ceilings_of, find_published
from gpu.results import ResultsError, Row, describe_fault, read_results, read_rows
from gpu.variants import (
    COMPILED,
    COMPILED_UNTUNED,
    CONVERGING,
    GRAPHS,
    OPTIONS,
    PLAIN,
    RECORDED,
    TRIED,
    UNTUNED,
    Option,
)

NOT_MEASURED: Final = "*not measured*"
STEPS: Final = ("step", "with files", "evaluation")
IDENTITY: Final = (
    *("what", "network", "batch", "variant", "model", "candidates", "format", "name", "kind", "layer", "way"),
)
"""What tells measurements apart; of the same, the last is shown that is right."""
ANY_COMPILED: Final = (COMPILED.name, COMPILED_UNTUNED.name)
WANTED: Final[Mapping[str, Mapping[str, tuple[Any, ...]]]] = {
    "DeepCAM at batch 1": {"what": ("step",), "network": ("deepcam",), "batch": (1,)},
    "DeepCAM compiled": {"what": ("step",), "variant": ANY_COMPILED},
    "losses of compiled steps beside plain ones": {
        "variant": ANY_COMPILED,
        "losses_like": (PLAIN.name, GRAPHS.name, UNTUNED.name),
    },
    "`precision.tune=false`": {"variant": (UNTUNED.name,)},
    "steps from files": {"what": ("with files",)},
    "evaluations": {"what": ("evaluation",)},
    "gradients of eight inputs": {"what": ("right",), "batches": (8,)},
    "mini problem of CosmoFlow with the fused first block": {"kind": (CONVERGING["cosmoflow"].name,)},
    "of DeepCAM compiled": {"kind": (CONVERGING["deepcam"].name,)},
    "of OC20 in bf16 with TF32": {"kind": (CONVERGING["oc20"].name,)},
    "clocks and power": {"what": ("clocks",)},
    "several GPUs": {"ranks": ("several",)},
}
"""What the page is to tell of a card, and the rows that would."""


def result_files(paths: Iterable[Path]) -> list[Path]:
    """Return the files of results among these files and in these folders."""
    return [path for given in paths for path in (sorted(given.glob("*.json")) if given.is_dir() else [given])]


def latest(rows: Iterable[Row]) -> list[Row]:
    """Return the rows without those that were measured again later."""
    found: dict[tuple[Any, ...], Row] = {}
    for row in rows:
        key = tuple(row.get(name) or "" for name in IDENTITY)
        if key not in found or describe_fault(found[key]) or not describe_fault(row):
            found[key] = row
    return list(found.values())


def table(head: str, rows: Iterable[str]) -> Iterator[str]:
    """Yield a Markdown table; the head's columns that begin with a > are numbers."""
    columns = head.split(" | ")
    yield "| " + " | ".join(column.removeprefix(">") for column in columns) + " |"
    yield "|" + "|".join("---:" if column.startswith(">") else "---" for column in columns) + "|"
    yield from rows


def name_row(row: Row) -> str:
    """Return what tells a row from others."""
    return ", ".join(f"{row[key]}" for key in IDENTITY if row.get(key) not in (None, ""))


def summary(result: dict[str, Any], earlier: list[dict[str, Any]]) -> str:
    """Return the short table that is printed last; earlier: results of the same card, for its ceilings."""
    rows = latest(read_rows([result]))
    reached = ceilings_of(read_rows([*earlier, result]))
    lines = []
    for row in rows:
        if row["what"] not in STEPS:
            continue
        line = f"{row['network']:<10}{row['what']:<14}{row['variant']:<60}{row['batch']:>4} "
        if describe_fault(row) or "ms" not in row:
            lines.append(f"{line} {describe_fault(row)[:100]}")
            continue
        floors = row["ms"] / NETWORKS[row["network"]].floor_ms(row, reached)
        said = "" if row["what"] == "evaluation" else f"{floors:.1f} floors, "
        unrecorded = " (not recorded)" if "note" in row else ""
        lines.append(
            f"{line}{row['per_s']:>8,.0f}/s {row['ms']:8.2f} ({row['ms_again']:.2f}) ms, {said}"
            f"{row['memory_mb'] / 1e3:.1f} GB{unrecorded}"
        )
    return "\n".join([*lines, *gates(rows)])


# -- rates ---------------------------------------------------------------------------------------------------


class Rate(NamedTuple):
    """The fastest recorded steps at a batch that a user can choose.

    torch: those of torch's own operations, None if they were not measured. published: of the same card and batch.
    """

    row: Row
    torch: Row | None
    published: list[Published]


def best_rates(network: Network, rows: Iterable[Row], card: str) -> list[Rate]:
    """Return the rates of a network on a card: at its own batch, the published ones, and the least."""
    steps = {
        (row["batch"], row["variant"]): row
        for row in rows
        if row["what"] == "step" and row.get("network") == network.name and "per_s" in row and "note" not in row
    }
    rates = []
    batches = {batch for batch, _ in steps}
    shown = {min(batches, default=0), network.batch, *(result.batch for result in PUBLISHED)}
    for batch in sorted(batches & shown):
        chosen = [steps[batch, variant.name] for variant in RECORDED if (batch, variant.name) in steps]
        torch = steps.get((batch, GRAPHS.name), steps.get((batch, UNTUNED.name)))
        if chosen:
            best = max(chosen, key=lambda row: float(row["per_s"]))
            rates.append(Rate(best, torch, find_published(network.name, batch, card)))
    return rates


RATE_HEAD: Final = (
    "network | >batch | variant | >samples/s, one GPU alone, data on the device | >ms | >over torch, both recorded | "
    ">times the floor | >TFLOP/s | >over published, GPUs of that job"
)


def rate_lines(network: Network, rates: Iterable[Rate], reached: Ceilings) -> Iterator[str]:
    """Yield the lines of a network in the table of rates."""
    for row, torch, published in rates:
        cells = [
            network.title,
            f"{row['batch']}",
            row["variant"],
            f"{row['per_s']:,.0f}",
            f"{row['ms']:.2f}",
            f"{row['per_s'] / torch['per_s']:.1f} ×" if torch and torch is not row else "",
            f"{row['ms'] / network.floor_ms(row, reached):.1f}",
            f"{network.flop_per_step(row) / row['ms'] / 1e9:.0f}",
            ", ".join(f"{row['per_s'] / one.per_s:.2f} × of {one.gpus:,}" for one in published),
        ]
        yield f"| {' | '.join(cells)} |"


def remarks(network: Network, rows: list[Row], rates: list[Rate]) -> Iterator[str]:
    """Yield sentences beside a network's rates: the size of its frames, files, evaluations."""
    if network.edges and rates:
        edges = ", ".join(f"{rate.row['edges']:,.0f} at batch {rate.row['batch']}" for rate in rates)
        yield f"edges of a frame, generated, not those of the published runs: {edges}."
    chosen = {variant.name for variant in RECORDED}
    for row in rows:
        if row.get("network") != network.name or "per_s" not in row or row.get("variant") not in chosen:
            continue
        if row["what"] == "with files" and (alone := time_of(rows, "step", row)):
            node = 8 * row["per_s"] * network.record_bytes / 1e9
            yield (
                f"from files in the page cache {alone / row['ms']:.0%} of the rate at batch {row['batch']}; eight such "
                f"GPUs read {node:,.1f} GB/s."
            )
        elif row["what"] == "evaluation":
            yield f"evaluations of {row['per_s']:,.0f} samples/s in batches of {row['batch']}."


# -- options and gates ---------------------------------------------------------------------------------------


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
        for batch in sorted({row["batch"] for row in rows if row.get("network") == network and "batch" in row}):
            for without, with_it in option.pairs:
                like = {"network": network, "batch": batch}
                before, after = (time_of(rows, option.rows, like | {"variant": v.name}) for v in (without, with_it))
                if before and after:
                    found[network, batch] = 1 - after / before
    return found


def describe_option(option: Option, runs: Sequence[list[Row]]) -> str:
    """Return what an option gains: from the least to the most of the runs that tell it."""
    measured: dict[tuple[str, int], list[float]] = {}
    for rows in runs:
        for case, gain in gains(option, rows).items():
            measured.setdefault(case, []).append(100 * gain)
    by_network: dict[str, list[str]] = {}
    for (network, batch), shares in measured.items():
        low, high = (f"{bound(shares):.1f}" for bound in (min, max))
        by_network.setdefault(network, []).append(f"{low if low == high else f'{low} to {high}'} % at {batch}")
    name = "{} " * (len(option.networks) > 1)
    said = ", ".join(name.format(network) + ", ".join(parts) for network, parts in by_network.items())
    note = f" ({option.note})" if option.note and (said or not option.pairs) else ""
    return f"`{option.key}`: {said or 'not measured'}{note}"


def describe_options(results: Sequence[dict[str, Any]]) -> Iterator[str]:
    """Yield a line for the options of each state: the share of a step that each takes away, at local batches."""
    runs = [latest(read_rows([result])) for result in results]
    for state in dict.fromkeys(option.state for option in OPTIONS):
        said = [describe_option(option, runs) for option in OPTIONS if option.state == state]
        if state == TRIED:
            said = [text for text in said if "not measured" not in text]
        if said:
            yield f"* {state.capitalize()}: {'; '.join(said)}."


def gates(rows: list[Row]) -> Iterator[str]:
    """Yield what is right and what is not, of what is not a time."""
    right = [row for row in rows if row["what"] == "right"]
    if right:
        wrong = [name_row(row) for row in right if describe_fault(row)]
        inputs = min(int(row.get("batches", 1)) for row in right)
        said = f"{len(right) - len(wrong)} of {len(right)}{'; not ' + ', '.join(wrong) if wrong else ''}"
        yield f"outputs and gradients like float64, of {inputs} input{'s' * (inputs > 1)} each: {said}"
    smoke = [row for row in rows if row["what"] == "smoke"]
    if smoke:
        faults = [f"{row['network']}, {row['variant']}: {describe_fault(row)}" for row in smoke if describe_fault(row)]
        yield f"recorded steps: {'; '.join(faults) or 'the losses are those of launched ones'}"
    steps = [row for row in rows if row["what"] == "step" and "waits" in row and not describe_fault(row)]
    others = [row for row in steps if row["variant"] != PLAIN.name]
    if others:
        apart = [row["losses_apart"] for row in others if "losses_apart" in row]
        most = f", at most {max(apart):.2%} apart" if apart else ""
        yield f"losses of the first steps beside plainer variants: checked in {len(apart)} of {len(others)}{most}"
    equal = [row for row in rows if row["what"] == "equal runs"]
    if equal:
        other = [row["network"] for row in equal if describe_fault(row)]
        same = [row["network"] for row in equal if not describe_fault(row)]
        said = f"equal bits in {', '.join(same) or 'none'}{'; not shown in ' + ', '.join(other) if other else ''}"
        yield f"mini problems trained twice: {said}"
    if steps:
        waiting = [f"{row['network']}, {row['variant']}" for row in steps if row["waits"]]
        yield f"waits of the host for the device: {', '.join(waiting) or f'none in {len(steps)} variants'}"


def is_measured(wanted: Mapping[str, tuple[Any, ...]], rows: Iterable[Row]) -> bool:
    """Tell whether a valid row has one of these values of each key."""
    return any(all(row.get(key) in values for key, values in wanted.items()) for row in rows if not describe_fault(row))


# -- the page ------------------------------------------------------------------------------------------------


def page(paths: Iterable[Path]) -> str:
    """Return the page of these files of results, card by card."""
    files = list(paths)
    if not files:
        raise ResultsError("no results there; expected FILE.json or a folder with some, see --part")
    lines = [*introduction(files), ""]
    for card, results in group_by_card(map(read_results, files)).items():
        lines += [*describe_card(card, results), ""]
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
        "Training steps of one GPU alone, with batches that lie on the device: from the stored record to the updated "
        "weights, in bf16 with weights, statistics and optimizer in float32. Reading, averaging gradients and "
        "evaluations are not in them. Times are medians of at least 20 steps between events of the device, of "
        "the last of the files below that has them. Networks "
        "are compared with references in float64 before they are timed, and a wrong one is not."
    )
    yield ""
    yield (
        "The floor is the time of a step's operations, at the rate that this card reaches in a product of the "
        "network's own shape (for CosmoFlow in a large one), plus the time to move the bytes that are left if all is "
        "fused that can be. Published "
        "rates are those of NVIDIA's closed results of MLPerf HPC v3.0, per H100, by their logs: training without "
        "evaluations, with reading and averaging gradients. They are compared with the same card at the same local "
        "batch only:"
    )
    yield ""
    lines = (
        f"| {NETWORKS[one.network].title} | {one.batch:g} | {one.gpus:,} | {one.per_s:g} | {one.note} |"
        for one in PUBLISHED
    )
    yield from table("published | >batch | >GPUs of the job | >samples/s of each | note", lines)
    yield ""
    yield (
        "An option's gain is the share of a step that it takes away, at local batches, from the least to the most of "
        "several files; in each the shorter of two medians counts. "
        f"Written by `bench/gpu.py --page` from {', '.join(path.name for path in files)}, which have all rows, also "
        "those of launched steps, whose rates tell about the host. [guide/gpu.md](../guide/gpu.md) says how to measure "
        "a card."
    )


def describe_card(card: str, results: list[dict[str, Any]]) -> Iterator[str]:
    """Yield what is known of a card."""
    rows = latest(read_rows(results))
    reached = ceilings_of(rows)
    yield f"## {card}"
    yield ""
    yield f"{describe_machines(results)} {describe_ceilings(rows, reached)}"
    yield ""
    rates = {network: best_rates(network, rows, card) for network in NETWORKS.values()}
    lines = (line for network in rates for line in rate_lines(network, rates[network], reached))
    yield from table(RATE_HEAD, lines)
    yield ""
    for network in rates:
        yield from (f"* {network.title}: {remark}" for remark in remarks(network, rows, rates[network]))
    yield from describe_options(results)
    yield from (f"* {line[0].upper()}{line[1:]}." for line in gates(rows))
    # `gates` tells which runs are unequal.
    wrong = [f"{name_row(row)}: {row['wrong']}" for row in rows if "wrong" in row and row["what"] != "equal runs"]
    if wrong:
        yield f"* Wrong: {'; '.join(wrong)}."
    missing = [words for words, wanted in WANTED.items() if not is_measured(wanted, rows)]
    yield f"* Not measured: {', '.join(missing)}."


def describe_machines(results: list[dict[str, Any]]) -> str:
    """Return when and with what the results were measured."""
    labels = {"date": "Measured", "device": "driver", "torch": "torch", "triton": "Triton", "commit": "commits"}
    said = []
    for fact, label in labels.items():
        values = [str(result["machine"][fact]) for result in results]
        if fact == "device":
            values = [value.split(", ")[1] if ", " in value else value for value in values]
        if fact == "commit":
            values = [value[:8] + "-dirty" * value.endswith("-dirty") for value in values]
        said.append(f"{label} {', '.join(dict.fromkeys(values))}")
    return f"{'; '.join(said)}."


def describe_ceilings(rows: Iterable[Row], reached: Ceilings) -> str:
    """Return the rates that the card reaches, and its clocks meanwhile."""
    products = [f"{rate / 1e12:.0f} TFLOP/s ({name})" for name, rate in reached.products.items()]
    said = f"It reaches {', '.join(products)}, and {reached.bytes_per_s / 1e12:.1f} TB/s in a copy"
    for row in rows:
        if row["what"] == "clocks" and not describe_fault(row):
            said += f", at {row['sm_mhz']:.0f} MHz and {row['watts']:.0f} W"
        elif row.get("name") == "launch" and "host_us" in row:
            said += f"; its host launches in {row['host_us']:.1f} µs"
    return said + "."
