"""DeepCAM: the official PyTorch model, loss, metric, schedules and files beside ours.

    PYTHONPATH=bench python -m parity.deepcam CLONE RESULT.json ENVIRONMENT

Replaced, since torch and the size of the snapshots have changed: the `verbose` argument of torch's schedulers, and the
tiles of the pooled features, (48, 72) only for 768 x 1152. `summarize_data.py` finds one process in place of MPI, and
its folder. LAMB is left out: the official one is NVIDIA's apex, which needs a GPU.
"""

from __future__ import annotations

import contextlib
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any

import h5py
import numpy as np
import torch
from torch import Tensor, nn

from common.ranks.dist import make_single_dist
from common.settings.optim import StepSchedule
from common.training import optim
from deepcam import model, predictor, summarize
from deepcam.data import dataset, snapshot, values
from deepcam.reference import CLASS_WEIGHTS
from parity import child
from parity.convert import rename_deepcam
from parity.rows import Row, largest_relative, relative, spread_ratios

HEIGHT, WIDTH, CHANNELS = 96, 144, 16


def our_names(ours: nn.Module) -> dict[str, str]:
    """Return the official names of parameters and buffers with ours."""
    return {official: name for name, official in rename_deepcam(ours.state_dict()).items()}


class Official:
    """The modules of the clone."""

    def __init__(self, clone: Path) -> None:
        self.folder = clone / "deepcam" / "src"
        child.use(self.folder / "deepCam")
        with old_schedulers(), child.silent():
            from architecture import deeplab_xception
            from data import cam_hdf5_dataset
            from utils import losses, metric, optimizer_helpers, schedulers
        self.network, self.data, self.losses = deeplab_xception, cam_hdf5_dataset, losses
        self.metric, self.optimizers, self.schedulers = metric, optimizer_helpers, schedulers
        schedulers.warnings = __import__("warnings")  # it is used there, but not imported

    def model(self) -> nn.Module:
        """Return the official network for the small snapshots."""
        with child.silent():
            network: nn.Module = self.network.DeepLabv3_plus(n_input=CHANNELS, n_classes=3, os=16)
        network.bottleneck.tiles = (1, 1, HEIGHT // 16, WIDTH // 16)
        return network


@contextlib.contextmanager
def old_schedulers() -> Iterator[None]:
    """Let torch's schedulers take the `verbose` argument that they had, inside the `with`."""
    now: Any = torch.optim.lr_scheduler._LRScheduler

    class Old(now):
        def __init__(self, optimizer: Any, last_epoch: int = -1, verbose: bool = False) -> None:
            super().__init__(optimizer, last_epoch)

    torch.optim.lr_scheduler._LRScheduler = Old
    try:
        yield
    finally:
        torch.optim.lr_scheduler._LRScheduler = now


def networks(official: Official) -> Iterator[Row]:
    """Yield the rows about the network: parameters, initial weights, outputs and gradients in float64."""
    torch.manual_seed(0)
    theirs = official.model()
    ours = model.build_model(model.ModelConfig(), CHANNELS, seed=0)
    counts = [sum(weights.numel() for weights in network.parameters()) for network in (ours, theirs)]
    yield Row(f"parameters, {counts[1]:,}", "number", abs(counts[0] - counts[1]), 0)
    names = our_names(ours)
    state = {names.get(name, name): tensor for name, tensor in theirs.state_dict().items()}
    own = ours.state_dict()
    unlike = state.keys() ^ own.keys()
    unlike |= {name for name in state.keys() & own.keys() if state[name].shape != own[name].shape}
    yield Row("names and shapes, one to one", "number of others", len(unlike), 0)
    large = [name for name, tensor in state.items() if tensor.numel() > 10_000]
    ratios = spread_ratios((own[name], state[name]) for name in large)
    yield Row(f"initial weights, {len(large)} large tensors", "ratio of standard deviations − 1", ratios, 0.05)
    constants = [name for name, tensor in state.items() if tensor.float().std(correction=0) == 0]
    yield Row(
        f"initial weights, {len(constants)} constant tensors",
        "largest difference",
        max((own[name].double() - state[name].double()).abs().max().item() for name in constants),
        0,
    )
    ours.load_state_dict(state)
    del state, own  # the memory of both networks
    yield from outputs(ours.double(), theirs.double(), official)


def outputs(ours: nn.Module, theirs: nn.Module, official: Official) -> Iterator[Row]:
    """Yield logits, loss, running statistics and gradients in both modes, in float64."""
    generator = torch.Generator().manual_seed(1)
    x_BHWC = torch.rand(2, HEIGHT, WIDTH, CHANNELS, generator=generator, dtype=torch.float64)
    y_BHW = torch.randint(0, 3, (2, HEIGHT, WIDTH), generator=generator)
    names = our_names(ours)
    criterion = official.losses.CELoss(list(CLASS_WEIGHTS)).double()
    for mode in ("eval", "train"):
        for network in (ours, theirs):
            network.train(mode == "train").zero_grad()
        logits, their_logits = ours(x_BHWC), theirs(x_BHWC.permute(0, 3, 1, 2))
        yield Row(f"logits, {mode}, float64, 2 of {HEIGHT} × {WIDTH}", "relative", worst(logits, their_logits), 1e-11)
        loss = predictor.cross_entropy(logits, y_BHW, torch.tensor(CLASS_WEIGHTS, dtype=torch.float64)) / len(y_BHW)
        their_loss = criterion(their_logits, y_BHW)
        yield Row(f"loss, {mode}", "relative", worst(loss, their_loss), 1e-7)
        loss.backward()
        their_loss.backward()
        gradients = dict(ours.named_parameters())
        pairs = [(gradients[names[name]].grad, weights.grad) for name, weights in theirs.named_parameters()]
        yield Row(f"gradients, {mode}, {len(pairs)} tensors", "relative", largest_relative(pairs), 1e-6)
    buffers = dict(ours.named_buffers())
    pairs = [(buffers[names[name]], buffer) for name, buffer in theirs.named_buffers()]
    yield Row("running statistics", "relative", largest_relative(pairs), 1e-11)


def worst(ours: Tensor, official: Tensor) -> float:
    return relative(ours.detach(), official.detach())


def quality(official: Official) -> Iterator[Row]:
    """Yield the rows about class weights and metric."""
    text = (official.folder / "deepCam" / "train.py").read_text(encoding="utf-8")
    power = float(re.search(r"loss_pow = (\S+)", text)[1])
    frequencies = map(float, re.findall(r"(0\.\d+)\*\*loss_pow", text))
    yield Row(
        "class weights", "relative", relative(CLASS_WEIGHTS, [frequency**power for frequency in frequencies]), 1e-15
    )
    rng = np.random.default_rng(0)
    differences = []
    for _ in range(300):
        height, width = rng.integers(1, 40, 2)
        classes = [rng.choice(3, rng.integers(1, 4), replace=False) for _ in range(2)]
        masks = [torch.from_numpy(rng.choice(some, (1, height, width))) for some in classes]
        theirs = float(official.metric.compute_score(*masks, num_classes=3))
        differences.append(abs(float(predictor.class_iou(*masks).mean()) - theirs))
    yield Row("IoU, 300 random masks, classes absent too", "largest difference", max(differences), 1e-6)


def optimizers(official: Official) -> Iterator[Row]:
    """Yield Adam and AdamW after 20 steps on tensors of several sizes."""
    for name in ("Adam", "AdamW"):
        generator = torch.Generator().manual_seed(2)
        sizes = ((64, 32), (64,), (16, 8, 3, 3))
        ours, theirs = (
            nn.ParameterList(torch.randn(size, generator=torch.Generator().manual_seed(3)) for size in sizes)
            for _ in range(2)
        )
        config = optim.OptimConfig(name=name.lower(), eps=1e-6, weight_decay=0.01)
        wanted = SimpleNamespace(optimizer=name, start_lr=1e-3, optimizer_betas=(0.9, 0.999), weight_decay=0.01)
        steps = optim.build(config, ours, 1e-3), official.optimizers.get_optimizer(wanted, theirs, Silent())
        for _ in range(20):
            for one, other in zip(ours, theirs, strict=True):
                one.grad = torch.randn(one.shape, generator=generator)
                other.grad = one.grad.clone()
            for optimizer in steps:
                optimizer.step()
        pairs = zip((p.detach() for p in ours), (p.detach() for p in theirs), strict=True)
        yield Row(f"{name}, 20 steps", "relative", largest_relative(pairs), 1e-6)


class Silent:
    """A log that keeps nothing."""

    def log_event(self, **_: object) -> None:
        pass


def rates(official: Official, schedule: dict[str, Any], steps: int) -> np.ndarray:
    """Return the official learning rate of each step from 1 on, as its training makes it."""
    optimizer = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=0.004)
    with child.silent():
        scheduler = official.optimizers.get_lr_schedule(0.004, schedule, optimizer, Silent(), last_step=0)
    found = []
    for _ in range(steps):
        optimizer.step()
        found.append(optimizer.param_groups[0]["lr"])
        scheduler.step()
    return np.array(found)


