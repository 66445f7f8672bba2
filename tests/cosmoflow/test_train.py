"""What a training step and an evaluation of CosmoFlow compute from a batch of counts."""

from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from common.candidate import try_candidates
from common.data.prefetch import TensorBatch
from common.precision import Precision, PrecisionConfig
from common.ranks.dist import make_single_dist
from common.training.optim import KerasSGD
from cosmoflow.data.dataset import DataConfig, to_input
from cosmoflow.model import ModelConfig, build_model
from cosmoflow.prepare import main as prepare
from cosmoflow.train import CosmoFlow, main
from tests.cosmoflow.case import CASE
from tests.problems import curve

SHAPE = (8, 8, 8, 4)
MODEL = ModelConfig(conv_size=4, conv_layers=2, fc1=16, fc2=8, dropout=0.0)


def problem(dtype, **data):
    """Return the problem without data."""
    ours = CosmoFlow.__new__(CosmoFlow)
    config = DataConfig(Path(), sample_shape=SHAPE, **data)
    ours.config = SimpleNamespace(data=config, model=MODEL, precision=PrecisionConfig(dtype))
    ours.dist = make_single_dist()
    ours.model = build_model(MODEL, SHAPE, seed=1)
    return ours


def batch():
    generator = torch.Generator().manual_seed(2)
    counts = torch.randint(0, 300, (3, *SHAPE), generator=generator).to(torch.int16)
    labels = torch.rand(3, 4, generator=generator)
    return TensorBatch(counts, labels, np.arange(3), 0.0)


@pytest.mark.parametrize("data", [{}, {"apply_log": False}, {"shift": 0.3, "scale": 1.7}], ids=str)
@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
def test_input_prepared_in_the_compute_format_gives_the_same_bits(dtype, data):
    ours, given = problem(dtype, **data), batch()
    prepared = ours.prepared(given)
    assert prepared.x.dtype == ours.input_dtype and given.x.dtype == torch.int16
    x_BDHWC = (to_input(given.x, ours.config.data.apply_log) - ours.config.data.shift) / ours.config.data.scale
    results = []
    for x in (x_BDHWC, prepared.x):  # autocast rounds a float32 input at the first convolution
        ours.model.zero_grad()
        with Precision(ours.config.precision, ours.dist.device).autocast():
            loss = ours.loss(ours.model, TensorBatch(x, given.y, given.indices, 0.0))
        loss.backward()
        results.append([loss.detach(), *(parameter.grad.clone() for parameter in ours.model.parameters())])
    for theirs, same in zip(*results, strict=True):
        assert theirs.any() and torch.equal(theirs, same)


def test_weights_rounded_at_once_give_the_same_bits_after_every_change():
    """That is: steps, other weights loaded, and a copy into them as warm-up makes it."""

    def predict_changing(*names):
        ours = problem("bf16")
        ours.has_own_network = False
        optimizer = KerasSGD(ours.model.parameters(), 0.1, momentum=0.9)
        before = [parameter.detach().clone() for parameter in ours.model.parameters()]
        results = []

        def predict():
            with torch.inference_mode(), Precision(ours.config.precision, ours.dist.device).autocast():
                results.append(ours.predictions(ours.model, ours.prepared(batch())))

        with try_candidates(*names):
            for _ in range(3):
                with Precision(ours.config.precision, ours.dist.device).autocast():
                    loss = ours.loss(ours.model, ours.prepared(batch()))
                ours.model.zero_grad()
                loss.backward()
                optimizer.step()
            results += [parameter.grad for parameter in ours.model.parameters()]
            predict()
            ours.model.load_state_dict(build_model(MODEL, SHAPE, seed=2).state_dict())
            predict()
            with torch.no_grad():
                torch._foreach_copy_(list(ours.model.parameters()), before)
            predict()
        return results

    rounded, expected = predict_changing("cosmoflow-copies"), predict_changing()
    assert all(map(torch.equal, rounded, expected)) and len({tensor.sum().item() for tensor in expected[-3:]}) == 3


@pytest.mark.skipif(find_spec("nvidia") is not None, reason="DALI may be installed")
def test_a_missing_dali_is_told_before_anything_is_made(empty_folder, tmp_path, capsys):
    words = ["config", "data.data_dir=data", "data.pipeline=dali", "submission.division=open"]
    assert main([*words, "submission.org=Example", "submission.platform=test"]) == 1
    assert "needs NVIDIA DALI" in capsys.readouterr().err and not list(tmp_path.iterdir())


@pytest.fixture
def case():
    return CASE


def test_training_from_packed_samples_has_the_curve_of_that_from_records(data, run, finished_run):
    size = ["--sample-size", "16", "--workers", "1"]
    assert prepare(["repack", str(data), "packed", "--format", "packed", *size]) == 0
    assert run("data.data_dir=packed", "data.format=packed") == 4
    assert len(curve("run")) == 4 and curve("run") == curve(finished_run)
