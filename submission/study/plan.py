"""The plan of a study: a YAML file, a preset or options; it becomes points, and these become runs.

A plan may compute: "16 * ranks" has numbers, names of axes, + - * / // % ** and parentheses, no other code.
"""

from __future__ import annotations

import ast
import itertools
import json
import math
import operator
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, Literal

import yaml
from tqdm import tqdm

from common.benchmarks import require_package
from common.command import UsageError, explain_comma, suggest_name
from common.config import Loader, explain_range, load, rebuild, to_dict
from common.installed import is_name
from submission.results.fits.laws import LAWS, TWO_VARIABLES
from submission.results.page.html import shorten_end
from submission.runs.plan import PlannedRun
from submission.runs.processes import Setup, resolve_setup
from submission.study.records import QUANTITIES, CurveSpec, Value, has_quantity, list_figures

LONGEST_FORMULA: Final = 200
SHOWN: Final = 60
"""Characters of a formula, or of what is wrong in it, in a message."""
OPERATORS: Final[Mapping[type, Callable[[Any, Any], Any]]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: lambda base, exponent: float(base) ** float(exponent),  # of whole numbers it could fill the memory
}


def compute_formula(text: str, values: Mapping[str, Any]) -> int | float:
    """Return the number that a formula gives; whole numbers are of type int. values: of the names in it.

    Raises ValueError, which says what is wrong in the formula.
    """
    try:
        if len(text) > LONGEST_FORMULA:
            raise ValueError(f"it is longer than {LONGEST_FORMULA} characters")
        number = _compute_node(ast.parse(text.strip(), mode="eval").body, values)
        return int(number) if number == int(number) else number
    except (SyntaxError, RecursionError, MemoryError):
        reason = "it is no formula"
    except (ArithmeticError, TypeError, ValueError) as error:
        reason = str(error)
    raise ValueError(
        f"{shorten_end(text, SHOWN)!r}: {shorten_end(reason, SHOWN)}; "
        "expected numbers, names of axes, + - * / // % ** and parentheses"
    )


def _compute_node(node: ast.expr, values: Mapping[str, Any]) -> Any:
    match node:
        case ast.Constant(value=int() | float() as number) if not isinstance(number, bool):
            return number
        case ast.BinOp(left=left, op=sign, right=right) if type(sign) in OPERATORS:
            return OPERATORS[type(sign)](_compute_node(left, values), _compute_node(right, values))
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_compute_node(operand, values)
        case ast.Name() | ast.Attribute():
            value = values.get(name := ast.unparse(node))
            if isinstance(value, bool) or not isinstance(value, int | float):
                raise ValueError(f"{name} is no axis with numbers ({', '.join(values) or 'there is none'})")
            return value
    raise ValueError(f"{ast.unparse(node)} is not allowed")


PRESETS: Final = Path(__file__).parent / "presets"
SUFFIXES: Final = (".yaml", ".yml")
RANKS: Final = "ranks"
LABEL: Final = "label"
OUTPUT: Final = "output_dir"
BENCHMARK: Final = "benchmark"
SEED: Final = "train.seed"
ENVIRONMENT: Final = "environment."
INTERFACES: Final = ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME")
LONGEST: Final = 120
"""Characters of a folder's name."""
MOST_RUNS: Final = 10_000
OPTION: Final = re.compile(r"--(steps|seconds|warmup)=[\d.]+|--data=.+|--fidelity")
"""What a plan can give the measure command; the study gives the others."""


