"""The command behind every benchmark's `prepare.py`: options, comparing, the subcommands `manifest` and `verify`."""

from __future__ import annotations

import argparse
import os
import shlex
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, Final, TypeVar

from common.command import (
    CONTINUED,
    NOTHING_WRITTEN,
    CommandParser,
    UsageError,
    as_called,
    count,
    folder_path,
    positive,
    run_command,
)
from common.commands.synthesize import GENERATOR, Synthesis
from common.console import open_bar, print_error, print_warning
from common.data.build import (
    DATASET_ERRORS,
    PARTS,
    BadItemError,
    BuildError,
    DatasetPlan,
    Item,
    Journal,
    Workers,
    build_dataset,
    report_build,
)
from common.data.manifest import (
    NAME,
    Manifest,
    ManifestEntry,
    SurveyFile,
    check_names,
    describe_file,
    read_manifest,
    verify_files,
    write_manifest,
)
from common.data.values import Content, Survey
from common.file_kind import HEAD_BYTES, find_kind
from common.files import explain_lost_link, list_data, suggest_folder
from common.processes import in_processes, in_threads, usable_cores
from common.ranks.launch import find_rank_position
from common.reference import FULL
from common.tree import ANYWHERE

T = TypeVar("T")
Run = Callable[[argparse.Namespace], int]
"""Runs a subcommand; returns the exit code."""
ReadContents = Callable[[str, Path, str], Iterable[tuple[str, Iterable[Content]]]]
"""Yields the name of each sample in a file and its contents; of the file its name, where to read it, its SHA-256."""
VERIFY_HELP: Final = """\
Compare all files with DATA_DIR/manifest.json. Missing, changed and extra files are listed.
With --values the samples, too, are compared with their contract: what breaks it is an error with file, sample, place
and number, as are equal samples in two splits; what is only unlikely is a warning, which leaves the exit status 0.
Each file is read once for both (twice if it has more than 256 MiB).
"""


def add_build_command(commands: Any, name: str, run: Run, texts: tuple[str, str, str], *, verify: bool = False) -> Any:
    """Add a subcommand that makes items from INPUT_DIR in OUTPUT_DIR, with the options that `workers_of` reads.

    texts: what it does, in a few words and at length, and what INPUT_DIR is. verify: it compares on demand. Return it.
    """
    short, description, input_help = texts
    command = commands.add_parser(name, help=short, description=description)
    command.set_defaults(run=partial(_run_build, run))
    command.add_argument("input_dir", type=Path, metavar="INPUT_DIR", help=input_help)
    command.add_argument(
        "output_dir", type=folder_path, metavar="OUTPUT_DIR", help="where to write: new, or interrupted before"
    )
    if verify:
        command.add_argument(
            "--verify",
            action="store_true",
            help="read everything again at the end and compare it with INPUT_DIR",
        )
    share = command.add_argument_group("workers")
    share.add_argument("--workers", type=positive, help="processes (default: the cores that this task may use)")
    share.add_argument("--task", type=count, help="number of this task, from 0 (default: the rank)")
    share.add_argument("--n-tasks", type=positive, help="how many tasks share the work (default: the ranks)")
    return command


def _run_build(run: Run, args: argparse.Namespace) -> int:
    """Run a subcommand from INPUT_DIR to OUTPUT_DIR; UsageError unless the first has files and is not the second."""
    source, target = args.input_dir, args.output_dir
    if os.path.realpath(source) == os.path.realpath(target):
        raise UsageError(f"OUTPUT_DIR {target} is INPUT_DIR; choose a new folder: the input stays as it is")
    if not (source.is_dir() and any(source.iterdir())):
        state = "is empty" if source.is_dir() else "is not a folder"
        swapped = target.is_dir() and any(target.iterdir())
        fix = f"; OUTPUT_DIR {target} has files: are the two exchanged? INPUT_DIR comes first" if swapped else ""
        raise UsageError(f"INPUT_DIR {source} {state}{fix or '; expected a folder with the data to read'}")
    return run(args)


