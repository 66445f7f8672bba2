"""The figure of merit of a training, from its log and its power files, and the recording of the latter.

On each node, `common.measure power` records the power in a process of its own.
"""

from __future__ import annotations

import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Collection, Iterator, Mapping
from dataclasses import asdict
from datetime import date
from operator import mul
from pathlib import Path
from typing import Any, Final

import torch
from torch import nn

from common.files import LOG_NAME, POWER
from common.measure.devices import find_lowest, rate_device, read_limits, read_model_name
from common.measure.fom import EXPONENTS, NAME, N, TrainedEnsemble, TrainedRun, find_valid_share
from common.measure.power import UNKNOWN, read_energy, read_readings
from common.measure.power_sources import Clock, open_source
from common.processes import stop_processes
from common.ranks.dist import Dist
from common.record import PARTS_SCOPE, POWER_READING, read_run_times, read_value
from common.reference import NoTarget
from common.settings.machine import PowerConfig
from common.spatial.shards import whole_size
from common.stop import STOP
from common.training.loop import Loop

FIRST_READING_S: Final = 10.0
"""A source that gives no reading for so long fails the run before it begins."""
END_S: Final = 10.0
POLL_S: Final = 0.05
TAIL_BYTES: Final = 4096


@contextlib.contextmanager
def recording_power(config: PowerConfig, run: Path, ranks: Dist) -> Iterator[None]:
    """Record the power of all nodes inside the `with`, to `power/` in the folder of the run. A collective call.

    Raises ValueError on all ranks if a node gets no reading; later faults are printed, and change nothing.
    """
    if not config.source:
        yield
        return
    ranks.barrier()  # no rank failed so far, such as for lack of the right to write the log
    recorder, fault = None, None
    try:
        try:
            if ranks.local_rank == 0:
                recorder = NodeRecorder(config, run / POWER, ranks.node_rank)
                with STOP.interrupting():
                    recorder.wait_for_reading()
        except (ValueError, OSError) as error:
            fault = f"node {ranks.node_rank}: {error}" if ranks.nodes > 1 else str(error)
        if first_fault := ranks.find_first(fault):
            raise ValueError(f"power.source is {config.source!r}: {first_fault}")
        yield
    finally:
        if recorder is not None:
            recorder.end_recording(quiet=fault is not None, brief=not ranks.is_main)
    ranks.barrier()  # all files are whole


class NodeRecorder:
    """The process that records the power of this node.

    It has a session of its own, so that Ctrl-C does not reach it, and ends by itself when this process has ended.
    """

    def __init__(self, config: PowerConfig, folder: Path, node: int) -> None:
        assert config.source
        name, source = open_source(config.source, Clock())
        self.path = folder / f"{name if source.scope == PARTS_SCOPE else 'node'}_{node}.txt"
        folder.mkdir(parents=True, exist_ok=True)
        command = [
            sys.executable,
            "-m",
            "common.measure",
            "power",
            f"--source={config.source}",
            "--append",
            f"--interval={config.interval_s}",
            f"--efficiency={config.efficiency}",
            f"--parent={os.getpid()}",
            *(["--dc"] if config.dc else []),
            "-o",
            str(self.path),
        ]
        self._begin_ms = time.time() * 1000
        self._messages = tempfile.TemporaryFile()  # noqa: SIM115  (read until the process has ended)
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=self._messages,
            start_new_session=True,
            env=os.environ | {"NO_COLOR": "1"},  # its last message is read
        )

    def wait_for_reading(self) -> None:
        """Wait for the first reading; raise ValueError if there is none."""
        end_s = time.monotonic() + FIRST_READING_S
        while not self._has_reading():
            if self._process.poll() is not None:
                raise ValueError(self._last_message().removeprefix("error: "))
            if time.monotonic() > end_s:
                raise ValueError(self._last_message() or f"no reading within {FIRST_READING_S:g} s")
            STOP.sleep(POLL_S)

    def end_recording(self, quiet: bool, brief: bool) -> None:
        """End the process; print what it recorded, if brief only what went wrong. Never raises for what it did."""
        died = self._process.poll() is not None
        stop_processes([self._process], END_S)
        status, last = self._process.returncode, self._last_message()
        if quiet:
            return
        if status or (died and not STOP.number):  # a scheduler may signal all processes of a job
            how = "gave no readings" if status == 1 else "did not end in order"
            if died:
                how = "ended before the run did"
            print(
                f"power: the recorder {how} (exit status {status}): {last or 'no message'}\n"
                f"power: {self.path} lacks readings; the result of the run stays",
                file=sys.stderr,
                flush=True,
            )
        elif not brief:
            print(f"power: {last}", flush=True)

    def _has_reading(self) -> bool:
        """Tell whether this process has written a reading."""
        try:
            with self.path.open("rb") as file:
                file.seek(max(os.fstat(file.fileno()).st_size - TAIL_BYTES, 0))
                records = read_readings(file.read().partition(b"\n")[2])
                times = [record.time_ms for record in records if record.key == POWER_READING]
                # One that is later is of a clock that was wrong once.
                return any(self._begin_ms <= time_ms <= 1000 * (time.time() + 1) for time_ms in times)
        except (OSError, ValueError):  # not written yet, or a damaged file: the process says so
            return False

    def _last_message(self) -> str:
        self._messages.seek(0)
        return self._messages.read().decode(errors="replace").strip().rpartition("\n")[2]


FLOP_PER_SAMPLE: Final = "flop_per_sample"
"""The key of a log with the operations of the network for a sample in training and in evaluation."""


