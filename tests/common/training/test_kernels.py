"""Where kernels in Triton are refused."""

import types

import pytest
import torch

from common import precision
from common.precision import check_kernels
from tests.interpreter import needs_triton, not_interpreted

CPU, GPU = torch.device("cpu"), torch.device("cuda")


def test_kernels_are_refused_where_they_cannot_run(monkeypatch):
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    monkeypatch.setattr(precision, "find_spec", lambda name: name)
    check_kernels("torch", CPU)
    for device in (CPU, torch.device("xpu")):
        with pytest.raises(ValueError, match=rf"model\.kernels is fused, which needs a GPU of .* is {device}: set it"):
            check_kernels("fused", device)
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    check_kernels("fused", CPU)
    monkeypatch.setattr(precision, "find_spec", lambda name: None)
    check_kernels("torch", GPU)
    with pytest.raises(ValueError, match=r"model\.kernels is triton, which needs Triton: `pip install triton`, or set"):
        check_kernels("triton", GPU)


@needs_triton
@not_interpreted
def test_triton_without_a_back_end_for_the_gpu_is_refused(monkeypatch):
    import triton
    from triton.backends.compiler import GPUTarget

    def active(target):
        driver = types.SimpleNamespace(active=types.SimpleNamespace(get_current_target=lambda: target))
        monkeypatch.setattr(triton.runtime, "driver", driver)

    active(GPUTarget("hip", "gfx942", 64))
    check_kernels("triton", GPU)
    active(GPUTarget("metal", 1, 32))
    with pytest.raises(ValueError, match=r"model\.kernels is triton, but Triton .* for this GPU .* or set it to torch"):
        check_kernels("triton", GPU)
