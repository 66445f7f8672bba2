"""`python -m deepcam.train CONFIG.yaml`: train DeepCAM and write its result log."""

from __future__ import annotations

if __name__ == "__main__":  # before the imports below, which take seconds: a signal stops the run in order
    from common.commands.entry import start_training

    start_training("deepcam")

import contextlib
import math
import sys
from collections.abc import Generator, Iterable
from dataclasses import replace
from functools import cached_property, partial
from typing import Final

import numpy as np
import torch
from torch import Tensor, nn

from common.candidate import Candidate
from common.commands import train
from common.data.prefetch import TensorBatch, read_batches
from common.data.sampling import sample_seed, shard_assignment, shard_order
from common.data.values import Content
from common.precision import Precision
from common.ranks.dist import Dist
from common.reference import variant_of
from common.training import batchnorm
from common.training.benchmark import Benchmark, SampleProblem
from common.training.graph import CudaGraphs, say_why_not
from common.training.predictions import SAMPLES
from common.training.step import restore_afterwards
from common.training.trainer import Trainer
from deepcam import model, synthesize
from deepcam.data import values
from deepcam.data.dataset import Dataset, Normalization, augment_batch
from deepcam.data.values import NAME, read_range
from deepcam.predictor import FIELD, Predictor, Report, cross_entropy, sum_pixel_losses, sum_scores
from deepcam.reference import CHANNELS, HEIGHT, MINIS, REFERENCE, WIDTH
from deepcam.settings import Config

COMPILED_LOSS: Final = Candidate("deepcam-loss")
"""The loss is compiled, too, in the first step."""


