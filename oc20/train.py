"""`python -m oc20.train CONFIG.yaml`: train DimeNet++ on OC20 and write its result log."""

from __future__ import annotations

if __name__ == "__main__":  # before the imports below, which take seconds: a signal stops the run in order
    from common.commands.entry import start_training

    start_training("oc20")

import contextlib
import math
import sys
from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import replace
from functools import lru_cache, partial
from typing import Final

import numpy as np
import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils.flop_counter import FlopCounterMode

from common.commands import train
from common.data.prefetch import map_tensors
from common.data.values import Content
from common.precision import check_kernels
from common.ranks.dist import Dist
from common.reference import variant_of
from common.training.benchmark import Benchmark, SampleProblem
from common.training.faults import DataFaultError
from common.training.profile import SampleFlops, count_passes, table3_forward
from common.training.trainer import Trainer
from oc20 import model, synthesize
from oc20.data import dataset, values
from oc20.data.dataset import BalancedBatching, Bucket, Dataset, GraphBatch, balance_parts, choose_buckets, pad_frames
from oc20.graphs import MOST_NEIGHBOURS, Graph, build_graph, link_frames
from oc20.predictor import Predictor, Report, absolute_errors, force_errors
from oc20.reference import MINIS, REFERENCE
from oc20.settings import Config, ModelConfig

COUNTED: Final = 8
"""The most frames whose operations are counted; of more, evenly chosen ones."""
FORCE_COEFFICIENT: Final = 50.0
"""Factor of the forces in the reference's loss; that of the energy is 0."""


