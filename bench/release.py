"""`make release`: sources, wheel, SBOM, lock and SHA256SUMS of the last commit in dist/, the same bytes each time.

The wheel is made from the sources in the release. It needs what .github/release-tools.lock installs.
"""

import gzip
import hashlib
import io
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
DIST = ROOT / "dist"
LOCK = "requirements.lock"
SBOM = "sbom.cdx.json"


def run_git(*arguments: str) -> bytes:
    """Return what a command of git prints about the repository."""
    return subprocess.run(["git", "-C", ROOT, *arguments], check=True, stdout=subprocess.PIPE).stdout


def build(kind: str, source: Path, output: Path) -> Path:
    """Build the sdist or the wheel of a folder; return its path."""
    subprocess.run(
        [sys.executable, "-m", "build", "--no-isolation", f"--{kind}", "--outdir", output, source], check=True
    )
    (path,) = output.glob("*.tar.gz" if kind == "sdist" else "*.whl")
    return path


def write_sources(sdist: Path, tree: Path, epoch: int, path: Path) -> None:
    """Write an sdist again: in the order of names, with no time but the epoch, no owner, and the tree's own setup.cfg.

    setuptools writes setup.cfg anew, without its comments; the wheel holds that file for submission packages.
    """
    with (
        tarfile.open(sdist) as source,
        open(path, "wb") as raw,
        gzip.GzipFile("", "wb", fileobj=raw, mtime=epoch) as packed,
        tarfile.open(fileobj=packed, mode="w") as copy,
    ):
        for member in sorted(filter(tarfile.TarInfo.isfile, source), key=lambda member: member.name):
            file = tree / member.name.partition("/")[2]
            content = file.read_bytes() if file.name == "setup.cfg" else source.extractfile(member).read()
            entry = tarfile.TarInfo(member.name)
            entry.size, entry.mtime, entry.mode = len(content), epoch, 0o755 if member.mode & 0o100 else 0o644
            copy.addfile(entry, io.BytesIO(content))


def main() -> int:
    """Build the release; return the exit status, 2 for a tree that differs from its commit."""
    if changes := run_git("status", "--porcelain").decode():
        print(f"error: the tree is not that of its last commit; commit or remove:\n{changes}", end="", file=sys.stderr)
        return 2
    os.umask(0o022)
    epoch = int(run_git("log", "-1", "--format=%ct"))
    os.environ["SOURCE_DATE_EPOCH"] = str(epoch)
    shutil.rmtree(DIST, ignore_errors=True)
    DIST.mkdir()
    with tempfile.TemporaryDirectory() as name:
        work = Path(name)
        with tarfile.open(fileobj=io.BytesIO(run_git("archive", "HEAD"))) as tree:
            tree.extractall(work / "tree", filter="data")
        sdist = build("sdist", work / "tree", work)
        write_sources(sdist, work / "tree", epoch, DIST / sdist.name)
        with tarfile.open(DIST / sdist.name) as sources:
            sources.extractall(work / "sources", filter="data")
        build("wheel", work / "sources" / sdist.name.removesuffix(".tar.gz"), DIST)
    shutil.copyfile(ROOT / LOCK, DIST / LOCK)
    sbom = [
        "cyclonedx_py",
        "requirements",
        "--output-reproducible",
        "--output-file",
        str(DIST / SBOM),
        str(ROOT / LOCK),
    ]
    subprocess.run([sys.executable, "-m", *sbom], check=True)
    names = sorted(path.name for path in DIST.iterdir())
    sums = "".join(f"{hashlib.sha256((DIST / name).read_bytes()).hexdigest()}  {name}\n" for name in names)
    (DIST / "SHA256SUMS").write_text(sums)
    print(sums, end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
