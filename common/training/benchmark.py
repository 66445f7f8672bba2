"""The contract: everything that a benchmark gives to the trainer, from its configuration to its network.

A benchmark is a `Benchmark`: a name, a `RunConfig` with its own sections, and a problem made of it. It derives the
problem from `SampleProblem`, which needs only `read`, `predictions`, `loss`, `judge` and `describe`; samples in one
file each are a `common.data.split.Split`. The loop, the log, checkpoints, staging, launchers, ensembles and the
commands `train` and `evaluate` then come for free; `predict` needs a `PredictionReport`, too.

Ranks are processes with one device each. Epochs and steps count from 0. All ranks that train make a collective call,
at the same place; any other call may be made by one rank alone.
"""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar, Generic, TypeVar, cast

import numpy as np
import torch
from torch import Tensor, nn

from common.console import print_warning
from common.data.prefetch import Batch, TensorBatch, sum_flaws
from common.data.sampling import Batching, draw_permutation, drawn_samples, take_share
from common.data.values import Content
from common.errors import UsageError
from common.own_code import Code, find_registered, list_bases, list_registered
from common.precision import DTYPES, resolved
from common.ranks.dist import Dist
from common.reference import FULL, Reference
from common.settings.keys import list_hyperparameters
from common.settings.run import RunConfig
from common.spatial.shards import whole_size
from common.staging import stage
from common.staging.stage import Staged
from common.training.graph import WARM_UP, CudaGraphs, Replay, make_recorder
from common.training.predictions import PredictionReport
from common.training.profile import SampleFlops, count_sample, count_table3

B = TypeVar("B", bound=Batch)

# -- the problem ---------------------------------------------------------------------------------------------


