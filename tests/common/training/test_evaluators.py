"""The message with the weights, between rank 0 and the ranks that evaluate."""

import torch
from torch import nn

from common.training import evaluators
from tests.common.training.test_checkpoint import Message


def network(seed):
    """Return a network with weights in channels-last order, integers, truth values, a scalar and odd sizes."""
    torch.manual_seed(seed)
    made = nn.Sequential(nn.Conv2d(3, 5, 3), nn.BatchNorm2d(5), nn.Linear(7, 1).to(torch.bfloat16))
    made.register_buffer("mask", torch.rand(3) < 0.5)
    made.register_buffer("none", torch.empty(0))
    made[1].num_batches_tracked += seed
    return made.to(memory_format=torch.channels_last)


def test_weights_travel_in_one_message():
    sent = []
    first, second = network(1), network(2)
    before = {name: (tensor.data_ptr(), tensor.stride()) for name, tensor in second.state_dict().items()}
    evaluators._send_weights(first, Message(0, sent))
    assert len(sent) == 1
    evaluators._send_weights(second, Message(1, sent))
    for name, tensor in second.state_dict().items():
        assert torch.equal(tensor, first.state_dict()[name]), name
        assert before[name] == (tensor.data_ptr(), tensor.stride()), name
    assert not first[0].weight.is_contiguous()
