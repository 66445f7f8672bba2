"""The command behind `evaluate`: the quality of checkpoints, alone or together."""

from __future__ import annotations

import argparse
import contextlib
import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

import torch

from common.command import UsageError, check_new, counted, run_command
from common.commands.arguments import parse_evaluation
from common.config import rebuild
from common.files import instance_folders, write_whole_file
from common.own_code import import_all
from common.precision import Precision
from common.ranks.connect import connect
from common.ranks.dist import Dist
from common.reference import NO_TARGET, VALIDATION, NoTarget, Target
from common.settings.run import RunConfig
from common.training import evaluators
from common.training.benchmark import Benchmark, Problem, check_network_code
from common.training.checkpoint import best_of, load
from common.training.evaluators import Judged, Member
from common.training.faults import check_samples, explain_out_of_memory
from common.training.folder import check_seed
from common.training.resolve import keys_of
from common.training.run import TRAINING_ERRORS
from common.training.weights import check_fit, load_fitting

NO_RESULT: Final = "An ensemble is not an MLPerf result."


def main(benchmark: Benchmark, argv: Sequence[str] | None = None) -> int:
    """Run the command; return 0 if the target is met, 1 if not or after an error, 2 for wrong use."""
    arguments = parse_evaluation(benchmark.name, argv)
    return run_command(lambda: _evaluate_runs(benchmark, arguments), TRAINING_ERRORS)


def _evaluate_runs(benchmark: Benchmark, arguments: argparse.Namespace) -> int:
    if arguments.output is not None:
        check_new("-o", arguments.output)
    # A job of several stands for its instances, in their order.
    runs = [folder for run in arguments.runs for folder in list(instance_folders(run).values()) or [run]]
    members = [load_member(benchmark, best_of(run) if arguments.best else run, arguments.overrides) for run in runs]
    evaluators.check_alike(benchmark, members)
    evaluators.check_distinct(members)
    if len(members) > 1 or arguments.out_of_bag:
        check_whole(members[0].config)
    with connect(members[0].config.dist, TRAINING_ERRORS) as dist:
        if dist.is_main:
            for member in members:
                member.warn()
        with explain_out_of_memory(members[0].config, dist):
            if len(members) == 1 and not arguments.out_of_bag:
                return _evaluate_member(benchmark, members[0], dist, arguments.output)
            return _evaluate_ensemble(benchmark, members, dist, arguments)


def load_member(benchmark: Benchmark, run: Path, overrides: Sequence[str]) -> Member:
    """Return the network of a run or checkpoint."""
    loaded = load(run, benchmark.name)
    state, source = loaded.state, f"the configuration in {loaded.path}"
    config = rebuild(benchmark.config, loaded.config, source, overrides)
    if "train.imports" in keys_of(overrides):  # never what a file names
        import_all(config.train.imports)
    check_network_code(loaded.own_code, benchmark, config, loaded.path)
    data = config.data.data_dir
    if not (data.exists() or any("data.data_dir" in override for override in overrides)):
        raise UsageError(
            f"{data}: no such folder here; {loaded.path} keeps only the last part of an absolute path: give all of it, "
            f"data.data_dir=/…/{data.name}"
        )
    check_seed(config, state["seed"])
    return Member(loaded.path, config, state["seed"], loaded.position.epoch, state["model"], loaded.warn)


def check_whole(config: RunConfig) -> None:
    """Raise UsageError if ranks are to share samples where each needs whole ones."""
    if config.dist.sharing > 1:
        raise UsageError(
            f"dist.spatial is {config.dist.spatial_text}, but only one run is evaluated by ranks that share samples; "
            "for predictions and ensembles set it to 1"
        )


def load_problem(benchmark: Benchmark, member: Member, dist: Dist) -> Problem:
    """Return the problem of a member with its network, in evaluation mode."""
    problem = benchmark.build_problem(member.config, dist, member.seed)
    load_fitting(problem.model, member.weights, member.checkpoint)
    problem.model.eval()
    return problem


# -- one run -------------------------------------------------------------------------------------------------


def _evaluate_member(benchmark: Benchmark, member: Member, dist: Dist, output: Path | None) -> int:
    """Evaluate one run; return 0 if the target is met, 1 if not."""
    problem = load_problem(benchmark, member, dist)
    autocast = Precision(member.config.precision, dist.device).autocast()
    with contextlib.closing(problem), torch.inference_mode(), autocast:
        quality = problem.evaluate()
        if not math.isfinite(quality):
            check_samples(problem, "validation", problem.eval_share().tolist())
    target = _find_target(problem, member)
    if dist.is_main:
        samples = f"{problem.eval_samples:,} validation samples, after {counted(member.epochs, 'epoch')}"
        print(f"{member.checkpoint}: {format_verdict(target, quality, samples)}")
        members = [{**_describe_member(member), "samples": problem.eval_samples, "quality": quality}]
        _write_json(output, {"benchmark": benchmark.name, "quality": target.key, "members": members})
    return find_status(target, quality)


# -- several runs --------------------------------------------------------------------------------------------