def compute_figure(benchmark: str, run: Loop, ranks: Dist, folder: Path, own_code: str = "") -> TrainedRun | None:
    """Return the figure of merit of a run that has ended; None if no epoch was evaluated.

    ranks: all of the run, also those that only evaluate. folder: that of the run, with its log. own_code: what
    computed in place of the suite's code.
    """
    log, history = folder / LOG_NAME, run.state.history
    clock = read_run_times(log)
    if not history or clock is None:
        return None
    rates = [epoch.samples_per_s for epoch in history]
    rate, train_s = statistics.median(rates), [epoch.train_s for epoch in history]
    samples = sum(map(mul, rates, train_s))
    flop = read_value(log, FLOP_PER_SAMPLE) or {}
    quality, minutes = history[-1].quality, (clock[1] - clock[0]) / 60_000
    flop_per_s = flop["training"] * samples / sum(train_s) if flop else None
    share = find_valid_share(run.problem.reference.target, quality, EXPONENTS.get(benchmark, N))
    whole_rate = None
    if flop and minutes > 0:
        whole = flop["training"] * samples + flop["evaluation"] * len(history) * run.problem.eval_samples
        whole_rate = whole / (60 * minutes)
    return TrainedRun(
        benchmark=benchmark,
        samples_per_s=rate,
        batch=run.settings.global_batch_size,
        own_code=own_code or None,
        spread=statistics.stdev(rates) / rate if len(rates) > 1 else 0.0,
        network=run.problem.reference.variant,
        samples_per_s_per_unit=rate / ranks.world_size,
        epoch_samples_per_s=tuple(rates),
        minutes=minutes,
        epochs=history[-1].epoch,
        quality=quality,
        target=None if isinstance(run.target, NoTarget) else run.target.value,
        target_met=run.meets_target(),
        steps=sum(map(run.count_steps, range(len(history)))),
        train_samples=run.problem.train_samples,
        parameters=count_parameters(run.problem.model),
        loss=history[-1].loss,
        epoch_train_s=tuple(train_s),
        epoch_eval_s=tuple(epoch.eval_s for epoch in history),
        flop_per_s=flop_per_s,
        vflop_per_s=None if flop_per_s is None or share is None else flop_per_s * share,
        **describe_units(ranks, run.precision.name, whole_rate),
        **describe_energy(folder / POWER, ranks, clock, samples),
    )


def describe_units(dist: Dist, dtype: str, flop_per_s: float | None) -> dict[str, Any]:
    """Return the fields of a figure of merit about the ranks and their devices. flop_per_s: of all ranks."""
    utilization, peak_format = None, None
    if flop_per_s is not None:
        utilization, peak_format = rate_device(read_model_name(dist.device), dtype, flop_per_s / dist.world_size)
    return {
        "units": dist.world_size,
        "nodes": dist.nodes,
        "device": dist.device.type,
        "dtype": dtype,
        "date": date.today().isoformat(),
        "torch": torch.__version__,
        "utilization": utilization,
        "peak_format": peak_format,
        **asdict(find_lowest(read_limits(dist.device, dist.local_size))),
    }


def describe_energy(folder: Path, dist: Dist, clock: tuple[float, float], samples: float) -> dict[str, Any]:
    """Return the fields about the energy of all nodes; print that it is unknown where the folder has power files.

    clock: begin and end of the time in which the samples were trained, in ms since 1970.
    """
    energy = read_energy(folder, dist.nodes, *clock)
    if energy.energy_j is None and folder.exists():
        print(f"{folder}: {UNKNOWN}", flush=True)
    return {**asdict(energy), "samples_per_j": samples / energy.energy_j if energy.energy_j else None}


def count_parameters(model: nn.Module) -> int:
    """Return the number of parameters that are trained, over all ranks that share a sample."""
    return sum(whole_size(parameter) for parameter in model.parameters() if parameter.requires_grad)


def count_minutes(clocks: Collection[tuple[int, int]]) -> float:
    """Return the minutes from the first start to the last stop. clocks: starts and stops in ms."""
    return (max(stop for _, stop in clocks) - min(start for start, _ in clocks)) / 60_000


def merge_figures(models: Mapping[Path, tuple[int, int]], at_once: int, nodes: int) -> TrainedEnsemble | None:
    """Return the figure of merit of a job of several instances, None if one has none, or there are no models.

    models: the folders of the instances that count, with start and stop in ms. at_once: how many are trained at a time.
    nodes: of the job.
    """
    try:
        figures = [json.loads((folder / NAME).read_text(encoding="utf-8")) for folder in models]
        first, rates = figures[0], [float(figure["samples_per_s"]) for figure in figures]
        active, rate, minutes = min(at_once, len(models)), statistics.fmean(rates), count_minutes(models.values())

        def add_rates(name: str) -> float | None:
            numbers = [figure[name] for figure in figures]
            return None if None in numbers else statistics.fmean(numbers) * active

        qualities = tuple(float(figure["quality"]) for figure in figures)
        return TrainedEnsemble(
            **{name: first[name] for name in ("benchmark", "dtype", "network", "device", "date", "torch", "own_code")},
            samples_per_s=rate * active,
            units=active * first["units"],
            batch=active * first["batch"],
            spread=statistics.stdev(rates) / rate if rates[1:] else 0.0,
            nodes=nodes,
            samples_per_s_per_unit=rate / first["units"],
            models=len(rates),
            models_per_min=len(rates) / minutes,
            minutes=minutes,
            quality=statistics.fmean(qualities),
            qualities=qualities,
            flop_per_s=add_rates("flop_per_s"),
            vflop_per_s=add_rates("vflop_per_s"),
        )
    except (OSError, ValueError, LookupError, TypeError, RecursionError):  # such as of an earlier version
        return None