class Oc20(SampleProblem[GraphBatch]):
    """Predict the forces on the atoms of a catalyst with an adsorbate. See `common.training.benchmark.Problem`."""

    dataset = Dataset

    def __init__(self, config: Config, dist: Dist, seed: int) -> None:
        super().__init__(config, dist, seed, self.open_sets(config, dist))
        self.reference = variant_of((REFERENCE, *MINIS), config.variant, config.train.target)
        sizes = self.sets["train"].sizes
        self.free: np.ndarray = sizes.free.astype(np.int64)
        self.weights_of = lru_cache(maxsize=1)(self._step_weights)
        if config.data.balance == "triplets":
            self.batching = BalancedBatching(
                config.train.global_batch_size,
                config.train.tail,
                config.train.accumulation,
                weights=sizes.triplets,
            )
        check_kernels(config.model.kernels, dist.device)  # so that an impossible choice is found before the run starts
        self.model = self.choose_network(lambda: model.build_model(config.model, seed)).to(dist.device)

    @property
    def sample_means(self) -> dict[str, float]:
        """The mean sizes of the training frames."""
        sizes = self.sets["train"].sizes
        counts = {"atoms": sizes.natoms, "edges": sizes.neighbors, "triplets": sizes.triplets}
        return {name: float(count.mean()) for name, count in counts.items()}

    def count_flops(self) -> SampleFlops | None:
        """Return the operations for a training frame, on average; None for a network of your own."""
        return None if self.has_own_network else self._for_mean_frame(count_own)

    def count_table3(self) -> float:
        """Return the operations of a training step for a training frame, on average, by the other convention."""
        return self._for_mean_frame(count_table3).training

    def _for_mean_frame(self, count: Callable[[ModelConfig, Graph], SampleFlops]) -> SampleFlops:
        """Return the operations in training and evaluation: those of a few frames, scaled to the edges of all."""
        frames = self.sets["train"]
        numbers = range(0, len(frames), -(-len(frames) // COUNTED))
        flops = count(self.config.model, build_graph([frames.read(number) for number in numbers]))
        edges = frames.sizes.neighbors
        share = float(edges.mean() / edges[list(numbers)].sum())  # nearly all operations are those of edges
        return SampleFlops(flops.training * share, flops.evaluation * share)

    def describe(self) -> str:
        """Return a line for the user: data and model."""
        sizes = self.sets["train"].sizes
        means = f"{sizes.natoms.mean():.0f} atoms, {sizes.neighbors.mean():.0f} edges"
        return self.describe_data("frames", f", on average of {means} and {sizes.triplets.mean():.0f} triplets")

    @property
    def equal_batches(self) -> bool:
        """Whether batches have the same shapes on all ranks: frames differ in size."""
        return self.dist.world_size == 1

    def read(self, samples: Dataset, indices: Iterable[np.ndarray]) -> Generator[GraphBatch]:
        """Yield batches of frames."""
        return dataset.load_batches(samples, indices, self.dist.device, self.choose_buckets(samples))

    def list_contents(self, split: str, index: int) -> tuple[str, Iterable[Content]]:
        """Return the name and the contents of a frame."""
        frame = self.sets[split].read(index)
        return values.name_frame(frame), values.list_contents(frame)

    def choose_buckets(self, samples: Dataset) -> tuple[Bucket, ...]:
        """Return the sizes to which batches of these samples are padded; none if they are not."""
        how = self.config.data.buckets
        if how == "off" or (how == "auto" and self.recorder is None):
            return ()
        frames = self.eval_size if samples is self.sets["validation"] else self.part_size
        return choose_buckets(samples.sizes, frames)

    def synthetic_steps(self) -> Iterator[list[GraphBatch]]:
        """Yield a step for each bucket, whose parts are padding only, or one step of average size."""
        for batch in self._synthetic_batches(self.sets["train"], self.part_size):
            yield [self.prepared(batch)] * self.batching.accumulation

    def synthetic_evaluation(self) -> Iterator[GraphBatch]:
        """Yield a batch for each bucket, or one of average size."""
        return self._synthetic_batches(self.sets["validation"], self.eval_size)

    def _synthetic_batches(self, samples: Dataset, frames: int) -> Iterator[GraphBatch]:
        sizes, buckets = samples.sizes, self.choose_buckets(samples)
        if not buckets:
            atoms = math.ceil(frames * sizes.natoms.mean())
            edges = min(round(frames * sizes.neighbors.mean()), atoms * MOST_NEIGHBOURS)
            buckets = (Bucket(edges, atoms, frames),)
        usual = frames * float(sizes.neighbors.mean())
        for bucket in sorted(buckets, key=lambda bucket: abs(bucket.edges - usual)):  # the most usual have recordings
            joined = pad_frames([], (bucket,))
            graph = joined.to(self.dist.device) if self.dist.device.type != "cpu" else link_frames(joined)
            yield GraphBatch(graph, np.arange(frames))

    def prepared(self, batch: GraphBatch) -> GraphBatch:
        """Return a batch with its graph, which is made on the device."""
        return replace(batch, graph=link_frames(batch.graph))

    def step_weight(self, epoch: int, step: int) -> float:
        """Return the free atoms of a global batch, over all ranks, so that each has equal weight."""
        return float(self.weights_of(epoch)[step])

    def _step_weights(self, epoch: int) -> np.ndarray:
        free = self.free[self.order(epoch)]
        weights: np.ndarray = np.add.reduceat(free, np.arange(0, len(free), self.batching.global_batch_size))
        if not weights.all():
            index = int(self.order(epoch)[int(np.argmin(weights)) * self.batching.global_batch_size])
            (path,) = self.sets["train"].paths(index)
            name, _ = self.list_contents("train", index)
            raise DataFaultError(
                f"{path}, {name}: no atom of its batch is free, so that its step has no loss: leave it out"
            )
        return weights

    def eval_share(self) -> np.ndarray:
        """Return this rank's validation frames, balanced by triplets."""
        if self.config.data.balance == "none":
            return super().eval_share()
        return balance_parts(self.sets["validation"].sizes.triplets, self.dist.world_size)[self.dist.rank]

    def predictions(self, model: nn.Module, batch: GraphBatch) -> Tensor:
        """Return the normalised forces on the atoms, (A, 3)."""
        return model(batch.graph)[1]

    def loss(self, model: nn.Module, batch: GraphBatch) -> Tensor:
        """Return the sum over the free atoms of the absolute errors of their force's components."""
        wrong_A3 = self.predictions(model, batch) - batch.graph.forces / self.config.data.energy_std
        return FORCE_COEFFICIENT * (wrong_A3 * batch.graph.free[:, None]).abs().sum()

    def errors(self, votes: Tensor, batch: GraphBatch) -> Tensor:
        """Return the errors of the forces in eV/angstrom, (A, 3); 0 on atoms that are not free."""
        graph = batch.graph
        return force_errors(votes.detach() * self.config.data.energy_std, graph.forces, graph.free)

    def judge(self, predictions: Tensor, batch: GraphBatch) -> Tensor:
        """Return the sum of the absolute errors in eV/angstrom over components of free atoms, and their number."""
        return absolute_errors(self.errors(predictions, batch), batch.graph.free)

    def predicted(self, batch: GraphBatch) -> dict[str, Tensor]:
        """Return the energies of the frames in eV, and the forces on their atoms in eV/angstrom."""
        data, frames, graph = self.config.data, len(batch.indices), link_frames(batch.graph)
        energies_G, forces_A3 = self.model(graph)
        return {
            "energies": (energies_G * data.energy_std + data.energy_mean)[:frames],
            "forces": (forces_A3 * data.energy_std)[graph.image < frames],
        }

    def truth(self, batch: GraphBatch) -> dict[str, Tensor]:
        """Return the atoms of the frames, their elements, and the true energies and forces; without padding."""
        frames, graph = len(batch.indices), batch.graph
        real = graph.image < frames
        return {
            "natoms": torch.bincount(graph.image[real], minlength=frames).int(),
            "energy_targets": graph.energies[:frames],
            "force_targets": graph.forces[real],
            "numbers": graph.numbers[real].to(torch.uint8),
            "free": graph.free[real],
        }

    def sample_names(self, split: str, batch: GraphBatch) -> list[str]:
        """Return `<sid>_<fid>` of each frame, as in submissions to OC20's own leaderboard."""
        return list(batch.names)

    @contextlib.contextmanager
    def evaluating(self) -> Iterator[None]:
        """Return the context of an evaluation: forces are gradients."""
        with torch.inference_mode(False), torch.no_grad():
            yield


def count_own(config: ModelConfig, graph: Graph) -> SampleFlops:
    """Return the operations of the network here on a graph, with torch's own operations, from its shapes."""
    with _trace_shapes(config, graph) as (network, graph):
        training = count_passes(lambda: network(graph)[1]).training
        with torch.no_grad(), FlopCounterMode(display=False) as counter:
            network(graph)
        return SampleFlops(training, int(counter.get_total_flops()))


def count_table3(config: ModelConfig, graph: Graph) -> SampleFlops:
    """Return the operations of the network here on a graph as `common.training.profile.table3` counts them.

    The forces, a gradient, are part of the forward pass; a training step is three times that pass.
    """
    with _trace_shapes(config, graph) as (network, graph), torch.no_grad():
        forces = table3_forward(lambda: network(graph))
    return SampleFlops(3 * forces, forces)


@contextlib.contextmanager
def _trace_shapes(config: ModelConfig, graph: Graph) -> Iterator[tuple[model.DimeNet, Graph]]:
    """Yield the network with torch's own operations, and the graph, inside a mode where only shapes are computed."""
    with torch.device("meta"):
        network = model.DimeNet(replace(config, kernels="torch"))
    network.to_empty(device="cpu")  # drawing weights takes longer than counting
    with FakeTensorMode(allow_non_fake_inputs=True) as shapes:
        yield network, map_tensors(graph.to("cpu"), shapes.from_tensor)


BENCHMARK = Benchmark(
    config=Config,
    problem=Oc20,
    predictor=Predictor,
    make_mini=synthesize.SYNTHESIS.provide_data,
    report=Report,
)
main = partial(train.main, BENCHMARK)
trainer = Trainer(BENCHMARK)
run, load = trainer.run, trainer.load

if __name__ == "__main__":
    sys.exit(main())
