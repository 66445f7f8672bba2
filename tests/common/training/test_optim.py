"""Optimizers against hand-computed steps, torch's own and the published formulas."""

import io

import numpy as np
import pytest
import torch

from common.candidate import try_candidates
from common.settings.optim import MOMENTS_LOGGED, log_name
from common.training import optim
from common.training.graph import CudaGraphs
from common.training.optim import KerasSGD, OptimConfig, build
from tests.tape import NeverWaits, Tapes

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def weights(*sizes, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(size, generator=generator, dtype=torch.float64).requires_grad_() for size in sizes]


def gradients(parameters, step):
    generator = torch.Generator().manual_seed(100 + step)
    return [torch.randn(p.shape, generator=generator, dtype=p.dtype) for p in parameters]


def run(optimizer, steps, rates=None):
    """Make steps with gradients that are the same for every optimizer; return the weights after them."""
    (group,) = optimizer.param_groups
    for step in steps:
        if rates:
            group["lr"] = rates[step]
        for parameter, gradient in zip(group["params"], gradients(group["params"], step), strict=True):
            parameter.grad = gradient
        optimizer.step()
    return [parameter.detach().clone() for parameter in group["params"]]


def test_sgd_has_the_rate_in_the_velocity():
    (parameter,) = weights(1)
    parameter.data[:] = 1
    optimizer = build(OptimConfig(momentum=0.9), [parameter], lr=0.1)
    values = []
    for rate in (0.1, 0.01, 0.0):
        optimizer.param_groups[0]["lr"] = rate
        parameter.grad = torch.ones_like(parameter)
        optimizer.step()
        values.append(parameter.item())
    # velocities: -0.1; -0.9 * 0.1 - 0.01 = -0.1; -0.9 * 0.1 = -0.09
    assert values == pytest.approx([0.9, 0.8, 0.71])


def test_sgd_equals_torchs_while_the_rate_stays():
    torchs = torch.optim.SGD(weights((3, 4), 5), 0.05, momentum=0.9)
    torch.testing.assert_close(run(KerasSGD(weights((3, 4), 5), 0.05, 0.9), range(5)), run(torchs, range(5)))


def test_the_rate_may_be_a_tensor():
    for config in (OptimConfig(), OptimConfig("lamb", weight_decay=0.01)):
        rates = (0.05, torch.tensor(0.05, dtype=torch.float64))
        torch.testing.assert_close(*(run(build(config, weights((3, 4), 5), rate), range(3)) for rate in rates))


@pytest.mark.parametrize("name", ["sgd", "adam", "adamw", "lamb", "muon"])
def test_a_recorded_step_makes_the_steps_of_other_rates_and_gradients(name):
    config = OptimConfig(name, weight_decay=0.1 if name in ("adam", "adamw", "lamb") else 0.0)
    copies = [[w.detach().to(DEVICE, torch.float32).requires_grad_() for w in weights((8, 4), 5)] for _ in range(2)]
    both = [build(config, copy, torch.tensor(0.1, device=DEVICE)) for copy in copies]
    for step in range(6):
        for optimizer, copy in zip(both, copies, strict=True):
            optim.set_rate(optimizer, 0.1 / (1 + step))
            for parameter, gradient in zip(copy, gradients(copy, step), strict=True):
                if parameter.grad is None:
                    parameter.grad = torch.empty_like(parameter)
                parameter.grad.copy_(gradient)
        if step == 3:
            recorder = CudaGraphs(torch.device("cuda")) if DEVICE == "cuda" else Tapes()
            replay = recorder.record(both[1].step)
        both[0].step()
        both[1].step() if step < 3 else replay()
    assert all(map(torch.equal, *copies))


@pytest.mark.parametrize("name", ["sgd", "lamb", "muon"])  # torch's Adam knows no meta device
def test_on_an_accelerator_the_rate_is_a_tensor_and_no_step_waits(name):
    parameters = [torch.zeros(size, device="meta", requires_grad=True) for size in ((3, 4), 5)]
    optimizer = build(OptimConfig(name, weight_decay=0.1 if name == "lamb" else 0.0), parameters, 0.1)
    rate = optimizer.param_groups[0]["lr"]
    assert (rate.device.type, rate.dtype, rate.shape) == ("meta", torch.float32, ())
    with NeverWaits():
        for _ in range(2):
            optim.set_rate(optimizer, 0.2)
            for parameter in parameters:
                parameter.grad = torch.zeros_like(parameter)
            optimizer.step()


@pytest.mark.parametrize(("name", "peer"), [("adam", torch.optim.Adam), ("adamw", torch.optim.AdamW)])
@pytest.mark.parametrize("fused", ["auto", "off"])
def test_adam_is_torchs(name, peer, fused):
    config = OptimConfig(name, betas=(0.8, 0.99), eps=1e-6, weight_decay=0.1, fused=fused)
    optimizer = build(config, weights((3, 4), 5), lr=0.05)
    plain = peer(weights((3, 4), 5), 0.05, betas=(0.8, 0.99), eps=1e-6, weight_decay=0.1, foreach=False)
    assert type(optimizer) is peer
    torch.testing.assert_close(run(optimizer, range(5)), run(plain, range(5)))


