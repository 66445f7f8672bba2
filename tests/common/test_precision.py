"""Mixed precision: which format is taken, what reaches the weights, what is saved."""

import io

import pytest
import torch

from common.precision import Precision, PrecisionConfig

CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def restored():
    before = torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32
    yield
    torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32 = before


def step(precision, target=0.75):
    """Make one step of least squares; return the type of the prediction and the changed weight."""
    weight = torch.nn.Parameter(torch.full((1, 1), 0.5))
    optimizer = torch.optim.SGD([weight], lr=0.25)
    with precision.autocast():
        predicted = torch.ones(1, 1) @ weight
        loss = (predicted.float() - target).square().sum()
    precision.backward(loss)
    precision.step(optimizer)
    return predicted.dtype, weight.item()


@pytest.mark.parametrize(
    ("name", "dtype"),
    [("fp32", torch.float32), ("tf32", torch.float32), ("bf16", torch.bfloat16), ("fp16", torch.float16)],
)
def test_products_have_the_chosen_format_and_steps_are_not_scaled(name, dtype):
    precision = Precision(PrecisionConfig(name), CPU)
    assert precision.name == name
    assert step(precision) == (dtype, 0.625)
    assert torch.backends.cudnn.allow_tf32 is torch.backends.cuda.matmul.allow_tf32 is (name == "tf32")


@pytest.mark.parametrize(("native", "name"), [(True, "bf16"), (False, "fp32")])
def test_automatic_choice_follows_the_device(native, name, monkeypatch):
    monkeypatch.setattr(torch.cpu, "_is_avx512_bf16_supported", lambda: native)
    assert Precision(PrecisionConfig(), CPU).name == name


def test_fp16_leaves_out_a_step_that_overflows_and_lowers_the_scale():
    precision = Precision(PrecisionConfig("fp16"), CPU)
    before = precision.state_dict()["scale"]
    assert step(precision, target=1e38) == (torch.float16, 0.5)
    assert precision.state_dict()["scale"] == before / 2


def test_the_scale_is_saved_and_loaded():
    precision, file = Precision(PrecisionConfig("fp16"), CPU), io.BytesIO()
    step(precision, target=1e38)
    torch.save(precision.state_dict(), file)
    resumed = Precision(PrecisionConfig("fp16"), CPU)
    resumed.load_state_dict(torch.load(io.BytesIO(file.getvalue()), weights_only=True))
    assert resumed.state_dict() == precision.state_dict()
    assert step(resumed) == (torch.float16, 0.625)


@pytest.mark.parametrize(("saved", "resumed"), [("fp16", "bf16"), ("bf16", "fp16")])
def test_a_checkpoint_of_another_precision_is_refused(saved, resumed):
    state = Precision(PrecisionConfig(saved), CPU).state_dict()
    with pytest.raises(ValueError, match=f"precision.dtype is {resumed}"):
        Precision(PrecisionConfig(resumed), CPU).load_state_dict(state)