def schedules(official: Official) -> Iterator[Row]:
    """Yield the rows about the learning rate. Documented differences are taken out, and named by the row."""
    for warmup in (0, 100):
        for kind in ("cosine_annealing", "multistep"):
            their: dict[str, Any] = {"type": kind, "lr_warmup_steps": warmup, "lr_warmup_factor": 1.0}
            their |= {"t_max": 500, "eta_min": 0.0} if kind != "multistep" else {}
            their |= {"milestones": "200 400", "decay_rate": "0.1"} if kind == "multistep" else {}
            steps = warmup + 500
            theirs = rates(official, their, steps)
            shape: dict[str, Any] = {"t_max": 500} if kind != "multistep" else {"milestones": (200, 400)}
            own = StepSchedule(base_lr=0.004, warmup_steps=warmup, kind=kind, **shape)
            ours = np.array([own.rate(512, 0, step, steps) for step in range(steps)])
            yield Row(*compared(kind, warmup, ours, theirs), 1e-10)


def compared(kind: str, warmup: int, ours: np.ndarray, theirs: np.ndarray) -> tuple[str, str, float]:
    """Return point, measure and difference of two schedules, without the differences that are documented."""
    if warmup:
        theirs = np.concatenate([theirs[: warmup - 1], theirs[warmup - 1 :] * warmup / (warmup - 1)])
        return f"learning rate, {kind} after a warm-up, official × W/(W − 1)", "relative", relative(ours, theirs)
    if kind == "multistep":
        return f"learning rate, {kind}, official a step earlier", "relative", relative(ours[1:], theirs[:-1])
    return f"learning rate, {kind}", "relative", relative(ours, theirs)


