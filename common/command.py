"""What the command lines share: the table of commands, types of arguments, and errors without a traceback."""

from __future__ import annotations

import argparse
import errno
import io
import os
import re
import shlex
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from functools import cache
from itertools import takewhile
from typing import TYPE_CHECKING, Any, Final, NamedTuple, NoReturn

from common.console import open_stderr, print_error
from common.errors import UsageError as UsageError  # also for commands, which need the rest of this module
from common.version import FOLDERS_VARIABLE, PROGRAM

if TYPE_CHECKING:
    from pathlib import Path

CONTINUED: Final = "finished work is kept; --help says how to continue"
NOTHING_WRITTEN: Final = "nothing is written"
WRONG_PLACES: Final = {
    errno.EEXIST: "a file or a broken link has this name; remove it, or choose another place",
    errno.ENOTDIR: "this is a file, or below a file, where a folder is needed; choose another place",
    errno.EISDIR: "this is a folder; expected a file",
    errno.EACCES: "Permission denied; `ls -ld` names the owner, who can allow it (chmod); or choose another place",
}
"""What the system means by some errors, and what to do."""
OUTPUT_ERRORS: Final = (errno.EPIPE, errno.ENOSPC, errno.EDQUOT, errno.EINVAL)
"""Of an output whose reader has ended, which Windows calls invalid, or whose disk is full."""
HELP_HINT: Final = "; see --help"
"""The end of a message about the arguments; that of a UsageError says what to do."""
STATUSES: Final = {0: "done", 1: "an error", 2: "wrong use", 130: "interrupted"}
"""What the exit statuses of most commands mean."""


_TYPOGRAPHIC: Final = (
    r"(?:^-?|=(?=.\.?\d))(?P<dash>[\u2010-\u2015\u2212]+)-?(?=[\w.])"
    r"|(?:^|=)(?P<quote>[\u2018-\u201f\xab\xbb])|(?P<blank>[\xa0\u202f\u200b\ufeff])"
)
_TYPED: Final = {
    "dash": "has a typographic dash, as of a word processor or PDF; type {}",
    "quote": "has a typographic quotation mark, which no shell knows; type ' or \" around the argument",
    "blank": "has a no-break or invisible space, as on a web page; type a blank",
}
"""What is wrong with an argument that was copied from a page, and what to do; {}: the argument as it was meant."""


