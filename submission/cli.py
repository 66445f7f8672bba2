"""The console script `mlperf-hpc`: every command of the suite under one name, besides `python -m MODULE`.

It is above all other modules, and imports that of a command only when the command is called: the checker starts
without torch. A shell completes words and options by argcomplete.
"""

from __future__ import annotations

import argparse
import os
import shlex
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from common.benchmarks import (
    PACKAGES,
    choose_plugins,
    find_package,
    import_facts,
    list_benchmarks,
    locate_package,
    require_package,
)
from common.command import (
    BENCHMARK,
    COMMANDS,
    GROUPS,
    RENAMED,
    Command,
    CommandParser,
    UsageError,
    as_called,
    checked_output,
    explain_typography,
    refuse_lost_folder,
    suggest_name,
)
from common.commands.entry import HELP, has_command, run_row
from common.console import open_stderr, print_error
from common.version import DISTRIBUTION, PROGRAM, VERSION


def complete(list_next: Callable[[Sequence[str]], list[str]], run: Callable[[Sequence[str]], object]) -> None:
    """Answer the shell and end the process, or run a command, whose parser answers: see CommandParser.

    list_next: returns the words that can follow those of a command line, [] where its options begin. run: runs it; gets
    the words.
    """
    import argcomplete  # an optional package

    line, point = os.environ["COMP_LINE"], int(os.environ["COMP_POINT"])
    _, prefix, _, (_, *words), _ = argcomplete.split_line(line, point)
    start = next((at for at in range(len(words)) if not list_next(words[:at])), len(words))
    choices = list_next(words)
    call = f"{os.path.basename(line.split()[0])} {shlex.join(words[start:])}".strip()
    rest = f"- {prefix}" if choices else f"{call} {prefix}"
    os.environ.update(COMP_LINE=rest, COMP_POINT=str(len(rest.encode())))
    if choices:
        parser = argparse.ArgumentParser(add_help=False)
        parser.add_argument("word", choices=choices)
        argcomplete.autocomplete(parser)
    run(words)


FROM: Final = "--benchmarks-from"
SUITE_ONLY: Final = "--no-plugins"
HEAD: Final = f"""\
usage: {PROGRAM} [{FROM} DIR | {SUITE_ONLY}] COMMAND ...

Check result logs of MLPerf HPC, train its benchmarks, and make submissions.
"""
FOOT: Final = f"""\
{FROM} DIR: also those in DIR; {SUITE_ONLY}: none that are installed

`{PROGRAM} help COMMAND` shows examples and options; also PAGE.md, and QUA01."""


COMPLETION: Final = f"""\
Let the shell complete commands, benchmarks and options:

  pip install '{DISTRIBUTION}[completion]'
  eval "$({PROGRAM} completion bash)"    in ~/.bashrc; or zsh, in ~/.zshrc
  {PROGRAM} completion fish | source     in ~/.config/fish/config.fish"""
SHELLS: Final = ("bash", "zsh", "fish")
TEXTS: Final = {"completion": COMPLETION, **dict.fromkeys(("version", "-V", "--version"), f"{DISTRIBUTION} {VERSION}")}
"""What answers the commands that only print a text."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; return its exit status, 2 for an unknown command, or 1 if an extra is missing."""
    open_stderr()
    try:
        return _run_words(arguments)
    except KeyboardInterrupt:  # also while a command is imported
        print("interrupted", file=sys.stderr)
        return 130
    except OSError as error:
        refuse_lost_folder(error)
        raise


