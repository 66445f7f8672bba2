"""LAMB on flat buffers against the plain one: on a GPU, or where there is none through Triton's interpreter."""

import io
import re
from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file
from torch import nn

from common.distributed.dist import connect
from common.export import export
from common.training.checkpoint import CheckpointConfig, Checkpoints, Position
from common.training.optim import OptimConfig, build, set_rate
from tests.hopper import resources
from tests.interpreter import DEVICE, needs_gpu, needs_triton, not_interpreted, run_in_the_interpreter

LAMB = OptimConfig("lamb", eps=1e-6, weight_decay=0.1)
CONFIGS = {
    "lamb": LAMB,
    "without decay": replace(LAMB, weight_decay=0.0),
    "without momentum": replace(LAMB, betas=(0.0, 0.9)),
}
SHAPES = ((8, 4, 3, 3), (50, 70), (5,), (2,), (), (4, 2, 2, 2, 2))

each_config = pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)


@needs_triton
@not_interpreted
@pytest.mark.exhaustive
def test_all_others_pass_in_the_interpreter():
    run_in_the_interpreter(__file__)


def flat(config):
    return replace(config, fused="flat")


def random(step, dtype=torch.float64, device=DEVICE):
    """Return a tensor of each shape, kernels of convolutions stored channels last; for step 0, one of zeros."""
    generator = torch.Generator().manual_seed(step)
    tensors = [torch.randn(shape, generator=generator, dtype=torch.float64) for shape in SHAPES]
    tensors[3] *= step != 0
    formats = {4: torch.channels_last, 5: torch.channels_last_3d}
    return [t.to(device, dtype, memory_format=formats.get(t.ndim, torch.preserve_format)) for t in tensors]


def parameters(dtype=torch.float64, device=DEVICE):
    return [tensor.requires_grad_() for tensor in random(0, dtype, device)]


def run(optimizer, steps):
    """Make steps with gradients and rates that are the same for every optimizer; return the weights after them."""
    (group,) = optimizer.param_groups
    for step in steps:
        set_rate(optimizer, 0.05 / (1 + step))
        for parameter, gradient in zip(group["params"], random(1 + step), strict=True):
            parameter.grad = gradient.to(parameter)
        optimizer.step()
        optimizer.zero_grad()
    return [parameter.detach().to("cpu", torch.float64, copy=True) for parameter in group["params"]]


def assert_equal(found, expected, within):
    for ours, theirs in zip(found, expected, strict=True):
        assert (ours - theirs).abs().max() <= within * (theirs.abs().max() + 0.1)


@needs_triton
@needs_gpu
@each_config
@pytest.mark.parametrize(
    ("dtype", "within", "max_grad_norm"),
    [(torch.float64, 1e-12, 1e3), (torch.float32, 1e-6, 1.0)],  # the plain one clips in float32
    ids=["float64", "float32, clipped"],
)
def test_steps_are_those_of_the_plain_optimizer(monkeypatch, config, dtype, within, max_grad_norm):
    monkeypatch.setattr("common.training.optim.kernels.BLOCK", 2)  # fewer than the chunks of a parameter
    config = replace(config, max_grad_norm=max_grad_norm)
    expected = run(build(config, parameters(dtype, "cpu"), 0.05), range(6))
    moving = parameters(dtype)
    order = [parameter.stride() for parameter in moving]
    assert_equal(run(build(flat(config), moving, 0.05), range(6)), expected, within)
    assert [parameter.stride() for parameter in moving] == order


@needs_triton
@needs_gpu
def test_gradients_are_added_up_in_their_buffer_or_copied_into_it():
    results = []
    for drop in (True, False):
        moving = parameters()
        optimizer = build(flat(LAMB), moving, 0.05)
        for _ in range(4):
            optimizer.zero_grad(set_to_none=drop)
            for factor in (1, 2):  # two parts of a step
                sum((factor * parameter.square()).sum() for parameter in moving).backward()
            if not drop and optimizer.state:
                buffer = optimizer.gather()
                assert all(parameter.grad._base is buffer for parameter in moving)
            optimizer.step()
        results.append([parameter.detach() for parameter in moving])
    assert all(map(torch.equal, *results))


@needs_triton
@needs_gpu
def test_gradients_of_a_loss_scale_are_those_without():
    results = []
    for enabled in (True, False):
        moving = parameters(torch.float32)
        optimizer = build(flat(LAMB), moving, 0.05)
        scaler = torch.amp.GradScaler(DEVICE, init_scale=1024.0, enabled=enabled)
        for factor in (1.0, float("inf"), 2.0):
            if enabled or factor < 3:
                optimizer.zero_grad()
                scaler.scale(sum((factor * parameter.square()).sum() for parameter in moving)).backward()
                scaler.step(optimizer)
                scaler.update()
        results.append([parameter.detach().double() for parameter in moving])
    assert_equal(*results, 1e-6)


@needs_triton
@needs_gpu
@each_config
def test_parameters_without_a_gradient_stay_and_no_others_may_follow(config):
    moving = parameters()
    optimizer = build(flat(config), moving, 0.05)
    for place in (0, 2, 4):
        moving[place].grad = torch.ones_like(moving[place])
    optimizer.step()
    changed = [not torch.equal(*pair) for pair in zip(moving, random(0), strict=True)]
    assert changed == [True, False, True, False, True, False]
    assert set(optimizer.state_dict()["state"]) == {0, 2, 4}
    moving[1].grad = torch.ones_like(moving[1])
    with pytest.raises(ValueError, match=r"parameter 1, of shape \(50, 70\), has a gradient and had none in the first"):
        optimizer.step()
    moving[1].grad = moving[4].grad = None
    with pytest.raises(ValueError, match=r"parameter 4, of shape \(\), has no gradient and had one in the first"):
        optimizer.step()


