"""NVIDIA's optimizers: their real Python sources where these are, and the errors where they are not or are others."""

import io
import os
import sys

import pytest
import torch
from torch import nn

from common.precision import Precision, PrecisionConfig
from common.ranks.dist import make_single_dist
from common.training import optim
from common.training.optim import OptimConfig, build
from common.training.step import Step
from tests import amp_c
from tests.common.training.test_loop import Rows
from tests.tape import Tapes

SOURCES = os.environ.get("MLPERF_HPC_APEX")
ADAM, ADAMW, LAMB = (OptimConfig(name, eps=1e-6, weight_decay=0.1, fused="apex") for name in ("adam", "adamw", "lamb"))
OTHER_LAMB = OptimConfig("lamb", eps=1e-6, weight_decay=0.1, fused="mixed_precision", max_grad_norm=0.1)

needs_apex = pytest.mark.needs(
    "apex", SOURCES, "NVIDIA's apex: MLPERF_HPC_APEX is the folder of a clone of github.com/NVIDIA/apex"
)
each = pytest.mark.parametrize("config", [ADAM, ADAMW, LAMB, OTHER_LAMB], ids=lambda c: f"{c.name} {c.fused}")


@pytest.fixture
def importable(monkeypatch):
    """Return what puts a folder first on the import path; what was imported from there is forgotten after the test."""
    yield monkeypatch.syspath_prepend
    for name in [name for name in sys.modules if name.split(".")[0] in ("apex", "amp_C")]:
        del sys.modules[name]


@pytest.fixture
def real(importable, monkeypatch):
    """Take the real sources, with kernels that compute on the CPU, which here passes for a GPU."""
    importable(SOURCES)
    monkeypatch.setitem(sys.modules, "amp_C", amp_c)
    monkeypatch.setattr(optim, "_on_gpu", lambda parameters: True)
    make_tensor = torch.tensor

    def make_here(*values, device=None, **options):  # FusedAdam makes a buffer on "cuda"
        return make_tensor(*values, **options)

    monkeypatch.setattr(torch, "tensor", make_here)


class Squares:
    """A network whose loss is the mean of squares of what it returns."""

    communicates = False

    def __init__(self, recorder):
        self.recorder = recorder
        torch.manual_seed(1)
        self.model = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 2))

    def loss(self, model, batch):
        return model(batch.rows).square().sum()

    def penalty(self):
        return None


def trained(config, steps, recorder=None, saved=None):
    """Make these steps, of two parts each; return the weights after them, and problem and optimizer as a checkpoint."""
    problem = Squares(recorder)
    optimizer = build(config, problem.model.parameters(), 0.1)
    if saved:
        state = torch.load(io.BytesIO(saved), weights_only=True)
        problem.model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
    step = Step(problem, optimizer, Precision(PrecisionConfig(dtype="fp32"), torch.device("cpu")), make_single_dist())
    for number in steps:
        rows = torch.randn(2, 4, 3, generator=torch.Generator().manual_seed(number))
        step(iter(map(Rows, rows)), 2, 8.0, 0.1 / (1 + number))
    file = io.BytesIO()
    torch.save({"model": problem.model.state_dict(), "optimizer": optimizer.state_dict()}, file)
    return [parameter.detach() for parameter in problem.model.parameters()], file.getvalue()


@needs_apex
@each
def test_steps_are_those_of_our_own_optimizer(real, config):
    ours = OptimConfig(config.name, eps=1e-6, weight_decay=0.1, max_grad_norm=config.max_grad_norm)
    found, _ = trained(config, range(4))
    assert not torch.allclose(found[0], trained(ours, [])[0][0], atol=0.05)
    torch.testing.assert_close(found, trained(ours, range(4))[0], rtol=1e-4, atol=1e-5)


@needs_apex
@each
def test_steps_are_recorded_unless_the_rate_is_a_number(real, config, capsys):
    tapes = Tapes()
    torch.testing.assert_close(trained(config, range(6), tapes)[0], trained(config, range(6))[0])
    said = capsys.readouterr().out
    if config is LAMB:
        assert "FusedLAMB takes its rate as a number" in said and not tapes.recorded
    else:
        assert not said and tapes.played == 2 * 3


@needs_apex
@each
def test_goes_on_from_a_checkpoint_bit_by_bit(real, config):
    _, saved = trained(config, range(3))
    assert all(map(torch.equal, trained(config, range(3, 5), saved=saved)[0], trained(config, range(5))[0]))


@pytest.fixture
def written(importable, tmp_path):
    """Return what writes a package named apex, with the files by which NVIDIA's is known, and kernels."""
    (tmp_path / "apex" / "optimizers").mkdir(parents=True)
    importable(tmp_path)

    def write(optimizers, kernels=True):
        (tmp_path / "apex" / "optimizers" / "fused_lamb.py").touch()
        (tmp_path / "apex" / "optimizers" / "__init__.py").write_text(optimizers)
        if kernels:
            (tmp_path / "amp_C.py").touch()

    return write


def parameters():
    return [torch.zeros(3, requires_grad=True)]


def test_without_apex_its_optimizers_are_an_error_and_no_silent_fallback(monkeypatch):
    monkeypatch.setattr(optim, "find_spec", lambda name: None)
    for config in (LAMB, OTHER_LAMB, ADAMW):
        with pytest.raises(ValueError, match=rf"optim\.fused is {config.fused}, which needs NVIDIA's apex: build it"):
            build(config, parameters(), 0.1)


def test_the_apex_of_pypi_is_not_run(written, tmp_path):
    (tmp_path / "apex" / "__init__.py").write_text("raise SystemExit('this is not the apex of NVIDIA')")
    with pytest.raises(ValueError, match="the apex here is another project"):
        build(LAMB, parameters(), 0.1)


def test_apex_without_kernels_or_without_a_gpu_is_refused(written):
    written("from torch.optim import SGD as FusedLAMB", kernels=False)
    with pytest.raises(ValueError, match=r"built without its kernels \(amp_C\)"):
        build(LAMB, parameters(), 0.1)
    written("from torch.optim import SGD as FusedLAMB")
    with pytest.raises(ValueError, match="needs a GPU, but parameters are on cpu"):
        build(LAMB, parameters(), 0.1)


@pytest.mark.parametrize(
    ("optimizers", "reason"),
    [
        ("", "FusedLAMB of the apex here is not the one .* apex.optimizers has no such optimizer"),
        ("FusedLAMB = SGD", "FusedLAMB .* it got an unexpected keyword argument 'betas'"),
        (
            "class FusedLAMB(SGD):\n"
            "    def __init__(self, params, lr, **options): super().__init__(params, lr)\n"
            "    def step(self, scale): pass\n",
            r"FusedLAMB\.step .* it missing a required argument: 'scale'",
        ),
        (
            "class FusedLAMB(SGD):\n"
            "    def __init__(self, params, lr, **options): super().__init__(params, tensor(lr))\n",
            "FusedLAMB .* its rate, .* is not a number",
        ),
    ],
    ids=["no class", "another constructor", "another step", "another rate"],
)
def test_an_apex_with_other_classes_is_refused(written, monkeypatch, optimizers, reason):
    monkeypatch.setattr(optim, "_on_gpu", lambda parameters: True)
    written(f"from torch import tensor\nfrom torch.optim import SGD\n{optimizers}")
    with pytest.raises(ValueError, match=rf"optim\.fused is apex, but {reason}; install that one"):
        build(LAMB, parameters(), 0.1)