def _evaluate_ensemble(
    benchmark: Benchmark, members: Sequence[Member], dist: Dist, arguments: argparse.Namespace
) -> int:
    """Evaluate the runs and their ensemble; return 0 if the ensemble meets the target, 1 if not."""
    problem = benchmark.build_problem(members[0].config, dist, members[0].seed)
    for member in members:
        check_fit(problem.model, member.weights, member.checkpoint)
    split = "train" if arguments.out_of_bag else "validation"
    list_parts = evaluators.list_out_of_bag_parts if arguments.out_of_bag else evaluators.list_validation_parts
    judged = evaluators.judge_members(problem, members, split, list_parts(problem, members))
    target = _find_target(problem, *members)
    if dist.is_main:
        print("\n".join(_format_table(members, judged, problem, arguments.out_of_bag)))
        content = _describe_ensemble(members, judged, problem, arguments.out_of_bag)
        _write_json(arguments.output, {"benchmark": benchmark.name, **content})
    return find_status(target, judged.ensemble)


def _format_table(members: Sequence[Member], judged: Judged, problem: Problem, out_of_bag: bool) -> Iterator[str]:
    """Yield the lines about members and ensemble."""
    target = _find_target(problem, *members)
    noun = "training samples, each by the members that did not draw it" if out_of_bag else "validation samples"
    yield f"{len(members)} member(s), on {judged.predicted:,} {noun}"
    if out_of_bag:
        yield f"{judged.predicted / judged.there:.1%} of {judged.there:,} training samples have an out-of-bag member"
    yield f"  {'member':<8}{'instance':>8}{'seed':>12}{'epochs':>8}{'samples':>10}{target.key:>15}  checkpoint"
    for number, member in enumerate(members):
        yield (
            f"  {number:<8}{member.instance:>8}{member.seed:>12}{member.epochs:>8}{judged.samples[number]:>10,}"
            f"{judged.members[number]:>15.6g}  {member.checkpoint}"
        )
    best = judged.find_best(target)
    yield f"  {'mean':<10}{judged.mean:.6g}  of the members"
    yield f"  {'best':<10}{judged.members[best]:.6g}  member {best}"
    yield f"  {'spread':<10}{judged.spread:.6g}  standard deviation of the members (ddof 0)"
    yield f"  {'ensemble':<10}{judged.ensemble:.6g}  {problem.voting}; {_compare_target(target, judged.ensemble)}"
    if judged.squares:
        mse = judged.squares
        yield (
            f"mean squared error: ensemble {mse.ensemble:.6g} = members {mse.members:.6g} - variance of the members "
            f"{mse.variance:.6g} (ddof 0); the sides differ by {mse.difference:.1g}"
        )
    yield NO_RESULT


def _describe_ensemble(members: Sequence[Member], judged: Judged, problem: Problem, out_of_bag: bool) -> dict[str, Any]:
    """Return the same as numbers, for a file."""
    target = problem.reference.target
    return {
        "quality": target.key,
        "out_of_bag": out_of_bag,
        "samples": judged.predicted,
        "share_of_samples": judged.predicted / judged.there,
        "members": [
            {**_describe_member(member), "samples": samples, "quality": quality}
            for member, samples, quality in zip(members, judged.samples, judged.members, strict=True)
        ],
        "mean": judged.mean,
        "best": judged.members[judged.find_best(target)],
        "spread_ddof_0": judged.spread,
        "ensemble": judged.ensemble,
        "ensemble_is": problem.voting,
        "mean_squares": judged.squares and asdict(judged.squares),
        "mlperf_result": False,
    }


def _describe_member(member: Member) -> dict[str, Any]:
    return {
        "checkpoint": str(member.checkpoint),
        "instance": member.instance,
        "seed": member.seed,
        "epochs": member.epochs,
        "bagging": member.config.instances.bagging,
    }


def format_verdict(target: Target, quality: float, samples: str, split: str = VALIDATION) -> str:
    """Return the quality of samples and whether it meets the target, which is for those of the validation split."""
    text = f"{target.key} {quality:.6g} on {samples}"
    return f"{text}; {_compare_target(target, quality)}" if split == VALIDATION else text


def samples_of(split: str) -> str:
    """Return what the samples of a split are called."""
    return "validation samples" if split == VALIDATION else "training samples"


def find_status(target: Target, quality: float) -> int:
    """Return the exit status: 0 if the target is met, or there is none."""
    return 0 if isinstance(target, NoTarget) or target.met(quality) else 1


def _find_target(problem: Problem, *members: Member) -> Target:
    """Return the target of the benchmark; none if a member was trained without."""
    without = any(member.config.train.target == NO_TARGET for member in members)
    return problem.reference.target.choose(NO_TARGET if without else None)


def _compare_target(target: Target, quality: float) -> str:
    if isinstance(target, NoTarget):
        return "the run had no target"
    return f"target {target.range_text}: {'met' if target.met(quality) else 'not met'}"


def _write_json(path: Path | None, content: dict[str, Any]) -> None:
    """Write the file of numbers, if one is asked for."""
    if path is not None:
        write_whole_file(path, json.dumps(content, indent=1) + "\n")