@dataclass(frozen=True, slots=True)
class StudyPlan:
    """A plan as its file has it.

    paper: the source of the study. differences: in which points it differs from it. config: name, or a file relative to
    the plan. kind: what a run is. evaluate: the networks of each training, those of its instances together, too.
    energy: meter it where the machine can. overrides: section.key=value for all runs. options: of a measurement, each
    as `OPTION` has it. axes: values by key, of which every combination is a point; a key is `ranks`, section.key of the
    configuration, environment.NAME, or `label`, which names a point and sets nothing. points: values of single points,
    each combined with the axes. scales: formula by key, for what follows from the values of points that do not have the
    key. seeds: of the repetitions of each point. stop: what ends a training; unless it is the target, its number is
    train.epochs, train.steps or train.flop. curves: see `CurveSpec`. full: keys of this file that --full replaces.
    """

    title: str
    paper: str = ""
    differences: tuple[str, ...] = ()
    benchmarks: tuple[str, ...] = ("cosmoflow",)
    config: str = "mini"
    kind: Literal["training", "measurement"] = "training"
    evaluate: bool = False
    energy: bool = False
    overrides: tuple[str, ...] = ()
    options: tuple[str, ...] = ()
    axes: dict[str, tuple[Any, ...]] = field(default_factory=dict)
    points: tuple[dict[str, Any], ...] = ()
    scales: dict[str, str | float] = field(default_factory=dict)
    seeds: tuple[int, ...] = (1,)
    stop: Literal["target", "epochs", "steps", "flop"] = "target"
    curves: tuple[dict[str, Any], ...] = ()
    full: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in self.benchmarks:
            require_package(name)
        for key, values in self.axes.items():
            if not values:
                raise ValueError(f"axes: {key} has no values")
        seeds = self.axes.get(SEED, self.seeds)
        if not all(type(seed) is int for seed in seeds) or not seeds or len(set(seeds)) < len(seeds):
            name = f"axes: {SEED}" if SEED in self.axes else "seeds"
            hint = next(filter(None, map(explain_range, seeds)), "")
            expected = f"expected different whole numbers, such as 1,2 (in a plan [1, 2]){hint and f': {hint}'}"
            raise ValueError(f"{name} is {list(seeds)}; {expected}")
        if SEED in self.axes and self.seeds != (1,):
            raise ValueError(f"seeds and axes: {SEED} both give the seeds; leave one out")
        self._check_keys()
        for option in self.options:
            if self.kind != "measurement" or not OPTION.fullmatch(option):
                expected = "--steps=N, --seconds=N, --warmup=N, --data=DIR and --fidelity, of kind: measurement"
                raise ValueError(f"options has {option!r}; expected {expected}")
        if self.evaluate and self.kind != "training":
            raise ValueError("evaluate is true, but kind is not training: there are no networks to evaluate")
        if self.stop != "target" and self.kind != "training":
            raise ValueError(f"stop is {self.stop}, but kind is {self.kind}: set its steps by options: [--steps=30]")

    def _check_keys(self) -> None:
        """Raise ValueError for a setting that two parts of the plan give, or that is not the plan's to give."""
        parts = {
            "axes": {*self.axes},
            "points": {key for point in self.points for key in point},
            "scales": {*self.scales},
            "overrides": {override.partition("=")[0].strip() for override in self.overrides},
        }
        for name, keys in parts.items():
            if OUTPUT in keys:
                raise ValueError(f"{name} has {OUTPUT}, but each run has a folder of its own, in that of -o")
            if SEED in keys and name != "axes":
                raise ValueError(f"{name} has {SEED}; give seeds: [1, 2], or an axis")
        for first, second in (
            ("axes", "overrides"),
            ("points", "overrides"),
            ("scales", "overrides"),
            ("axes", "scales"),
        ):
            for key in sorted(parts[first] & parts[second]):
                raise ValueError(f"{key} is in {first} and in {second} (or --set); leave it in one of them")


@dataclass(frozen=True, slots=True)
class StudyPoint:
    """A run of a study and what it stands for.

    values: of the axes. evaluation: of its networks after it, if the plan asks for one.
    """

    values: dict[str, Value]
    run: PlannedRun
    setup: Setup
    evaluation: PlannedRun | None = None


def list_presets() -> dict[str, Path]:
    """Return the files of the presets by name."""
    return {path.stem: path for path in sorted(PRESETS.glob("*.yaml"))}


def is_plan(name: str) -> bool:
    """Tell whether an argument is the name of a preset, or looks like a file."""
    return name in list_presets() or name.endswith(SUFFIXES) or Path(name).exists()


def read_plan(name: str, full: bool = False) -> StudyPlan:
    """Return the plan in a YAML file, or of a preset. full: with what its `full` replaces. Raises UsageError.

    `full` is checked in any case.
    """
    presets = list_presets()
    if is_name(name) and name not in presets:
        raise UsageError(
            f"{name!r} is no preset{suggest_name(name, presets)}; expected {', '.join(presets)}, or FILE.yaml"
        )
    path = presets.get(name, Path(name))
    plan = load(StudyPlan, path)
    if full and not plan.full:
        raise UsageError(f"{path}: --full is given, but the plan has no `full`; leave it out")
    if plan.full:
        larger = rebuild(StudyPlan, to_dict(plan) | plan.full | {"full": {}}, f"{path}: full")
        list_curves(larger, f"{path}: full")
        plan = larger if full else plan
    if not is_name(plan.config) and not Path(plan.config).is_absolute():
        plan = replace(plan, config=str(path.parent / plan.config))
    list_curves(plan, str(path))
    return plan


