"""The command behind every benchmark's `synthesize.py`: generate data from physics in parallel, and plot them."""

from __future__ import annotations

import argparse
import hashlib
import importlib.util
import sys
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path, PurePosixPath
from typing import Any, Final

from common.command import (
    CommandParser,
    UsageError,
    as_called,
    check_new,
    count,
    describe_error,
    file_path,
    folder_path,
    positive,
    run_command,
)
from common.console import print_warning
from common.data.build import DATASET_ERRORS, PARTS, DatasetPlan, Workers, build_dataset, compare_facts, report_build
from common.data.manifest import NAME as MANIFEST
from common.data.manifest import Manifest, ManifestError, read_manifest
from common.data.split import DatasetError
from common.ending import EndingError
from common.files import list_data
from common.installed import new_figure, save_figure
from common.processes import usable_cores
from common.reference import FULL, MINI, OWN, VARIANTS, Target
from common.stop import STOP

SYNTHETIC: Final = "synthetic"
"""The variant of generated data that no preset has."""
OTHER_FOLDER: Final = (
    "choose another folder, in which data can be generated, or train the configuration that these data are for; for "
    f"data of your own that is variant={OWN} with your train.target (docs/guide/data.md)"
)

GENERATOR: Final = "generator_sha256"
"""The fact of a manifest about the sources of what generated the data."""


