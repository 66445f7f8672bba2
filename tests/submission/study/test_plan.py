"""Plans of studies: what points they make, and what is refused before anything is made."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from common.command import UsageError
from submission.study.plan import (
    StudyPlan,
    compute_formula,
    list_curves,
    list_presets,
    parse_axis,
    plan_points,
    read_plan,
)
from submission.study.runs import StudyMachine, split_points

PLAN = """
title: Weak scaling
overrides: [train.epochs=1]
stop: epochs
axes:
  ranks: [1, 2]
  environment.GLOO_SOCKET_IFNAME: [lo]
scales:
  train.global_batch_size: 16 * ranks
seeds: [3, 4]
full:
  axes: {ranks: [1, 2, 4]}
"""


def read(text, tmp_path, **options):
    path = tmp_path / "plan.yaml"
    path.write_text(text)
    return plan_points(read_plan(str(path), **options), Path("out"), "plan.yaml")


def test_axes_scales_and_seeds_make_runs(tmp_path):
    points = read(PLAN, tmp_path)
    assert [str(point.run.folder) for point in points] == [
        f"out/ranks-{ranks}_GLOO_SOCKET_IFNAME-lo/seed_{seed}" for ranks in (1, 2) for seed in (3, 4)
    ]
    run = points[-1].run
    assert (run.ranks, run.seed, dict(run.environment)) == (2, 4, {"GLOO_SOCKET_IFNAME": "lo"})
    assert run.overrides == ("train.epochs=1", "train.target=none", "train.global_batch_size=32")
    assert points[0].values == {"ranks": 1, "environment.GLOO_SOCKET_IFNAME": "lo"}
    assert len(read(PLAN, tmp_path, full=True)) == 3 * 2


def test_a_label_names_a_point_and_the_networks_of_a_job_are_evaluated_together(tmp_path):
    text = "title: t\nevaluate: true\npoints: [{label: 2x1, ranks: 2, instances.count: 2, instances.ranks: 1}]"
    (point,) = read(text, tmp_path)
    assert str(point.run.folder) == "out/label-2x1_ranks-2/seed_1" and point.run.instances == 2
    assert point.evaluation is not None and point.evaluation.command()[-1] == str(point.run.folder)


def test_what_a_machine_lacks_is_left_out_and_said(tmp_path):
    points = read(PLAN, tmp_path)
    machine = StudyMachine(cores=1, accelerators=0, interfaces=("lo",))
    kept, notes = split_points(points, machine)
    assert [point.run.ranks for point in kept] == [1, 1] and notes == ["left out: ranks 2: this machine has 1 core"]
    kept, notes = split_points(points, replace(machine, accelerators=8, interfaces=("eth0",)))
    assert not kept and notes == ["left out: GLOO_SOCKET_IFNAME lo: this machine has eth0"]
    assert split_points(points, replace(machine, accelerators=None)) == (points, []), "who knows"


WRONG = (
    ("axes: {model.conv_sise: [4]}", "did you mean model.conv_size"),
    ("axis: {ranks: [1]}", "did you mean axes"),
    ("axes: {model.conv_size: [4, 4]}", "2 points would have the folder"),
    ("axes: {model.conv_size: []}", "no values"),
    ("axes: {optim.momentum: [0.8, 2]}", "momentum has 2"),
    ("axes: {ranks: [0]}", "at least 1"),
    ("axes: {environment.A-B: [1]}", "no environment variable"),
    ("benchmarks: [cosmo]", "did you mean 'cosmoflow'"),
    ("seeds: [1, 1]", "different whole numbers"),
    ("stop: steps", "train.steps has no value"),
    ("kind: measurement\nstop: epochs", "by options"),
    (f"axes: {{ranks: [1, 2], train.seed: {[*range(9000)]}}}", "18,000 runs"),
    ("axes: {output_dir: [a, b]}", "a folder of its own"),
    ("overrides: [output_dir=a]", "a folder of its own"),
    ("overrides: [optim.momentum=0.8]\naxes: {optim.momentum: [0.9]}", "in axes and in overrides"),
    ("scales: {optim.momentum: 0.8}\naxes: {optim.momentum: [0.9]}", "in axes and in scales"),
    ("seeds: [1, 2]\naxes: {train.seed: [3]}", "both give the seeds"),
    ("full: {seed: [1]}", "full: unknown key seed"),
    ("kind: measurement\noptions: [-o, a]", "options has '-o'"),
    ("options: [--steps=3]", "of kind: measurement"),
    ("points: &all [*all]", "recursive"),
    ("curves: [{title: a b, x: units, y: loss}, {title: A-b, x: units, y: loss}]", "curve-a-b.svg"),
    ("kind: measurement\ncurves: [{title: a, x: units, y: quality}]", "no measurement has"),
    ("kind: measurement\nevaluate: true", "no networks"),
    ("scales: {train.epochs: 2 * ranks}", "ranks is no axis"),
    ("curves: [{title: a, x: units, y: qualty}]", "did you mean 'quality'"),
    ("curves: [{title: a, x: units, y: throughput}]", "did you mean 'samples_per_s'"),
    ("axes: {train.seed: ['1:3']}", "axes: train.seed is ['1:3']; expected different"),
    ("axes: {train: {seed: [1]}}", "is the key train.seed meant"),
    ("curves: [{title: a, x: units, y: loss, law: powr}]", "expected one of"),
    ("curves: [{title: a, x: units, z: loss}]", "unknown key z"),
    ("benchmarks: [cosmoflow, oc20]\ncurves: [{title: a, x: units, y: loss, law: joint}]", "of one network"),
)


@pytest.mark.parametrize(("text", "message"), WRONG, ids=[message for _, message in WRONG])
def test_wrong_plans_are_refused(text, message, tmp_path):
    with pytest.raises(UsageError, match=re.escape(message)):
        read(f"title: t\n{text}\n", tmp_path)


def test_formulas_are_arithmetic_and_nothing_else():
    values = {"ranks": 4, "data.train_samples": 512, "label": "a"}
    assert compute_formula("2048 / data.train_samples", values) == 4
    assert compute_formula("-(3 + 2 ** 0.5) // 1 % ranks", values) == 3
    for text in ("__import__('os')", "ranks.__class__", "label", "1 / 0", "9.0 ** 9999", "[1]", "1 +", "1" * 300):
        with pytest.raises(ValueError, match="expected numbers"):
            compute_formula(text, values)


def test_axes_of_the_command_line_are_yaml():
    assert parse_axis("optim.betas=[0.9, 0.99],[0.8, 0.9]") == ("optim.betas", ([0.9, 0.99], [0.8, 0.9]))
    for text in ("ranks", "ranks=", "=1", "schedule.decay={2: 0.5},{2"):
        with pytest.raises(UsageError, match="in YAML"):
            parse_axis(text)
    for text, fix in (
        ("train.seed=1,", "without blanks"),
        ("ranks=1,024", "write 1024"),
    ):
        with pytest.raises(UsageError, match=f"--axis {text}: .*{fix}"):
            parse_axis(text)
    assert parse_axis("submission.platform=0-3")[1] == ("0-3",)  # text, for whatever asks for numbers to refuse
    with pytest.raises(ValueError, match=r"axes: train\.seed is .*: 1,2,3"):
        StudyPlan(title="a", benchmarks=("cosmoflow",), config="mini", axes={"train.seed": ("1-3",)})


@pytest.mark.parametrize("name", list_presets())
@pytest.mark.parametrize("full", [False, True])
def test_presets_name_their_paper_and_make_runs(name, full):
    plan = read_plan(name, full)
    assert plan.paper and plan.differences and list_curves(plan, name)
    assert len(plan_points(plan, Path("out"), name)) >= 2
