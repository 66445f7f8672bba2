"""The optimizer step in one Triton kernel against torch's operations: on a GPU, or else in Triton's interpreter."""

import re

import pytest
import torch

from common.candidate import try_candidates
from common.training.optim import KerasSGD
from tests.hopper import compile_for_amd, resources
from tests.interpreter import DEVICE, needs_gpu, needs_triton, not_interpreted, run_in_the_interpreter

pytestmark = needs_triton


@not_interpreted
@pytest.mark.exhaustive
def test_all_others_pass_in_the_interpreter():
    run_in_the_interpreter(__file__)


def train_weights(*names):
    """Make three steps with candidates; return the weights and velocities. The third weight has no gradient."""
    generator = torch.Generator().manual_seed(1)
    shapes = [(3,), (2, 4, 3, 3, 3), (5,), (1500,), (), (0, 2), (64, 16)]
    weights = [torch.randn(shape, generator=generator).to(DEVICE) for shape in shapes]
    weights[1] = weights[1].to(memory_format=torch.channels_last_3d)
    optimizer = KerasSGD(weights, torch.tensor(0.1, device=DEVICE), momentum=0.9)
    with try_candidates(*names):
        for _ in range(3):
            optimizer.param_groups[0]["lr"].mul_(0.7)
            for index, weight in enumerate(weights):
                gradient = torch.randn(weight.shape, generator=generator).to(DEVICE)
                weight.grad = None if index == 2 else torch.empty_like(weight).copy_(gradient)
            optimizer.step()
    return [*weights, *(optimizer.state[weight]["velocity"] for weight in weights if weight.grad is not None)]


@needs_gpu
def test_a_step_equals_that_of_torchs_operations_to_the_bit():
    assert all(map(torch.equal, train_weights("fused-sgd"), train_weights()))


@not_interpreted
@pytest.mark.parametrize(
    "target", ["sm_90a", *(pytest.param(t, marks=pytest.mark.exhaustive) for t in ("sm_80", "gfx942"))]
)
def test_numbers_are_moved_by_16_bytes_and_no_product_is_fused(target):
    from common.training.sgd_kernel import TILE, _sgd_kernel

    wide = torch.empty(1, dtype=torch.float32, device="meta")
    tensors = dict.fromkeys(("weights", "velocities", "gradients"), (wide,) * 3)
    given = tensors | {"rate": wide, "momentum": 0.9, "SIZES": (3456, 3, 4194304), "TILE": TILE}
    if target == "gfx942":
        assert "v_fma" not in compile_for_amd(_sgd_kernel, given, enable_fp_fusion=False)
    else:
        found = resources(_sgd_kernel, given, target=target, enable_fp_fusion=False)
        assert "FFMA" not in found.sass and found.registers <= 32
        assert len(re.findall(r"LDG\.E\.128", found.sass)) >= 2 * 3 * 2