class DeepCam(SampleProblem[TensorBatch]):
    """Find cyclones and atmospheric rivers in a climate snapshot. See `common.training.benchmark.Problem`."""

    voting = "mean of class probabilities"
    dataset = Dataset

    def __init__(self, config: Config, dist: Dist, seed: int) -> None:
        super().__init__(config, dist, seed, self.open_sets(config, dist))
        self.reference = variant_of((REFERENCE, *MINIS), config.variant, config.train.target)
        check_shares(config, self.train_samples, dist)
        self.extremes = read_range(config.data.data_dir / NAME)
        self.normalize = Normalization(self.extremes, config.data.channels, dist.device)
        channels = len(config.data.channels)
        network = self.choose_network(lambda: model.build_model(config.model, channels, seed)).to(dist.device)
        self.model = batchnorm.share_statistics(network, dist.group(config.batchnorm_group_size))
        self.class_weights = torch.tensor(config.class_weights, device=dist.device)
        self.is_compiled, self._cross_entropy = False, cross_entropy
        if config.compile is True:
            self._compile()

    @cached_property
    def recorder(self) -> CudaGraphs | None:
        """As for all problems, but None where ranks share statistics and have batches of different sizes.

        NCCL wants all ranks of a message to record and replay it together.
        """
        recorder = super().recorder
        if recorder and self.communicates and not self.equal_batches:
            parts = self.dist.world_size * self.config.train.accumulation
            say_why_not(self.dist, f"batchnorm_group_size is above 1, and not all batches have {parts} equal parts")
            return None
        return recorder

    @property
    def communicates(self) -> bool:
        """Whether ranks share the statistics of their batches."""
        return bool(self.config.batchnorm_group_size > 1)

    def _compile(self) -> None:
        """Compile the network for batches of the usual sizes."""
        drawn = torch.Generator(self.dist.device).manual_seed(0)
        shape, device = self.config.data.sample_shape, self.dist.device
        inputs = (torch.rand(n, *shape, generator=drawn, device=device) for n in self._usual_sizes)
        precision = Precision(self.config.precision, device)
        compile_network(self.model, precision, *(x_BHWC.to(self.input_dtype) for x_BHWC in inputs))
        self.is_compiled = True
        if COMPILED_LOSS.enabled:
            self._cross_entropy = torch.compile(sum_pixel_losses, dynamic=False)

    def prepare_training(self) -> None:
        """Compile the network, if `compile` leaves it to the suite and it is worth it."""
        warms_up = self.config.train.warm_up == "auto"  # else nothing is to be done ahead
        if self.config.compile == "auto" and warms_up and self.dist.device.type == "cuda" and not self.has_own_network:
            self._compile_if_worth()

    def _compile_if_worth(self) -> None:
        """Compile, or print why not on a card where it was measured."""
        train, (height, width, _) = self.config.train, self.config.data.sample_shape
        steps = min(train.epochs * self.steps(0), train.steps or math.inf)
        samples = steps * self.part_size * train.accumulation * height * width / (HEIGHT * WIDTH)
        card = torch.cuda.get_device_name(self.dist.device)
        objection = find_objection(card, self.config.batchnorm_group_size, samples)
        if objection == "":
            try:
                self._compile()
            except ValueError as error:
                objection, self.model._compiled_call_impl = str(error), None  # as torch has no call for it
        if objection and self.dist.is_main:
            print(f"compile: the network is not compiled: {objection}", flush=True)

    @cached_property
    def _usual_sizes(self) -> tuple[int, int]:
        """The samples in almost all batches of this rank, in training and in evaluation."""
        first = next(self.batching.batches(np.arange(self._step_sizes[0]), self.dist.rank, self.dist.world_size))
        return max(map(len, first.parts)), max(1, min(self.eval_size, len(self.eval_share())))

    def predictions(self, model: nn.Module, batch: TensorBatch) -> Tensor:
        """Return the logits of the classes."""
        with self._without_compiler(batch):
            logits_BKHW = model(batch.x)
        return logits_BKHW

    def _without_compiler(self, batch: TensorBatch) -> contextlib.AbstractContextManager[object]:
        """Return the context in which a batch for which nothing was compiled is computed by the plain network."""
        usual = not self.is_compiled or len(batch.x) == self._usual_sizes[0 if self.model.training else 1]
        return contextlib.nullcontext() if usual else torch.compiler.set_stance("force_eager")

    def shapes_alone(self) -> tuple[nn.Module, Tensor]:
        """Return a network that needs no other ranks, and a sample; both without numbers."""
        with torch.device("meta"):
            network = model.DeepLab(self.config.model, len(self.config.data.channels))
            return network, torch.empty(1, *self.config.data.sample_shape)

    def describe(self) -> str:
        """Return a line for the user: data and model."""
        height, width, channels = self.config.data.sample_shape
        return self.describe_data(f"snapshots of {height}×{width} with {channels} channels")

    def read(self, samples: Dataset, indices: Iterable[np.ndarray]) -> Generator[TensorBatch]:
        """Yield batches of snapshots, float32 (B, H, W, C) as in the files, and labels, uint8 (B, H, W)."""
        if self.config.data.pipeline == "dali":
            from deepcam.data import dali  # an optional package, and it takes a second to import

            return dali.load_batches(samples, indices, self.dist.device)
        return read_batches(samples, indices, self.dist.device)

    def list_contents(self, split: str, index: int) -> tuple[str, Iterable[Content]]:
        """Return the name and the contents of a snapshot."""
        samples = self.sets[split]
        data_HWC, labels_HW = samples.read(index)
        channels = values.bound_channels(self.extremes, self.config.data.channels)
        return samples.names[index], values.list_contents(data_HWC, labels_HW, channels)

    def order(self, epoch: int) -> np.ndarray:
        """Return the order of the training samples in an epoch, drawn from all of them or shard by shard."""
        size, shards = self.config.train.global_batch_size, self.config.data.shards(self.dist)
        return self.drawn[shard_order(shard_assignment(self.train_samples), shards, size, self.seed, epoch)]

    def augmented(self, batch: TensorBatch, epoch: int) -> TensorBatch:
        """Return the batch under the epoch's random symmetries."""
        if self.config.data.augment == "none":
            return batch
        seeds = sample_seed(self.seed, epoch, batch.indices)
        x, y = augment_batch(batch.x, batch.y, seeds, self.config.data.channels)
        return replace(batch, x=x, y=y)

    def prepared(self, batch: TensorBatch) -> TensorBatch:
        """Return the batch with normalised snapshots, in the format in which the network computes."""
        return replace(batch, x=self.normalize(batch.x, self.input_dtype))

    def loss(self, model: nn.Module, batch: TensorBatch) -> Tensor:
        """Return the sum over the images of their weighted cross-entropy per pixel."""
        with self._without_compiler(batch):
            return self._cross_entropy(self.predictions(model, batch), batch.y, self.class_weights)

    def votes(self, predictions: Tensor) -> Tensor:
        """Return the probabilities of the classes."""
        return predictions.float().softmax(dim=1)

    def judge(self, predictions: Tensor, batch: TensorBatch) -> Tensor:
        """Return the sum over the images of their IoU, mean of the three classes, and their number."""
        return sum_scores(predictions.argmax(dim=1), batch.y)

    def predicted(self, batch: TensorBatch) -> dict[str, Tensor]:
        """Return the most probable class of each pixel."""
        return {"predictions": self.predictions(self.model, batch).argmax(dim=1).to(torch.uint8)}

    def picture_data(self, batch: TensorBatch) -> dict[str, Tensor]:
        """Return the first channel that the network sees, in its unit: usually the water in the air."""
        channel = CHANNELS[self.config.data.channels[0]]
        scaled_BHW = batch.x[:SAMPLES, ..., 0].float()
        x_BHW = scaled_BHW * self.normalize.range[0] + self.normalize.low[0]
        return {f"{FIELD}{channel.name} in {channel.unit}": x_BHW}