def workers_of(args: argparse.Namespace) -> Workers:
    """Return the workers that the arguments name; without such, those of the launcher."""
    if args.n_tasks is not None or args.task is not None:
        if args.n_tasks is None or args.task is None:
            raise UsageError("--task and --n-tasks must be given together")
        return Workers(args.workers or usable_cores(), args.task, args.n_tasks)
    launch = find_rank_position(os.environ)
    if launch.world_size is None:
        raise BuildError(f"{launch.launcher} does not set the number of ranks: give --task and --n-tasks")
    workers = args.workers or max(1, usable_cores() // (launch.local_size or 1))
    return Workers(workers, launch.rank, launch.world_size)


def build_and_report(plan: DatasetPlan, args: argparse.Namespace) -> int:
    """Make all items of this task in OUTPUT_DIR; return the exit code."""
    return report_build(build_dataset(plan, args.output_dir, workers_of(args)), plan, args.output_dir)


def build_and_compare(
    plan: DatasetPlan, args: argparse.Namespace, compare: Callable[[Item], list[str]], skip: str = ""
) -> int:
    """Make all items of this task, and with --verify compare them with their sources; return the exit code.

    compare: returns a line for each difference; picklable. skip: the name of an item to leave out.
    """
    code = build_and_report(plan, args)
    if code or not args.verify:
        return code
    workers = workers_of(args)
    own_items = [item for item in plan.items[workers.task :: workers.tasks] if item.name != skip]
    results = in_processes(compare, own_items, workers.processes) if own_items else iter(())
    bar = open_bar(
        results,
        total=len(own_items),
        unit=f" {plan.noun}",
        desc=f"compare {args.output_dir}",
        disable=None if workers.task == 0 else True,
    )
    problems = sorted(line for _, lines in bar for line in lines)
    for problem in problems:
        print_error(problem)
    print(f"compared {len(own_items):,} {plan.noun} with their sources: {len(problems):,} differences")
    return 1 if problems else 0


def _advise_rename(folder: Path, part: str) -> str:
    """Return how to rename what may be the missing folder of a part, such as `val`; "" if there is none like it."""
    if os.path.lexists(folder / part):
        return ""
    for path in sorted(folder.iterdir()):
        name = path.name.lower()
        if path.is_dir() and len(name) > 2 and (part.startswith(name) or name in (f"{part}ing", f"{part}_data")):
            return f"is it {path}? mv {shlex.quote(str(path))} {shlex.quote(str(folder / part))}"
    return ""


def read_first(paths: Sequence[Path], read: Callable[[Path], T], noun: str) -> T:
    """Return what `read` returns of the first file that it can read, of ten; BuildError if there is none."""
    errors = []
    for path in paths[:10]:
        try:
            return read(path)
        except (BadItemError, OSError) as error:
            errors.append(str(error))
    raise BuildError(f"no {noun} can be read:\n  " + "\n  ".join(errors))


@dataclass(frozen=True)
class PrepareCommand:
    """The command of a benchmark. Its dataset has all files in `folders`, and `files` if they exist.

    module: as in cosmoflow.prepare. description, examples: for --help. add_commands: adds the subcommands that make
    data. read_contents: returns a ReadContents for the dataset in a folder. errors: that these raise besides
    DATASET_ERRORS. inside: returns errors inside the files that the manifest cannot show, a line each; its arguments
    are the folder, the manifest, a number of threads, and a survey or None. pairs: patterns of two files that make a
    sample, with a star for what they share.
    """

    module: str
    description: str
    examples: str
    add_commands: Callable[[Any], None]
    folders: Sequence[str]
    read_contents: Callable[[Path], ReadContents]
    files: Sequence[str] = ()
    errors: tuple[type[Exception], ...] = ()
    inside: Callable[[Path, Manifest, int, Survey | None], list[str]] = lambda *_: []
    pairs: Sequence[tuple[str, str]] = ()

    @property
    def benchmark(self) -> str:
        """The name of the benchmark."""
        return self.module.partition(".")[0]

    def main(self, argv: Sequence[str] | None = None) -> int:
        """Run the command line; return the exit code."""
        args = self.build_parser().parse_args(argv)
        return run_command(lambda: args.run(args), (*DATASET_ERRORS, *self.errors), args.interrupted)

    def build_parser(self) -> CommandParser:
        """Return the parser of the command line."""
        parser = CommandParser(f"python -m {self.module}", description=self.description, epilog=self.examples)
        parser.set_defaults(interrupted=CONTINUED)
        commands = parser.add_subparsers(dest="command", required=True)
        self.add_commands(commands)
        self._add_checks(commands)
        for name, command in commands.choices.items():
            lines = [
                line for line in self.examples.splitlines() if f".prepare {name} " in line and "--help" not in line
            ]
            command.epilog = "\n".join(["examples:", *lines])
        return parser

    def _add_checks(self, commands: Any) -> None:
        """Add the subcommands `manifest` and `verify`."""
        folders = _join_names(self.folders)
        describing = commands.add_parser(
            "manifest",
            help="write checksums of existing data",
            description=f"Read all files of DATA_DIR in {folders} and write their sizes and checksums to "
            f"DATA_DIR/{NAME}.\nAfter a `convert` with several tasks, merge the records of the tasks instead, without "
            f"reading the files.\n",
        )
        describing.set_defaults(run=self.run_manifest)
        describing.add_argument("--variant", default=FULL, help=f"dataset variant (default {FULL})")
        verifying = commands.add_parser(
            "verify",
            help="compare data with the manifest",
            description=VERIFY_HELP,
            statuses={0: "nothing differs", 1: "something differs, or an error"},
        )
        verifying.set_defaults(run=self.run_verify, interrupted=NOTHING_WRITTEN)
        extent = verifying.add_mutually_exclusive_group()
        extent.add_argument("--sizes-only", action="store_true", help="quick: sizes without checksums")
        extent.add_argument("--values", action="store_true", help="also check all values")
        for command in (describing, verifying):
            command.add_argument("data_dir", type=Path, metavar="DATA_DIR", help=f"folder with {folders}")
            command.add_argument("--workers", type=positive, help="threads (default: the usable cores)")

    def run_manifest(self, args: argparse.Namespace) -> int:
        """Write the manifest, merged from the records of tasks or made from the files; return the exit code."""
        folder: Path = args.data_dir
        if (folder / PARTS).exists():
            manifest = Journal(folder).merge_parts()
        elif (folder / NAME).exists():
            raise BuildError(f"{folder / NAME} already exists; compare it by: python -m {self.module} verify {folder}")
        else:
            manifest = self._describe_files(folder, args.workers or usable_cores(), args.variant)
            write_manifest(folder / NAME, manifest)
        print(f"{folder / NAME}: {len(manifest.files):,} files, digest {manifest.compute_digest()}")
        return 0

    def _describe_files(self, folder: Path, workers: int, variant: str) -> Manifest:
        names = [
            f"{part}/{name}" for part in self.folders if (folder / part).is_dir() for name in list_data(folder / part)
        ]
        if lost := [name for name in names if not (folder / name).exists()]:
            problem = explain_lost_link(folder / lost[0], len(lost))
            raise BuildError(f"{folder / lost[0]}: {problem}; nothing was written")
        names = [name for name in names if not (folder / name).is_dir()]
        check_names(names)
        if not names:
            raise BuildError(
                f"{folder} has no files in {_join_names(self.folders)}: expected the folder that contains these"
                + suggest_folder(folder, self.folders)
            )
        for part in self.folders:
            if advice := _advise_rename(folder, part):
                raise BuildError(f"there is no folder {folder / part}: {advice}; nothing was written")
        names += [name for name in self.files if (folder / name).exists()]
        entries = in_threads(_describe_data, [folder / name for name in names], workers)
        files = dict(zip(names, open_bar(entries, total=len(names), unit=" files", disable=None), strict=True))
        for name in (name for name, entry in files.items() if not entry.bytes):
            print_warning(
                f"{folder / name} is empty; if it should have a sample, fetch it and write the manifest again"
            )
        return Manifest(benchmark=self.benchmark, variant=variant, facts={"described_by": self.module}, files=files)

    def run_verify(self, args: argparse.Namespace) -> int:
        """Compare the files with the manifest; return the exit code."""
        folder: Path = args.data_dir
        manifest = read_manifest(folder / NAME)
        if manifest.benchmark != self.benchmark:
            raise BuildError(
                f"{folder} has data of {manifest.benchmark}: python -m {manifest.benchmark}.prepare verify {folder}"
            )
        for part in sorted({name.partition("/")[0] for name in manifest.files if "/" in name}):
            if not (folder / part).is_dir():
                advice = _advise_rename(folder, part) or "copy or fetch it again"
                raise BuildError(f"there is no folder {folder / part}, which the manifest lists: {advice}")
        workers = args.workers or usable_cores()
        survey = Survey() if args.values else None
        problems = verify_files(
            folder,
            manifest,
            checksum=not args.sizes_only,
            workers=workers,
            survey_file=self._survey_into(folder, survey) if survey else None,
        )
        problems += self._find_lost_partners(folder, manifest)
        if not args.sizes_only:
            problems += self.inside(folder, manifest, workers, survey)
        result = ""
        if survey:
            survey.add_summary(whole=True)
            survey.warnings += self._find_other_generator(folder, manifest)
            problems += sorted(survey.errors)
            if not survey.samples:
                problems.append(f"{folder} has no samples in {_join_names(self.folders)}")
            for warning in sorted(survey.warnings):
                print_warning(warning)
            result = f", {survey.samples:,} samples looked at, {len(survey.warnings):,} warnings"
        for problem in problems:
            print_error(problem)
        result = (f"{len(problems):,} problems" if problems else "all match") + result
        print(f"{folder}: {len(manifest.files):,} files, digest {manifest.compute_digest()}: {result}")
        if problems:
            again = f"remove {folder / NAME}, and write it anew: " + as_called(
                f"python -m {self.module} manifest {folder}"
            )
            if survey and survey.errors:
                print(f"Correct these files, or fetch them again. If they differ then from the manifest: {again}")
            else:
                print(f"Copy or fetch these files again. If they are as they should be: {again}")
        return 1 if problems else 0

    def _find_lost_partners(self, folder: Path, manifest: Manifest) -> Iterator[str]:
        """Yield a line for each file without the other one of its sample."""
        for name in sorted(manifest.files):
            part, _, file = name.rpartition("/")
            for pattern, other in (*self.pairs, *((second, first) for first, second in self.pairs)):
                start, _, end = pattern.partition("*")
                if file.startswith(start) and file.endswith(end):
                    partner = f"{part}/{other.replace('*', file.removeprefix(start).removesuffix(end))}"
                    if partner not in manifest.files:
                        yield f"{folder / name}: {partner} of the same sample is missing; fetch it, or remove this one"

    def _survey_into(self, folder: Path, survey: Survey) -> SurveyFile:
        read_contents = self.read_contents(folder)

        def survey_file(name: str, path: Path, checksum: str) -> None:
            file = str(folder / name)
            try:
                for sample, contents in read_contents(name, path, checksum):
                    survey.add_sample(file, name.partition("/")[0], sample, contents)
            except (ValueError, OSError, MemoryError) as error:
                text = str(error).replace(str(path), file)
                survey.errors.append(text if file in text else f"{file}: {text}")

        return survey_file

    def _find_other_generator(self, folder: Path, manifest: Manifest) -> list[str]:
        if GENERATOR not in manifest.facts:
            return []
        module = f"{self.benchmark}.synthesize"
        try:  # it needs more packages than checking does
            synthesis: Synthesis = import_module(module).SYNTHESIS
        except ImportError as error:
            return [f"{folder}: whether this version of the generator made it is not known ({error})"]
        return synthesis.find_other_generator(folder, manifest)


def _describe_data(path: Path) -> ManifestEntry:
    """Return what `describe_file` does; BuildError for a page or a pointer that was fetched in place of the data."""
    kind = find_kind(ANYWHERE.begin(path, HEAD_BYTES))
    if kind and kind.fix and not kind.binary:
        raise BuildError(f"{path}: this is {kind.name}, not data. {kind.fix} Nothing was written")
    return describe_file(path)


def _join_names(names: Sequence[str]) -> str:
    return ", ".join(names[:-1]) + f" and {names[-1]}"