class CommandParser(argparse.ArgumentParser):
    """Parses the arguments of `python -m MODULE`, its `prog`; texts keep their lines and name commands as_called.

    statuses: what exit statuses mean beside STATUSES, or in place of them. completes: instead of parsing, answer a
    shell that asks for completions. explain_option: returns what to write in place of an option that there is not and
    the word after it, "" if that is unknown.
    """

    completes = False
    width = 78

    def __init__(
        self,
        prog: str,
        statuses: Mapping[int, str] | None = None,
        explain_option: Callable[[str, str], str] = lambda name, value: "",
        **options: Any,
    ) -> None:
        open_stderr()
        self.explain_option = explain_option
        super().__init__(
            as_called(prog), formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False, **options
        )
        self.color = False  # which newer versions of Python would use
        self.statuses = dict(sorted({**STATUSES, **(statuses or {})}.items()))

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse the arguments; where --help or the like prints and ends the command, its output is checked."""
        if CommandParser.completes:
            import argcomplete

            CommandParser.completes = False  # it calls this method
            argcomplete.autocomplete(self)
        words = sys.argv[1:] if args is None else list(args)
        with checked_output() if sys.stdout is not None else nullcontext():
            if problem := explain_typography(words):
                self.error(problem)
            self._refuse_unknown_options(words)
            return super().parse_known_args(words, namespace)

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse the arguments; for FIELD=VALUE without its option, name --set if there is one."""
        arguments, others = self.parse_known_args(args, namespace)
        if others:
            words = sys.argv[1:] if args is None else list(args)
            names = [action.option_strings[-1] for action in self._actions if action.option_strings and action.metavar]
            hint = f"; options that take such a value: {', '.join(names[:8])}" if names else ""
            name, sign, _ = others[0].partition("=")
            if sign and any(word.startswith(name + sign) for word in words[: words.index(others[0])]):
                hint = "; a shell makes several words of {a,b}: join values by commas alone, or repeat the option"
            elif sign and "--set" in self._option_string_actions:
                hint = f"; write --set {shlex.quote(others[0])}"
            elif others[0] in words[1:]:
                hint = "; if it belongs to the word before it, join a list by commas without blanks, or quote a text"
            self.error(f"unexpected argument {others[0]!r}{hint}")
        return arguments

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        """Raise ArgumentError for a value that is not among the choices, with the nearest one."""
        try:
            super()._check_value(action, value)
        except argparse.ArgumentError as error:
            error.message += suggest_name(str(value), map(str, action.choices or ()))
            raise

    def _refuse_unknown_options(self, words: Sequence[str]) -> None:
        """End the command at the first option that it has not, before arguments that seem to be missing or too many.

        The options of subcommands are theirs.
        """
        groups = self._subparsers is not None
        for number, word in enumerate(
            takewhile(lambda word: word != "--" and (word[:1] == "-" or not groups), words), 1
        ):
            name, equals, value = word.partition("=") if word.startswith("--") else (word[:2], word[2:], word[2:])
            if name[:1] == "-" and name.strip("-")[:1].isalpha() and name not in self._option_string_actions:
                meant = self.explain_option(name, value if equals else "".join(words[number : number + 1]))
                self.error(f"there is no option {name}{meant or suggest_name(name, self._option_string_actions, 0.7)}")

    def print_help(self, file: Any = None) -> None:
        """Print the help; argparse would ignore that it cannot."""
        with checked_output():
            (file or sys.stdout).write(self.format_help())

    def _get_formatter(self) -> argparse.HelpFormatter:
        """Return what formats help; argparse would measure the terminal for each argument that is added."""
        return argparse.RawDescriptionHelpFormatter(self.prog, width=self.width)

    def format_help(self) -> str:
        import shutil  # only help pays for these
        import textwrap

        meanings = "; ".join(f"{status} {meaning}" for status, meaning in self.statuses.items() if meaning)
        self.width = max(shutil.get_terminal_size().columns - 2, 40)
        statuses = textwrap.fill(f"exit status: {meanings}", self.width, subsequent_indent="  ")
        return as_called(f"{super().format_help()}\n{statuses}\n")

    def error(self, message: str) -> NoReturn:
        """End the command with the error alone: argparse would print the whole usage before it.

        Of missing arguments it says what they are, and what the options are that were given instead; of an option
        without its value what that is.
        """
        name, lacks_value, _ = message.removeprefix("argument ").partition(": expected ")
        if lacks_value:
            valued = (action for action in self._actions if "/".join(action.option_strings) == name and action.help)
            message += "".join(f"; {name} {action.metavar or ''}: {action.help}" for action in valued)
        _, required, names = message.partition("arguments are required: ")
        if required:
            missing = [
                action for action in self._actions if not action.option_strings and action.metavar in names.split(", ")
            ]
            instead = [action for action in self._actions if {*action.option_strings} & {*sys.argv} and action.metavar]
            message += "".join(f"; {action.metavar}: {action.help}" for action in missing if action.help)
            message += "".join(f"; {action.option_strings[-1]}: {action.help}" for action in instead if action.help)
        print_error(f"{as_called(message)}{HELP_HINT}")
        sys.exit(2)


def as_called(text: str) -> str:
    """Return the text with its commands in the form that started this process: `python -m …` or `mlperf-hpc …`.

    With --benchmarks-from they have this option: Python alone does not find the packages there.
    """
    folders = list(filter(None, os.environ.get(FOLDERS_VARIABLE, "").split(os.pathsep)))
    if os.path.splitext(os.path.basename(sys.argv[0]))[0] != PROGRAM and not folders:
        return text

    options = [f"--benchmarks-from {shlex.quote(folder)}" for folder in folders]
    return replace_modules(text, " ".join([PROGRAM, *options]))


def clean(text: object) -> str:
    r"""Return the text with every invisible character as an escape such as `\x1b` or `\u202e`.

    This includes newlines, terminal escapes, direction marks and lone surrogates.
    """
    text = str(text)
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)


def explain_typography(words: Iterable[str]) -> str:
    """Return what is wrong with the first argument that has signs of a word processor or a page; "" if none has.

    A file may have any name.
    """
    for word in words:
        if not word.isascii() and (match := re.search(_TYPOGRAPHIC, word)) and not os.path.lexists(word):
            name = word[match.end() :]
            hyphens = "-" if len(name) == 1 or name[0].isdigit() or match.start() else "--"
            begin = word[: match.start("dash")].rstrip("-") if match["dash"] else ""
            return f"the argument {word!r} {_TYPED[str(match.lastgroup)].format(begin + hyphens + name)}"
    return ""


