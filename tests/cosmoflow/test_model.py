"""The network against published numbers, against a plain one with the same weights, and against Keras if it is here."""

from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from common.training.profile import count_sample
from cosmoflow.model import CosmoFlow, ModelConfig, build_model, pool_and_activate

FULL = (128, 128, 128, 4)
SMALL = ModelConfig(conv_size=4, fc1=16, fc2=8, dropout=0.0)

# torch warns once that such a kernel needs a padded copy of the input.
pytestmark = pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel")


def samples(batch_size, shape, dtype=torch.float32):
    generator = torch.Generator().manual_seed(7)
    counts = torch.poisson(torch.full((batch_size, *shape), 0.8, dtype=dtype), generator)
    return torch.log1p(counts + torch.rand(counts.shape, generator=generator, dtype=dtype))  # no two alike


@pytest.mark.parametrize(
    ("shape", "kernel_size", "parameters"),
    [(FULL, 3, 8_907_556), (FULL, 2, 5_597_604), ((64, 64, 64, 4), 3, 5_237_540), ((32, 32, 32, 4), 3, 4_778_788)],
)
def test_number_of_parameters_is_the_published_one(shape, kernel_size, parameters):
    with torch.device("meta"):
        model = CosmoFlow(ModelConfig(kernel_size=kernel_size), shape)
    assert sum(parameter.numel() for parameter in model.parameters()) == parameters


def test_operations_are_those_of_the_layer_table():
    with torch.device("meta"):
        model, x_BDHWC = CosmoFlow(ModelConfig(), FULL), torch.empty(1, *FULL)
    first = 7_247_757_312
    products = first + 14_495_514_624 + 7_247_757_312 + 3_623_878_656 + 1_811_939_328 + 4_194_304 + 8_192 + 256
    flops = count_sample(model, x_BDHWC).training
    assert flops == 2 * (3 * products - first)  # no gradient of the input
    assert flops == pytest.approx(192.09e9, rel=1e-5)
    assert count_sample(model, torch.empty(3, *FULL, device="meta")).training == 3 * flops
    with torch.device("meta"):
        first_round = CosmoFlow(ModelConfig(kernel_size=2), FULL)
    assert count_sample(first_round, x_BDHWC).training == pytest.approx(56.93e9, rel=1e-4)


def published(x_BDHWC, weights, kernel_size):
    """Compute the layer table of the reference in plain operations; weights as `state_dict` orders them."""
    weights = list(weights)
    before = (kernel_size - 1) // 2
    x = x_BDHWC.permute(0, 4, 1, 2, 3).contiguous()
    while weights[0].ndim == 5:
        weight, bias = weights.pop(0).contiguous(), weights.pop(0)
        x = F.conv3d(F.pad(x, (before, kernel_size - 1 - before) * 3), weight, bias)
        x = torch.where(x > 0, x, 0.3 * x)
        x = x.unfold(2, 2, 2).unfold(3, 2, 2).unfold(4, 2, 2).amax((-3, -2, -1))
    x = x.permute(0, 2, 3, 4, 1).reshape(len(x), -1)
    for _ in range(2):
        x = x @ weights.pop(0).T + weights.pop(0)
        x = torch.where(x > 0, x, 0.3 * x)
    return 1.2 * torch.tanh(x @ weights.pop(0).T + weights.pop(0))


@pytest.mark.parametrize("kernel_size", [3, 2])
@pytest.mark.parametrize(("shape", "layers"), [((32, 32, 32, 4), 5), ((9, 11, 14, 3), 3)])
def test_outputs_and_gradients_equal_the_layer_table(shape, layers, kernel_size):
    model = build_model(replace(SMALL, conv_layers=layers, kernel_size=kernel_size), shape, seed=1).double()
    x_BDHWC = samples(2, shape, torch.float64)
    for parameter in model.parameters():
        parameter.data += 0.01  # no bias is 0
    weights = [parameter.detach().clone().requires_grad_() for parameter in model.parameters()]
    ours, plain = model(x_BDHWC), published(x_BDHWC, weights, kernel_size)
    torch.testing.assert_close(ours, plain)
    ours.square().sum().backward()
    plain.square().sum().backward()
    for parameter, weight in zip(model.parameters(), weights, strict=True):
        assert parameter.grad.any()
        torch.testing.assert_close(parameter.grad, weight.grad)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_activation_after_pooling_equals_the_published_order_bit_by_bit(dtype):
    x_BCDHW = torch.randn(2, 5, 8, 8, 8, generator=torch.Generator().manual_seed(1)).to(dtype)
    both = [x_BCDHW.clone().requires_grad_() for _ in range(2)]
    outputs = [pool_and_activate(both[0]), F.max_pool3d(F.leaky_relu(both[1], 0.3), 2)]
    assert torch.equal(*outputs)
    for output in outputs:
        output.backward(torch.ones_like(output))
    # In bfloat16 two candidates may be equal, and then either may get the gradient.
    sums = [F.avg_pool3d(x.grad.float(), 2) for x in both]
    assert torch.equal(*sums)


def test_bfloat16_stays_close_and_pools_in_bfloat16():
    model = build_model(SMALL, (32, 32, 32, 4), seed=1)
    x_BDHWC = samples(2, (32, 32, 32, 4))
    with torch.no_grad():
        exact = model(x_BDHWC)
        with torch.autocast("cpu", torch.bfloat16):
            assert pool_and_activate(torch.zeros(1, 1, 2, 2, 2, dtype=torch.bfloat16)).dtype == torch.bfloat16
            torch.testing.assert_close(model(x_BDHWC).float(), exact, atol=0.02, rtol=0)


