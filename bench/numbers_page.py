"""The page of numbers, docs/performance/README.md: a table per subject, from the records that the scripts keep."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import mean, median
from typing import Any, Final

import accept
import checker
import committee_check
import data
import data_checks
import ensemble
import feed
import laws
import measure
import mini_runs
import scale_page
import studies
from gpu.networks import NETWORKS
from gpu.page import best_rates, group_by_card, latest
from gpu.results import read_results, read_rows
from numbers_table import Number, Source, Subject, compare, write_ms, write_subject
from parity.rows import TITLES, Compared
from records import read_record

from bench import cosmoflow, deepcam, oc20, submission  # not the packages of these names

HEAD: Final = """\
# Performance

All measured numbers, good or bad. Ratio: how many times as much the peer takes, or how many times its rate the suite
has, so that more than 1 is better than the peer. What misses its goal is **bold**. Times are CPU seconds (user +
system), medians of runs that take turns with the peer's, with one thread per training, unless a row says otherwise.
Each table begins with the scripts of `bench/` that measure its numbers, the date, and the machine:
"""
TAIL: Final = """\
For maintainers: `make bench` measures; a script with `--keep` keeps its record, with commit, versions, load and each
run, in [records/](records); `bench/performance_pages.py` writes this page and the longer ones from the records.
"""


def page(gpu_results: Sequence[Path]) -> str:
    """Return the Markdown page. gpu_results: files of results, in the order in which they were measured."""
    subjects = [*(make() for make in SUBJECTS), describe_gpus(gpu_results)]
    machines = list(dict.fromkeys(source.about["machine"] for subject in subjects for source in subject.sources))
    letters = {machine: chr(ord("A") + i) for i, machine in enumerate(machines)}
    lines = [HEAD, *(f"- {letter}: {machine}" for machine, letter in letters.items())]
    for subject in subjects:
        lines += ["", *write_subject(subject, letters)]
    return "\n".join([*lines, "", TAIL])


# -- the checker and submissions -------------------------------------------------------------------------------


def describe_checker() -> Subject:
    record, fuzzing, of_training = read_record("checker"), read_record("fuzzing"), read_record("committee")
    numbers = (
        Number(
            row.what,
            row.ours,
            f"{checker.THEIRS} {row.theirs}" if row.theirs else "",
            row.ratio,
            row.goal * (not row.met),
        )
        for group, found in record["results"].items()
        if group != "floor"
        for row in checker.rows({group: found})
    )
    led, faults = fuzzing["coverage"], [row["found"] for row in fuzzing["coverage"] if row["found"]]
    text = (
        f"Peer: {checker.THEIRS} {record['versions']['mlperf-logging']}. No input may end in an exception, hang, or "
        "make a rule fail itself: `bench/fuzz.py` damages logs and packages at random, `bench/fuzz_coverage.py` is led "
        f"by the code that an input reaches. Found: {'; '.join(faults)}."
    )
    sources = [
        Source("checker.py", record, numbers),
        Source("committee_check.py", of_training, committee_check.list_numbers(of_training["results"])),
        Source(
            "fuzz_coverage.py", fuzzing, [Number("inputs led by coverage", f"{sum(row['inputs'] for row in led):,}")]
        ),
        Source("fuzz.py", fuzzing, [Number("inputs damaged at random", f"{fuzzing['random']:,}")]),
    ]
    return Subject("The checker", sources, text)


def describe_submission() -> Subject:
    record = read_record("submission")
    results, corpus = record["results"], record["corpus"]
    numbers = [
        Number(
            submission.WHAT[name],
            f"{results[name]['cpu_s']:.2f} s, {results[name]['most_memory_bytes'] / 1e6:.0f} MB",
        )
        for name in submission.COMMANDS
    ]
    total = sum(results[name]["cpu_s"] for name in submission.SCORED)
    if not submission.analysis_met(results):
        goal = f"<= {submission.ANALYSIS_GOAL_S:.0f} s, {submission.ANALYSIS_GOAL_BYTES / 1e6:.0f} MB"
        numbers[-1] = replace(numbers[-1], goal=goal)
    beside = compare("check, summary and page", total, ("official pair", results["official"]["cpu_s"]), "s")
    goal = f"< {submission.GOAL_S:.0f} s" if total >= submission.GOAL_S else ""
    numbers.append(replace(beside, goal=goal))
    text = (
        f"All published results at once, {corpus['packages']} packages with {corpus['logs']:,} logs, with the memory "
        "of the largest process. The peer is `package_checker` with `result_summarizer`, package by package; they make "
        "no page."
    )
    return Subject("Submissions and their page", [Source("submission.py", record, numbers)], text)


# -- data and training -----------------------------------------------------------------------------------------


def describe_data() -> Subject:
    read, fed, checked = read_record("data"), read_record("feed"), read_record("data-checks")
    forms = read_record("packed")
    readers = {one["module"]: one["version"] for found in read["results"].values() for one in found.values()}
    text = (
        f"Readers: {', '.join(f'{name} {readers[name]}' for name in sorted(readers))}. Records of {data.SIDE}³ × 4 "
        f"voxels in the page cache, read into batches by {read['machine'].split()[0]} threads (tfrecord has none); per "
        "record, CPU and elapsed. An emulated accelerator is as fast as an H100 of MLPerf Storage "
        f"({1 / feed.STEP_S:.0f} samples/s). The checks prove that the numbers of each step are finite, by a "
        "profiler's share of a step."
    )
    sources = [
        Source("data.py", read, list_readers(read["results"])),
        Source("feed.py", fed, list_feeds(fed["rows"])),
        Source("packed.py", forms, list_forms(forms["formats"])),
        Source("data_checks.py", checked["about"], list_checks(checked["results"])),
    ]
    return Subject("Data and feed", sources, text, ["records/feed.md", "records/packed.md"])


def list_readers(results: dict[str, dict[str, dict[str, Any]]]) -> Iterator[Number]:
    for kind, found in results.items():
        ours, *others = data.rows(found)
        for row in others:
            if row.reader.startswith(data.NAMES["ours"]):
                yield Number(
                    f"a record, {feed.KINDS[kind]}, its CRC checked", f"{row.cpu_ms:.1f} ms, {row.records_per_s:.0f}/s"
                )
                continue
            theirs = f"{row.reader} {row.cpu_ms:.1f} ms, {row.records_per_s:.0f}/s"
            value = f"{ours.cpu_ms:.1f} ms, {ours.records_per_s:.0f}/s"
            ratio, goal = f"{row.cpu_ratio:.1f}, {row.wall_ratio:.1f}", ">= 1" if row.cpu_ratio < 1 else ""
            yield Number(f"a record, {feed.KINDS[kind]}", value, theirs, ratio, goal)


def list_feeds(rows: Iterable[dict[str, Any]]) -> Iterator[Number]:
    for row in rows:
        if row["accelerators"] == 1 and not row["cold"]:
            what = f"cores that feed an accelerator, {feed.KINDS[row['kind']]}"
            yield Number(what, f"{row['cores_per_accelerator']:.1f}")


def list_forms(rows: Iterable[dict[str, Any]]) -> Iterator[Number]:
    by_kind = {row["kind"]: row for row in rows if row["field"] == "lognormal-Poisson"}
    ours, gzip = (f"{by_kind[kind]['bytes'] / 1e6:.1f} MB" for kind in ("packed", "gzip"))
    yield Number("a sample of lognormal-Poisson counts, packed", ours, f"gzip as published {gzip}")
    times = [by_kind[kind]["cpu_s"] for kind in ("packed", "gzip")]
    yield compare("a packed sample, one thread", times[0] * 1e3, ("gzip as published", times[1] * 1e3), "ms", ".1f")


def list_checks(results: dict[str, dict[str, Any]]) -> Iterator[Number]:
    for name, row in results.items():
        goal = f"<= {data_checks.GOAL:.0%}" if row["profiled"] > data_checks.GOAL else ""
        what = f"checks of data in a step of {row['step_cpu_ms']:.0f} ms, mini problem of {TITLES[name]}"
        yield Number(what, f"{row['profiled']:.2%}", goal=goal)


SHOWN: Final = {
    "cosmoflow": (cosmoflow, {("128³", 2), ("32³, 4 layers from 8 channels", 16)}),
    "deepcam": (deepcam, {("768 × 1152", 1), ("96 × 144, mini", 8)}),
    "oc20": (oc20, {("80 + 1 or 2 atoms", 1), ("12 + 1 or 2 atoms, mini", 8)}),
}
"""Of each benchmark, the script and the networks with batches that the page shows, beside those that miss a goal."""
PEERS: Final = {"cosmoflow": "Keras", "deepcam": "plain PyTorch", "oc20": "plain PyTorch"}


def describe_training() -> Subject:
    records = {name: read_record(name) for name in SHOWN}
    peers = records["cosmoflow"]["results"]["one core"][0]
    versions = peers["ours"]["versions"] | peers["peer"]["versions"]
    text = (
        f"With {', '.join(f'{name} {version}' for name, version in versions.items())}. A step, per sample. The peer is "
        "the same network in Keras on TensorFlow, or written plainly in PyTorch, OC20's with a list of all triplets; "
        "in bf16 by the peer's own policy. Memory: what steps add to the process."
    )
    sources = [Source(f"{name}.py", record, list_steps(name, record)) for name, record in records.items()]
    return Subject("The three benchmarks", sources, text, ["records/training.md"])


def list_steps(name: str, record: dict[str, Any]) -> Iterator[Number]:
    least = SHOWN[name][0].PAGE.least_ratio
    for result in record["results"]["one core"]:
        case, peer = result["case"], result.get("peer")
        if not peer:
            continue
        ours, theirs = (side["cpu_s"] / case["batch"] for side in (result["ours"], peer))
        what = f"{result['network']}, batch {case['batch']}, {case['dtype']}"
        goal = f"> {least}" if theirs <= least * ours else ""
        if goal or (result["network"], case["batch"]) in SHOWN[name][1]:
            yield Number(what, write_ms(ours), f"{PEERS[name]} {write_ms(theirs)}", f"{theirs / ours:.2f}", goal)
        if name == "oc20" and case["batch"] == 4:
            ours, theirs = oc20.added(result["ours"]) / 1e3, oc20.added(peer) / 1e3
            goal = f">= {1 / oc20.MEMORY:.0f}" if ours > oc20.MEMORY * theirs else ""
            compared = compare(f"{what}, memory", ours, (PEERS[name], theirs), "GB", ".1f")
            yield replace(compared, goal=goal)


def describe_minis() -> Subject:
    summaries = {name: read_record(f"mini-{name}") for name in SHOWN}
    text = (
        "Networks and classical baselines on data of new seeds; medians. The peer is the best baseline of people who "
        "know the physics: it is better than the network when that stops at its target. A network that trains as the "
        "full one does reaches the target; it is no proof that a network is needed."
    )
    sources = [Source("mini_runs.py", summary, list_minis(name, summary)) for name, summary in summaries.items()]
    return Subject("Mini problems", sources, text, ["records/mini.md"])


def list_minis(name: str, summary: dict[str, Any]) -> Iterator[Number]:
    first = summary["baselines"][0]
    reached = median(run["curve"][-1] for run in summary["results"])
    rows = mini_runs.list_baselines(summary)
    choose = min if first["lower_is_better"] else max
    best, quality = choose(((row, median(values)) for row, values in rows.items()), key=lambda item: item[1])
    what = f"{TITLES[name]}, {first['quality']}, target {first['target']:g}: {summary['met']} of {summary['runs']} runs"
    ratio = quality / reached if first["lower_is_better"] else reached / quality
    yield Number(what, f"{reached:.3f}, {summary['median_cpu_s']:.0f} s", f"{best} {quality:.3f}", f"{ratio:.2f}")


def describe_ensembles() -> Subject:
    record = read_record("ensemble")

    def list_numbers() -> Iterator[Number]:
        for name, found in record["benchmarks"].items():
            one, *_, all_ = found["fig7"]
            speed = all_["samples_per_s"], one["samples_per_s"]
            yield Number(
                f"{TITLES[name]}: {all_['M']} networks on a rank each, elapsed",
                f"{speed[0]:.0f} samples/s",
                f"one on {one['P']} ranks {speed[1]:.0f}",
                f"{speed[0] / speed[1]:.1f}",
            )
            qualities = [mean(row[side] for row in found["quality"]) for side in ("ensemble", "best", "mean")]
            yield Number(
                f"{TITLES[name]}: error of {ensemble.MEMBERS} networks together, mean of data seeds",
                f"{qualities[0]:.4f}",
                f"best {qualities[1]:.4f}, mean member {qualities[2]:.4f}",
                ", ".join(f"{quality / qualities[0]:.2f}" for quality in qualities[1:]),
            )
            won = f"{ensemble.count_won(found['quality'])} of {len(found['quality'])} data seeds"
            yield Number(f"{TITLES[name]}: the ensemble is better than its best member", won)

    different = [share for row in record["draws"] for share in row["different"]]
    text = (
        "Bagged networks on mini problems made smaller, CosmoFlow's of the first generation, a rank with one thread. A "
        f"network draws {mean(different):.1%} different samples (expected 63.2%)."
    )
    return Subject("Ensembles", [Source("ensemble.py", record, list_numbers())], text)


# -- ranks -----------------------------------------------------------------------------------------------------


def describe_spatial() -> Subject:
    record = read_record("spatial")

    def list_numbers() -> Iterator[Number]:
        alone = {row["dtype"]: row for row in record["strong"] if row["ranks"] == 1}
        for row in record["strong"]:
            if row["extents"][1] == 1 and row["ranks"] in (4, 8):
                slowest, one = max(row["cpu_s"]), alone[row["dtype"]]["cpu_s"][0]
                what = f"a step on 128³, {row['dtype']}, slowest of {row['ranks']} ranks"
                yield compare(what, slowest, ("one process", one), "s")
        one, four = (row["resident_bytes"] / 1e9 for row in record["large"])
        yield compare("memory at 256³, bf16, most of 4 ranks", four, ("one process", one), "GB")

    text = "CosmoFlow with `dist.spatial`: several ranks share each sample. Not run on GPUs."
    source = Source("spatial.py", record["machine"], list_numbers())
    return Subject("Several ranks for each sample", [source], text, ["records/spatial.md"])


def describe_scale() -> Subject:
    record = read_record("scale")
    goal, found, store, staging = scale_page.GOAL, record["ranks"][-1], record["store"], record["staging"]
    meeting = found["actions"]["meeting"]["main"]
    ranks, what = scale_page.find_limits(record)[0]
    largest = record["meetings"][0]
    numbers = [
        compare(
            f"bytes of rank 0 in a meeting of {found['ranks']} ranks, measured",
            scale_page.sum_bytes(meeting) / 1e6,
            ("plain group of torch", scale_page.sum_bytes(found["plain"]) / 1e6),
            "MB",
            ".2f",
        ),
        Number(
            f"rank 0 in a meeting of {largest['ranks']:,} ranks, one on a node, simulated",
            f"{largest['cpu_s']:.1f} s, {scale_page.bytes_text(largest['sent'])} sent, "
            f"{scale_page.bytes_text(largest['received'])} received",
        ),
        Number(
            f"the store, {store['clients']:,} clients: a connection",
            f"{store['connect']['cpu_us']:.0f} µs, {store['memory_kb']:.1f} kB",
        ),
        Number(
            f"one of two ranks that stage {staging['files']:,} files again",
            f"{staging['cpu_s']:.1f} s, {staging['own_mb']:.0f} MB, and {staging['list_mb']:.0f} MB with the other",
        ),
        Number(f"breaks first: {what}", f"{ranks:,.0f} ranks", goal=f">= {goal:,}" if ranks < goal else ""),
    ]
    if counts := record["imports"]:
        numbers.append(
            Number(
                "calls about files before the first step",
                f"{counts['training']:,}",
                f"plain script {counts['step']:,}",
                f"{counts['step'] / counts['training']:.2f}",
            )
        )
    text = f"What is said of {goal:,} ranks is fitted to what up to {found['ranks']} do, or simulated."
    return Subject("Scale", [Source("scale.py", record["machine"], numbers)], text, ["scale.md"])


# -- measuring, acceptance, studies, parity --------------------------------------------------------------------


def describe_measurement() -> Subject:
    record = read_record("measure")
    ceilings, fidelity = record["ceilings"], record["fidelity"]

    def list_measured() -> Iterator[Number]:
        for one in record["measurements"]:
            apart = ", ".join(f"{measure.apart(one['runs'], key):.1%}" for key in ("cpu_ms_per_step", "median_step_ms"))
            yield Number(f"{TITLES[one['benchmark']]}, two runs apart: CPU time of a step, median", apart)
        for key, (name, unit, tool, what) in measure.CEILINGS.items():
            ours, theirs = ceilings["ours"][key], ceilings["peers"].get(tool, {}).get(key)
            if ours and theirs:
                peer = f"{tool} {what.partition(',')[0]} {theirs / 1e9:,.3g} {unit}"
                ratio = "" if key == "products" else f"{ours / theirs:.2f}"
                yield Number(f"ceiling: {name}", f"{ours / 1e9:,.3g} {unit}", peer, ratio)

    def list_fidelity() -> Iterator[Number]:
        for row in sorted(fidelity["rows"], key=lambda row: str(row["benchmark"])):
            if row["arithmetic"] == list(measure.ARITHMETIC)[-1]:
                ours, theirs = (
                    [median(row[f"{kind}_errors"]) for kind in kinds]
                    for kinds in (("output", "gradient"), ("fp32_output", "fp32_gradient"))
                )
                what = f"{TITLES[row['benchmark']]}, mini: outputs, gradients in bf16 from float32"
                reversed_ = f"float32 reversed {', '.join(f'{error:.1e}' for error in theirs)}"
                yield Number(what, ", ".join(f"{error:.2%}" for error in ours), reversed_)

    text = (
        "A benchmark's `measure` run twice, the ceilings of `roofline` in fp32 beside other tools (hpcc's product is "
        "in fp64), and how far bf16 is from float32, beside float32 with its sums in another order."
    )
    sources = [
        Source("measure.py", record["machine"], list_measured()),
        Source("measure.py --fidelity", fidelity["machine"], list_fidelity()),
    ]
    return Subject("Measurement and fidelity", sources, text, ["records/measure.md"])


def describe_accept() -> Subject:
    record = read_record("accept")
    simulated = record["simulation"]
    welch = {(row["effect"], row["spread"]): row for row in simulated["welch"]}

    def list_numbers() -> Iterator[Number]:
        for row in simulated["main"]:
            effect, spread = row["effect"], row["spread"]
            if spread not in (0.02, 0.04):
                continue
            what = f"spread {spread:.0%}, effect of the job {accept.EFFECT[effect]}"
            false, missed = row["unchanged"][accept.FAIL], row["slower"][accept.PASS]
            value = f"{false:.1%} false; {row['slower'][accept.FAIL]:.1%} found, {missed:.1%} missed"
            peer = f"Welch on runs {welch[effect, spread]['runs']:.1%} false"
            yield Number(what, value, peer, goal="<= 5% wrong" if max(false, missed) > accept.ALPHA else "")

    text = (
        f"How often `accept` is wrong: {simulated['machines']:,} simulated machines a row, {accept.JOBS} jobs of "
        f"{accept.RUNS} runs as baseline, one job as check. False alarms are of unchanged machines; of those slower by "
        f"{accept.LOSS:.0%} some are found, and some missed. The rest is UNDECIDED."
    )
    source = Source("accept.py", record["machine"], list_numbers())
    return Subject("Acceptance", [source], text, ["records/accept.md"])


def describe_studies() -> Subject:
    record, known = read_record("studies"), read_record("laws")

    def list_presets() -> Iterator[Number]:
        for one in record["presets"]:
            minutes = "–" if one["cpu_minutes"] is None else f"{one['cpu_minutes']:.1f} min"
            goal = "; ".join(studies.find_faults(one))
            yield Number(f"preset `{one['preset']}`, {one['runs']} runs", minutes, goal=goal)

    def list_laws() -> Iterator[Number]:
        low, high = laws.GOAL
        shares = [
            each["held"][parameter]
            for each in known["coverages"]
            for parameter in list(laws.STUDIES[each["study"]].truth)[: laws.STUDIES[each["study"]].count]
        ]
        missed = not low <= min(shares) <= max(shares) <= high
        yield Number(
            "95 % intervals of laws that hold the truth, least and most",
            f"{min(shares):.1%}, {max(shares):.1%}",
            goal=f"{low:.0%} to {high:.0%}" if missed else "",
        )
        for name, truth in laws.NETWORK_TRUTH.items():
            value, (least, most) = known["network"]["values"][name], known["network"]["intervals"][name]
            yield Number(
                f"exponent {name} of a network, 95 % interval",
                f"{value:.3f}, {least:.3f} to {most:.3f}",
                f"truth {truth}",
            )

    text = (
        "Each preset is killed when its first run has ended, and given again: no run is repeated. Two cores leave out "
        "4 and 8 ranks, and with them most laws over ranks; no meter of power could be read. studies.json says for "
        "each curve which law was found, or why none."
    )
    sources = [Source("studies.py", record, list_presets()), Source("laws.py", known["machine"], list_laws())]
    return Subject("Studies and laws", sources, text, ["laws.md"])


def describe_parity() -> Subject:
    record = read_record("parity")

    def list_numbers() -> Iterator[Number]:
        for facts in record["benchmarks"]:
            compared = Compared.from_facts(facts)
            judged = [row for row in compared.rows if row.tolerance is not None]
            share = max(row.difference / row.tolerance for row in judged if row.tolerance)
            value = f"{sum(row.passed for row in judged)} of {len(judged)}, at most {share:.0%} of it"
            goal = "all" if compared.failed or compared.missing else ""
            yield Number(f"{TITLES[compared.benchmark]}: points within their tolerance", value, goal=goal)

    text = (
        f"Our models, losses, metrics and schedules beside the official code, commit {record['hpc']} of mlcommons/hpc."
    )
    return Subject("Parity", [Source("parity.py", record, list_numbers())], text, ["records/parity.md"])


def describe_gpus(files: Sequence[Path]) -> Subject:
    sources = []
    for card, results in group_by_card(map(read_results, files)).items():
        dates = sorted({result["machine"]["date"] for result in results})
        about = {"machine": card, "date": " to ".join(dict.fromkeys((dates[0], dates[-1])))}
        sources.append(Source("gpu.py", about, list(list_rates(latest(read_rows(results)), card))))
    text = (
        "Samples per second of training steps in bf16, recorded, of one GPU alone with data on the device. The peers "
        "are torch's own operations, recorded, too, and GPUs of NVIDIA's closed jobs of v3.0, which also read and "
        "averaged gradients, where card and local batch are the same."
    )
    return Subject("GPUs", sources, text, ["gpu.md"])


def list_rates(rows: Sequence[dict[str, Any]], card: str) -> Iterator[Number]:
    for network in NETWORKS.values():
        for row, torch, published in best_rates(network, rows, card):
            peers = {f"{result.card} in a job of {result.gpus:,}": result.per_s for result in published}
            if torch and torch is not row:
                peers = {torch["variant"]: torch["per_s"]} | peers
            yield Number(
                f"{network.title}, batch {row['batch']}: {row['variant']}",
                f"{row['per_s']:,.0f}/s",
                "; ".join(f"{name} {rate:,.4g}" for name, rate in peers.items()),
                ", ".join(f"{row['per_s'] / rate:.1f}" for rate in peers.values()),
            )


SUBJECTS: Final[Sequence[Callable[[], Subject]]] = (
    describe_checker,
    describe_submission,
    describe_data,
    describe_training,
    describe_minis,
    describe_ensembles,
    describe_spatial,
    describe_scale,
    describe_measurement,
    describe_accept,
    describe_studies,
    describe_parity,
)
