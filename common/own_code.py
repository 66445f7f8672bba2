"""Code of your own that computes: its modules are imported, it is registered by name, and recorded by file and hash.

`train.imports` names modules or Python files, whose code is run; a folder of a run never does. What they register
is then the value of a key: `optim.name` for `register_optimizer`, `train.problem` for `register_problem`.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from importlib.machinery import ModuleSpec, SourceFileLoader
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any, Final, Literal, TypeVar

from common.errors import UsageError

OWN_CODE: Final = "own_code"
"""The key of a provenance, a checkpoint and an export with the list of `Code`; without it the suite computed alone."""
FILE: Final = "file "
"""Prefix of the name of a module that is read from a file; its path follows."""
PYTHON: Final = sys.stdlib_module_names - {"__main__"}  # which the module of a command is
Kind = Literal["problem", "optimizer", "callback"]
T = TypeVar("T", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class Code:
    """What computed in place of the suite's own.

    name: as registered, or of the class. file: that of its source, without its folder. sha256: of the file; None where
    there is none, as in an interactive session.
    """

    kind: Kind
    name: str
    file: str
    sha256: str | None = None

    @property
    def text(self) -> str:
        """The code in words."""
        return f"{self.kind} {self.name} of {self.file}"


# -- the registry --------------------------------------------------------------------------------------------

_REGISTERED: Final[dict[tuple[Kind, str], Any]] = {}


def register_optimizer(name: str) -> Callable[[T], T]:
    """Register a class, or a function, that makes the optimizer `optim.name` names.

    It is called with the parameters, the learning rate, and the section `optim` (`common.settings.optim.OptimConfig`),
    and returns a `torch.optim.Optimizer`. Raises UsageError if it cannot be called so, or if the name is taken.
    """
    from common.settings.optim import LOG_NAMES  # takes a while, and the checker does without

    if name in LOG_NAMES:
        raise UsageError(f"optimizer {name} is one of the suite's; choose another name")
    register = _make_registrar("optimizer", name)

    def check_call(maker: T) -> T:
        import inspect  # takes a while, and the checker does without

        try:
            inspect.signature(maker).bind("parameters", "lr", "config")
        except TypeError as error:
            text = describe_source("optimizer", name, maker).text
            raise UsageError(
                f"{text}: {maker.__qualname__} is called with (parameters, lr, config): {error}"
            ) from error
        return register(maker)

    return check_call


def register_problem(name: str) -> Callable[[T], T]:
    """Register a class derived from the problem of a benchmark, for `train.problem`.

    It has networks, losses, augmentations or datasets of its own. Raises UsageError if the name is taken.
    """
    return _make_registrar("problem", name)


def _make_registrar(kind: Kind, name: str) -> Callable[[T], T]:
    def register(definition: T) -> T:
        earlier, new = map(_find_file, (_REGISTERED.get((kind, name)), definition))
        if earlier != new and earlier is not None:
            raise UsageError(f"{kind} {name} is registered by {earlier} already; choose another name")
        _REGISTERED[kind, name] = definition
        return definition

    return register


def find_registered(kind: Kind, name: str, key: str, others: Iterable[str] = ()) -> Any:
    """Return what is registered; UsageError if nothing is. key: of the name. others: names that the suite has."""
    if (kind, name) not in _REGISTERED:
        names = [*others, *(other for own, other in _REGISTERED if own == kind)]
        expected = f"expected {', '.join(names)}, or" if names else "expected"
        raise UsageError(
            f"{key} is {name!r}; {expected} the name that a module registers: name it in train.imports=[FILE.py]"
        )
    return _REGISTERED[kind, name]


def list_registered(kind: Kind, name: str) -> tuple[Code, ...]:
    """Return the source of what is registered; none for a name of the suite's own."""
    definition = _REGISTERED.get((kind, name))
    return () if definition is None else (describe_source(kind, name, definition),)


# -- where it comes from -------------------------------------------------------------------------------------


def describe_source(kind: Kind, name: str, definition: Any) -> Code:
    """Return the file and hash of a class or function."""
    import hashlib  # takes a while, and the checker does without

    file = _find_file(definition)
    if file is None:
        return Code(kind, name, "(in no file)")
    return Code(kind, name, file.name, hashlib.sha256(file.read_bytes()).hexdigest())


def list_bases(kind: Kind, cls: type, suite: Sequence[str]) -> tuple[Code, ...]:
    """Return a class and those that it derives from, but for Python's, and those in the folders of the suite."""
    folders = [
        Path(folder).resolve() for name in suite for folder in getattr(importlib.import_module(name), "__path__", ())
    ]

    def is_own(base: type) -> bool:
        top, file = base.__module__.partition(".")[0], _find_file(base)
        if file is None or top in PYTHON:
            return top not in (*PYTHON, *suite)
        return not any(map(file.is_relative_to, folders))

    return tuple(describe_source(kind, base.__qualname__, base) for base in cls.__mro__ if is_own(base))


