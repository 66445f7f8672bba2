"""The published files of Open Catalyst: pairs of N.extxyz.xz, frames of atoms, and N.txt.xz, their system numbers.

The text has a line for each frame, `random<sid>,frame<fid>,<reference energy in eV>`. Either file of a pair may be
uncompressed (without .xz). ase reads and writes the frames.
"""

from __future__ import annotations

import io
import lzma
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from common.data.build import BadItemError, BuildError
from common.file_kind import XZ, explain_file
from common.files import list_data, whole_file
from oc20.data.records import ELEMENTS
from oc20.graphs import Frame

NAME: Final = re.compile(r"(\d+)\.extxyz(\.xz)?")
LINE: Final = re.compile(r"random(\d+),frame(\d+),(\S+)")
COUNT: Final = re.compile(r"0*[1-9]\d{0,8}")
BROKEN: Final = (lzma.LZMAError, EOFError, UnicodeDecodeError)


@dataclass(frozen=True)
class Pair:
    """Two files about the same frames, and the number in their names. path: of the frames; txt: of their energies."""

    number: int
    path: Path
    txt: Path


@dataclass(frozen=True)
class ExtxyzFrame:
    """A frame as in the files. atoms: ase's, with tags, fixed atoms, energy (without the reference) and forces."""

    atoms: Any
    sid: int
    fid: int
    reference: float


@contextmanager
def importing_ase() -> Iterator[None]:
    """Import ase, which only commands that make data need; BuildError if it finds no home folder for its settings."""
    try:
        yield
    except RuntimeError as error:
        raise BuildError(f"ase cannot be imported: {error} Set HOME to any folder, such as HOME=/tmp") from error


def find_pairs(folder: Path) -> list[Pair]:
    """Return the pairs of a folder, sorted by number; BuildError if a text is missing or a number is repeated."""
    pairs: dict[int, Pair] = {}
    for name in list_data(folder) if folder.is_dir() else ():
        if match := NAME.fullmatch(name):
            path, number = folder / name, int(match[1])
            if number in pairs:
                raise BuildError(f"{path} and {pairs[number].path.name} have the same number: remove one of them")
            texts = [folder / f"{match[1]}.txt{ending}" for ending in (".xz", "")]
            there = [text for text in texts if text.exists()]
            if not there:
                raise BuildError(
                    f"{path}: {texts[0].name} is missing beside it; unpack the archive again: it has the energies"
                )
            pairs[number] = Pair(number, path, there[0])
    return [pairs[number] for number in sorted(pairs)]


def names_of(number: int) -> tuple[str, str]:
    """Return the names of a pair of files, as published."""
    return f"{number}.extxyz.xz", f"{number}.txt.xz"


def write_pair(folder: Path, number: int, records: Iterable[ExtxyzFrame]) -> Pair:
    """Write a pair of files with these frames."""
    from ase.io.extxyz import write_extxyz

    xyz, txt = (folder / name for name in names_of(number))
    with (
        whole_file(xyz) as frames_part,
        whole_file(txt) as lines_part,
        lzma.open(frames_part, "wt") as frames,
        lzma.open(lines_part, "wt") as lines,
    ):
        for record in records:
            write_extxyz(frames, [record.atoms])
            lines.write(f"random{record.sid},frame{record.fid},{record.reference:.8f}\n")
    return Pair(number, xyz, txt)


def read_exact(pair: Pair) -> Iterator[tuple[Frame, Any]]:
    """Yield the frames of a pair, with energies relative to the reference, and without edges.

    Beside each its Atoms, with positions and cell in float64, as in the file. BadItemError for a damaged file, an
    invalid or non-finite frame, and files of unequal length.
    """
    entries = _read_entries(pair.txt)
    number = 0
    for number, (line, block) in enumerate(_read_blocks(pair.path), 1):
        where = f"{pair.path}, frame {number} from line {line}"
        entry = next(entries, None)
        if entry is None:
            raise BadItemError(
                f"{pair.txt} ends after {number - 1:,} lines; expected one for each frame of {pair.path}"
            )
        *name, reference = entry
        atoms, energy, forces = _parse_block(block, where)
        yield _build_frame(atoms, energy - reference, forces, name, where), atoms
    more = sum(1 for _ in entries)
    if more or not number:
        raise BadItemError(f"{pair.path} ends after {number:,} frames; {pair.txt} has {number + more:,} lines")


