"""ReFrame tests: the speed of training steps of each benchmark, by `python -m <benchmark>.measure`."""

import os
from pathlib import Path

import reframe as rfm
import reframe.utility.sanity as sn
from reframe.core.builtins import parameter, performance_function, run_after, sanity_function, variable

ROOT = Path(__file__).resolve().parents[2]
BENCHMARKS = sorted(file.parent.name for file in ROOT.glob("*/train.py"))
LINE = r"^FOM \w+ samples/s (?P<rate>\S+) units (?P<units>\d+) batch \d+ dtype \w+ spread (?P<spread>\S+)"


@rfm.simple_test
class MLPerfHPC(rfm.RunOnlyRegressionTest):
    """Training steps of a benchmark: `mini`, the small problem, or `config`, the closed division's network.

    interpreter: a Python with the suite's extra `all`. data: the folder that keeps generated samples. steps: to measure
    at most.
    """

    benchmark = parameter(BENCHMARKS)
    config = parameter(["mini", "config"], fmt=lambda config: "full" if config == "config" else config)
    interpreter = variable(str, value="python3")
    data = variable(str, value=str(ROOT / "data"))
    steps = variable(int, value=30)

    descr = "MLPerf HPC: speed of training steps"
    valid_systems = ["*"]
    valid_prog_environs = ["*"]
    num_tasks = 1
    time_limit = "30m"
    keep_files = ["fom.json"]
    reference = {"*": {"samples_per_s": (0, None, None, "samples/s"), "spread": (0, None, None, "1")}}

    @run_after("init")
    def command(self):
        """Set the command; samples are generated in ./data, so that is a link to the folder that keeps them."""
        data = os.path.abspath(self.data)
        self.prerun_cmds = [f"mkdir -p '{data}'", f"ln -sfn '{data}' data"]
        self.env_vars = {"PYTHONPATH": f"{ROOT}${{PYTHONPATH:+:$PYTHONPATH}}"}
        self.executable = os.path.abspath(self.interpreter) if "/" in self.interpreter else self.interpreter
        measure = ["-m", f"{self.benchmark}.measure", self.config, "--steps", str(self.steps)]
        self.executable_opts = [*measure, "-o", "fom.json"]
        self.tags = {self.benchmark, self.config}

    @sanity_function
    def measured(self):
        """Check that the line is there and that as many ranks took part as were asked for."""
        units = sn.extractsingle(LINE, self.stdout, "units", int)
        return sn.assert_eq(units, self.num_tasks, "{0} units were measured, expected {1}: is it the right launcher?")

    @performance_function("samples/s")
    def samples_per_s(self):
        """Return the samples of a step by its median time."""
        return sn.extractsingle(LINE, self.stdout, "rate", float)

    @performance_function("1")
    def spread(self):
        """Return the standard deviation of the steps' times by their median."""
        return sn.extractsingle(LINE, self.stdout, "spread", float)
