"""Configuration: YAML files and `section.key=value` overrides become a tree of frozen dataclasses.

A dataclass is a section, its fields are the keys; it stands beside the code that it configures and checks its values
in `__post_init__`. Nothing is guessed: an unknown key, a repeated key or a value of another type is an error.

YAML is read by the core schema of version 1.2, so that 1e-3 is a number and `no` is text; underscores as in 524_288 are
allowed. A file may name another one as `base`, relative to itself: sections of both are merged, and of a key that is
in both the value of the naming file counts. In paths, `~` and `$NAME` are expanded; `$$` is a dollar sign.
"""

from __future__ import annotations

import difflib
import json
import os
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import MISSING, fields, is_dataclass
from pathlib import Path
from string import Template
from types import UnionType
from typing import Any, Final, Literal, NamedTuple, TypeVar, Union, get_args, get_origin, get_type_hints

import msgspec
import yaml

from common.command import UsageError

T = TypeVar("T")

CORE_SCHEMA: Final = {
    "null": r"~|null|Null|NULL|",
    "bool": r"true|True|TRUE|false|False|FALSE",
    "int": r"[-+]?(0|[1-9][0-9_]*)|0x[0-9a-fA-F]+",
    "float": r"[-+]?([0-9][0-9_]*\.[0-9]*|\.[0-9]+)([eE][-+]?[0-9]+)?|[-+]?[0-9][0-9_]*[eE][-+]?[0-9]+"
    r"|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)",
}
TYPE_NAMES: Final = {
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    str: "text (in quotes if it looks like a number)",
    Path: "a path",
    type(None): "null",
}


class ConfigError(UsageError):
    """A configuration is wrong; the message names the file or override, the key, and what is expected."""


class _Layer(NamedTuple):
    """What one source (a file or an override) says of a section or key; later layers win."""

    source: str
    value: Any


class _Loader(yaml.SafeLoader):
    """Builds plain values only; a repeated key is an error."""

    yaml_implicit_resolvers: dict[str, Any] = {}  # noqa: RUF012  (filled below)

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[str] = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode) and key.value in seen:
                raise yaml.MarkedYAMLError(problem=f"the key {key.value!r} is here twice", problem_mark=key.start_mark)
            seen.add(str(key.value))
        return super().construct_mapping(node, deep)


class _Dumper(yaml.SafeDumper):
    """Writes what `_Loader` reads back as the same values."""

    yaml_implicit_resolvers: dict[str, Any] = {}  # noqa: RUF012  (filled below)


for _name, _pattern in CORE_SCHEMA.items():
    for _class in (_Loader, _Dumper):
        _class.add_implicit_resolver(f"tag:yaml.org,2002:{_name}", re.compile(f"(?:{_pattern})$"), None)


def load(cls: type[T], path: Path, overrides: Sequence[str] = ()) -> T:
    """Return the configuration in a YAML file, with overrides such as "optim.momentum=0.8" (values are YAML) applied.

    Raises ConfigError for a file that cannot be read, bad YAML, unknown or missing keys and values that do not fit.
    """
    layers = [*_read(path), *map(_override, overrides)]
    return _section(cls, layers, "", str(path))


def rebuild(cls: type[T], tree: dict[str, Any], source: str, overrides: Sequence[str] = ()) -> T:
    """Return the configuration that `to_dict` made `tree` of, with overrides applied; ConfigError as in `load`."""
    return _section(cls, [_Layer(source, tree), *map(_override, overrides)], "", source)


def to_dict(config: Any, path_text: Callable[[Path], str] = str) -> dict[str, Any]:
    """Return a configuration as dicts, tuples, numbers and text; paths become what `path_text` makes of them."""
    plain: dict[str, Any] = msgspec.to_builtins(config, enc_hook=path_text)
    return plain


def to_yaml(config: Any) -> str:
    """Return the YAML text from which `load` makes an equal configuration."""
    return yaml.dump(to_dict(config, _literal), Dumper=_Dumper, sort_keys=False)


def _read(path: Path, named_by: tuple[Path, ...] = ()) -> list[_Layer]:
    """Return what a file and the files that it is based on say, the innermost base first."""
    source = f"{path} (base of {named_by[-1]})" if named_by else str(path)
    if path.resolve() in [file.resolve() for file in named_by]:
        raise ConfigError(f"{source}: the files name each other as base in a circle; remove one `base:`")
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{source}: cannot be read: {error.strerror}; expected a YAML file") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{source}: no text in UTF-8 (byte {error.start}); expected a YAML file") from error
    tree = _parse(text, source)
    if not isinstance(tree, dict):
        what = "holds no settings" if tree is None else f"holds {_shown(tree)}"
        raise ConfigError(f"{source}: {what}; expected lines such as `key: value`")
    base = tree.pop("base", None)
    if base is None:
        return [_Layer(source, tree)]
    if not isinstance(base, str):
        raise ConfigError(f"{source}: base: expected the name of a YAML file; got {_shown(base)}")
    return [*_read(path.parent / base, (*named_by, path)), _Layer(source, tree)]


