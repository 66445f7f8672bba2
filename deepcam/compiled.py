"""Compile the network by torch.compile, before a run starts and for its usual batches only.

The compiled code joins normalisation, activation and additions into few kernels. Compiling takes minutes, so it is done
while a problem is made, ahead of `init_stop`; a batch of any other size, such as the last one of an epoch, is computed
by the plain network, and nothing is compiled during the run. What torch compiled before is found again in the folder
that TORCHINDUCTOR_CACHE_DIR names, by default one in the node's own temporary directory.

Tested on a CPU; what it gains on a GPU is **not measured**.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch
from torch import Tensor, nn

from common.precision import Precision


def compile_network(model: nn.Module, precision: Precision, train_BHWC: Tensor, eval_BHWC: Tensor) -> None:
    """Compile the network for inputs like these, in training and in evaluation; its state is then as before.

    Parameters and buffers keep their names. ValueError if the network cannot be compiled here.
    """
    model.compile(dynamic=False)
    try:
        with _restore_state(model, train_BHWC.device):
            with precision.autocast():
                logits_BKHW = model(train_BHWC)
            logits_BKHW.sum().backward()
            model.eval()
            with torch.inference_mode(), precision.autocast():
                model(eval_BHWC)  # as CUDA graphs have it
                model(eval_BHWC.clone())  # as evaluation without them has it: a tensor of inference mode
    except RuntimeError as error:
        reason = " ".join(str(error).splitlines()[:2])
        raise ValueError(f"compile is true, but torch.compile fails here: {reason}; set it to false") from error


@contextlib.contextmanager
def _restore_state(model: nn.Module, device: torch.device) -> Iterator[None]:
    """Restore buffers, mode and random numbers at the end; drop the gradients."""
    before, training = [buffer.clone() for buffer in model.buffers()], model.training
    try:
        with torch.random.fork_rng([device] if device.type != "cpu" else [], device_type=device.type):
            yield
    finally:
        model.train(training).zero_grad()
        with torch.no_grad():
            for buffer, former in zip(model.buffers(), before, strict=True):
                buffer.copy_(former)
