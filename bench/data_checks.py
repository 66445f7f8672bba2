"""What it costs a step of training that its numbers are looked at: `sum_flaws`, and the norms kept for a divergence.

    python bench/data_checks.py                                    the mini problems (about three minutes)
    python bench/data_checks.py --keep    also keep the record

Each network makes steps on a few generated samples, one thread. 1. By the profiler: the share of a step's time in the
operations that are added. 2. In pairs of turns with and without them, which alternate: the ratio of their CPU times.
The networks of the mini problems are small for their input, so that the shares of the full networks are smaller.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from importlib import import_module
from pathlib import Path
from statistics import median
from typing import Any, Final

import machine  # finds the tree, too
import torch
from records import add_keep_option, keep_record
from torch.profiler import ProfilerActivity, profile, record_function

import common.training.step as step_module
from common.config import load
from common.installed import find_config
from common.precision import Precision
from common.processes import keep_freed_memory
from common.ranks.dist import make_single_dist
from common.training import optim
from common.training.step import Step

BENCHMARKS: Final = ("cosmoflow", "deepcam", "oc20")
BATCHES: Final = 4
PAIRS: Final = 5
TURN_S: Final = 3.0
GOAL: Final = 0.01
ADDED: Final = {step_module: "sum_flaws", Step: "_keep_norms"}


@contextlib.contextmanager
def changed(change: Any) -> Iterator[None]:
    """Replace each function that is added by what `change` makes of it."""
    originals = {owner: getattr(owner, name) for owner, name in ADDED.items()}
    for owner, name in ADDED.items():
        setattr(owner, name, change(originals[owner]))
    try:
        yield
    finally:
        for owner, name in ADDED.items():
            setattr(owner, name, originals[owner])


def left_out(_: Any) -> Any:
    """Return a function that does nothing."""
    return lambda *_: 0.0


def marked(function: Any) -> Any:
    """Return the function with a mark for the profiler."""

    def run(*arguments: Any) -> Any:
        with record_function("added"):
            return function(*arguments)

    return run


def measure(name: str, folder: Path) -> dict[str, Any]:
    """Return what the steps of a mini problem take, with and without what is added."""
    torch.set_num_threads(1)
    keep_freed_memory()
    benchmark = import_module(f"{name}.train").BENCHMARK
    file = find_config(name, "mini")
    variant = load(benchmark.config, file, []).variant
    import_module(f"{name}.synthesize").SYNTHESIS.provide_few(folder, variant)
    keys = [f"data.data_dir={folder}", "data.train_samples=null", "data.eval_samples=null", "train.tail=drop"]
    config = load(benchmark.config, file, keys)
    torch.manual_seed(0)
    problem = benchmark.problem(config, make_single_dist(), 0)
    optimizer = optim.build(config.optim, problem.model.parameters(), 1e-4)
    step = Step(problem, optimizer, Precision(config.precision, torch.device("cpu")), problem.dist)
    given = [batch.parts[0] for batch in problem.batching.batches(problem.order(0), 0, 1)][:BATCHES]
    with contextlib.closing(problem), contextlib.closing(step):
        with contextlib.closing(problem.read(problem.sets["train"], iter(given))) as read:
            batches = [problem.prepared(batch) for batch in read]
        problem.model.train()

        def make_steps(times: int) -> float:
            """Return the CPU seconds of a step."""
            begin = time.process_time()
            for _ in range(times):
                for batch in batches:
                    step(iter([batch]), 1, problem.step_weight(0, 0), 1e-4)
            return (time.process_time() - begin) / times / len(batches)

        make_steps(1)
        turn = max(1, round(TURN_S / make_steps(1) / len(batches)))
        with changed(marked), profile(activities=[ProfilerActivity.CPU]) as profiled, record_function("steps"):
            make_steps(2)
        spent = {event.key: event.cpu_time_total for event in profiled.key_averages()}
        pairs = []
        for _ in range(PAIRS):
            with_added = make_steps(turn)
            with changed(left_out):
                pairs.append((with_added, make_steps(turn)))
    return {
        "step_cpu_ms": 1e3 * median(without for _, without in pairs),
        "profiled": spent["added"] / spent["steps"],
        "pairs": [with_added / without for with_added, without in pairs],
    }


def page(found: dict[str, Any]) -> str:
    """Return the page."""
    about, results = found["about"], found["results"]
    lines = [
        "# What the checks of the data cost a step",
        "",
        f"Measured by `bench/data_checks.py` on {machine.describe_machine(about)}, torch "
        f"{about['torch']}, one thread, mini problems on a few generated samples; load {about['load']:.1f} from other "
        "work. The profiler's share is of the time of a step, in the operations that prove its numbers finite and keep "
        f"the norms of the gradients. The ratios are of CPU times with and without them, in {PAIRS} pairs of turns, "
        "which vary by more than the share.",
        "",
        "| mini problem | CPU time of a step | share by the profiler | goal | median ratio of the pairs | pairs |",
        "|---|---:|---:|---|---:|---|",
    ]
    for name, one in results.items():
        met = "met" if one["profiled"] <= GOAL else "**missed**"
        pairs = ", ".join(f"{ratio:.3f}" for ratio in one["pairs"])
        lines.append(
            f"| {name} | {one['step_cpu_ms']:.1f} ms | {one['profiled']:.2%} | <= {GOAL:.0%}: {met} | "
            f"{median(one['pairs']):.3f} | {pairs} |"
        )
    return "\n".join(lines) + "\n"


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_keep_option(parser)
    keep = parser.parse_args(argv).keep
    found: dict[str, Any] = {"about": machine.about() | {"torch": torch.__version__}, "results": {}}
    with tempfile.TemporaryDirectory() as folder:
        for name in BENCHMARKS:
            found["results"][name] = measure(name, Path(folder) / name)
            print(f"{name}: {found['results'][name]}", file=sys.stderr, flush=True)
    print(page(found))
    if keep:
        keep_record("data-checks", found)
    return 0


if __name__ == "__main__":
    sys.exit(main())