@needs_triton
@needs_gpu
@each_config
@pytest.mark.parametrize("first", ["flat", "plain"])
def test_a_saved_state_is_that_of_the_plain_optimizer_and_goes_on_there(config, first):
    expected = run(build(config, parameters(device="cpu"), 0.05), range(5))
    kinds = [(config, "cpu"), (flat(config), DEVICE)]
    moving, state = random(0), None
    for (kind, device), steps in zip(kinds[:: 1 if first == "plain" else -1], (range(3), range(3, 5)), strict=True):
        moving = [tensor.detach().to(device).requires_grad_() for tensor in moving]
        optimizer = build(kind, moving, 0.05)
        if state:
            optimizer.load_state_dict(state)
        found = run(optimizer, steps)
        file = io.BytesIO()
        torch.save(optimizer.state_dict(), file)
        state = torch.load(io.BytesIO(file.getvalue()), map_location="cpu", weights_only=True)
    assert_equal(found, expected, 1e-8)  # the plain one clips in float32


@needs_triton
@needs_gpu
def test_a_state_can_be_loaded_after_steps():
    optimizer = build(flat(LAMB), parameters(), 0.05)
    run(optimizer, range(2))
    state, weights = optimizer.state_dict(), [p.detach().clone() for p in optimizer.param_groups[0]["params"]]
    copy = io.BytesIO()
    torch.save(state, copy)
    expected = run(optimizer, range(2, 4))
    with torch.no_grad():
        for parameter, weight in zip(optimizer.param_groups[0]["params"], weights, strict=True):
            parameter.copy_(weight)
    optimizer.load_state_dict(torch.load(io.BytesIO(copy.getvalue()), weights_only=True))
    assert all(map(torch.equal, run(optimizer, range(2, 4)), expected))


@needs_triton
@needs_gpu
def test_files_have_each_number_once(tmp_path):
    model = nn.Sequential(nn.Conv2d(16, 64, 3), nn.BatchNorm2d(64), nn.Flatten(), nn.Linear(64, 500))
    model.to(DEVICE, memory_format=torch.channels_last)
    optimizer = build(flat(LAMB), model.parameters(), 0.05)
    model(torch.ones(2, 16, 3, 3, device=DEVICE)).square().sum().backward()
    optimizer.step()
    with connect() as dist:
        state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "config": {}, "seed": 1}
        path = Checkpoints(tmp_path, "deepcam", CheckpointConfig(), dist).save(Position(), state)
    export(path, tmp_path / "weights.safetensors")
    numbers = sum(parameter.numel() for parameter in model.parameters())
    assert path.stat().st_size < 4 * 4 * numbers
    assert (tmp_path / "weights.safetensors").stat().st_size < 4 * numbers + 4_000
    found = load_file(tmp_path / "weights.safetensors")
    assert all(torch.equal(found[name], tensor.cpu()) for name, tensor in model.state_dict().items())


@needs_triton
@needs_gpu
def test_parameters_that_cannot_be_in_one_buffer_are_refused():
    with pytest.raises(ValueError, match="parameters of one type"):
        build(flat(LAMB), [*parameters(), *parameters(torch.float32)], 0.05)
    moving = parameters()
    optimizer = build(flat(LAMB), moving, 0.05)
    moving[1].data = moving[1].data.clone()
    with pytest.raises(ValueError, match="parameters were moved"):
        run(optimizer, range(1))


@pytest.mark.parametrize("name", ["sgd", "adam", "adamw", "muon"])
def test_flat_is_refused_for_other_optimizers(name):
    with pytest.raises(ValueError, match=rf"flat, which is for lamb, but name is {name}; set fused=auto"):
        OptimConfig(name, fused="flat")


def test_flat_is_refused_where_it_cannot_run(monkeypatch):
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    with pytest.raises(ValueError, match=r"which needs a GPU of .* but the device is cpu: set it to auto"):
        build(flat(LAMB), parameters(device="cpu"), 0.05)
    monkeypatch.setattr("common.training.kernels.find_spec", lambda name: None)
    with pytest.raises(ValueError, match=r"needs Triton: `pip install triton`"):
        build(flat(LAMB), parameters(device="cpu"), 0.05)


@needs_triton
@not_interpreted
@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("name", "left_out"),
    [
        ("_moments_kernel", ("squares",)),
        ("_moments_kernel", ()),
        ("_scaled_kernel", ()),
        ("_rates_kernel", ()),
        ("_factors_kernel", ()),
    ],
)
def test_kernels_compile_for_hopper_and_access_16_bytes_at_a_time(name, left_out):
    from common.training.optim import kernels

    integers = dict.fromkeys(("numbers", "owners", "first"), torch.zeros(1, dtype=torch.int32))
    constants = {"BETA1": 0.9, "BETA2": 0.999, "EPS": 1e-6, "DECAY": 0.01}
    constants |= {"MAX_NORM": 1.0, "LOG_BETA1": -0.1, "LOG_BETA2": -0.001}
    constants |= {"CHUNK": kernels.CHUNK, "BLOCK": kernels.BLOCK}
    kernel = getattr(kernels, name)
    known = dict.fromkeys(kernel.arg_names, torch.zeros(1)) | integers | constants | dict.fromkeys(left_out)
    on_buffers = "CHUNK" in kernel.arg_names
    code = resources(kernel, known, warps=kernels.WARPS if on_buffers else 1).sass
    assert not on_buffers or (re.search(r"LDG\.E\.128", code) and re.search(r"STG\.E\.128", code))