def _run_words(arguments: Sequence[str] | None) -> int:
    words = list(sys.argv[1:] if arguments is None else arguments)
    if "_ARGCOMPLETE" in os.environ and not CommandParser.completes:
        CommandParser.completes = True
        complete(list_next, main)
    try:
        if problem := explain_typography(words):
            raise UsageError(problem)
        _obey_options(words)
        if words[:1] == ["help"]:
            words = words[2:] if words[1:2] in (["help"], *([option] for option in HELP)) else words[1:]
            if words and (path := _find_named_page(words[0])):
                _expect_no_more(words[1:])
                return _print_text(path.read_text(encoding="utf-8"), 0)
            is_rule = any(word.isupper() and word[-1].isdigit() for word in words[:1])
            words = ["check", "--explain", *words] if is_rule else [*words, "--help"]
        if not words:
            return _print_text(render_usage(), 2)
        if former := next((name for name in (" ".join(words[:2]), words[0]) if name in RENAMED), ""):
            return answer_renamed(former, words[1 + former.count(" ") :])
        if words[0] == "completion" and words[1:2] in ([shell] for shell in SHELLS):
            return _print_text(_write_completion(words[1]), 0)
        start = next((number for number, word in enumerate(words) if word in HELP), len(words))
        if words[0] in TEXTS:
            _expect_no_more([*words[1:start], *words[start + 1 :]])
            return _print_text(TEXTS[words[0]], 0)
        if start < len(words) and (text := render_group_usage(" ".join(words[:start])) if start else render_usage()):
            _expect_no_more(words[start + 1 :])
            return _print_text(text, 0)
        command, benchmark, rest = resolve_command(words)
        if benchmark not in ("", *PACKAGES):
            import_facts(require_package(benchmark))
    except UsageError as error:
        return _refuse_words(error)
    return run_row(command, benchmark, rest)


def _obey_options(words: list[str]) -> None:
    """Take the options off the words before the command and obey them; UsageError for those that cannot be."""
    folders, suite_only = [], False
    while words and words[0].partition("=")[0] in (FROM, SUITE_ONLY):
        option, equals, folder = words.pop(0).partition("=")
        if option == FROM and words and not equals:
            folder = words.pop(0)
        if option == SUITE_ONLY and not equals:
            suite_only = True
        elif option == FROM and folder:
            folders.append(folder)
        else:
            raise UsageError(f"expected {FROM} DIR or {SUITE_ONLY}, and then a command")
    choose_plugins(folders, suite_only)


def _expect_no_more(words: Sequence[str]) -> None:
    if words:
        raise UsageError(f"unexpected argument {words[0]!r}; {PROGRAM} --help shows the usage")


def _find_named_page(name: str) -> Path | None:
    """Return the page that help is asked for, None for a command; UsageError if there is no page of such a name."""
    if name in COMMANDS or name in RENAMED or name in TEXTS:
        return None
    from common.installed import find_page, list_pages  # only this command reads pages

    path = find_page(name)
    if path is None and ("/" in name or ".md" in name):
        raise UsageError(f"there is no page {name!r}{suggest_name(name, list_pages())}; docs/index.md lists the guides")
    return path


def _write_completion(shell: str) -> str:
    """Return the script by which a shell completes; UsageError without the package that has it."""
    try:
        from argcomplete import shellcode  # an optional package
    except ModuleNotFoundError:
        raise UsageError(f"completion needs argcomplete: pip install '{DISTRIBUTION}[completion]'") from None
    return str(shellcode([PROGRAM], shell=shell))


def list_next(words: Sequence[str]) -> list[str]:
    """Return the words that can follow those of a command line, [] where the options of a command begin."""
    name = " ".join(words[1:] if words[:1] in (["help"], [SUITE_ONLY]) else words)
    if not name:
        return [*_list_names(), FROM, SUITE_ONLY]
    return [*_benchmarks_of(name), *_second_words(name)]


def answer_renamed(name: str, rest: Sequence[str] = ()) -> int:
    """Print the present call of a command that had another name; return the exit status."""
    call = as_called(RENAMED[name])
    call += f" {shlex.join(rest)}" if rest and call.startswith(f"{PROGRAM} ") and call.count(" ") == 2 else ""
    return _refuse_words(f"there is no command {name}; use {call}")


def render_usage() -> str:
    """Return the text of `mlperf-hpc --help`."""
    lines = [HEAD]
    for heading, commands in GROUPS.items():
        lines.append(f"{heading}:")
        for name, command in commands.items():
            if " " not in name and _is_listed(name):
                lines.append(f"  {f'{name} {command.argument}':<22}{command.summary}")
    return "\n".join([*lines, "", f"{BENCHMARK}: {', '.join(list_benchmarks())}", FOOT])