def check_shares(config: Config, samples: int, dist: Dist) -> None:
    """Raise ValueError if shards cannot share a batch, or a rank has none of a step for batch normalisation."""
    parts, shards = dist.world_size * config.train.accumulation, config.data.shards(dist)
    size = config.train.global_batch_size
    if size % shards:
        raise ValueError(
            f"the global batch size is {size}; expected a multiple of the {shards} shards of data.shuffle (one per "
            "node or rank): change one of them, or set data.shuffle=global"
        )
    tail = samples % size if config.train.tail == "keep" else 0
    if size < parts or 0 < tail < parts:
        raise ValueError(
            f"{'the last of the ' if size >= parts else ''}global batches of {size} of {samples:,} training samples "
            f"would have fewer than one sample for each of {dist.world_size} rank(s) and {config.train.accumulation} "
            "part(s) of a step, but batch normalisation needs one: set train.tail=drop, or change "
            "train.global_batch_size"
        )


# -- compiled by torch --------------------------------------------------------------------------------------

SAVED_S: Final = {"NVIDIA H100": 15e-3 / 8}
"""Seconds that compiled steps save for each sample of full size, by the cards on which that was measured."""
COMPILING_S: Final = 60
"""Seconds that compiling takes there, about."""


def find_objection(card: str, group_size: int, samples: float) -> str | None:
    """Return why compiling is not worth it on a card; "" if it is, None if nothing was measured there.

    group_size: ranks that share statistics. samples: of full size, on which each rank trains in the whole run.
    """
    saved_s = next((samples * sample_s for name, sample_s in SAVED_S.items() if card.startswith(name)), None)
    if saved_s is None:
        return None
    if group_size > 1:
        return "batchnorm_group_size is above 1"
    if saved_s <= COMPILING_S:
        return f"it takes about {COMPILING_S} s and would save {saved_s:.0f} s in a run of this length"
    return ""


def compile_network(model: nn.Module, precision: Precision, train_BHWC: Tensor, eval_BHWC: Tensor) -> None:
    """Compile the network for inputs like these, in training and in evaluation; its state is then as before.

    The compiled code joins normalisation, activation and additions into few kernels. Compiling takes minutes, so it is
    done while a problem is made, ahead of `init_stop`; a batch of any other size, such as the last one of an epoch, is
    computed by the plain network, and nothing is compiled during the run. What torch compiled before is found again in
    the folder that TORCHINDUCTOR_CACHE_DIR names, by default one in the node's own temporary directory.
    Parameters and buffers keep their names. ValueError if the network cannot be compiled here.
    """
    model.compile(dynamic=False)
    try:
        with restore_afterwards(model, precision, train_BHWC.device, None):
            with precision.autocast():
                logits_BKHW = model(train_BHWC)
            logits_BKHW.sum().backward()
            model.eval()
            with torch.inference_mode(), precision.autocast():
                model(eval_BHWC)  # as CUDA graphs have it
                model(eval_BHWC.clone())  # as evaluation without them has it: a tensor of inference mode
    except RuntimeError as error:
        reason = " ".join(str(error).splitlines()[:2])
        raise ValueError(f"torch.compile fails here: {reason}; set compile to false") from error
    model.zero_grad()


BENCHMARK = Benchmark(
    config=Config,
    problem=DeepCam,
    predictor=Predictor,
    make_mini=synthesize.SYNTHESIS.provide_data,
    report=Report,
)
main = partial(train.main, BENCHMARK)
trainer = Trainer(BENCHMARK)
run, load = trainer.run, trainer.load

if __name__ == "__main__":
    sys.exit(main())