def suggest_name(
    name: str, names: Iterable[str], likeness: float = 0.6, meanings: Mapping[str, str] | None = None
) -> str:
    """Return a suggestion of the nearest of the names, ` (did you mean …?)`; "" if none is near.

    meanings: of names, in which one without a near name is looked for as a word; what begins with it comes first.
    """
    import difflib  # only a name that is wrong pays for it

    lower = {other.lower(): other for other in sorted(names)}
    name = name.lower()
    words = {other.lower(): re.findall(r"\w+", meaning.lower()) for other, meaning in (meanings or {}).items()}
    near = (
        [other for other in words if [name] == words[other][:1]]
        or [other for other in lower if name and other.startswith(name)]
        or difflib.get_close_matches(name, lower, 1, likeness)
        or [other for other in words if {name, name.rpartition("_")[2]} & {*words[other]}]
    )
    return f" (did you mean {lower[near[0]]!r}?)" if near else ""


def explain_comma(text: str) -> str:
    """Return what is wrong where a number in a list, which commas separate, has a comma itself; "" if none has."""
    if not (match := re.search(r"(?<![\d.])\d{1,3}(?:,\d{3})*?,0\d+(?:,\d{3})*(?![\d.])", text)):
        return ""
    number = match[0].replace(",", "." if match[0][0] == "0" else "")
    return f"{match[0]} is read as several values, since commas separate them; for one number write {number}"


def counted(number: int, noun: str) -> str:
    """Return `1 log`, `2 logs`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def list_some(names: Sequence[object], most: int = 5) -> str:
    """Return the first names, and how many more there are: `a, b and 3 more`."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(map(str, names[:most])) + more


def count(text: str) -> int:
    """Return the whole number of at least 0 in an argument; an `argparse` type."""
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"expected a whole number of at least 0, not {text!r}")
    return int(text)


def positive(text: str) -> int:
    """Return the whole number of at least 1 in an argument; an `argparse` type."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"expected a whole number of at least 1, not {text!r}")
    return int(text)


@contextmanager
def checked_output() -> Iterator[None]:
    """End the command with exit status 1 if standard output is closed or full, not with a traceback.

    Silently if its reader (head, less) has ended. Characters that its encoding lacks are written as escapes.
    """
    if sys.stdout is None:
        print_error("standard output is closed; redirect it to a file or /dev/null")
        sys.exit(1)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        try:
            yield
        finally:
            sys.stdout.flush()
    except OSError as error:
        refuse_lost_folder(error)
        if error.filename is not None or error.errno not in OUTPUT_ERRORS:
            raise
        try:  # an empty line tells whether it is the output that fails, and not another file or connection
            print(flush=True)
        except OSError:
            _give_up_output(error)
        raise


def refuse_lost_folder(error: OSError) -> None:
    """End the command with exit status 1 if the error is that the current folder, which has no name, is gone."""
    if error.errno == errno.ENOENT and error.filename is None:
        print_error("the current folder no longer exists; change to another")
        raise SystemExit(1) from None


def _give_up_output(error: OSError) -> NoReturn:
    """End the command; what is still buffered goes nowhere, or Python would fail again at its final flush."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    if not isinstance(error, BrokenPipeError):
        print_error(f"the output cannot be written: {error.strerror}")
    raise SystemExit(1) from None


def any_path(text: str) -> Path:
    """Return the path in an argument, which an empty text is not; an `argparse` type."""
    if not text:
        raise argparse.ArgumentTypeError("expected a path, not an empty text")
    from pathlib import Path  # here, because a check of one log should start at once

    return Path(text)


def file_path(text: str) -> Path:
    """Return the path of a file to write, which no folder, device or pipe is; an `argparse` type."""
    path = any_path(text)
    if os.path.exists(path) and not os.path.isfile(path):
        raise argparse.ArgumentTypeError(
            f"{text} is {'a folder' if os.path.isdir(path) else 'a device or a pipe'}; expected a file"
        )
    return path


def check_new(option: str, path: Path) -> None:
    """Raise UsageError if a file of an option exists, or its folder does not."""
    if path.exists():
        raise UsageError(f"{option} {path}: the file already exists; name another, or remove it")
    if not path.parent.is_dir():
        raise UsageError(f"{option} {path}: there is no folder {path.parent}; make it first")


def folder_path(text: str) -> Path:
    """Return the path of a folder to write into, which may not exist yet; an `argparse` type."""
    path = any_path(text)
    if os.path.lexists(path) and not os.path.isdir(path):
        from common.files import explain_lost_link  # only an error pays for it

        problem = explain_lost_link(path) or "this is a file; expected a folder"
        raise argparse.ArgumentTypeError(f"{text}: {problem}")
    return path