def render_group_usage(name: str) -> str:
    """Return the text of `mlperf-hpc NAME --help` for a group or a command of a benchmark, "" for any other name."""
    command, benchmarks, seconds = COMMANDS.get(name), _benchmarks_of(name), _second_words(name)
    if command is None or not (benchmarks or seconds):
        return ""
    choices = [*benchmarks, *seconds]
    lines = [f"usage: {PROGRAM} {name} {{{','.join(choices)}}} ...", "", f"{command.summary.capitalize()}.", ""]
    for second in seconds:
        call = f"{PROGRAM} {name} {second}{f' {BENCHMARK}' * bool(_benchmarks_of(f'{name} {second}'))}"
        lines.append(f"  {call:<40}{COMMANDS[f'{name} {second}'].summary}")
    lines += [""] * bool(seconds)
    first = choices[0]
    if first in seconds and (others := _benchmarks_of(f"{name} {first}")):
        lines += [f"{BENCHMARK}: {', '.join(list_benchmarks())}", ""]
        first += f" {others[0]}"
    return "\n".join([*lines, f"`{PROGRAM} help {name} {first}` shows examples and options."])


def resolve_command(words: Sequence[str]) -> tuple[Command, str, list[str]]:
    """Return the command that a command line names, the benchmark or "", and the arguments.

    Raises UsageError for a command or a benchmark that does not exist.
    """
    name = next((name for name in (" ".join(words[:2]), words[0]) if name in COMMANDS), "")
    if words[0].startswith("-"):
        raise UsageError(f"there is no option {words[0]}{suggest_name(words[0], (*HELP, '-V', FROM, SUITE_ONLY))}")
    if not name or not _is_listed(name):
        raise UsageError(
            f"unknown command {words[0]!r}{suggest_name(words[0], _list_names())}; {PROGRAM} --help lists the commands"
        )
    command, rest = COMMANDS[name], list(words[1 + name.count(" ") :])
    if command.module and command.argument != BENCHMARK:
        return command, "", rest
    package = find_package(rest[0]) if rest and command.module else None
    if package and has_command(package.folder, command):
        return command, package.name, rest[1:]
    if package and package.origin:
        require_package(package.name)  # says what else is wrong with it
        raise UsageError(f"benchmark {package.name!r} of {package.origin} has no {command.needed_file}")
    benchmarks, seconds = _benchmarks_of(name), _second_words(name)
    expected = " or ".join(["a benchmark"] * bool(benchmarks) + ["a command"] * bool(seconds))
    choices = [*benchmarks, *seconds]
    problem = f"{rest[0]!r} is not {expected}{suggest_name(rest[0], choices)}" if rest else f"{expected} is missing"
    if rest and os.path.lexists(rest[0]):
        problem = f"{rest[0]!r} is a file or folder: write {expected} before it"
    raise UsageError(f"{problem}; usage: {PROGRAM} {name} {{{','.join(choices)}}} ...")


def _list_names() -> list[str]:
    return [name for name in (*COMMANDS, "help", "version", "completion") if " " not in name]


def _second_words(name: str) -> list[str]:
    """Return the second word of each command in two words that begins with a name, and that can be called."""
    pairs = ((command, command.partition(" ")) for command in COMMANDS)
    return [second for command, (first, _, second) in pairs if second and first == name and _is_listed(command)]


def _is_listed(name: str) -> bool:
    """Tell whether a command can be called: one of a benchmark that no benchmark has cannot."""
    return COMMANDS[name].argument != BENCHMARK or bool(_benchmarks_of(name))


def _benchmarks_of(name: str) -> list[str]:
    """Return the benchmarks that have a command, [] for a command without a benchmark."""
    if name not in COMMANDS:
        return []
    return [each for each in list_benchmarks() if has_command(locate_package(each), COMMANDS[name])]


def _print_text(text: str, status: int) -> int:
    """Print a text, on standard error if the exit status is not 0; return the status."""
    with checked_output():
        print(text, file=sys.stderr if status else sys.stdout)
    return status


def _refuse_words(error: object) -> int:
    """Print an error of use; return its exit status."""
    print_error(error)
    return 2


if __name__ == "__main__":
    sys.exit(main())