def parse_axis(text: str) -> tuple[str, tuple[Any, ...]]:
    """Return the key and the values of an argument such as "optim.momentum=0.8,0.9"; UsageError for one without."""
    key, _, values_text = text.partition("=")
    try:
        values = yaml.load(f"[{values_text}]", Loader=Loader)
    except (yaml.YAMLError, ValueError, RecursionError):
        values = None
    if not values or not key:
        raise UsageError(
            f"--axis {text}: expected KEY=VALUE,VALUE without blanks, with values in YAML, such as ranks=1,2 or "
            "'optim.betas=[0.9, 0.99],[0.9, 0.999]'"
        )
    if values_text.rstrip().endswith(","):
        raise UsageError(f"--axis {text}: the values end with a comma; write all without blanks, such as {key}=1,2")
    is_text = key == LABEL or key.startswith(ENVIRONMENT)
    if problem := "" if is_text else explain_comma(values_text):
        raise UsageError(f"--axis {text}: {problem}")
    return key, tuple(values)


def list_curves(plan: StudyPlan, source: str) -> tuple[CurveSpec, ...]:
    """Return the curves of a plan; without any, its first quantity over each axis with numbers. Raises UsageError."""
    axes = dict.fromkeys([*plan.axes, *(key for point in plan.points for key in point)])
    names = [*QUANTITIES, *axes, BENCHMARK]
    has_benchmarks = len(plan.benchmarks) > 1 or BENCHMARK in axes
    curves = []
    for number, content in enumerate(plan.curves or _propose_curves(plan, [*axes]), 1):
        position = f"{source}: curves: {number}"
        curve = rebuild(CurveSpec, content, position)
        lines = [name for name in curve.by.split("+") if name]
        for key, name in (("x", curve.x), ("y", curve.y), *(("by", name) for name in lines)):
            if name not in names:
                expected = f"the axes, {', '.join(QUANTITIES)}"
                near = suggest_name(name, names, meanings={key: value.meaning for key, value in QUANTITIES.items()})
                raise UsageError(f"{position}: {key} is {name!r}{near}; known: {expected}")
            if name not in axes and name in QUANTITIES and not has_quantity(plan.kind, name):
                raise UsageError(
                    f"{position}: {key} is {name}, which no {plan.kind} has; see the reference of quantities"
                )
        if curve.law and curve.law not in LAWS:
            raise UsageError(f"{position}: law is {curve.law!r}; expected one of {', '.join(LAWS)}")
        if has_benchmarks and curve.law in TWO_VARIABLES:
            raise UsageError(f"{position}: law is {curve.law}, of one network; leave one benchmark")
        if has_benchmarks:  # each has lines of its own
            curve = replace(curve, by="+".join(dict.fromkeys((BENCHMARK, *lines))))
        x_label, y_label = (_label_axis(name) for name in (curve.x, curve.y))
        curves.append(replace(curve, x_label=curve.x_label or x_label, y_label=curve.y_label or y_label))
    files = [file for curve in curves for file in list_figures(curve)]
    if repeated := [file for file, count in Counter(files).items() if count > 1]:
        raise UsageError(f"{source}: curves: two have the file {repeated[0]}; give each another title")
    return tuple(curves)


def _propose_curves(plan: StudyPlan, axes: Sequence[str]) -> list[dict[str, Any]]:
    """Return a curve over each axis with several numbers, with a line for each combination of the other axes."""
    y = "quality" if plan.kind == "training" else "samples_per_s"
    return [
        {
            "title": f"{y} over {key}",
            "x": key,
            "y": y,
            "by": "+".join(name for name in axes if name not in (key, SEED)),
            "log_x": False,
            "log_y": False,
        }
        for key, values in plan.axes.items()
        if key != SEED and len(values) > 1 and all(type(value) in (int, float) for value in values)
    ]


def _label_axis(name: str) -> str:
    """Return the name of a quantity with its unit; the name of another axis."""
    unit = QUANTITIES[name].unit if name in QUANTITIES else ""
    return f"{name} ({unit})" if unit else name