def run_command(command: Callable[[], int], expected: tuple[type[Exception], ...], interrupted: str = "") -> int:
    """Run a command and return its exit status: 2 after wrong use, 1 after an `expected` error, 130 after Ctrl-C.

    One that uses ranks and is stopped has the status of its ending. interrupted: what becomes of the work then.
    """
    from common.ending import EndingError  # here: a command that cannot be imported says what it needs

    try:
        with checked_output():
            return command()
    except KeyboardInterrupt:
        print(f"interrupted: {interrupted}" if interrupted else "interrupted", file=sys.stderr)
        return 130
    except UsageError as error:
        print_error(_lines(str(error)))
        return 2
    except expected as error:
        print_error(_lines(describe_error(error)))
        return 1
    except EndingError as error:
        print(f"{error}; {interrupted}" if interrupted else error, file=sys.stderr)
        return error.ending.exit_status


def _lines(text: str) -> str:
    """Return an error's text, which may quote any file, as it is printed."""
    return "\n".join(map(clean, as_called(text).split("\n")))


def describe_error(error: Exception) -> str:
    """Return an error in words; one of the system without its number, as file and what is wrong with it."""
    if not isinstance(error, OSError) or error.errno is None or error.filename is None:
        return str(error)
    name = os.fsdecode(error.filename) if isinstance(error.filename, bytes) else error.filename
    return f"{name}: {describe_reason(error)}"


def describe_reason(error: OSError) -> str:
    """Return what is wrong with the file of an error of the system, and what to do if that is known."""
    if error.errno == errno.ENOENT and isinstance(error.filename, str):
        from common.files import explain_lost_link  # only an error pays for it

        if problem := explain_lost_link(error.filename):
            return problem
    return WRONG_PLACES.get(error.errno or 0, error.strerror or str(error))


BENCHMARK: Final = "BENCHMARK"
"""Placeholder for the package of a benchmark, which the user names after the command."""


class Command(NamedTuple):
    """A command, or a group of commands.

    module: the module that it runs, and the module's first argument if it has one; "": a group. summary: for --help.
    argument: what the help shows after the name; BENCHMARK for a command of benchmarks, which either have a module of
    their own for it, or share one.
    """

    module: str
    summary: str
    argument: str = ""

    @property
    def is_shared(self) -> bool:
        """Whether one module runs the command for all benchmarks."""
        return self.argument == BENCHMARK and not self.module.startswith(BENCHMARK)

    @property
    def needed_file(self) -> str:
        """The name of the file in the package of each benchmark that has the command."""
        return "train.py" if self.is_shared else f"{self.module.rpartition('.')[2]}.py"

    def name_module(self, benchmark: str) -> str:
        """Return what `python -m` runs, in the package of a benchmark if it is a command of benchmarks."""
        if self.is_shared:
            return f"{benchmark} {self.module.rpartition('.')[2]}"
        return self.module.replace(BENCHMARK, benchmark).replace(".__main__", "")


