"""ReFrame tests: the speed of training steps, the throughput of instances, and the acceptance of a machine."""

import json
import os
from pathlib import Path

import reframe as rfm
import reframe.utility.sanity as sn
import reframe.utility.typecheck as typ
from reframe.core.builtins import (
    parameter,
    performance_function,
    run_after,
    run_before,
    sanity_function,
    variable,
)

ROOT = Path(__file__).resolve().parents[2]
SUITE = ROOT if (ROOT / "compliance/check.py").is_file() else None  # None: the interpreter's environment has it
BENCHMARKS = ["cosmoflow", "deepcam", "oc20"]
LINE = r"^FOM \w+ samples/s (?P<rate>\S+) units (?P<units>\d+) batch \d+ dtype \w+ spread (?P<spread>\S+)"
MODELS = LINE + r".* models (?P<models>\d+) models/min (?P<models_per_min>\S+)"


class SuiteTest(rfm.RunOnlyRegressionTest):
    """A command of the suite.

    interpreter: a Python with the suite's extra `all`. data: the folder that keeps generated samples.
    """

    interpreter = variable(str, value="python3")
    data = variable(str, value=str(ROOT / "data"))

    valid_systems = ["*"]
    valid_prog_environs = ["*"]
    num_tasks = 1

    def set_command(self, *words):
        """Set the command; samples are generated in ./data, so that is a link to the folder that keeps them."""
        data = os.path.abspath(self.data)
        self.prerun_cmds = [f"mkdir -p '{data}'", f"ln -sfn '{data}' data"]
        self.env_vars = {"PYTHONPATH": f"{SUITE}${{PYTHONPATH:+:$PYTHONPATH}}"} if SUITE else {}
        self.executable = os.path.abspath(self.interpreter) if "/" in self.interpreter else self.interpreter
        self.executable_opts = ["-m", *map(str, words)]


@rfm.simple_test
class MLPerfHPC(SuiteTest):
    """Training steps of a benchmark: `mini`, the small problem, or `config`, the closed division's network.

    steps: to measure at most.
    """

    benchmark = parameter(BENCHMARKS)
    config = parameter(["mini", "config"], fmt=lambda config: "full" if config == "config" else config)
    steps = variable(int, value=30)

    descr = "MLPerf HPC: speed of training steps"
    time_limit = "30m"
    keep_files = ["fom.json"]
    reference = {"*": {"samples_per_s": (0, None, None, "samples/s"), "spread": (0, None, None, "1")}}

    @run_after("init")
    def prepare(self):
        """Set the command and the tags."""
        self.set_command(self.benchmark, "measure", self.config, "--steps", self.steps, "-o", "fom.json")
        self.tags = {self.benchmark, self.config}

    @sanity_function
    def check_units(self):
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


@rfm.simple_test
class InstanceThroughput(SuiteTest):
    """Instances of a benchmark, trained in one job on one node until each reaches the target.

    config, instances, jobs, settings: --config, --throughput, --jobs and the words after --set of `mlperf-hpc round`.
    """

    benchmark = parameter(BENCHMARKS)
    config = variable(str, value="mini")
    instances = variable(int, value=2)
    jobs = variable(int, value=1)
    settings = variable(typ.List[str], value=[])

    descr = "MLPerf HPC: throughput of instances"
    time_limit = "4h"
    reference = {"*": {"models_per_min": (0, None, None, "models/min"), "samples_per_s": (0, None, None, "samples/s")}}

    @run_after("init")
    def prepare(self):
        """Set the command."""
        round_ = ["submission.round", "--config", self.config, "--benchmarks", self.benchmark, "--data", "data"]
        settings = [word for setting in self.settings for word in ("--set", setting)]
        self.set_command(*round_, "--throughput", self.instances, "--jobs", self.jobs, *settings, "-o", "round")
        self.tags = {self.benchmark, self.config, "throughput"}

    @sanity_function
    def check_models(self):
        """Check that all instances reached the target."""
        models = sn.extractsingle(MODELS, self.stdout, "models", int)
        return sn.assert_eq(models, self.instances, "{0} instances reached the target, expected {1}")

    @performance_function("models/min")
    def models_per_min(self):
        """Return the models by the minutes from the first start to the last stop."""
        return sn.extractsingle(MODELS, self.stdout, "models_per_min", float)

    @performance_function("samples/s")
    def samples_per_s(self):
        """Return the sum over the instances that train at the same time."""
        return sn.extractsingle(MODELS, self.stdout, "rate", float)


@rfm.simple_test
class MachineAcceptance(SuiteTest):
    """The verdict of `mlperf-hpc accept`: fails where the machine is slower than its baseline, or that is UNDECIDED.

    baseline: the file that `accept --record` wrote; without it the test is skipped.
    """

    baseline = variable(str, value="")

    descr = "MLPerf HPC: acceptance of a machine"
    time_limit = "2h"
    keep_files = ["accept.json"]
    tags = {"acceptance"}

    @run_after("init")
    def prepare(self):
        """Set the command."""
        self.set_command("submission.accept", os.path.abspath(self.baseline), "--json", "accept.json", "-o", "accept")

    @run_after("setup")
    def check_baseline(self):
        """Skip the test without a baseline."""
        self.skip_if(not self.baseline, "no baseline: -S MachineAcceptance.baseline=FILE")

    @sanity_function
    def check_verdict(self):
        """Check that the verdict is PASS."""
        verdict = sn.extractsingle(r"^(PASS|FAIL|UNDECIDED)\b", self.stdout, 1, item=-1)
        return sn.assert_eq(verdict, "PASS", "the verdict is {0}: see the output")

    @run_before("performance")
    def add_ratios(self):
        """Report the speed of each benchmark by that of the baseline."""
        verdict = json.loads((Path(self.stagedir) / "accept.json").read_text(encoding="utf-8"))
        for workload in verdict["workloads"]:
            name = workload["name"].replace(" ", "_")
            self.perf_variables[name] = sn.make_performance_function(sn.defer(workload["ratio"]), "1")
