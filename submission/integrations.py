"""The command `python -m submission.integrations`: write the files by which other tools run the suite."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from common.benchmarks import ROOT
from common.command import CommandParser, UsageError, folder_path, run_command, suggest_name
from common.installed import list_shared_files

FOLDER: Final = "integrations"
README: Final = "README.md"
EXAMPLES: Final = """\
examples:
  python -m submission.integrations                       list the tools
  python -m submission.integrations tools                 write the files of each: tools/jube/, tools/ramble/ ...
  python -m submission.integrations tools reframe jube    write those of two

The command overwrites nothing. Each tool's README.md says how it runs the suite, and which version was tested.
"""


def find_tools() -> dict[str, dict[str, Path]]:
    """Return the files of each tool by their names in its folder: in a checkout, or where the wheel put them."""
    files = list_shared_files()
    if (ROOT / FOLDER).is_dir():
        files = {path.relative_to(ROOT).as_posix(): path for path in sorted((ROOT / FOLDER).rglob("*.*"))}
    tools: dict[str, dict[str, Path]] = {}
    for name, path in files.items():
        folder, _, rest = name.partition("/")
        tool, _, file = rest.partition("/")
        if folder == FOLDER and "__pycache__" not in file and path.is_file():
            tools.setdefault(tool, {})[file] = path
    return tools


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; return the exit status."""
    parser = CommandParser(
        "python -m submission.integrations",
        description="Write the files by which other tools run the suite; without DIR, list the tools.",
        epilog=EXAMPLES,
        statuses={0: "listed or written", 1: "a file cannot be read or written"},
    )
    parser.add_argument("folder", nargs="?", type=folder_path, metavar="DIR", help="folder to write into")
    parser.add_argument("names", nargs="*", metavar="TOOL", help="only the files of these tools (default: all)")
    options = parser.parse_args(arguments)
    return run_command(lambda: _write_tools(options.folder, options.names), (OSError,))


def _write_tools(folder: Path | None, names: Sequence[str]) -> int:
    """Write the files of the tools of these names, or of all; without a folder, list the tools."""
    tools = find_tools()
    if not tools:
        raise FileNotFoundError(f"this copy of the suite has no {FOLDER}/: install it from its wheel, or from a clone")
    if folder is None:
        for tool, files in tools.items():
            title = files[README].read_text(encoding="utf-8").partition("\n")[0]
            print(f"{tool:<10}{title.lstrip('# ')}")
        return 0
    for name in names:
        if name not in tools:
            raise UsageError(f"unknown tool {name!r}{suggest_name(name, tools)}; expected {', '.join(tools)}")
    chosen = {name: tools[name] for name in names or tools}
    for name in chosen:
        if (folder / name).exists():
            raise UsageError(f"{folder / name} exists; remove it, or choose another DIR")
    for name, files in chosen.items():
        for file, source in files.items():
            path = folder / name / file
            path.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(source, path)
        print(f"wrote {folder / name}, {len(files)} files; begin with {folder / name / README}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