def _find_file(definition: Any) -> Path | None:
    import inspect  # takes a while, and the checker does without

    try:
        file = Path(inspect.getsourcefile(definition) or "").resolve()
    except TypeError:
        return None
    return file if file.is_file() else None


class OwnCodeError(ValueError):
    """Code of the user's raised an exception, which is the cause of this one."""


@contextlib.contextmanager
def naming_code(codes: Sequence[Code], suite: Sequence[str]) -> Iterator[None]:
    """Name the code, its file and line in an exception that it raises; those of the suite pass, and divergence.

    suite: its packages. Raises OwnCodeError.
    """
    try:
        yield
    except FloatingPointError:
        raise
    except Exception as error:  # whatever the user's code raises
        from traceback import walk_tb  # only a failure pays for it

        for frame, line in reversed(list(walk_tb(error.__traceback__))):
            file, name = Path(frame.f_code.co_filename).name, frame.f_code.co_qualname
            own = [code for code in codes if code.file == file]
            if str(frame.f_globals.get("__name__")).partition(".")[0] in suite:
                break
            if own:
                reason = str(error).partition("\n")[0]
                code = next((code for code in own if name.startswith(f"{code.name}.")), own[0])
                raise OwnCodeError(f"{code.text}, line {line}: {type(error).__name__}: {reason}") from error
        raise


def read_codes(recorded: Any) -> tuple[Code, ...]:
    """Return what a checkpoint or an export has under `OWN_CODE`; ValueError if that is something else."""
    import msgspec  # a package, which finding benchmarks does without

    codes = msgspec.convert(recorded or (), tuple[Code, ...])
    if not all(code.text.isprintable() for code in codes):
        raise ValueError(f"{OWN_CODE} names code by characters that cannot be printed")
    return codes


def describe_codes(codes: Iterable[Code]) -> str:
    """Return codes in words, with the beginning of each hash; "" if there are none."""
    return ", ".join(f"{code.text} ({code.sha256[:8]})" if code.sha256 else code.text for code in codes)


# -- modules and files ---------------------------------------------------------------------------------------


class SourceError(UsageError):
    """A module or Python file cannot be imported: by this process, perhaps not by others."""


def import_all(sources: Iterable[object]) -> list[ModuleType]:
    """Return the modules of names and Python files; SourceError names the one that fails."""
    return [import_source(str(source)) for source in sources]


def import_source(source: str, title: str = "") -> ModuleType:
    """Return the module of a name or of a Python file, imported once.

    Raises SourceError for whatever its code raises. title: what the message calls the source; "": as it is written.
    """
    try:
        if _is_file(source):
            path = os.path.realpath(source)
            name = FILE + path
            return sys.modules.get(name) or execute_spec(
                spec_from_file_location(name, path, loader=_Loader(name, path))
            )
        if not all(part.isidentifier() for part in source.split(".")):
            raise UsageError(f"{source!r} is neither a Python file nor the name of a module")
        return importlib.import_module(source)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # whatever the user's code raises, SystemExit too
        raise SourceError(f"{title or source}: {_explain_failure(error, source)}") from error


def execute_spec(spec: ModuleSpec | None) -> ModuleType:
    """Return the module of a specification, which stays in `sys.modules` unless its code fails."""
    assert spec is not None and spec.loader is not None
    module = sys.modules[spec.name] = module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[spec.name]
        raise
    return module


def _is_file(source: str) -> bool:
    """Tell whether a source is a file, not the name of a module."""
    return source.endswith(".py") or os.sep in source or os.path.isfile(source)


class _Loader(SourceFileLoader):
    """Leaves no `__pycache__` beside the file, which may be in a submission."""

    def set_data(self, path: str, data: Any, *, _mode: int = 0o666) -> None:
        """Write no bytecode."""


def _explain_failure(error: BaseException, source: str) -> str:
    """Return why a source cannot be imported, with the line at fault in its file."""
    if isinstance(error, OSError) and error.filename:
        return f"cannot be read: {error.strerror}"
    if isinstance(error, ModuleNotFoundError) and error.name and f"{source}.".startswith(f"{error.name}."):
        return "no such module; give a Python file, or a module that Python finds (see PYTHONPATH)"
    if isinstance(error, SyntaxError):
        where = f"line {error.lineno}" if error.lineno else "not Python in UTF-8"
        return f"{where}: {error.msg}"
    import traceback  # only a failure pays for it

    frames = traceback.extract_tb(error.__traceback__)
    own = [frame.lineno for frame in frames if frame.filename == os.path.realpath(source)]
    if isinstance(error, UsageError):
        return f"line {own[-1]}: {error}" if own else str(error)
    line = f"line {own[-1]}: " if own else f"{os.path.basename(frames[-1].filename)}, line {frames[-1].lineno}: "
    return f"{line}{type(error).__name__}: {error}"