def preprocessing(official: Official) -> Iterator[Row]:
    """Yield the rows about reading, scaling, and the statistics of a training set."""
    rng = np.random.default_rng(4)
    scales, shifts = 10.0 ** rng.uniform(-7, 5, CHANNELS), rng.normal(size=CHANNELS)
    with TemporaryDirectory() as name:
        root = Path(name)
        (root / "train").mkdir()
        for number in range(5):
            data_HWC = ((rng.normal(size=(32, 48, CHANNELS)) + shifts) * scales).astype(np.float32)
            labels_HW = rng.integers(0, 3, (32, 48))
            snapshot.write_snapshot(root / "train" / f"data-2000-01-0{number + 1}-01-1.h5", data_HWC, labels_HW)
        yield from statistics(official, root)
        yield from samples(official, root)


def statistics(official: Official, root: Path) -> Iterator[Row]:
    """Run the official summary of a folder and compare its file with ours."""
    program = (official.folder / "utils" / "summarize_data.py").read_text(encoding="utf-8")
    world = SimpleNamespace(rank=0, size=1, allreduce=lambda value, op=None: value, allgather=lambda value: [value])
    mpi = SimpleNamespace(COMM_WORLD=SimpleNamespace(Dup=lambda: world), SUM=None)
    with child.modules(mpi4py=SimpleNamespace(MPI=mpi)):
        # The clone's own program: whoever names a clone has its code run, as all rows do.
        exec(compile(program.replace('"/data"', repr(str(root))), "summarize_data.py", "exec"), {})
    with h5py.File(root / values.NAME) as file:
        theirs = {key: file[f"climate/{key}"][()] for key in ("count", "mean", "sqmean", "minval", "maxval")}
    (root / values.NAME).unlink()
    ours = summarize.summarize_folder(root, make_single_dist())
    exact = [abs(ours.count - theirs["count"])]
    exact += [float(np.abs(getattr(ours, key) - theirs[key]).max()) for key in ("minval", "maxval")]
    yield Row("stats.h5: count, minval, maxval", "largest difference", max(exact), 0)
    differences = [float(np.abs(getattr(ours, key) / theirs[key] - 1).max()) for key in ("mean", "sqmean")]
    yield Row("stats.h5: mean, sqmean; official in float32", "relative, each channel", max(differences), 1e-4)


def samples(official: Official, root: Path) -> Iterator[Row]:
    """Read and scale snapshots by both."""
    with child.silent():
        theirs = official.data.CamDataset(str(root / "train"), str(root / values.NAME), list(range(CHANNELS)))
    ours = dataset.Dataset(root / "train", dataset.DataConfig(root, height=32, width=48))
    scale = dataset.Normalization(values.read_range(root / values.NAME), range(CHANNELS), torch.device("cpu"))
    inputs, labels = [], 0
    for number in range(len(ours)):
        x_CHW, y_HW, _ = theirs[number]
        sample = ours.read(number)
        inputs.append((scale(torch.from_numpy(sample.x)[None])[0], x_CHW.transpose(1, 2, 0)))
        labels += int((sample.y != y_HW).sum())
    yield Row("input of the network: snapshots scaled to [0, 1]", "relative", largest_relative(inputs), 2e-6)
    yield Row("labels", "number of others", labels, 0)


def compare(clone: Path, environment: Path) -> tuple[list[Row], dict[str, str]]:
    """Return the rows, and the versions of what was used."""
    official = Official(clone)
    parts = (networks, quality, optimizers, schedules, preprocessing)
    return [row for part in parts for row in part(official)], {"torch": torch.__version__}


if __name__ == "__main__":
    sys.exit(child.main("deepcam", compare))