def lamb_of_the_paper(parameters, steps, rate, decay, max_grad_norm):
    """Algorithm 2 of You et al. 2020 in numpy, a line at a time, after clipping to the norm of all gradients together.

    As NVIDIA's FusedLAMB by default: moments corrected, gradients averaged, decay apart from the gradient and of every
    tensor, and without decay no trust ratio.
    """
    weights = [parameter.detach().numpy().astype(np.float64) for parameter in parameters]
    m, v = ([np.zeros_like(x) for x in weights] for _ in range(2))
    for t in range(1, steps + 1):
        g = [gradient.numpy().astype(np.float64) for gradient in gradients(parameters, t - 1)]
        norm = np.sqrt(sum((gradient**2).sum() for gradient in g))
        for i, x in enumerate(weights):
            clipped = g[i] / max(1, norm / max_grad_norm)
            m[i] = 0.9 * m[i] + (1 - 0.9) * clipped
            v[i] = 0.999 * v[i] + (1 - 0.999) * clipped**2
            r = m[i] / (1 - 0.9**t) / (np.sqrt(v[i] / (1 - 0.999**t)) + 1e-6) + decay * x
            ratio = np.linalg.norm(x) / np.linalg.norm(r) if decay and x.any() and r.any() else 1.0
            x -= rate * ratio * r
    return [torch.from_numpy(x).to(parameter.dtype) for x, parameter in zip(weights, parameters, strict=True)]


@pytest.mark.parametrize("max_grad_norm", [1.0, 100.0])
@pytest.mark.parametrize("decay", [0.1, 0.0])
@pytest.mark.parametrize(("dtype", "exact"), [(torch.float64, 1e-6), (torch.float32, 1e-5)])
def test_lamb_is_that_of_the_paper(dtype, exact, decay, max_grad_norm):
    start = [tensor.detach().to(dtype).requires_grad_() for tensor in weights((8, 4, 3, 3), (3, 4), 5, 2)]
    start[-1].data.zero_()
    expected = lamb_of_the_paper(start, 6, 0.05, decay, max_grad_norm)
    config = OptimConfig("lamb", weight_decay=decay, eps=1e-6, max_grad_norm=max_grad_norm)
    torch.testing.assert_close(run(build(config, start, 0.05), range(6)), expected, rtol=exact, atol=exact)


def test_lamb_of_weights_in_another_order_of_memory():
    config, (plain,) = OptimConfig("lamb", weight_decay=0.1), weights((8, 4, 3, 3))
    turned = plain.detach().clone(memory_format=torch.channels_last).requires_grad_()
    for parameter in (plain, turned):
        optimizer = build(config, [parameter], 0.05)
        for _ in range(3):
            optimizer.zero_grad()
            parameter.square().sum().backward()
            optimizer.step()
    torch.testing.assert_close(plain, turned)


@pytest.mark.parametrize("decay", [0.0, 0.1])
def test_lamb_with_scratch_makes_the_same_steps_to_the_bit_by_fewer_calls(decay):
    config, sizes = OptimConfig("lamb", weight_decay=decay), [(8, 4, 3, 3), 5, (64, 2), 1, (), *[3] * 40]
    results, calls = [], []
    for names in ((), ("lamb-scratch",)):
        parameters = [parameter.detach().float().requires_grad_() for parameter in weights(*sizes)]
        parameters[0].data = parameters[0].data.to(memory_format=torch.channels_last)
        optimizer = build(config, parameters, torch.tensor(0.05))
        with try_candidates(*names):
            results.append(run(optimizer, range(4)))
            parameters[1].grad = None  # other parameters than before
            optimizer.step()
            with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
                optimizer.step()
        results[-1] += [parameter.detach() for parameter in parameters]
        counts = {event.key: event.count for event in profile.key_averages()}
        calls.append(sum(counts.get(f"aten::{name}", 0) for name in ("zeros_like", "zero_", "mul_")))
    assert all(map(torch.equal, *results))
    count = len(sizes) - 1
    assert calls[0] >= 2 * count and calls[1] <= (3 if decay else count + 3)  # a CPU multiplies one by one


def test_lamb_survives_gradients_of_zero():
    (parameter,) = weights(3)
    parameter.grad = torch.zeros_like(parameter)
    build(OptimConfig("lamb"), [parameter], 0.1).step()
    torch.testing.assert_close(parameter, weights(3)[0])


@pytest.mark.parametrize("name", ["sgd", "adam", "adamw", "lamb"])
def test_goes_on_from_a_saved_state_bit_by_bit(name):
    config, rates = OptimConfig(name, weight_decay=0.0 if name == "sgd" else 0.1), [0.1, 0.2, 0.05, 0.01]
    whole = build(config, weights((3, 4), 5), rates[0])
    run(whole, range(2), rates)
    file = io.BytesIO()
    torch.save(
        {"optimizer": whole.state_dict(), "weights": [p.detach() for p in whole.param_groups[0]["params"]]}, file
    )
    expected = run(whole, range(2, 4), rates)

    saved = torch.load(io.BytesIO(file.getvalue()), weights_only=True)
    resumed = build(config, [tensor.requires_grad_() for tensor in saved["weights"]], rates[0])
    resumed.load_state_dict(saved["optimizer"])
    assert all(map(torch.equal, run(resumed, range(2, 4), rates), expected))


