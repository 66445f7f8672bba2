"""CosmoFlow: the official Keras model, schedule and data pipeline beside ours.

    PYTHONPATH=bench python -m parity.cosmoflow CLONE RESULT.json ENVIRONMENT

The official side is `cosmoflow_official.py`, run by ENVIRONMENT/tensorflow/bin/python, which `make parity-env` makes.
"""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from torch.nn.functional import mse_loss

from common.settings.optim import EpochSchedule
from common.training import optim
from cosmoflow import model
from cosmoflow.data import raw, tfrecord
from cosmoflow.data.dataset import to_input
from cosmoflow.data.sample_files import SampleFormat
from cosmoflow.data.tfrecord import Sample
from cosmoflow.simulation import ORIGINAL
from parity import child
from parity.rows import MissingError, Row, largest_relative, relative, spread_ratios

HERE = Path(__file__).resolve().parent
GRID, SIDE = 32, 16
VARIABLES = {"TF_USE_LEGACY_KERAS": "1", "TF_CPP_MIN_LOG_LEVEL": "2", "CUDA_VISIBLE_DEVICES": "-1"}
"""For TensorFlow: Keras 2, which the official code is written for, on the CPU."""
STEPS = (1e-3, 4e-3, 1e-3)
NETWORKS = (
    {"name": "full", "dtype": "float32", "side": 128, "kernel": 3, "batch": 1, "l2": 0.01, "pooling": "official"},
    {"name": "exact", "dtype": "float64", "side": 32, "kernel": 3, "batch": 3, "l2": 0.01, "pooling": "maximum"},
    {"name": "v0.7", "dtype": "float64", "side": 32, "kernel": 2, "batch": 3, "l2": 0.0, "pooling": "maximum"},
    *(
        {"name": name, "dtype": "float32", "side": 32, "kernel": 3, "batch": 3, "l2": 0.01, "pooling": "maximum"}
        for name in ("single-1", "single-2", "single-3")
    ),
    {"name": "pooled", "dtype": "float32", "side": 32, "kernel": 3, "batch": 3, "l2": 0.01, "pooling": "official"},
)
"""The full network's forward; gradients and steps of smaller samples, exactly and in single precision.

The latter from three weights and inputs, of which the median counts: where two values of a pool are as near as
rounding, the gradient may go to another voxel. That made 1e-4 of the largest weight once in eleven, else 2e-6.
"""


def schedules() -> list[dict[str, Any]]:
    """Return the configurations of the learning rate to compare."""
    decays = ({}, {"32": 0.25, "64": 0.125}, {"1": 0.5, "2": 0.25, "7": 0.0625})
    choices = itertools.product((64, 128, 512, 1024), ("linear", "sqrt", None), (0, 1, 4, 6), decays)
    return [
        {
            "base_lr": 0.001,
            "global_batch_size": batch,
            "base_batch_size": 64,
            "scaling": scaling,
            "n_warmup_epochs": warmup,
            "decay_schedule": dict(decay),
            "epochs": 100,
        }
        for batch, scaling, warmup, decay in choices
    ]


def given(folder: Path) -> None:
    """Write what the official side needs: inputs of the networks, a raw universe, our samples of it, and the tasks."""
    rng = np.random.default_rng(0)
    networks = []
    for number, task in enumerate(NETWORKS):
        side, batch = task["side"], task["batch"]
        x = np.log1p(rng.poisson(1.0, (batch, side, side, side, 4)))
        y = rng.uniform(-1, 1, (batch, 4))
        np.savez(folder / f"{task['name']}-given.npz", x=x.astype(np.float32), y=y.astype(np.float32))
        networks.append({**task, "seed": number, "steps": () if side == 128 else STEPS})
    counts = rng.poisson(1.0, (GRID, GRID, GRID, 4)).astype(np.int16)
    labels = rng.uniform(-1, 1, 4).astype(np.float32)
    path = folder / "raw" / "12345" / "univ_ics_2019-03_a1.hdf5"
    path.parent.mkdir(parents=True)
    raw.write_universe(path, counts, labels, ORIGINAL)
    for kind in ("gzip", "none"):
        target = folder / f"ours-{kind}"
        target.mkdir()
        with raw.open_universe(path) as universe:
            files = SampleFormat("tfrecord", kind == "gzip")
            files.write_universe(target / "12345_univ_ics_2019-03_a1", universe.read_slabs(SIDE), universe.labels)
    tasks = {"networks": networks, "rates": schedules(), "side": SIDE}
    (folder / "tasks.json").write_text(json.dumps(tasks))


