"""The files in the folder of a split, compared with the manifest beside it."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from common.data.split import DatasetError
from common.datasets.manifest import NAME, read_manifest
from common.distributed.launch import find_place


@dataclass(frozen=True)
class Listing:
    """The names of the files in a folder. manifest_names: those that the manifest lists there; empty without one.

    Only the first rank reads the manifest, which may be large: elsewhere `manifest_names` is empty.
    """

    folder: Path
    names: frozenset[str]
    manifest_names: Collection[str] = ()
    benchmark: str = ""

    def select_samples(
        self, format: str, found: Mapping[str, Collection[str]], pattern: str, files_of: Callable[[str], Iterable[str]]
    ) -> list[str]:
        """Return the sorted names of the samples in a format; DatasetError if there are none, or not all their files.

        found: names by format. pattern: of the files of this format. files_of: returns the files of a sample.
        """
        if not found[format]:
            others = [f"{len(names):,} samples as {kind}: set data.format" for kind, names in found.items() if names]
            content = others[0] if others else f"none among its {len(self.names)} files"
            raise DatasetError(f"{self.folder}: expected samples as {format} ({pattern}), found {content}")
        wanted = {file for name in found[format] for file in files_of(name)}
        if missing := wanted - self.names:
            raise DatasetError(f"{self.folder}: {len(missing)} files are missing, such as {min(missing)}")
        self.expect_known(wanted)
        return sorted(found[format])

    def expect_known(self, samples: Iterable[str]) -> None:
        """Raise DatasetError if samples have files that the manifest lacks although it lists others beside them."""
        extra = sorted(set(samples).difference(self.manifest_names)) if self.manifest_names else ()
        if extra:
            raise DatasetError(
                f"{self.folder / extra[0]} is not in {self.folder.parent / NAME} ({len(extra):,} of the samples in "
                f"{self.folder.name}/ are not): the folder mixes several datasets; move these files away, or, if they "
                f"belong to it, delete {NAME} and write it again by `python -m {self.benchmark}.prepare manifest "
                f"{self.folder.parent}`"
            )


def list_folder(folder: Path, benchmark: str, between: str = "") -> Listing:
    """Return what is in the folder of a split. between: what to do between fetching and training.

    DatasetError if it is not a folder, or if it lacks a file that the manifest lists, whether or not a run reads it:
    with other files, the first N samples would be others. ManifestError for an unusable manifest.
    """
    try:
        names = frozenset(os.listdir(folder))
    except (FileNotFoundError, NotADirectoryError) as error:
        raise DatasetError(
            f"{folder} is not a folder: data.data_dir must contain train/ and validation/; "
            f"`python -m {benchmark}.fetch` downloads the published data (docs/guide/data.md), {between}"
            f"`python -m {benchmark}.synthesize` generates some"
        ) from error
    path = folder.parent / NAME
    if find_place(os.environ).rank != 0 or not path.exists():
        return Listing(folder, names)
    manifest = read_manifest(path)
    start = f"{folder.name}/"
    expected = {name.removeprefix(start) for name in manifest.files if name.startswith(start)}
    if missing := expected - names:
        raise DatasetError(
            f"{folder / min(missing)} is missing: {path} lists it ({len(missing):,} of the {len(expected):,} files in "
            f"{start} are missing); fetch or make them again. `python -m {manifest.benchmark}.prepare verify "
            f"{folder.parent}` lists them all"
        )
    return Listing(folder, names, expected, manifest.benchmark)