class SampleProblem(ABC, Generic[B]):
    """A configured benchmark of independent samples: its data are found, its network is built, ready to be trained.

    Made once per run and rank, before the log's `init_stop`. The loop writes all events; a problem writes none.
    A subclass sets `model` and `reference`, and implements `describe`, `read`, `predictions`, `loss` and `judge`; it
    may override the rest. config: a RunConfig. sets: the samples of "train" and "validation":
    a `common.data.split.Split` each, or what has its length, `names`, `files`, `paths` and `moved`.

    model: the network, on this rank's device; the same object for the whole run.
    reference: the facts by which the run is judged, such as the target and whether it is the mini problem.
    dataset: the class of its samples, for `open_sets`.
    drawn: numbers of the training samples of an epoch, ascending: each once, or as this instance of an ensemble draws
        them (`common.data.sampling`), some several times, which are augmented alike within an epoch.
    train_samples, eval_samples: per epoch and per evaluation, over all ranks, for the log.
    voting: how an ensemble of networks predicts.
    """

    model: nn.Module
    reference: Reference
    dataset: ClassVar[Any]
    voting: ClassVar[str] = "mean of predictions"

    def __init__(self, config: Any, dist: Dist, seed: int, sets: Mapping[str, Any]) -> None:
        self.config, self.dist, self.seed = config, dist, seed
        self.sets = dict(sets)
        self.drawn = drawn_samples(config.instances, seed, len(self.sets["train"]))
        self.train_samples, self.eval_samples = len(self.drawn), len(self.sets["validation"])
        self.batching = Batching(config.train.global_batch_size, config.train.tail, config.train.accumulation)

    @classmethod
    def open_sets(cls, config: Any, ranks: Dist, **options: Mapping[str, Any]) -> dict[str, Any]:
        """Return the samples of "train" and "validation" below data_dir: of the class `dataset`.

        options: of `dataset`, by the split. Rank 0 reads the first sample, so that wrong shapes are found before the
        run starts.
        """
        data = config.data
        sets = {
            split: cls.dataset(data.data_dir / split, data, count, ranks=ranks, **options.get(split, {}))
            for split, count in (("train", data.train_samples), ("validation", data.eval_samples))
        }
        if ranks.is_main:
            sets["train"].read(0)
        return sets

    @staticmethod
    def own_network(config: Any) -> nn.Module | None:
        """Return a network in place of the benchmark's, on torch's current default device; None: there is none.

        For classes that derive from the problem of a benchmark: their `predictions` calls it.
        """
        return None

    def choose_network(self, build: Callable[[], nn.Module]) -> nn.Module:
        """Return the own network, with weights that torch draws from the seed, or else what `build` makes."""
        with torch.random.fork_rng(devices=()):
            torch.manual_seed(self.seed)
            own = self.own_network(self.config)
        self.has_own_network = own is not None
        return build() if own is None else own

    @abstractmethod
    def describe(self) -> str:
        """Return one line about data and network for the user, see `describe_data`; called once, after construction."""

    @abstractmethod
    def read(self, samples: Any, indices: Iterable[np.ndarray]) -> Generator[B]:
        """Yield a batch on the device for each array of indices, which may be empty; closed when no more are needed.

        samples: one of `sets`. `common.data.prefetch.read_batches` reads ahead with threads.
        """

    @abstractmethod
    def loss(self, model: nn.Module, batch: B) -> Tensor:
        """Return the sum (not the mean) of the losses of a batch, a scalar; called inside the precision's autocast.

        It must not wait for the device, and what differs between batches must be in their tensors: the call may be
        recorded and replayed (`common.training.graph`).
        model: the network, wrapped so that gradients are averaged over the ranks; call it instead of `self.model`.
        """

    @abstractmethod
    def predictions(self, model: nn.Module, batch: B) -> Tensor:
        """Return what a network predicts for a batch, such as numbers or scores of classes; see `loss` for `model`."""

    @abstractmethod
    def judge(self, predictions: Tensor, batch: B) -> Tensor:
        """Return the sum of the qualities of predictions and their number, float64 (2,); their mean is the quality.

        predictions: of a network for the batch, or the mean of the `votes` of several. Called for each of this rank's
        validation batches; the sums are then added up over the ranks.
        """

    # -- predictions and their quality

    def votes(self, predictions: Tensor) -> Tensor:
        """Return what an ensemble takes the mean of, given the predictions of a member."""
        return predictions.double()

    def errors(self, votes: Tensor, batch: B) -> Tensor | None:
        """Return the errors of numbers, votes or their mean, in the unit of the quality; None where classes are voted.

        They are 0 where `judge` counts nothing, and have as many other components as it counts.
        """
        return None

    def predicted(self, batch: Any) -> dict[str, Tensor]:
        """Return what the network predicts for a prepared batch, as the columns of a predictions file.

        For `Benchmark.report`, which judges it as `judge` does; without what pads a batch.
        """
        return {"predictions": self.predictions(self.model, batch)}

    def truth(self, batch: Any) -> dict[str, Tensor]:
        """Return the truth of a prepared batch: the other columns of a predictions file."""
        return {"targets": batch.y}

    def picture_data(self, batch: Any) -> dict[str, Tensor]:
        """Return what a picture of a prepared batch needs besides, such as the fields that the network sees."""
        earlier = getattr(self, "shown", None)  # the name until 0.3, for benchmarks of your own; goes with version 0.5
        return earlier(batch) if earlier else {}

    def sample_names(self, split: str, batch: Any) -> list[str]:
        """Return the names of the samples of a batch, for people."""
        names = self.sets[split].names
        return [names[index] for index in batch.indices.tolist()]

    def list_contents(self, split: str, index: int) -> tuple[str, Iterable[Content]]:
        """Return the name of a sample, "" where it is alone in its file, and its contents, to be compared with bounds.

        Called for a few samples before the first step. By default nothing is looked at.
        """
        return "", ()

    def score(self, batch: B) -> Tensor:
        """Return the sum of the qualities of the network on a batch and their number."""
        return self.judge(self.predictions(self.model, batch), batch)

    def evaluating(self) -> contextlib.AbstractContextManager[object]:
        """Return the context of an evaluation within inference mode, for predictions that are gradients."""
        return contextlib.nullcontext()

    # -- facts

    @cached_property
    def settings(self) -> Mapping[str, Any]:
        """The hyperparameters by their keys in the log."""
        return {
            **list_hyperparameters(self.config),
            **self.config.instances.list_logged(),
            **self.config.train.list_logged(),
        }

    @property
    def sample_means(self) -> Mapping[str, float]:
        """The mean sizes of training samples on which their operations depend, for the log; {} where all are alike."""
        return {}

    def shapes_alone(self) -> tuple[nn.Module, Tensor] | None:
        """Return the network with torch's own operations and without other ranks, and a sample, to be counted.

        Both may be without numbers. None where samples differ, or the operations are not counted.
        """
        return None

    def count_flops(self) -> SampleFlops | None:
        """Return the operations of the network for a training sample, on average; None where they are not counted.

        Called on rank 0 alone: it exchanges nothing, and draws no random numbers of torch's default generator.
        """
        alone = self._shapes_counted()
        return count_sample(*alone) if alone else None

    def count_table3(self) -> float:
        """Return the operations of a training step for a sample as HPC AI500 counts; see `profile.count_table3`."""
        alone = self._shapes_counted()
        assert alone is not None
        return count_table3(*alone)

    def _shapes_counted(self) -> tuple[nn.Module, Tensor] | None:
        """Return `shapes_alone`; with an own network what `predictions` makes of it, as only that knows its input."""
        alone = self.shapes_alone()
        with torch.device("meta"):
            own = self.own_network(self.config)
        if alone is None or own is None:
            return alone
        return _Forward(own, lambda network, x: self.predictions(network, cast(B, SimpleNamespace(x=x)))), alone[1]

    def describe_data(self, samples: str, sizes: str = "") -> str:
        """Return the line of `describe`. samples: what the samples are called; sizes: what else to say of them."""
        parameters = sum(map(whole_size, self.model.parameters()))
        return (
            f"data: {self.train_samples:,} training and {self.eval_samples:,} validation {samples} in "
            f"{self.config.data.data_dir}{sizes}; network: {parameters:,} parameters{self.drawn_text}"
        )

    @property
    def drawn_text(self) -> str:
        """What `describe` says of the samples that this instance draws, "" if it takes all of them."""
        instances, there = self.config.instances, len(self.sets["train"])
        if not instances.bags:
            return ""
        return (
            f"; bagging: {instances.bagging}, instance {instances.number} draws {len(np.unique(self.drawn)):,} of "
            f"{there:,} training samples, some several times, which is not an MLPerf result"
        )

    @cached_property
    def input_dtype(self) -> torch.dtype:
        """The format in which the network's first product is computed, and so the best one for its input."""
        return DTYPES[resolved(self.config.precision, self.dist.device)]

    @cached_property
    def recorder(self) -> CudaGraphs | None:
        """Records training steps and evaluations of the problem; None: each operation is launched by itself."""
        return make_recorder(self.config.train.graph, resolved(self.config.precision, self.dist.device), self.dist)

    @property
    def communicates(self) -> bool:
        """Whether `loss` exchanges messages with other ranks, as batch normalisation over several does."""
        return False

    @property
    def equal_batches(self) -> bool:
        """Whether the batches of all ranks have the same shapes at the same time."""
        return not any(size % (self.dist.data_size * self.batching.accumulation) for size in self._step_sizes)

    @property
    def _step_sizes(self) -> list[int]:
        """The sizes of the global batches of an epoch, the usual one first."""
        size = self.batching.global_batch_size
        if self.batching.tail == "drop":
            return [size]  # also of fewer samples, which a measurement repeats
        whole, tail = divmod(self.train_samples, size)
        return [size] * bool(whole) + [tail] * bool(tail)

    # -- staging

    def stage(self) -> Staged:
        """Stage the samples on the nodes, where training reads them. Called once, before the first step; collective."""
        folder = self.config.data.data_dir
        files = stage.source_files(folder, self.staged_files()) if self.dist.is_main else []
        samples = {"train": len(np.unique(self.drawn)), "validation": len(self.sets["validation"])}
        # Splits whose files have one sample each.
        counts = {
            split: samples[split] for split in self.sets if next(self.sets[split].files(), ("", None))[1] is not None
        }
        staged = stage.stage_dataset(files, folder, self.config.staging, self.dist, counts)
        self.read_from(staged)
        return staged

    def read_from(self, staged: Staged) -> None:
        """Read the samples where they were staged; instances call it instead of `stage`, which their job called."""
        self.sets = {split: samples.moved(staged.path_of) for split, samples in self.sets.items()}

    def staged_files(self) -> dict[str, Any]:
        """Return the files relative to the data folder, each with the number of its sample.

        Those of training samples that this instance does not draw are left out.
        """
        drawn = {None, *self.drawn.tolist()}
        return {
            name: number
            for split, samples in self.sets.items()
            for name, number in samples.files()
            if split != "train" or number in drawn
        }

    # -- training

    def order(self, epoch: int) -> np.ndarray:
        """Return the order of the training samples in an epoch, the same on all ranks."""
        return self.drawn[draw_permutation(self.train_samples, self.seed, epoch)]

    def steps(self, epoch: int) -> int:
        """Return the number of optimizer steps in an epoch, the same on all ranks."""
        return self.batching.steps(self.train_samples)

    def step_samples(self, epoch: int, step: int) -> int:
        """Return the number of samples in a step over all ranks; the last one may be smaller."""
        size = self.batching.global_batch_size
        return min(size, self.train_samples - step * size)

    def step_weight(self, epoch: int, step: int) -> float:
        """Return the divisor that turns a step's sum of losses over all ranks into the mean: usually its samples."""
        return self.step_samples(epoch, step)

    def batches(self, epoch: int, first_step: int) -> Generator[B]:
        """Yield this rank's batches from `first_step` on, `train.accumulation` per step; closed when the epoch ends.

        On an accelerator the memory of a batch may be used again as soon as the next one is asked for.
        """
        shares = self.batching.batches(self.order(epoch), self.dist.data_rank, self.dist.data_size, first_step)
        indices = (part for batch in shares for part in batch.parts)
        with contextlib.closing(self.read(self.sets["train"], indices)) as batches:
            for batch in batches:
                yield self.prepared(self.augmented(batch, epoch))

    def augmented(self, batch: B, epoch: int) -> B:
        """Return a training batch changed at random for this epoch, in the format of `read`."""
        return batch

    def prepared(self, batch: B) -> B:
        """Return a batch as `loss` and `score` take it, such as with samples converted to the network's input.

        Called once for each batch, after `augmented`, outside of autocast and of CUDA graphs.
        """
        return batch

    def penalty(self) -> Tensor | None:
        """Return a term to add to the mean loss, such as L2 regularisation, or None; called once per step."""
        return None

    # -- evaluation

    def eval_share(self) -> np.ndarray:
        """Return this rank's validation samples; each belongs to exactly one rank, or to those that share samples."""
        return take_share(np.arange(self.eval_samples), self.dist.data_rank, self.dist.data_size)

    @property
    def part_size(self) -> int:
        """The samples in a part of a rank's step, rounded down, but at least 1."""
        return max(1, self.batching.global_batch_size // self.dist.data_size // self.batching.accumulation)

    @property
    def eval_size(self) -> int:
        """The most samples in a batch of an evaluation."""
        return self.config.train.eval_batch_size or self.part_size

    def eval_parts(self, indices: np.ndarray) -> list[np.ndarray]:
        """Return the samples of each batch of an evaluation."""
        return [indices[start : start + self.eval_size] for start in range(0, len(indices), self.eval_size)]

    def evaluate(self) -> float:
        """Return the mean quality over all validation samples, each counted once; the same on all ranks.

        A collective call, after each epoch, in inference mode, with the network in evaluation mode.
        """
        self._scores.zero_()
        parts = self.eval_parts(self.eval_share())
        with self.evaluating(), contextlib.closing(self.read(self.sets["validation"], iter(parts))) as batches:
            for batch in batches:
                self._scored(self.prepared(batch))
            total, count = self.dist.all_reduce(self._scores.clone()).tolist()
        return float(total / count)

    @cached_property
    def _scores(self) -> Tensor:
        """The sum and the number of the qualities so far: (2,)."""
        with torch.inference_mode(False):
            return torch.zeros(2, dtype=torch.float64, device=self.dist.device)

    @cached_property
    def _scored(self) -> Replay:
        """Adds the score of a batch to the scores."""

        def add_score(batch: B) -> None:
            self._scores.add_(self.score(batch)).add_(sum_flaws(batch))

        return Replay(add_score, self.recorder, self.dist)

    # -- warm-up on batches made without data

    def synthetic(self, split: str, size: int) -> B:
        """Return a batch of `size` made-up samples, with the shapes, types and memory order of `read`.

        This one is for sets that are a `common.data.split.Split`, read as a `TensorBatch`.
        """
        x, y = self.sets[split].buffer(size, pinned=False)
        x.random_(0, 8)
        device = self.dist.device
        batch: Any = TensorBatch(x.to(device), y.zero_().to(device), np.arange(size), 0.0)
        return batch

    def prepare_training(self) -> None:
        """Do what is left before the first step of a run, also of a resumed one, such as compiling the network.

        Runs that only evaluate do without. A collective call.
        """

    def synthetic_steps(self) -> Iterator[list[B]]:
        """Yield this rank's parts of a step for each usual shape: a global batch, and the smaller last one of an epoch.

        All ranks yield equally many.
        """
        rank, ranks = self.dist.data_rank, self.dist.data_size
        for size in self._step_sizes:
            whole = replace(self.batching, global_batch_size=size)
            (batch,) = whole.batches(np.arange(size), rank, ranks)
            parts = (self.synthetic("train", len(part)) for part in batch.parts)
            yield [self.prepared(self.augmented(part, 0)) for part in parts]

    def synthetic_evaluation(self) -> Iterator[B]:
        """Yield a batch for each size of this rank's batches of an evaluation."""
        for size in dict.fromkeys(map(len, self.eval_parts(self.eval_share()))):
            yield self.synthetic("validation", size)

    def evaluate_synthetic(self) -> None:
        """Score made-up batches until such work is recorded, and add up the ranks' scores, as `evaluate` does.

        A collective call, before a run.
        """
        with self.evaluating():
            for batch in self.synthetic_evaluation():
                for _ in range(WARM_UP + 1):
                    self._scored(self.prepared(batch))
        self.dist.all_reduce(self._scores.clone())
        self._scored.seal()

    def close(self) -> None:
        """Release what was recorded; called at the end of the run, before the ranks part."""
        self._scored.close()
        if self.recorder is not None:
            self.recorder.close()


Problem = SampleProblem[Any]
"""The problem of any benchmark."""


# -- the trained network -------------------------------------------------------------------------------------


class _Forward(nn.Module):
    """A network with what computes its output."""

    def __init__(self, network: nn.Module, compute: Callable[[nn.Module, Tensor], Tensor]) -> None:
        super().__init__()
        self.network, self.compute = network, compute

    def forward(self, x: Tensor) -> Tensor:
        return self.compute(self.network, x)


class Predictor(nn.Module, ABC):
    """A trained network for use outside of training: arrays as in the data files in, predictions in their units out.

    A subclass has the benchmark's own of three things: the bare network, the description of what is around it, which
    goes into checkpoints and exports as JSON, and `forward`, which does what the description says.
    config: a RunConfig. interface: of the same configuration, made by `describe`, perhaps on another machine. network:
    one of your own (`SampleProblem.own_network`); None: that of the benchmark.
    """

    def __init__(self, config: Any, interface: Mapping[str, Any], network: nn.Module | None = None) -> None:
        super().__init__()
        self.config, self.interface = config, interface
        self.model = self.network(config) if network is None else network

    @staticmethod
    @abstractmethod
    def network(config: Any) -> nn.Module:
        """Return the network of a configuration, with any weights, on torch's current default device."""

    @staticmethod
    @abstractmethod
    def describe(config: Any) -> dict[str, Any]:
        """Return what is around the network: `input`, `preprocessing` and `output`, plain values for JSON.

        input, output: shapes (with names for lengths that vary), types, units, and names of classes or numbers.
        preprocessing: all that is done to an input before the network, with its numbers, and to its output after it.
        Raises ValueError or OSError if statistics that it needs are not in the data's folder.
        """

    @property
    def device(self) -> torch.device:
        """Where the network is."""
        return next(self.model.parameters()).device


# -- the benchmark -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Benchmark:
    """What a benchmark gives to the commands `train`, `evaluate` and `predict`.

    config: the class of its configuration, which names its facts.
    problem: makes the problem of a configuration, for a seed, on each rank, see `build_problem`; a collective call.
        Raises ValueError or OSError that names the key or file at fault.
    predictor: its trained network with all that is around it.
    make_mini: generates the data of a mini problem, given by its name, in a folder unless they exist; its last argument
        is the section `data` that will read them. Called on rank 0 alone, before the log is opened, unless `variant` is
        full; `common.commands.synthesize.Synthesis.provide_data` can serve.
    report: judges, summarises and draws predictions; None: the benchmark has no command `predict`.
    """

    config: type[RunConfig]
    problem: Callable[[Any, Dist, int], Problem]
    predictor: type[Predictor]
    make_mini: Callable[[Path, str, Any], None]
    report: type[PredictionReport] | None = None

    @property
    def reference(self) -> Reference:
        """The facts of the full problem."""
        return self.config.reference

    @property
    def name(self) -> str:
        """The name of the package, and that in the log."""
        return self.reference.name

    def find_problem(self, config: RunConfig) -> Callable[[Any, Dist, int], Problem]:
        """Return what makes the problem: what is registered for train.problem, or the benchmark's own.

        Raises UsageError if that is not registered, or is a problem of another benchmark.
        """
        name = config.train.problem
        if name is None:
            return self.problem
        problem: Any = find_registered("problem", name, "train.problem")
        own = getattr(self.problem, "__qualname__", "")
        # By name: the command's module is imported twice, once as __main__.
        if own not in (base.__qualname__ for base in getattr(problem, "__mro__", ())):
            raise UsageError(f"train.problem is {name!r}, which is not derived from the {own} of {self.name}.train")
        return problem

    def build_problem(self, config: RunConfig, dist: Dist, seed: int) -> Problem:
        """Return the problem of a configuration, see `find_problem`. A collective call."""
        return self.find_problem(config)(config, dist, seed)

    def build_network(self, config: RunConfig) -> nn.Module:
        """Return the network with any weights, on torch's current default device."""
        find_own = getattr(self.find_problem(config), "own_network", None)
        own: nn.Module | None = find_own(config) if find_own else None
        return self.predictor.network(config) if own is None else own

    def list_own_code(self, config: RunConfig) -> tuple[Code, ...]:
        """Return what computes in place of the suite's own code: classes of the problem, a registered optimizer."""
        problem = self.find_problem(config)
        suite = ("common", self.config.__module__.partition(".")[0])
        bases = list_bases("problem", problem, suite) if isinstance(problem, type) else ()
        return (*bases, *list_registered("optimizer", config.optim.name))

    def provide_mini(self, config: RunConfig, dist: Dist) -> None:
        """Generate on rank 0 the data of a mini problem that a configuration reads, unless they exist."""
        if dist.is_main and config.variant != FULL:
            self.make_mini(config.data.data_dir, config.variant, config.data)


def check_network_code(recorded: Iterable[Code], benchmark: Benchmark, config: RunConfig, path: Path) -> None:
    """Raise UsageError unless the code of a trained network is there; say what has changed since.

    recorded: of the file at `path`, which does not make it run.
    """
    name = config.train.problem
    can_run = name is None or list_registered("problem", name)
    present = {code.name: code for code in benchmark.list_own_code(config)} if can_run else {}
    for code in (code for code in recorded if code.kind == "problem"):
        if code.name not in present:
            raise UsageError(
                f"{path} was trained with code that the suite does not have, {code.text}, and a file does not make it "
                f"run: if you trust it, add train.imports=[FOLDER/{code.file}]. In Python import it first, and give a "
                "class that is not registered by replace(BENCHMARK, problem=CLASS)"
            )
        if present[code.name] != code:
            print_warning(f"{code.text} has changed since {path} was trained")