def ours_of(weight: np.ndarray) -> np.ndarray:
    """Return a Keras weight in our layout: (d, h, w, in, out) is (out, in, d, h, w) here, (in, out) (out, in)."""
    return np.moveaxis(weight, (-1, -2), (0, 1)) if weight.ndim > 1 else weight


def listed(found: Any, kind: str) -> list[np.ndarray]:
    """Return the official arrays of a kind, in their order, in our layout."""
    return [ours_of(found[name]) for name in sorted(found.files) if name.startswith(f"{kind}-")]


def networks(folder: Path) -> Iterator[Row]:
    """Yield the rows about all networks; of several alike the median."""

    def rows_of(task: dict[str, Any]) -> Iterator[Row]:
        found, inputs = (np.load(folder / f"{task['name']}-{side}.npz") for side in ("official", "given"))
        return network(task, found, inputs)

    for _, alike in itertools.groupby(NETWORKS, lambda task: task | {"name": None}):
        for rows in zip(*map(rows_of, alike), strict=True):
            measure = rows[0].measure + (f", median of {len(rows)}" if len(rows) > 1 else "")
            difference = float(np.median([row.difference for row in rows]))  # NaN if one is
            yield replace(rows[0], measure=measure, difference=difference)


def network(task: dict[str, Any], found: Any, inputs: Any) -> Iterator[Row]:
    """Yield the rows about one network, from its official weights."""
    side, full = task["side"], task["side"] == 128
    dtype = getattr(torch, task["dtype"])
    config = model.ModelConfig(kernel_size=task["kernel"], dropout=0.0, l2=task["l2"])
    ours = model.build_model(config, (side, side, side, 4), seed=0).to(dtype)
    weights = listed(found, "weights")
    if full:
        counts = sum(p.numel() for p in ours.parameters()), sum(weight.size for weight in weights)
        yield Row(f"parameters, {counts[1]:,}", "number", abs(counts[0] - counts[1]), 0)
        pairs = [(p.detach(), w) for p, w in zip(ours.parameters(), weights, strict=True)]
        yield Row(
            "initial weights, 8 kernels",
            "ratio of standard deviations − 1",
            spread_ratios(pair for pair in pairs if pair[1].ndim > 1),
            0.05,
        )
        biases = max(float(np.abs(np.asarray(side)).max()) for pair in pairs if pair[1].ndim == 1 for side in pair)
        yield Row("initial weights, biases of both", "largest value", biases, 0)
    with torch.no_grad():
        for parameter, weight in zip(ours.parameters(), weights, strict=True):
            parameter.copy_(torch.from_numpy(weight.copy()))
    where = f"{side}³, kernel {task['kernel']}, {task['dtype']}"
    if task["pooling"] == "official" and not full:
        yield pooling(ours, found, inputs, where)
    else:
        yield from outputs(ours, task, found, inputs, where)


def results(ours: Any, inputs: Any) -> tuple[Any, Any]:
    """Return our predictions and loss."""
    dtype = next(ours.parameters()).dtype
    x, y = (torch.from_numpy(inputs[name]).to(dtype) for name in ("x", "y"))
    predicted = ours(x)
    return predicted, mse_loss(predicted, y) + ours.l2_penalty()


def outputs(ours: Any, task: dict[str, Any], found: Any, inputs: Any, where: str) -> Iterator[Row]:
    """Yield predictions, loss, mean absolute error, gradients, and weights after steps."""
    exact = task["dtype"] == "float64"
    predicted, loss = results(ours, inputs)
    close, of_steps = (1e-7, 1e-6) if exact else (2e-5, 1e-4)
    yield Row(f"predictions, {where}", "relative", relative(predicted.detach(), found["predicted"]), close)
    yield Row(f"loss, {where}, λ = {task['l2']}", "relative", relative(loss.item(), found["loss"]), close)
    mae = np.abs(predicted.detach().numpy() - inputs["y"]).mean()
    yield Row(f"mean absolute error, {where}", "relative", relative(mae, found["mae"]), close)
    if "gradient-00" not in found.files:
        return
    loss.backward()
    pairs = zip([p.grad for p in ours.parameters()], listed(found, "gradient"), strict=True)
    yield Row(f"gradients, {where}, 16 tensors", "relative", largest_relative(pairs), of_steps)
    optimizer = optim.build(optim.OptimConfig(name="sgd", momentum=0.9), ours.parameters(), STEPS[0])
    for rate in STEPS:
        optim.set_rate(optimizer, rate)
        ours.zero_grad()
        results(ours, inputs)[1].backward()
        optimizer.step()
    pairs = zip([p.detach() for p in ours.parameters()], listed(found, "after"), strict=True)
    yield Row(f"weights after 3 steps at changing rates, {where}", "relative", largest_relative(pairs), of_steps)


