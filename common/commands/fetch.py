"""The command behind every benchmark's `fetch.py`: download, verify and unpack a published dataset."""

from __future__ import annotations

import argparse
import re
import shutil
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath
from typing import Any, Final

import msgspec

from common.address import check_address
from common.command import CommandParser, UsageError, as_called, folder_path, positive, run_command
from common.console import open_bar
from common.data.build import (
    DATASET_ERRORS,
    OUT_OF_SPACE,
    PARTS,
    Heading,
    Journal,
    Part,
    print_contents,
    readable_bytes,
)
from common.data.fetch import Downloader, DownloadError, Published, RemoteFolder, check_md5, unpack_archive
from common.data.manifest import Manifest, describe_file, verify_files
from common.files import write_whole_file
from common.installed import missing_extra
from common.reference import FULL

DOWNLOADS: Final = "download"
"""The folder below the dataset's with incomplete files and archives."""
MOST_LIST_BYTES: Final = 64 << 20
BYTES: Final[dict[str, Any]] = {"unit": "B", "unit_scale": True, "disable": None}
"""How a bar shows bytes."""


@dataclass(frozen=True)
class FetchCommand:
    """The command of a benchmark. sets: what is published, the whole dataset first. licence, where: for users.

    next_step: returns the command to run next on a folder. shares: of a part by number of samples, the divisor of each
    split; {} if there are no such parts.
    """

    module: str
    sets: Sequence[Published]
    licence: str
    next_step: Callable[[Path], str]
    shares: Mapping[str, int] = field(default_factory=dict)

    @property
    def benchmark(self) -> str:
        """The name of the benchmark."""
        return self.module.partition(".")[0]

    def main(self, argv: Sequence[str] | None = None) -> int:
        """Run the command line; return the exit code."""
        args = self.build_parser().parse_args(argv)
        return run_command(
            lambda: self._fetch_data(args),
            (*DATASET_ERRORS, DownloadError),
            "finished work is kept; the same command continues",
        )

    def _fetch_data(self, args: argparse.Namespace) -> int:
        if args.list:
            print(self._format_list())
            return 0
        if args.folder is None:
            raise UsageError("nothing to do: give DIR, or --list")
        dataset = self._choose_dataset(args.subset)
        try:
            dataset = replace(dataset, address=check_address(args.url or dataset.address, ("https", "http")))
        except ValueError as error:
            raise UsageError(f"--url {error}") from None
        try:
            return _Fetch(self, dataset, args).run()
        except ImportError as error:
            raise DownloadError(missing_extra(error, self.module, "[storage]") or str(error)) from error

    def _choose_dataset(self, subset: str | None) -> Published:
        if subset is None:
            return self.sets[0]
        by_name = {dataset.name: dataset for dataset in self.sets if dataset.name != FULL}
        if subset in by_name:
            return by_name[subset]
        if self.shares and subset.isdecimal() and int(subset) > 0:
            return self.sets[0].take_first(int(subset), self.shares)
        raise UsageError(f"--subset {subset}: expected {self._parts_text}")

    @property
    def _parts_text(self) -> str:
        names = [dataset.name for dataset in self.sets if dataset.name != FULL]
        return " or ".join([*names, *(["a number of training samples"] if self.shares else [])])

    def _format_list(self) -> str:
        lines = []
        for dataset in self.sets:
            option = "" if dataset.name == FULL else f" --subset {dataset.name}"
            lines.append(f"python -m {self.module} DIR{option}")
            lines.append(f"  {dataset.text}; about {readable_bytes(dataset.bytes)} to download")
            names = [archive.name for archive in dataset.archives] or [f"{folder.name}/" for folder in dataset.folders]
            sums = [f" (MD5 {archive.md5})" if archive.md5 else " (no checksum)" for archive in dataset.archives]
            files = zip(names, sums or [" (no checksums)"] * len(names), strict=True)
            lines += [f"  {dataset.address}/{name}{checksum}" for name, checksum in files]
            lines += [f"  {note}" for note in dataset.notes]
        return as_called("\n".join([*lines, f"licence: {self.licence}"]))

    def build_parser(self) -> argparse.ArgumentParser:
        """Return the parser of the command line."""
        module = f"python -m {self.module}"
        example = self.sets[1].name if len(self.sets) > 1 else "512"
        parser = CommandParser(
            module,
            description=f"""\
Download the published data of {self.benchmark}, verify and unpack them, and write their manifest.

  {module} --list                       what is published: sizes, addresses, licence
  {module} data/{self.benchmark} --dry-run
                                        ask the server for sizes, compare with the free space, and stop
  {module} data/{self.benchmark} --subset {example}
  {module} data/{self.benchmark}""",
            epilog=f"""\
It needs the extra `storage`. An interrupted command continues where it stopped, in the middle of a file if the server
serves parts. All bytes of a file come from one version of it. The command compares published checksums; where there are
none, the manifest has those of the files that arrived. It overwrites nothing: incomplete files are in DIR/{DOWNLOADS},
and a folder with other data is refused. The manifest of a part says variant `subset-...`: a closed result needs the
whole.""",
            statuses={130: "interrupted: call again to continue"},
        )
        parser.add_argument("folder", type=folder_path, nargs="?", metavar="DIR", help="new, or interrupted before")
        parser.add_argument("--list", action="store_true", help="show what is published, and exit")
        parser.add_argument("--dry-run", action="store_true", help="show sizes, and download nothing")
        parser.add_argument("--subset", metavar="PART", help=f"a part with its own label: {self._parts_text}")
        parser.add_argument("--url", help="address of a mirror that has the same files under the same names")
        parser.add_argument(
            "--connections",
            type=positive,
            default=4,
            help="files at the same time, each over one connection (default 4, be kind to public servers)",
        )
        parser.add_argument("--keep", action="store_true", help=f"keep the archives in DIR/{DOWNLOADS} after unpacking")
        return parser