@pytest.mark.parametrize("name", ["adamw", "lamb"])
def test_rate_and_step_count_may_be_saved_as_numbers_and_loaded_as_tensors_or_vice_versa(name):
    config, rates = OptimConfig(name, weight_decay=0.1), [0.125, 0.5, 0.25]
    expected = run(build(config, weights((3, 4), 5), 0.125), range(3), rates)
    for saving, loading in ((0.5, torch.tensor(1.0)), (torch.tensor(0.5), 1.0)):
        parameters = weights((3, 4), 5)
        first = build(config, parameters, saving)
        run(first, range(2), rates)
        state = first.state_dict()
        (group,) = state["param_groups"]
        group |= {"lr": saving, "capturable": True, "fused": True, "foreach": None}  # as of a GPU
        if name == "lamb":
            group["step"] = int(group["step"])  # as of the first checkpoints
        resumed = build(config, parameters, loading)
        resumed.load_state_dict(state)
        assert resumed.param_groups[0]["lr"] == 0.5
        assert isinstance(resumed.param_groups[0]["lr"], torch.Tensor) == isinstance(loading, torch.Tensor)
        optim.set_rate(resumed, rates[2])
        torch.testing.assert_close(run(resumed, [2]), expected)


@pytest.mark.parametrize("name", ["sgd", "adamw", "lamb"])
def test_parameters_without_a_gradient_stay(name):
    used, unused = weights(3, 3)
    before = unused.detach().clone()
    used.grad = torch.ones_like(used)
    build(OptimConfig(name), [used, unused], 0.1).step()
    assert torch.equal(unused, before) and not torch.equal(used, before)


def logged(config):
    """Return what DeepCAM's log states of an optimizer."""
    entries = {"opt_name": log_name} | MOMENTS_LOGGED
    values = {key: value(lambda name: getattr(config, name.removeprefix("optim."))) for key, value in entries.items()}
    return {key: value for key, value in values.items() if value is not None}


def test_the_log_states_what_the_reference_of_deepcam_asks_for():
    assert logged(OptimConfig("lamb", eps=1e-6, weight_decay=0.01)) == {
        "opt_name": "LAMB",
        "opt_betas": [0.9, 0.999],
        "opt_eps": 1e-6,
        "opt_weight_decay": 0.01,
        "opt_bias_correction": True,
        "opt_grad_averaging": True,
        "opt_max_grad_norm": 1.0,
    }
    for name, said in {"adam": "Adam", "adamw": "AdamW"}.items():
        stated = logged(OptimConfig(name, betas=(0.8, 0.99), eps=1e-6))
        assert stated == {"opt_name": said, "opt_betas": [0.8, 0.99], "opt_eps": 1e-6, "opt_weight_decay": 0.0}
    stated = logged(OptimConfig("sgd", momentum=0.7))
    assert stated == {"opt_name": "SGD", "opt_betas": [0.7], "opt_eps": 0.0, "opt_weight_decay": 0.0}


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"momentum": 1.0}, "momentum has 1.0"),
        ({"betas": (0.9, -0.1)}, "betas has -0.1"),
        ({"weight_decay": 0.1}, "model.l2"),
        ({"name": "lamb", "weight_decay": -0.1}, "weight_decay is -0.1"),
        ({"eps": 0.0}, "eps is 0.0"),
        ({"name": "adam", "fused": "mixed_precision"}, "which is for lamb, but name is adam"),
        ({"name": "sgd", "fused": "apex"}, "no kernels for sgd"),
        ({"name": "muon", "fused": "apex"}, "no kernels for muon"),
    ],
)
def test_impossible_values_are_refused(values, message):
    with pytest.raises(ValueError, match=message):
        OptimConfig(**values)


def test_muon_moves_as_far_in_all_directions():
    parameters = weights((6, 10), (10, 6), (4, 3, 3, 3, 3), 5)
    before = [parameter.detach().clone() for parameter in parameters]
    after = run(build(OptimConfig("muon", momentum=0.9), parameters, lr=0.1), range(3))
    assert not any(map(torch.equal, before, after))
    for (rows, columns), scale in {(6, 10): 1.0, (10, 6): (10 / 6) ** 0.5, (1, 5): 1.0}.items():
        matrix = torch.randn(rows, columns, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
        values = torch.linalg.svdvals(optim.make_orthogonal(1e-3 * matrix)) / scale
        assert values.min() > 0.6 and values.max() < 1.3
        u, _, v = torch.linalg.svd(matrix, full_matrices=False)
        product = (optim.make_orthogonal(matrix) / scale * (u @ v)).sum() / min(rows, columns)
        assert product == pytest.approx(0.95, abs=0.3)
    assert torch.equal(optim.make_orthogonal(torch.zeros(3, 4)), torch.zeros(3, 4))