def pooling(ours: Any, found: Any, inputs: Any, where: str) -> Row:
    """Return the row that tells what TensorFlow's own pooling does to gradients on a CPU."""
    results(ours, inputs)[1].backward()
    pairs = zip([p.grad for p in ours.parameters()], listed(found, "gradient"), strict=True)
    return Row(f"gradients with TensorFlow's own pooling, {where}", "relative", largest_relative(pairs), None)


def data(folder: Path) -> Iterator[Row]:
    """Yield the rows about files and preprocessing."""
    different = total = 0
    for kind in ("gzip", "none"):
        ours, theirs = (sorted((folder / f"{side}-{kind}").iterdir()) for side in ("ours", "official"))
        different += sum(one.name != other.name for one, other in zip(ours, theirs, strict=True))
        for one, other in zip(ours, theirs, strict=True):
            read = [tfrecord.read_sample(p, Sample.empty((SIDE,) * 3 + (4,)), verify_crc=True) for p in (one, other)]
            different += not all(np.array_equal(a, b) for a, b in zip(*read, strict=True))
            if kind == "none":  # protobuf writes x and y in either order
                different += len(tfrecord.encode_sample(*read[0])) != other.stat().st_size
            total += 1
    yield Row(f"official TFRecords read by ours, {total} files, names and sizes too", "number of others", different, 0)
    official = np.load(folder / "read-official.npz")
    for kind, apply_log in (("gzip", True), ("none", False)):
        paths = sorted((folder / f"ours-{kind}").iterdir())
        samples = [tfrecord.read_sample(path, Sample.empty((SIDE,) * 3 + (4,))) for path in paths]
        x = to_input(torch.from_numpy(np.stack([sample.x for sample in samples])), apply_log)
        what = "log(1 + x)" if apply_log else "divided by the mean"
        yield Row(f"our TFRecords read officially, {what}", "relative", relative(x, official[f"{kind}-x"]), 2e-7)
        labels = np.stack([sample.y for sample in samples])
        yield Row(
            f"our TFRecords read officially, labels, {kind}",
            "largest difference",
            float(np.abs(labels - official[f"{kind}-y"]).max()),
            0,
        )


def learning_rates(official: list[list[float]]) -> Iterator[Row]:
    """Yield the row about the schedule."""
    differences = []
    for case, theirs in zip(schedules(), official, strict=True):
        own = EpochSchedule(
            base_lr=case["base_lr"],
            scaling=case["scaling"] or "none",
            base_batch_size=case["base_batch_size"],
            warmup_epochs=case["n_warmup_epochs"],
            decay={int(epoch): factor for epoch, factor in case["decay_schedule"].items()},
        )
        ours = [own.rate(case["global_batch_size"], epoch) for epoch in range(case["epochs"])]
        differences.append(relative(ours, theirs))
    yield Row(f"learning rate, {len(official)} schedules of 100 epochs", "relative", max(differences), 1e-15)


def compare(clone: Path, environment: Path) -> tuple[list[Row], dict[str, str]]:
    """Return the rows, and the versions of what was used."""
    python = environment / "tensorflow" / "bin" / "python"
    if not python.exists():
        raise MissingError(f"{python} is missing: TensorFlow has an environment of its own; `make parity-env` makes it")
    with TemporaryDirectory() as name:
        folder = Path(name)
        given(folder)
        command = [str(python), str(HERE / "cosmoflow_official.py"), str(clone), str(folder)]
        done = subprocess.run(command, env=os.environ | VARIABLES, capture_output=True, text=True, check=False)
        if done.returncode:
            last = done.stderr.strip().splitlines()[-1:]
            if last and last[0].startswith(("ModuleNotFoundError", "ImportError")):
                raise MissingError(f"{last[0]}; `make parity-env` installs it")
            sys.exit(f"the official code failed:\n{done.stderr}")
        facts = json.loads((folder / "rates.json").read_text())
        rows = [*networks(folder), *learning_rates(facts["rates"]), *data(folder)]
    return rows, {"torch": torch.__version__, **facts["versions"]}


if __name__ == "__main__":
    sys.exit(child.main("cosmoflow", compare))