GROUPS: Final = {
    "Check results": {
        "check": Command("compliance.check", "check logs, result sets, packages and repositories", "PATH"),
        "rcp": Command("", "show reference convergence points, or record some", "COMMAND"),
        "rcp show": Command("compliance.rcp.__main__ show", "show the tables of convergence points"),
        "rcp record": Command("compliance.rcp.__main__ record", "make a table from reference runs, or add runs to it"),
        "demo": Command("compliance.demo", "make example logs, good and bad, and check them"),
    },
    "Train": {
        "data": Command("", "make, download, convert and verify datasets", "COMMAND"),
        "data synthesize": Command(
            "BENCHMARK.synthesize", "generate data from physics: the mini problem, or full-size samples", BENCHMARK
        ),
        "data fetch": Command("BENCHMARK.fetch", "download published data, verify and unpack them", BENCHMARK),
        "data prepare": Command("BENCHMARK.prepare", "convert published data; list and verify checksums", BENCHMARK),
        "data split": Command(
            "BENCHMARK.split", "split published files into training and validation (deepcam)", BENCHMARK
        ),
        "data summarize": Command(
            "BENCHMARK.summarize", "compute statistics of the training data (deepcam)", BENCHMARK
        ),
        "train": Command("BENCHMARK.train", "train to the quality target and write the result log", BENCHMARK),
        "evaluate": Command("common.commands.evaluate", "measure the quality of a checkpoint", BENCHMARK),
        "predict": Command("common.commands.predict", "write the predictions of a checkpoint", BENCHMARK),
        "weights": Command("", "export the weights of a checkpoint", "COMMAND"),
        "weights export": Command("common.training.weights", "write the weights of a checkpoint as safetensors"),
        "new-benchmark": Command("common.new_benchmark", "write a benchmark of your own as a package", "NAME"),
    },
    "Measure": {
        "measure": Command(
            "common.commands.measure", "measure training steps in minutes, without a dataset", BENCHMARK
        ),
        "measure roofline": Command(
            "common.measure.__main__ roofline", "measure what the machine allows, and what limits these steps"
        ),
        "measure power": Command("common.measure.__main__ power", "record the power of this node"),
        "accept": Command("submission.accept.__main__", "compare this machine with its baseline", "BASELINE"),
        "study": Command("submission.study.__main__", "make runs over axes, and fit and draw their curves", "PLAN"),
    },
    "Submit": {
        "round": Command("submission.round.__main__", "train all runs of a round, package and check them"),
        "submit": Command("", "describe the machine, make a package, verify its files", "COMMAND"),
        "submit system": Command(
            "submission.system.__main__", "describe this machine or the nodes of a job, or check a description"
        ),
        "submit assemble": Command(
            "submission.assemble.__main__", "make a submission package from the logs of finished runs"
        ),
        "submit manifest": Command("submission.manifest", "verify that no file of a package has changed"),
        "summary": Command("submission.summary", "show results as tables, or compare two of them", "PATH"),
        "report": Command("submission.report", "write results as a page, and analyse them", "PATH"),
        "integrations": Command("submission.integrations", "write what ReFrame, JUBE, Ramble, Spack run", "DIR"),
    },
}
"""The commands by the heading of the help. A command of two words follows its first word, which the help shows."""
COMMANDS: Final = {name: command for commands in GROUPS.values() for name, command in commands.items()}
RENAMED: Final = {
    **{word: f"{PROGRAM} data {word}" for word in ("synthesize", "fetch", "prepare", "split", "summarize")},
    **{word: f"{PROGRAM} submit {word}" for word in ("system", "assemble", "manifest")},
    **dict.fromkeys(
        ("baselines", "evaluate baselines"), "python bench/baselines.py BENCHMARK, in a clone of the suite"
    ),
    "export": f"{PROGRAM} weights export",
    **dict.fromkeys(
        ("convert_checkpoint", "weights convert"),
        "python bench/parity/convert.py BENCHMARK IN OUT, in a clone of the suite",
    ),
    "measure dlio": "DLIO's own workload of CosmoFlow: dlio_benchmark workload=cosmoflow_h100",
    "compare": "python -m submission.summary A --compare B (a measurement: python -m submission.summary fom.json)",
    "analysis": "python -m submission.report PATH... --data FOLDER",
    "cost": "python -m submission.summary PATH... --runs",
    **{
        f"data {word}": f"{PROGRAM} data prepare BENCHMARK {word}"
        for word in ("convert", "repack", "import", "metadata", "manifest", "verify")
    },
    **dict.fromkeys(
        ("verify", "validate"),
        f"{PROGRAM} check PATH for logs and packages, {PROGRAM} data prepare BENCHMARK verify DATA_DIR for data",
    ),
    **dict.fromkeys(("package", "submit package"), f"{PROGRAM} submit assemble"),
    "submit check": f"{PROGRAM} check",
    "submit verify": f"{PROGRAM} submit manifest",
    "resume": f"{PROGRAM} train BENCHMARK CONFIG --resume",
}
"""The call of each command that had another name, or is often looked for under one."""


def replace_modules(text: str, program: str) -> str:
    """Return the text with the commands `python -m MODULE` and `python -m BENCHMARK COMMAND` as the program's."""
    names = _list_modules()

    def rename(match: re.Match[str]) -> str:
        package, module = match.groups()
        if name := names.get(f"{package}.{module}"):
            return f"{program} {name}"
        name = names.get(f"{BENCHMARK}.{module}")
        return f"{program} {name} {package}" if name else match[0]

    return re.sub(r"python -m (\w+)[. ](\w+(?:\.\w+)*)", rename, text)


@cache
def _list_modules() -> dict[str, str]:
    """Return the name of the command that runs each module, of a shared one as if each benchmark had it."""
    names = {}
    for name, command in COMMANDS.items():
        if command.is_shared:
            names[f"{BENCHMARK}.{name}"] = name
            continue
        module, *arguments = command.name_module(BENCHMARK).split() or [""]
        names[module] = name.removesuffix("".join(f" {word}" for word in arguments))
    return names