def plan_points(plan: StudyPlan, folder: Path, source: str) -> list[StudyPoint]:
    """Return the points of a plan with their runs in a folder. Raises UsageError for what no run can have."""
    seeds = tuple(plan.axes.get(SEED, plan.seeds))
    axes = {BENCHMARK: plan.benchmarks} if len(plan.benchmarks) > 1 else {}
    axes |= {key: values for key, values in plan.axes.items() if key != SEED}
    count = math.prod(map(len, axes.values())) * len(plan.points or ({},)) * len(seeds)
    if count > MOST_RUNS:
        raise UsageError(
            f"{source}: {count:,} runs; expected at most {MOST_RUNS:,}: give fewer values, points or seeds"
        )
    points = [
        dict(zip(axes, values, strict=True)) | further
        for further in plan.points or ({},)
        for values in itertools.product(*axes.values())
    ]
    names = list(dict.fromkeys(key for values in points for key in values if key in axes or LABEL not in values))
    names += [key for key in (LABEL, RANKS, BENCHMARK) if key not in names]  # what else a label stands for is not named
    folders = [folder / name_point(values, names) for values in points]
    for path, count in Counter(folders).items():
        if count > 1:
            raise UsageError(f"{source}: {count} points would have the folder {path}: give each combination once")
        if len(path.name) > LONGEST:
            raise UsageError(f"{path.name} is too long for the name of a folder; vary fewer keys at once")
    pairs = list(zip(points, folders, strict=True))
    return [
        point
        for values, path in tqdm(pairs, "checking points", disable=None, leave=False, delay=1)
        for point in _plan_repetitions(plan, values, path, seeds, source)
    ]


def name_point(values: Mapping[str, Any], names: Sequence[str]) -> str:
    """Return the name of a point's folder: conv_size-16_train_samples-512. names: the keys that it can have."""
    last = Counter(name.rpartition(".")[2] for name in names)
    short = {name: part if last[part := name.rpartition(".")[2]] == 1 else name for name in names}
    text = "_".join(f"{short[key]}-{format_value(value)}" for key, value in values.items() if key in names)
    return re.sub(r"[^\w.+-]+", "-", text).strip("-") or "point"


def format_value(value: Any) -> str:
    """Return a value as an override and a folder's name have it: YAML."""
    if isinstance(value, str) and value and yaml.load(value, Loader=Loader) == value:
        return value
    return json.dumps(value)


def _plan_repetitions(
    plan: StudyPlan, values: dict[str, Any], folder: Path, seeds: Sequence[int], source: str
) -> Iterator[StudyPoint]:
    """Yield the runs of a point. values: of its axes."""
    settings = dict(values)
    for key, formula in plan.scales.items():
        if key in values:
            continue
        try:
            settings[key] = compute_formula(str(formula), settings)
        except ValueError as error:
            raise UsageError(f"{source}: scales: {key}: {error}") from None
    settings.pop(LABEL, None)
    benchmark, ranks = settings.pop(BENCHMARK, plan.benchmarks[0]), settings.pop(RANKS, 1)
    if type(ranks) is not int or ranks < 1:
        raise UsageError(f"{source}: ranks is {ranks!r}; expected a whole number of at least 1")
    environment = {
        key.removeprefix(ENVIRONMENT): str(settings.pop(key)) for key in list(settings) if key.startswith(ENVIRONMENT)
    }
    for name in environment:
        if not re.fullmatch(r"[A-Za-z_]\w*", name):
            raise UsageError(f"{source}: {ENVIRONMENT}{name} names no environment variable")
    training = plan.kind == "training"
    stop = [] if plan.stop == "target" else ["train.target=none"]
    overrides = (
        *plan.overrides,
        *stop,
        *(f"{key}={format_value(value)}" for key, value in settings.items()),
    )
    try:
        setup = resolve_setup(benchmark, plan.config, overrides)
    except UsageError as error:
        raise UsageError(f"{source}: {error}") from error
    resolved = yaml.load(setup.text, Loader=Loader)
    if plan.stop in ("steps", "flop") and resolved["train"][plan.stop] is None:
        raise UsageError(f"{source}: stop is {plan.stop}, but train.{plan.stop} has no value: set it, or vary it")
    instances = resolved["instances"]["count"]
    values = {
        key: value if isinstance(value, str | float | int | None) else format_value(value)
        for key, value in values.items()
    }
    for seed in seeds:
        name = f"{'seed' if training else 'run'}_{seed}"
        run = PlannedRun(
            benchmark=benchmark,
            kind=plan.kind,
            config=plan.config,
            folder=folder / name,
            title=f"{folder.name}/{name}",
            overrides=overrides,
            ranks=ranks,
            seed=seed if training else None,
            environment=environment,
            options=plan.options,
            instances=instances if training and instances > 1 else 0,
            group=str(folder / str(seed)),
        )
        evaluation = PlannedRun(
            benchmark=benchmark,
            kind="evaluation",
            config=plan.config,
            folder=folder / f"{name}_evaluation",
            title=f"evaluation of {run.title}",
            overrides=(f"train.imports=[{', '.join(setup.imports)}]",) if setup.imports else (),
            environment=environment,
            options=(str(run.folder),),
            group=run.group,
        )
        yield StudyPoint(values, run, setup, evaluation if plan.evaluate else None)