def _read_lines(path: Path) -> Iterator[str]:
    """Yield the lines of a file, compressed or not."""
    if problem := explain_file(path, XZ if path.suffix == ".xz" else "a text"):
        raise BadItemError(f"{path}: {problem}")
    try:
        with (lzma.open if path.suffix == ".xz" else open)(path, "rt", encoding="ascii") as file:
            yield from file
    except BROKEN as error:
        raise BadItemError(f"{path} is damaged: {error}; fetch it again") from error


def _read_entries(path: Path) -> Iterator[tuple[int, int, float]]:
    """Yield system, frame and reference energy of each line."""
    for number, line in enumerate(_read_lines(path), 1):
        match = LINE.fullmatch(line.strip())
        try:
            energy = float(match[3]) if match else np.nan
        except ValueError:
            energy = np.nan
        if not match or not np.isfinite(energy):
            raise BadItemError(
                f"{path}, line {number}: expected random<number>,frame<number>,<energy>, found {line.strip()[:60]!r}"
            )
        yield int(match[1]), int(match[2]), energy


def _read_blocks(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the text of each frame with the number of its first line."""
    number = 0
    lines = _read_lines(path)
    for line in lines:
        number += 1
        if not line.strip():
            continue  # some files end so
        if not COUNT.fullmatch(line.strip()):
            raise BadItemError(f"{path}, line {number}: expected the number of atoms, found {line.strip()[:60]!r}")
        block = [line, *(text for _, text in zip(range(int(line) + 1), lines, strict=False))]
        if len(block) < int(line) + 2:
            raise BadItemError(
                f"{path}, line {number}: the file ends within a frame of {int(line):,} atoms; fetch it again"
            )
        yield number, "".join(block)
        number += len(block) - 1


def _parse_block(block: str, where: str) -> tuple[Any, float, np.ndarray]:
    """Return the frame as ase's Atoms, its energy, and the forces float64 (N, 3)."""
    with importing_ase():
        from ase.io.extxyz import read_extxyz

    try:
        (atoms,) = read_extxyz(io.StringIO(block), slice(None))
        results = atoms.calc.results if atoms.calc else {}
        available = results.keys() | (atoms.arrays.keys() & {"tags"})
        if missing := [name for name in ("energy", "forces", "tags") if name not in available]:
            raise ValueError(f"{' and '.join(missing)} missing; expected a frame as Open Catalyst publishes it")
        energy, forces, tags = float(results["energy"]), np.asarray(results["forces"], float), atoms.get_tags()
        if forces.shape != atoms.positions.shape:
            raise ValueError(f"forces have the shape {forces.shape}; expected {atoms.positions.shape}")
        if not np.array_equal(tags.astype(np.int8), tags):
            raise ValueError("tags are not 0, 1 or 2 of each atom")
    except Exception as error:  # ase has no kind of its own: what text it cannot read shows in many
        reason = f"unknown element {error}" if isinstance(error, KeyError) else error or type(error).__name__
        raise BadItemError(f"{where}: cannot be parsed: {reason}") from error
    return atoms, energy, forces


def _build_frame(atoms: Any, energy: float, forces: np.ndarray, name: Sequence[int], where: str) -> Frame:
    with np.errstate(over="ignore"):  # such numbers are infinite in float32
        arrays = {"positions": atoms.positions.astype(np.float32), "forces": forces.astype(np.float32)}
        cell = atoms.cell.array.astype(np.float32)
    for kind, values in arrays.items():
        if len(wrong := np.flatnonzero(~np.isfinite(values).all(1))):
            raise BadItemError(f"{where}: {kind} of atom {wrong[0]} are not finite: {values[wrong[0]].tolist()}")
    if not (np.isfinite(energy) and np.isfinite(cell).all()):
        raise BadItemError(f"{where}: the energy or the cell is not finite: {energy}, {cell.tolist()}")
    if len(wrong := np.flatnonzero((atoms.numbers < 1) | (atoms.numbers > ELEMENTS))):
        raise BadItemError(f"{where}: element {atoms.numbers[wrong[0]]} of atom {wrong[0]}; expected 1 to {ELEMENTS}")
    fixed: np.ndarray = np.zeros(len(atoms), bool)
    for constraint in atoms.constraints:
        fixed[constraint.index] = True
    return Frame(
        numbers=atoms.numbers.astype(np.uint8),
        pos=arrays["positions"],
        cell=cell,
        tags=atoms.get_tags().astype(np.int8),
        fixed=fixed,
        force=arrays["forces"],
        energy=energy,
        edges=np.empty((0, 2), np.int32),
        offsets=np.empty((0, 3), np.int8),
        sid=name[0],
        fid=name[1],
    )
