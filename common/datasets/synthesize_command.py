"""The command behind every benchmark's `synthesize.py`: data made from physics in parallel, and pictures of them."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from common.command import UsageError, count, positive, run_command
from common.data.split import DatasetError
from common.datasets.build import USER_ERRORS, Crew, Plan, produce, report
from common.processes import usable_cores


@dataclass(frozen=True)
class Synthesis:
    """What a benchmark gives to the command.

    module: such as cosmoflow.synthesize. presets: recipes, frozen dataclasses, by name; "mini" is the default.
    picture: the file of `--plot` without a name. add_options: adds to the groups for what is made, and for files.
    changes: the fields of a preset that the arguments replace. plan: of a recipe and the arguments; UsageError where
    they contradict each other. draw: a picture of a recipe and a seed into a file. next_step: the command to give next.
    finish: makes what needs the whole dataset of a recipe in a folder.
    """

    module: str
    description: str
    examples: str
    presets: Mapping[str, Any]
    picture: str
    add_options: Callable[[Any, Any], None]
    changes: Callable[[argparse.Namespace], dict[str, Any]]
    plan: Callable[[Any, argparse.Namespace], Plan]
    draw: Callable[[Any, int, Path], None]
    next_step: Callable[[Plan, Path], str]
    finish: Callable[[Any, Path], None] = lambda _recipe, _folder: None

    def main(self, argv: Sequence[str] | None = None) -> int:
        """Run the command line; return the exit code."""
        args = self.parser().parse_args(argv)
        return run_command(lambda: self._run(args), USER_ERRORS)

    def _run(self, args: argparse.Namespace) -> int:
        """The data are made and compared with their manifest, the picture is drawn; returns the exit code."""
        recipe = replace(self.presets[args.preset], **self.changes(args))
        if args.output_dir is None and args.plot is None:
            raise UsageError("name an OUTPUT_DIR, or --plot for a picture alone")
        plan = self.plan(recipe, args) if args.output_dir else None
        if args.plot is not None:
            self.draw(recipe, args.seed, args.plot)
            print(f"drew {args.plot}")
        if plan is None:
            return 0
        folder: Path = args.output_dir
        code = report(produce(plan, folder, Crew(args.workers or usable_cores())), plan, folder, checksum=args.verify)
        if not code:
            self.finish(recipe, folder)
            print(f"next: {self.next_step(plan, folder)}")
        return code

    def parser(self) -> argparse.ArgumentParser:
        """Return what reads the command line."""
        parser = argparse.ArgumentParser(
            f"python -m {self.module}",
            description=self.description,
            epilog=self.examples,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        parser.add_argument("output_dir", type=Path, nargs="?", metavar="OUTPUT_DIR", help="new, or begun before")
        parser.add_argument("--preset", choices=self.presets, default="mini", help="what the options below change")
        parser.add_argument("--seed", type=count, default=0, help="of the dataset (default 0)")
        made = parser.add_argument_group("what is made (defaults: those of the preset)")
        files = parser.add_argument_group("files")
        self.add_options(made, files)
        files.add_argument("--verify", action="store_true", help="compare the checksums of all files at the end")
        files.add_argument("--plot", type=Path, nargs="?", const=Path(self.picture), help="draw the first samples")
        parser.add_argument("--workers", type=positive, help="processes (default: the usable cores)")
        return parser


def given(args: argparse.Namespace, *names: str) -> dict[str, Any]:
    """Return those of the arguments that were given."""
    return {name: getattr(args, name) for name in names if getattr(args, name) is not None}


def provide(folder: Path, needed: Sequence[str], make: Callable[[Sequence[str]], int]) -> None:
    """The data of a mini problem are in the folder: made now, by a command's `main`, if a needed file is missing.

    Raises DatasetError if they could not be made.
    """
    if all((folder / name).exists() for name in needed):
        return
    print(f"{folder} holds no data yet: the mini problem is generated, once", flush=True)
    if make([str(folder)]):
        raise DatasetError(f"the data of the mini problem could not be generated in {folder}")
