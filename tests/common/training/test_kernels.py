"""Where kernels in Triton are refused."""

import pytest
import torch

from common.training import kernels
from common.training.kernels import check_kernels

CPU, GPU = torch.device("cpu"), torch.device("cuda")


def test_kernels_are_refused_where_they_cannot_run(monkeypatch):
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    monkeypatch.setattr(kernels, "find_spec", lambda name: name)
    check_kernels("torch", CPU)
    check_kernels("triton", GPU)
    with pytest.raises(ValueError, match=r"model\.kernels is fused, which needs a GPU, but the device is cpu: set it"):
        check_kernels("fused", CPU)
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    check_kernels("fused", CPU)
    monkeypatch.setattr(kernels, "find_spec", lambda name: None)
    check_kernels("torch", GPU)
    with pytest.raises(ValueError, match=r"model\.kernels is triton, which needs Triton: `pip install triton`, or set"):
        check_kernels("triton", GPU)
