"""Packed samples decoded by Triton kernels against those decoded by numpy: on a GPU, or in Triton's interpreter."""

import re
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from common.candidate import try_candidates
from common.precision import PrecisionConfig
from cosmoflow.data.dataset import DataConfig, Dataset
from cosmoflow.data.packed import COUNT_AT, encode_sample, file_room
from cosmoflow.train import CosmoFlow
from tests.hopper import compile_for_amd, resources
from tests.interpreter import DEVICE, needs_gpu, needs_triton, not_interpreted, run_in_the_interpreter

pytestmark = needs_triton


@not_interpreted
@pytest.mark.exhaustive
def test_all_others_pass_in_the_interpreter():
    run_in_the_interpreter(__file__)


def problem(folder, shape, dtype, **data):
    """Return the problem with samples of a folder, and without a network."""
    ours = CosmoFlow.__new__(CosmoFlow)
    config = DataConfig(folder, sample_shape=shape, format="packed", workers=1, **data)
    ours.config = SimpleNamespace(data=config, precision=PrecisionConfig(dtype))
    ours.dist = SimpleNamespace(device=torch.device(DEVICE))
    ours.sets = {"train": Dataset(folder / "train", config)}
    return ours


def write_samples(folder, shape):
    rng = np.random.default_rng(1)
    (folder / "train").mkdir()
    for number in range(3):
        x = rng.poisson(2, shape).astype(np.int16)
        rare = rng.permutation(x.size)[: number * x.size // 64]
        x.reshape(-1)[rare] = rng.integers(-1, 2**15, len(rare))  # the logarithm of 0 is infinite
        data = encode_sample(x, np.full(4, number, np.float32))
        (folder / "train" / f"s{number}.packed").write_bytes(data)


@needs_gpu
@pytest.mark.parametrize("data", [{}, {"shift": 0.3, "scale": 1.7}], ids=str)
@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
@pytest.mark.parametrize("shape", [(3, 5, 7, 4), (16, 17, 20, 4), (1, 1, 1, 4)], ids=str)
def test_batches_have_the_bits_of_those_decoded_on_the_host(tmp_path, shape, dtype, data):
    write_samples(tmp_path, shape)
    steps = [np.array(step, np.int64) for step in ([2, 0, 1], [1], [])]
    batches = []
    for names in ((), ("cosmoflow-packed",)):
        with try_candidates(*names):
            ours = problem(tmp_path, shape, dtype, **data)
            batches.append([(raw, ours.prepared(raw)) for raw in ours.read(ours.sets["train"], iter(steps))])
            assert ours.prepared(ours.synthetic("train", 2)).x.isfinite().all()
    for (_, expected), (raw, found) in zip(*batches, strict=True):
        assert raw.x.dtype == torch.uint8 and found.x.dtype == expected.x.dtype == ours.input_dtype
        assert torch.equal(found.x, expected.x) and torch.equal(found.y, expected.y)
        assert found.x.is_contiguous() and found.x.shape == (len(found.indices), *shape)


def test_only_what_the_kernels_can_do_is_left_to_them(tmp_path):
    write_samples(tmp_path, (2, 2, 2, 4))

    def unpacks(**data):
        return problem(tmp_path, (2, 2, 2, 4), "fp32", **data).unpacks

    assert not unpacks()
    with try_candidates("cosmoflow-packed"):
        assert unpacks() and not unpacks(augment="symmetries") and not unpacks(apply_log=False)
        assert not unpacks(cache=True)


def memory(dtype):
    return torch.empty(1, dtype=dtype, device="meta")


@not_interpreted
@pytest.mark.parametrize("target", ["sm_90a", "sm_80", "gfx942"])
def test_words_are_read_and_inputs_written_16_bytes_at_a_time(target):
    from cosmoflow import unpack

    counts = 128**3 * 4
    sizes = unpack.plan_unpacking(counts, file_room(counts))
    arguments = {"halves": memory(torch.int16), "table": memory(torch.bfloat16), "x": memory(torch.bfloat16), **sizes}
    others = {**arguments, "ints": memory(torch.int32), "AT": COUNT_AT // 4}
    if target == "gfx942":
        compile_for_amd(unpack._unpack_words_kernel, arguments)
        compile_for_amd(unpack._unpack_exceptions_kernel, others)
        return
    found = resources(unpack._unpack_words_kernel, arguments, target=target)
    assert re.search(r"LDG\.E\.128", found.sass) and len(re.findall(r"STG\.E\.128", found.sass)) == 8
    assert not re.search(r"STG\.E\.U16", found.sass) and found.registers <= 64
    assert resources(unpack._unpack_exceptions_kernel, others, target=target).registers <= 128