def test_a_rank_without_samples_has_zero_gradients():
    model = build_model(SMALL, (32, 32, 32, 4), seed=1)
    with torch.autocast("cpu", torch.bfloat16):
        predicted_BP = model(samples(0, (32, 32, 32, 4)))
    assert predicted_BP.shape == (0, 4)
    predicted_BP.float().sum().backward()
    assert not any(parameter.grad.any() for parameter in model.parameters())


def test_start_is_that_of_keras_and_depends_on_the_seed_alone():
    torch_state = torch.get_rng_state()
    model = build_model(ModelConfig(), (32, 32, 32, 4), seed=5)
    assert torch.equal(torch.get_rng_state(), torch_state)
    fans = [((4, 32), 27), ((256, 512), 27), ((512, 128), 1), ((64, 4), 1)]
    for layer, (channels, volume) in zip(
        [model.convs[0], model.convs[4], model.hidden[0], model.output], fans, strict=True
    ):
        limit = (6 / (sum(channels) * volume)) ** 0.5
        assert 0.9 * limit < layer.weight.abs().max() <= limit
        assert layer.weight.std().item() == pytest.approx(limit / 3**0.5, rel=0.1)
        assert not layer.bias.any()
    for same, seed in ((True, 5), (False, 6)):
        other = build_model(ModelConfig(), (32, 32, 32, 4), seed)
        assert torch.equal(model.hidden[0].weight, other.hidden[0].weight) is same


def test_l2_is_lambda_times_the_squares_of_the_hidden_dense_kernels():
    model = build_model(ModelConfig(conv_size=1, l2=0.01), (32, 32, 32, 4), seed=1)
    kernels = [model.hidden[0].weight, model.hidden[1].weight]
    penalty = model.l2_penalty()
    assert penalty.item() == pytest.approx(0.01 * sum((kernel.detach().numpy() ** 2).sum() for kernel in kernels))
    penalty.backward()
    for name, parameter in model.named_parameters():
        if any(parameter is kernel for kernel in kernels):
            torch.testing.assert_close(parameter.grad, 2 * 0.01 * parameter)
        else:
            assert parameter.grad is None, name


def test_dropout_acts_in_training_only():
    shape = (32, 32, 32, 4)
    model, x_BDHWC = build_model(ModelConfig(conv_size=1, dropout=0.5), shape, seed=1), samples(1, shape)
    assert not torch.equal(model(x_BDHWC), model(x_BDHWC))
    model.eval()
    assert torch.equal(model(x_BDHWC), build_model(ModelConfig(conv_size=1, dropout=0.0), shape, seed=1)(x_BDHWC))


def test_impossible_networks_are_refused():
    with pytest.raises(ValueError, match=r"\[16, 32, 32, 4\], too small .* expected at most 4 layers"):
        build_model(ModelConfig(), (16, 32, 32, 4), seed=1)
    with pytest.raises(ValueError, match=r"dropout is 1\.0; expected 0 <= dropout < 1"):
        ModelConfig(dropout=1.0)
    with pytest.raises(ValueError, match="conv_size is 0"):
        ModelConfig(conv_size=0)


@pytest.mark.exhaustive
@pytest.mark.parametrize("kernel_size", [3, 2])
def test_loss_and_gradients_equal_those_of_keras(kernel_size):
    """Needs tensorflow (2.21 was tried), in an environment of its own: it pins an older h5py.

    The network is small, as TensorFlow's pooling on a CPU gives the gradient to each value within 1e-5 of the maximum,
    and a larger one has some; bench/parity.py has more, by the official code.
    """
    keras, tf = pytest.importorskip("keras"), pytest.importorskip("tensorflow")
    shape = (8, 12, 10, 4)
    model = build_model(replace(SMALL, conv_layers=2, kernel_size=kernel_size, l2=0.01), shape, seed=1)
    layers = [keras.layers.Input(shape)]
    for conv in model.convs:
        layers += [keras.layers.Conv3D(conv.out_channels, kernel_size, padding="same")]
        layers += [keras.layers.LeakyReLU(0.3), keras.layers.MaxPool3D(2)]
    layers += [keras.layers.Flatten()]
    for dense in model.hidden:
        l2 = keras.regularizers.l2(0.01)
        layers += [keras.layers.Dense(dense.out_features, kernel_regularizer=l2)]
        layers += [keras.layers.LeakyReLU(0.3)]
    layers += [keras.layers.Dense(4, activation="tanh"), keras.layers.Rescaling(1.2)]
    peer = keras.Sequential(layers)

    def to_keras(tensor):
        """(out, in, d, h, w) is (d, h, w, in, out) there, and (out, in) is (in, out)."""
        return np.moveaxis(tensor.detach().numpy(), (0, 1), (-1, -2)) if tensor.ndim > 1 else tensor.detach().numpy()

    peer.set_weights([to_keras(parameter) for parameter in model.parameters()])
    x_BDHWC, y_BP = samples(2, shape), torch.rand(2, 4) * 2 - 1
    loss = F.mse_loss(model(x_BDHWC), y_BP) + model.l2_penalty()
    loss.backward()
    with tf.GradientTape() as tape:
        peer_loss = tf.reduce_mean((peer(x_BDHWC.numpy()) - y_BP.numpy()) ** 2) + tf.add_n(peer.losses)
    assert loss.item() == pytest.approx(float(peer_loss), rel=1e-6)
    gradients = tape.gradient(peer_loss, peer.trainable_variables)
    for parameter, gradient in zip(model.parameters(), gradients, strict=True):
        np.testing.assert_allclose(to_keras(parameter.grad), gradient.numpy(), rtol=1e-5, atol=1e-7)
