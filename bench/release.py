"""`make release`: sources, wheel, SBOM, lock and SHA256SUMS of the last commit in dist/, the same bytes each time.

The wheel is made from the sources in the release. It needs what .github/release-tools.lock installs.
"""

import gzip
import hashlib
import io
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

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


def write_sbom(wheel: Path, work: Path) -> None:
    """Write the SBOM of the wheel and the locked packages, by cyclonedx-py.

    That tool reads an installed environment. This one has what pip says of each package, and nothing of its content:
    torch and the libraries of CUDA have gigabytes.
    """
    lock, pins, report, site = (ROOT / LOCK).read_text(), work / "pins.txt", work / "report.json", work / "site"
    # With hashes, pip would fetch the content, too; by ===, an index with torch for CPUs is passed over.
    pinned = re.sub(r"\s+--hash=\S+|\\$", "", lock, flags=re.MULTILINE)
    pins.write_text(re.sub(r"^([\w.-]+)==", r"\1===", pinned, flags=re.MULTILINE))
    options = ["--dry-run", "--ignore-installed", "--no-deps", "--only-binary=:all:", "--quiet"]
    pip = [sys.executable, "-m", "pip", "install", *options, "--report", report, "--requirement", pins, wheel]
    subprocess.run(pip, check=True)
    for package in json.loads(report.read_text())["install"]:
        source, facts = package["download_info"], package["metadata"]
        if source["url"] == wheel.as_uri():
            write_project(facts, work / "pyproject.toml")
            continue
        if source["archive_info"]["hashes"]["sha256"] not in lock:
            raise SystemExit(f"error: {source['url']} is not what {LOCK} has: its SHA-256 differs")
        file = source["url"].rpartition("/")[2]
        tag, name = file.split("-")[-3], re.sub("[-_.]+", "-", facts["name"]).lower()
        source["url"] = f"https://files.pythonhosted.org/packages/{tag}/{name[0]}/{name}/{file}"  # not that of a mirror
        folder = site / f"{facts['name']}-{facts['version']}.dist-info"
        folder.mkdir(parents=True)
        (folder / "direct_url.json").write_text(json.dumps(source))
        (folder / "METADATA").write_text("".join(f"{line}\n" for line in format_metadata(facts)))
    options = ["-S", "--output-reproducible", "--pyproject", work / "pyproject.toml", "--output-file", DIST / SBOM]
    tool = [sys.executable, "-m", "cyclonedx_py", "environment", *options, sys.executable]
    subprocess.run(tool, check=True, env=os.environ | {"PYTHONPATH": str(site)})


def write_project(facts: dict[str, Any], path: Path) -> None:
    """Write what names the SBOM, and what it depends on, as a pyproject.toml."""
    fields = {name: facts[name] for name in ("name", "version")}
    fields |= {"description": facts["summary"], "license": facts["license"]}
    fields["dependencies"] = facts["requires_dist"]
    path.write_text("".join(["[project]\n", *(f"{name} = {json.dumps(value)}\n" for name, value in fields.items())]))


def format_metadata(facts: dict[str, Any]) -> Iterator[str]:
    """Yield the lines of a METADATA file, without those of the description."""
    for name, value in facts.items():
        values = value if isinstance(value, list) else [value]
        if name != "description":
            yield from (f"{name.replace('_', '-')}: {' '.join(each.split())}" for each in values)


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
    with tempfile.TemporaryDirectory() as name:
        write_sbom(next(DIST.glob("*.whl")), Path(name))
    names = sorted(path.name for path in DIST.iterdir())
    sums = "".join(f"{hashlib.sha256((DIST / name).read_bytes()).hexdigest()}  {name}\n" for name in names)
    (DIST / "SHA256SUMS").write_text(sums)
    print(sums, end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
