"""A rank that trains, and writes to events_RANK what it does, in order: `events.py BENCHMARK CONFIG OVERRIDE...`.

A rank that only evaluates does so once the others have made AHEAD steps meanwhile.
"""

import os
import sys
import time
from importlib import import_module
from pathlib import Path

import torch.distributed as td
from torch.nn.parallel import DistributedDataParallel

from common.mllog import RunRecord
from common.ranks.dist import Dist
from common.training import run
from common.training.evaluators import Evaluator, RemoteEvaluator
from common.training.loop import Loop
from common.training.step import Step

AHEAD = 3
events = []


def watch(owner, name, event, happened=lambda _result: True):
    """Write the event after each call of a function, if it happened by the result."""
    function = getattr(owner, name)

    def watched(*arguments, **options):
        result = function(*arguments, **options)
        if happened(result):
            events.append(event)
            with Path(f"events_{os.environ['RANK']}").open("a") as file:
                print(event, file=file)
        return result

    setattr(owner, name, watched)


def step_and_release(self, *arguments):
    """Make a step; after some in an evaluation, let that go on."""
    waited = step(self, *arguments)
    if "evaluation" in events and events[events.index("evaluation") :].count("step") == AHEAD - 1:
        Path("ahead").touch()
    return waited


def serve_late(*arguments):
    """Evaluate for the ranks that train, but not before they are ahead."""
    begin = Evaluator.begin

    def begin_late(self):
        while not Path("ahead").exists():
            time.sleep(0.02)
        begin(self)

    Evaluator.begin = begin_late
    serve(*arguments)


step, serve = Step.__call__, run.serve_evaluations
Step.__call__, run.serve_evaluations = step_and_release, serve_late
watch(DistributedDataParallel, "__init__", "wrap")
watch(td.Reducer, "_rebuild_buckets", "rebuild", bool)
watch(Dist, "broadcast", "broadcast")
watch(RunRecord, "__enter__", "run")
watch(Step, "__call__", "step")
watch(RemoteEvaluator, "begin", "evaluation")
watch(Loop, "_end_evaluation", "quality")
sys.exit(import_module(f"{sys.argv[1]}.train").main(sys.argv[2:]))