class _Fetch:
    """One call: a dataset into a folder."""

    def __init__(self, command: FetchCommand, dataset: Published, args: argparse.Namespace) -> None:
        self.command, self.dataset, self.args = command, dataset, args
        self.folder: Path = args.folder
        self.downloads = self.folder / DOWNLOADS
        self.server = Downloader(dataset.address, self.downloads)
        names = [archive.name for archive in dataset.archives] or [folder.name for folder in dataset.folders]
        self.heading = Heading(command.benchmark, dataset.variant, {"fetched": names}, 0)

    def run(self) -> int:
        """Fetch; return the exit code."""
        try:
            return self._fetch_all()
        except OSError as error:
            if error.errno not in OUT_OF_SPACE:
                raise
            raise DownloadError(
                f"{self.folder}: {error.strerror}; finished work is kept: free disk space and run the command again"
            ) from error

    def _fetch_all(self) -> int:
        journal = Journal(self.folder)
        journal.check_heading(self.heading, set(self.dataset.counts))
        if journal.manifest and not (self.folder / PARTS).exists():
            return self._report_result(journal.manifest)
        archives = {archive.name: archive.bytes for archive in self.dataset.archives}
        missing = sum(self.server.count_missing(name, about) for name, about in archives.items())
        files = {name: folder.bytes for folder in self.dataset.folders for name in self._list_files(folder)}
        self._check_space(missing, journal, len(files))
        if self.args.dry_run:
            return 0
        with journal.open_part(self.heading, 0, 1) as record:
            journal = Journal(self.folder)  # another call may have added files
            self._download_files(archives, missing)
            for archive in self.dataset.archives:
                if archive.md5:
                    check_md5(self.downloads / archive.name, archive.md5)
            for archive in self.dataset.archives:
                path = self.downloads / archive.name
                print(f"unpacking {path}", flush=True)
                with open_bar(desc=archive.name, **BYTES) as bar:
                    unpack_archive(archive, path, journal, record, bar.update)
            self._download_beside(journal, record)
            files = {name: about for name, about in files.items() if not journal.has_files((name,))}
            self._download_files(files, sum(files.values()), lambda name: self._move_file(name, record))
        return self._report_result(self._complete_dataset())

    def _download_files(
        self, files: Mapping[str, float], size: float, finish: Callable[[str], object] = lambda _: None
    ) -> None:
        """Download files, names with published sizes. size: about what is to come. finish: gets the complete ones."""
        if not files:
            return
        print(f"downloading from {self.dataset.address}: {readable_bytes(size)} to go", flush=True)
        with open_bar(total=size, desc=str(self.folder), smoothing=0.05, **BYTES) as bar:
            self.server.download_files(files, self.args.connections, bar.update, finish)

    # -- single files

    def _list_files(self, folder: RemoteFolder) -> list[str]:
        """Return the files of a remote folder that belong to the dataset, below its address."""
        url, count = f"{self.dataset.address}/{folder.name}", self.dataset.counts[folder.name]
        listing = self.server.read_small(f"{folder.name}/files.txt", MOST_LIST_BYTES)
        page = b"" if listing is not None else self.server.read_small(f"{folder.name}/", MOST_LIST_BYTES) or b""
        entries = listing.split() if listing is not None else re.findall(rb'href="([^"/?]+)"', page)
        names = sorted({name for raw in entries if folder.pattern.fullmatch(name := raw.decode("ascii", "replace"))})
        if len(names) < (count or 1) or (self.dataset.name == FULL and len(names) != count):
            raise DownloadError(
                f"{url} lists {len(names):,} files of the dataset, expected {count or 1:,}; try another --url"
            )
        return [f"{folder.name}/{name}" for name in names[:count]]

    def _download_beside(self, journal: Journal, record: Part) -> None:
        """Download the small files beside the splits, those that are there."""
        for name in self.dataset.beside:
            if journal.has_files((name,)):
                continue
            if (content := self.server.read_small(name, MOST_LIST_BYTES)) is None:
                print(f"{self.dataset.address}/{name} is not there; going on without it", flush=True)
            else:
                path = self.downloads / name
                path.parent.mkdir(parents=True, exist_ok=True)
                write_whole_file(path, content)
                self._move_file(name, record)

    def _move_file(self, name: str, record: Part) -> None:
        """Move a complete file to its place in the dataset, and record it."""
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        entry = describe_file(self.downloads / name)
        (self.downloads / name).replace(path)
        record.add_files({name: entry})

    # -- space and result

    def _check_space(self, packed: int, journal: Journal, files: int) -> None:
        """Print what is to be downloaded; raise DownloadError unless the disk has space for it, packed and unpacked.

        packed: bytes of archives that are to come. files: how many single files the dataset has.
        """
        bytes_done = sum(entry.bytes for entry in journal.finished.values())
        bytes_per_file = max((folder.bytes for folder in self.dataset.folders), default=0.0)
        to_load = packed + max(0.0, bytes_per_file * files - bytes_done)
        unpacked = max(0.0, sum(archive.unpacked_bytes for archive in self.dataset.archives) - bytes_done)
        base = next(path for path in (self.folder.absolute(), *self.folder.absolute().parents) if path.exists())
        free, needed = shutil.disk_usage(base).free, to_load + unpacked
        print(
            f"{self.folder}: {self.dataset.text} ({self.dataset.variant}); to download {readable_bytes(to_load)}, "
            f"disk space needed about {readable_bytes(needed)}, free {readable_bytes(free)}",
            flush=True,
        )
        if needed > free:
            raise DownloadError(
                f"{self.folder}: about {readable_bytes(needed)} needed, {readable_bytes(free)} free; nothing was "
                "downloaded. Free disk space, or choose another folder"
            )

    def _complete_dataset(self) -> Manifest:
        """Write the manifest if all files are there, remove the archives, and return it."""
        journal = Journal(self.folder)
        files_in = Counter(str(PurePosixPath(name).parent) for name in journal.finished)
        for split, count in self.dataset.counts.items():
            if (count is not None and files_in[split] != count) or not files_in[split]:
                raise DownloadError(
                    f"{self.folder}: {files_in[split]:,} files in {split}, but {count or 'some':,} are published; the "
                    "archives are kept"
                )
        manifest = journal.merge_parts(msgspec.structs.replace(self.heading, files=len(journal.finished)))
        if not self.args.keep:
            shutil.rmtree(self.downloads, ignore_errors=True)
        return manifest

    def _report_result(self, manifest: Manifest) -> int:
        problems = verify_files(self.folder, manifest, checksum=False)
        if problems:
            raise DownloadError(
                f"{self.folder}: {len(problems):,} files are not as the manifest says, such as {problems[0]}"
            )
        print_contents(manifest, f"{self.folder} is complete")
        print(as_called(f"next: {self.command.next_step(self.folder)}"))
        return 0
