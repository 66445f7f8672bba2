"""Right or wrong: recorded steps, the networks and their kernels, before anything is timed."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from gpu.background import ROOT
from gpu.cases import Bench, WrongError
from gpu.references import FORMATS, compare
from gpu.results import Row
from gpu.training import Plan, Watch, train
from gpu.variants import GRAPHS, MODELS, PLAIN

SMOKE_PLAN: Final = Plan(warm=0, watched=0, timed=5, different=1)
"""Without warm-up the fourth step on the only batch would be recorded; the others replay it."""
SMOKE_WITHIN: Final = 0.01
"""Rounding changes the mean loss of these steps by less."""
KERNEL_TESTS: Final = (
    "tests/cosmoflow/test_kernels.py",
    "tests/oc20/test_kernels.py",
    "tests/common/training/test_optim.py",
)
COMPILED_ELSEWHERE: Final = "not compiles and not 16_bytes and not tensor_cores and not interpreter"
"""Tests that compile for a device that need not be there say nothing about this one."""
TEST_PROCESSES: Final = 4


def smoke(bench: Bench) -> None:
    """Train each network for some steps, recorded and not, and compare the losses."""
    for network in MODELS:
        for variant in (PLAIN, GRAPHS):
            names = {"network": network, "batch": 1}
            with bench.case("smoke", **names, variant=variant.name) as row:
                # To time cuDNN's algorithms would take longer than all the steps.
                plan = replace(SMOKE_PLAN, warms_up=variant == GRAPHS)
                loss, measured = train(bench, network, 1, variant.with_keys("precision.tune=false"), Watch(bench, plan))
                row.update(loss=loss, until_recorded_s=measured.get("until_recorded_s"))
                if "note" in measured:
                    raise WrongError(measured["note"])
                plain = bench.found("smoke", **names, variant=PLAIN.name)
                if plain and "loss" in plain and not abs(row["loss"] / plain["loss"] - 1) <= SMOKE_WITHIN:
                    raise WrongError(f"the mean loss is {row['loss']:.5g}, that of {PLAIN.name} {plain['loss']:.5g}")


def networks(bench: Bench) -> None:
    """Compare each network, with each choice of its configuration, in each format."""
    for network, models in MODELS.items():
        for keys in models:
            for format in FORMATS:
                if bench.device.type == "cpu" and format == "tf32":
                    continue  # which is fp32 there
                with bench.case("right", network=network, model=str(keys), format=format) as row:
                    row.update(compare(network, keys, format, bench.device, bench.dry))


def kernels(bench: Bench) -> None:
    """Run the tests of kernels and optimizers by pytest, on the device if there is one."""
    with bench.case("kernels") as row:
        command = [sys.executable, "-m", "pytest", "-vv", "--tb=short", "-p", "no:cacheprovider"]
        if importlib.util.find_spec("xdist"):
            command += ["-n", "0" if bench.dry else f"{TEST_PROCESSES}"]
        tests, chosen = KERNEL_TESTS, COMPILED_ELSEWHERE
        if bench.dry:
            tests, chosen = KERNEL_TESTS[-1:], f"{COMPILED_ELSEWHERE} and lamb"
        limit_s = None if bench.dry else max(bench.left_s - 3, 1)
        try:
            done = subprocess.run(
                [*command, "-k", chosen, *tests],
                capture_output=True, text=True, check=False, timeout=limit_s, cwd=ROOT,
            )  # fmt: skip
            output, ended = done.stdout + done.stderr, done.returncode in (0, 1)
        except subprocess.TimeoutExpired as error:
            output, ended = (error.stdout or b"").decode(errors="replace"), False
        print(output)
        row.update(count_tests(output.splitlines()))
        if row["failed"]:
            raise WrongError(f"{row['failed']} of {row['passed'] + row['failed']} failed: {', '.join(row['failures'])}")
        if not ended or not row["passed"]:
            raise RuntimeError(f"the tests have not ended after {row['passed']}: {output.strip()[-200:]}")


def count_tests(lines: Iterable[str]) -> Row:
    """Return how many tests passed and failed, and the names of the failed, from pytest's verbose output."""
    outcomes: dict[str, str] = {}
    for line in lines:
        # "tests/a.py::test_b[c d] PASSED [ 1%]", and by several processes "[gw0] [ 1%] PASSED tests/a.py::test_b[c d]".
        if match := re.match(r"(?:\[gw\d+\] \[ *\d+%\] )?(PASSED|FAILED|ERROR) (tests/.+)$", line):
            outcomes[match[2].partition(" - ")[0].strip()] = match[1]
        elif match := re.match(r"(tests/.+?::.+) (PASSED|FAILED|ERROR) +\[", line):
            outcomes[match[1].strip()] = match[2]
    failures = sorted(name.rpartition("/")[2] for name, outcome in outcomes.items() if outcome != "PASSED")
    return {"passed": len(outcomes) - len(failures), "failed": len(failures), "failures": failures}