def _override(text: str) -> _Layer:
    """Return what an override says, as a file with this one key would."""
    key, sign, value = text.partition("=")
    names = key.strip().split(".")
    source = f"override {text!r}"
    if not sign or not all(names):
        raise ConfigError(f"{source}: expected section.key=value, such as train.epochs=3")
    tree = _parse(value, source)
    for name in reversed(names):
        tree = {name: tree}
    return _Layer(source, tree)


def _parse(text: str, source: str) -> Any:
    try:
        return yaml.load(text, Loader=_Loader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        place = f":{mark.line + 1}:{mark.column + 1}" if mark else ""
        raise ConfigError(f"{source}{place}: no valid YAML: {error.problem}") from error
    except (yaml.YAMLError, ValueError) as error:  # characters that YAML forbids; numbers beyond Python's limit
        raise ConfigError(f"{source}: no valid YAML: {error}") from error


def _section(cls: type[T], layers: Sequence[_Layer], key: str, file: str) -> T:
    """Return a section made of what the layers say; `key` is its place in the tree, "" at the top."""
    for layer in layers:
        _check_keys(cls, layer, key)
    hints = get_type_hints(cls)
    values: dict[str, Any] = {}
    for field in fields(cls):  # type: ignore[arg-type]  # a dataclass, by contract
        name, hint = field.name, hints[field.name]
        place = f"{key}.{name}" if key else name
        given = [_Layer(layer.source, layer.value[name]) for layer in layers if name in layer.value]
        required = field.default is MISSING and field.default_factory is MISSING
        if is_dataclass(hint) and (given or required):
            values[name] = _section(hint, given, place, file)  # type: ignore[arg-type]  # a class, no instance
        elif given:
            values[name] = _value(hint, given[-1], place)
        elif required:
            raise ConfigError(f"{file}: {place} is missing; expected {_described(hint)}")
    try:
        return cls(**values)
    except ValueError as error:
        raise ConfigError(f"{file}: {key}: {error}" if key else f"{file}: {error}") from error


def _check_keys(cls: type, layer: _Layer, key: str) -> None:
    """Raise ConfigError unless the layer has known keys only."""
    known = [field.name for field in fields(cls)]
    of_section = f" of {key}" if key else ""
    if not isinstance(layer.value, dict):
        expected = f"a section with the keys {', '.join(known)}"
        raise ConfigError(f"{layer.source}: {key}: expected {expected}; got {_shown(layer.value)}")
    for name in layer.value:
        if name not in known:
            prefix = f"{key}." if key else ""
            # The last part decides: who writes `momentum` at the top is told `optim.momentum`.
            by_last_part = {dotted.rpartition(".")[2]: dotted for dotted in _keys(cls, prefix)}
            near = difflib.get_close_matches(str(name), by_last_part, 1)
            hint = f"; did you mean {by_last_part[near[0]]}?" if near else ";"
            raise ConfigError(
                f"{layer.source}: unknown key {prefix}{name}{hint} known keys{of_section}: {', '.join(known)}"
            )


def _keys(cls: type, prefix: str) -> Iterator[str]:
    """Yield the dotted keys of a section, inner ones first."""
    hints = get_type_hints(cls)
    for field in fields(cls):
        if is_dataclass(hints[field.name]):
            yield from _keys(hints[field.name], f"{prefix}{field.name}.")
    yield from (prefix + field.name for field in fields(cls))


def _value(hint: Any, layer: _Layer, place: str) -> Any:
    """Return the value of a key, of the type that its field has; whole numbers are numbers too."""
    try:
        return msgspec.convert(layer.value, hint, dec_hook=_path)
    except msgspec.ValidationError as error:
        got = f"expected {_described(hint)}; got {_shown(layer.value)}"
        raise ConfigError(f"{layer.source}: {place}: {error.__cause__ or got}") from error


def _described(hint: Any) -> str:
    """Return what a type stands for, in words."""
    args = get_args(hint)
    match get_origin(hint):
        case origin if origin in (Union, UnionType):
            return " or ".join(map(_described, args))
        case origin if origin is Literal:
            return "one of " + ", ".join(map(_shown, args))
        case origin if origin is tuple and args[-1] is ...:
            return f"a list, each {_described(args[0])}"
        case origin if origin is tuple:
            return f"a list of {len(args)}: " + ", ".join(map(_described, args))
        case origin if origin is dict:
            return f"a mapping of {_described(args[0])} to {_described(args[1])}"
    return TYPE_NAMES.get(hint, str(hint))


def _shown(value: Any) -> str:
    return json.dumps(value, default=str)


def _path(_type: Any, text: Any) -> Path:
    """Return the path that a text names, expanded."""
    if not isinstance(text, str) or not text:
        raise ValueError(f"expected a path; got {_shown(text)}")
    try:
        path = Path(Template(text).substitute(os.environ))
        return path.expanduser() if text.startswith("~") else path
    except KeyError as error:
        raise ValueError(f"{text!r} names the environment variable {error.args[0]}, which is not set") from None
    except ValueError:
        raise ValueError(f"{text!r} has a $ without a name; write $$ for a dollar sign") from None
    except RuntimeError as error:
        raise ValueError(f"{text!r}: {error}") from None


def _literal(path: Path) -> str:
    """Return the text from which `_path` makes this path, whatever it contains."""
    text = str(path).replace("$", "$$")
    return f"./{text}" if text.startswith("~") else text