class Synthesis(ABC):
    """The command of a benchmark: a subclass defines what it generates, and how.

    module: such as cosmoflow.synthesize. description, examples: for --help.
    presets: recipes, frozen dataclasses, by name: first the current mini problem, then the others by the names of their
        variants, and full-size.
    sources: names of the modules that the content depends on. target: that of the full problem.
    known_digests: of the data of mini problems, which every version of the generator has made alike.
    picture: the default file of `--plot`. draw: draws the first samples of a recipe and a seed in an empty figure of
        matplotlib; a static method. needed: files that exist once a mini dataset is complete.
    few: arguments for a few samples of the full and of a mini problem.
    """

    module: str
    description: str
    examples: str
    presets: Mapping[str, Any]
    sources: tuple[str, ...]
    known_digests: tuple[str, ...] = ()
    target: Target
    picture: str
    draw: Any
    needed: tuple[str, ...] = (MANIFEST,)
    few: Mapping[str, str] = {FULL: "--preset full-size --train 2 --validation 1", MINI: "--train 32 --validation 1"}

    @abstractmethod
    def add_options(self, content: Any, files: Any) -> None:
        """Add the benchmark's options to two groups of arguments: for the content, and for the files."""

    @abstractmethod
    def plan_dataset(self, recipe: Any, args: argparse.Namespace) -> DatasetPlan:
        """Return the dataset of a recipe and the arguments; UsageError if they contradict each other."""

    def changed_fields(self, args: argparse.Namespace) -> dict[str, Any]:
        """Return the fields of a preset that the arguments replace: those with the same names."""
        values = {field.name: getattr(args, field.name, None) for field in fields(self.presets[args.preset])}
        return {
            name: tuple(value) if isinstance(value, list) else value
            for name, value in values.items()
            if value is not None
        }

    def next_step(self, plan: DatasetPlan, folder: Path) -> str:
        """Return the command to run next, on the data in a folder: train."""
        train, data = f"python -m {plan.benchmark}.train", f"data.data_dir={folder}{self.data_keys(plan)}"
        if plan.variant == self.mini:
            return f"{train} mini {data}"
        own = f"variant={OWN} train.target={self.target.value:g} submission.division=open"
        return f"{train} config {data} data.train_samples=null data.eval_samples=null {own}"

    def data_keys(self, plan: DatasetPlan) -> str:
        """Return what a configuration must say of the data besides, each key after a space; nothing here."""
        return ""

    def required_facts(self, data: Any) -> dict[str, Any]:
        """Return the facts that a dataset must have for the section `data` of a configuration; none here."""
        return {}

    def finish_dataset(self, recipe: Any, folder: Path) -> None:  # noqa: B027  (most benchmarks need nothing here)
        """Make what needs the whole dataset, such as its statistics; called after each complete build."""

    @property
    def mini(self) -> str:
        """The variant of the current mini problem."""
        return next(iter(self.presets))

    def variant_of(self, recipe: Any) -> str:
        """Return the name of the mini problem that a recipe makes, else SYNTHETIC."""
        return next((name for name, value in self.presets.items() if name in VARIANTS and value == recipe), SYNTHETIC)

    def provide_data(self, folder: Path, variant: str, data: Any = None) -> None:
        """Generate a mini dataset in a folder unless all needed files exist; DatasetError if that fails.

        Other data are a DatasetError, too; data of the user's own are taken as they are. data: the section of the
        configuration that will read them; one that cannot is a DatasetError before anything is generated.
        """
        if variant == OWN:
            return
        if variant not in self.presets:
            raise DatasetError(f"`python -m {self.module}` no longer generates the {variant} dataset: use {self.mini}")
        try:
            self._generate_missing(folder, f"the dataset of the mini problem ({variant})", f"--preset {variant}", data)
        except (EndingError, KeyboardInterrupt):
            print(f"{folder} is not complete; the same command completes the data", file=sys.stderr)
            raise
        manifest = read_manifest(folder / MANIFEST) if (folder / MANIFEST).exists() else None
        if manifest and manifest.variant not in (variant, SYNTHETIC, None):
            raise DatasetError(f"{folder} has the {manifest.variant} dataset; expected {variant}: {OTHER_FOLDER}")
        for line in self.find_other_generator(folder, manifest) if manifest else ():
            print_warning(line)

    def find_other_generator(self, folder: Path, manifest: Manifest) -> list[str]:
        """Return a line if another version of the generator made the data in a folder."""
        actual, expected = (facts.get(GENERATOR, "") for facts in (manifest.facts, self.describe_generator()))
        if not actual or actual == expected or manifest.compute_digest() in self.known_digests:
            return []
        return [
            f"{folder} was generated by another version of {self.module} ({GENERATOR} in {MANIFEST} is {actual[:8]}…, "
            f"that of this version {expected[:8]}…), which may have made other samples: remove the folder, or set "
            "data.data_dir to a new one, to generate them again; keep it if results on these data are to be compared"
        ]

    def describe_generator(self) -> dict[str, str]:
        """Return the facts about the generator for a manifest; its sources are read and not imported."""
        specs = [importlib.util.find_spec(source) for source in self.sources]
        code = b"".join(Path(str(spec and spec.origin)).read_bytes() for spec in specs)
        return {"generator": self.module, GENERATOR: hashlib.sha256(code).hexdigest()}

    def provide_few(self, folder: Path, variant: str, data: Any = None) -> None:
        """Generate a few samples of a variant, as `provide_data` does; to measure, not to train."""
        if variant == OWN:
            raise DatasetError(f"variant is {OWN}: there is no recipe for such data; measure with --data DIR")
        options = self.few[FULL] if variant == FULL else f"--preset {variant} {self.few[MINI]}"
        self._generate_missing(folder, f"a few samples of the {variant} size", options, data)

    def _generate_missing(self, folder: Path, noun: str, options: str, data: Any = None) -> None:
        if all((folder / name).exists() for name in self.needed):
            return
        if folder.exists() and not folder.is_dir():
            raise DatasetError(f"{folder} is not a folder: data.data_dir must be one; {noun} is generated in a new one")
        args = self.build_parser().parse_args([str(folder), *options.split()])
        recipe = self._build_recipe(args)
        try:
            plan = self.plan_dataset(recipe, args)
            if data is not None:
                self._check_fits(plan, data, folder, noun)
            self._refuse_other_data(plan, folder)
            started = (folder / MANIFEST).exists() or (folder / PARTS).exists()
            state = f"{folder} is not complete; completing" if started else f"no data in {folder}; generating"
            print(f"{state} {noun}", flush=True)
            failed = self._generate_data(plan, recipe, args)
        except DATASET_ERRORS as error:
            raise DatasetError(f"{noun} cannot be generated in {folder}: {describe_error(error)}") from error
        if failed:
            raise DatasetError(f"{folder}: {noun} could not be generated; the errors are above")

    def _refuse_other_data(self, plan: DatasetPlan, folder: Path) -> None:
        """Raise ManifestError for what is neither of a plan nor described by a manifest, which is compared later."""
        if (folder / MANIFEST).exists():
            return
        parents = {parent for file in plan.files for parent in PurePosixPath(file).parents}
        expected = {PARTS, *self.needed, *plan.files, *map(str, parents)}
        for parent in sorted(parents):
            for path in map(parent.joinpath, list_data(folder / parent) if (folder / parent).is_dir() else ()):
                if str(path) not in expected:
                    other = folder / path
                    is_split = PurePosixPath(folder.absolute().name) in parents
                    data_dir = folder.absolute().parent if is_split else other
                    hint = f" (data.data_dir={data_dir} would read them)" if (data_dir / "train").is_dir() else ""
                    raise ManifestError(f"{other} is of other data{hint}; nothing was changed: {OTHER_FOLDER}")

    def _check_fits(self, plan: DatasetPlan, data: Any, folder: Path, noun: str) -> None:
        """Raise DatasetError for a configuration that asks for other samples than a plan has, or for more."""
        unlike = [
            (name, plan.facts[name], required)
            for name, required in self.required_facts(data).items()
            if plan.facts[name] != required
        ]
        samples = plan.facts.get("samples", {})
        for split, required in (("train", data.train_samples), ("validation", data.eval_samples)):
            if required is not None and split in samples and required > samples[split]:
                unlike.append((f"number of samples in {split}", samples[split], required))
        for name, actual, required in unlike[:1]:
            raise DatasetError(
                f"there are no data in {folder}, and {noun}, to be generated there, would not fit: {name} would be "
                f"{actual}, the configuration asks for {required}; correct the configuration, or name data that fit "
                "(data.data_dir; of `measure`: --data DIR)"
            )

    def main(self, argv: Sequence[str] | None = None) -> int:
        """Run the command line; return the exit code."""
        args = self.build_parser().parse_args(argv)
        return run_command(lambda: self._run_until_stopped(args), DATASET_ERRORS, "the same command resumes")

    def _run_until_stopped(self, args: argparse.Namespace) -> int:
        """Run the command; SIGTERM ends it between two samples, and nothing else changes."""
        with STOP.listening(), STOP.interrupting():
            STOP.choose_signals(("TERM",))
            return self._run_command(args)

    def _run_command(self, args: argparse.Namespace) -> int:
        """Generate the data, compare them with their manifest, and draw the picture; return the exit code."""
        recipe = self._build_recipe(args)
        if args.output_dir is None and args.plot is None:
            raise UsageError("nothing to do: give OUTPUT_DIR, --plot, or both")
        plan = self.plan_dataset(recipe, args) if args.output_dir else None
        if plan is not None:
            self._refuse_other_data(plan, args.output_dir)
        if args.plot is not None:
            picture = args.plot if args.plot.suffix else args.plot.with_suffix(".png")  # as the library does
            check_new("--plot", picture)
            figure = new_figure()
            self.draw(recipe, args.seed, figure)
            save_figure(figure, picture)
            print(f"drew {picture}")
        if plan is None:
            return 0
        try:
            code = self._generate_data(plan, recipe, args)
        except ManifestError as error:
            raise ManifestError(f"{error}{self._name_options(plan, args.output_dir)}") from error
        if not code:
            print(as_called(f"next: {self.next_step(plan, args.output_dir)}"))
        return code

    def _name_options(self, plan: DatasetPlan, folder: Path) -> str:
        """Return the options by which a plan differs from the data in a folder; "" if none are known."""
        if not (folder / MANIFEST).exists():
            return ""
        facts = compare_facts(read_manifest(folder / MANIFEST).facts, plan.facts)
        names = [name.rpartition(".")[2].split("_")[0] for name in facts]
        options = [option for option in self.build_parser()._option_string_actions if option.strip("-") in names]
        return f" The options that differ: {', '.join(options)}." if options else ""

    def _build_recipe(self, args: argparse.Namespace) -> Any:
        return replace(self.presets[args.preset], **self.changed_fields(args))

    def _generate_data(self, plan: DatasetPlan, recipe: Any, args: argparse.Namespace) -> int:
        """Generate the data of a recipe and compare them with their manifest; return the exit code."""
        folder = args.output_dir
        outcome = build_dataset(plan, folder, Workers(args.workers or usable_cores()))
        code = report_build(outcome, plan, folder, checksum=args.verify)
        if not code:
            self.finish_dataset(recipe, folder)
        return code

    def build_parser(self) -> argparse.ArgumentParser:
        """Return the parser of the command line."""
        parser = CommandParser(
            f"python -m {self.module}",
            {3: "stopped by SIGTERM"},
            description=self.description,
            epilog=self.examples,
        )
        parser.add_argument(
            "output_dir", type=folder_path, nargs="?", metavar="OUTPUT_DIR", help="new, or interrupted before"
        )
        parser.add_argument(
            "--preset", choices=self.presets, default=self.mini, help=f"recipe to start from (default {self.mini})"
        )
        parser.add_argument("--seed", type=count, default=0, help="seed of the dataset (default 0)")
        content = parser.add_argument_group("content (defaults: those of the preset)")
        files = parser.add_argument_group("files")
        self.add_options(content, files)
        files.add_argument("--verify", action="store_true", help="compare the checksums of all files at the end")
        files.add_argument("--plot", type=file_path, nargs="?", const=Path(self.picture), help="draw the first samples")
        parser.add_argument("--workers", type=positive, help="processes (default: the usable cores)")
        return parser
