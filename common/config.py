"""Configuration: YAML files and `section.key=value` overrides become a tree of frozen dataclasses.

A dataclass is a section, its fields are the keys, and it checks its values in `__post_init__`. What a key means is said
once, by `common.settings.keys.key`, as metadata of its field. Nothing is guessed: an unknown key, a repeated key or a
value of another type is an error.

YAML is read by the core schema of version 1.2, so that 1e-3 is a number and `no` is text; underscores as in 524_288 are
allowed. A file may name another one as `base`, relative to itself: their sections are merged, and the file's own values
replace those of its base. In paths, `~` and `$NAME` are expanded; `$$` is a dollar sign.
"""

from __future__ import annotations

import difflib
import json
import os
import re
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import MISSING, Field, fields, is_dataclass
from functools import partial
from operator import attrgetter
from pathlib import Path
from string import Template
from types import UnionType
from typing import Any, Final, Literal, NamedTuple, TypeVar, Union, get_args, get_origin, get_type_hints

import msgspec
import yaml

from common.address import mask_secrets
from common.bad_yaml import find_fault, suggest_section
from common.command import describe_reason, suggest_name
from common.errors import ConfigError as ConfigError
from common.settings.keys import DRAW as DRAW  # names that there were here up to 0.2.0
from common.settings.keys import LENGTH as LENGTH
from common.settings.keys import PLACE as PLACE
from common.settings.keys import PROBLEM as PROBLEM
from common.settings.keys import RECIPE as RECIPE
from common.settings.keys import REQUIRED as REQUIRED
from common.settings.keys import ROUTE as ROUTE
from common.settings.keys import Key
from common.settings.keys import key as key
from common.settings.keys import list_leaves as list_leaves
from common.tree import NAMED

T = TypeVar("T")
Override = str | Mapping[str, Any]
"""Text such as "optim.momentum=0.8", whose value is YAML, or values by their dotted keys: {"optim.momentum": 0.8}."""

SHOWN: Final = 60
"""Characters of a wrong value that a message quotes."""
CORE_SCHEMA: Final = {
    "null": r"~|null|Null|NULL|",
    "bool": r"true|True|TRUE|false|False|FALSE",
    "int": r"[-+]?(0|[1-9][0-9_]*)|0x[0-9a-fA-F]{1,16}",
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
    Any: "a value",
}
SAMPLES: Final = {int: "4", float: "0.1", bool: "true", str: "name", Path: "./folder", Any: "1"}
"""What a message gives as an example of a type."""
NUMBERS: Final = {
    int: re.compile(r"([-+]?\d{1,3}(?:,?\d{3})*)(?: +[a-z]{3,})?"),
    float: re.compile(r"([-+]?(?:0,\d+|\d+(?:,\d{1,2}|\.\d+)?)(?:[eE][-+]?\d+)?)(?: +[a-z]{3,})?"),
}
"""A number as text: in quotes, with a comma, or with a word, which may be a unit."""


class _Layer(NamedTuple):
    """What one source (a file or an override) says of a section or key; later layers win. text: of the file."""

    source: str
    value: Any
    text: str = ""

    def locate(self, *names: str) -> str:
        """Return the source, with the line of a key in its file. names: those of its sections, then its own."""
        line, node = 0, yaml.compose(self.text, Loader=Loader) if self.text else None
        for name in names:
            items = node.value if isinstance(node, yaml.MappingNode) else ()
            pair = next((pair for pair in items if pair[0].value == name), None)
            if pair is None:
                break
            line, node = pair[0].start_mark.line + 1, pair[1]
        path, base, namer = self.source.partition(" (base of ")
        return f"{path}:{line}{base}{namer}" if line else self.source


class _RefusedError(ValueError):
    """A section refuses its values. args: its class, its layers, its dotted name, and the message."""


class Loader(yaml.SafeLoader):
    """A loader of plain values, which rejects repeated keys and values that contain themselves."""

    yaml_implicit_resolvers: dict[str, Any] = {}  # noqa: RUF012  (filled below)

    def construct_document(self, node: yaml.Node) -> Any:
        self.deep_construct = True  # refuses a value that contains itself
        return super().construct_document(node)

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        lines: dict[str, int] = {}
        for name, _ in node.value:
            if isinstance(name, yaml.ScalarNode) and name.value in lines:
                problem = f"the key {name.value!r} is repeated, from line {lines[name.value]}; make one of the two"
                raise yaml.MarkedYAMLError(problem=problem, problem_mark=name.start_mark)
            lines[str(name.value)] = name.start_mark.line + 1
        return super().construct_mapping(node, deep)


class _Dumper(yaml.SafeDumper):
    """A dumper whose output `Loader` reads back as the same values."""

    yaml_implicit_resolvers: dict[str, Any] = {}  # noqa: RUF012  (filled below)


for _name, _pattern in CORE_SCHEMA.items():
    for _class in (Loader, _Dumper):
        _class.add_implicit_resolver(f"tag:yaml.org,2002:{_name}", re.compile(f"(?:{_pattern})$"), None)


def load(cls: type[T], path: Path, overrides: Sequence[Override] = (), check: Callable[[T], None] | None = None) -> T:
    """Return the configuration in a YAML file, with overrides applied, the last ones last.

    check: raises ValueError for what cannot work together; its message names the keys. Raises ConfigError, which names
    where the value at fault comes from, for a file that cannot be read, bad YAML, unknown or missing keys and values
    that do not fit.
    """
    layers = [*_read_layers(path), *_list_overrides(overrides)]
    config = _build_config(cls, layers, str(path))
    if check is None:
        return config
    try:
        check(config)
    except ValueError as error:
        source = _find_culprit(
            layers, error, lambda earlier, later: check(_build_section(cls, earlier, "", str(path), later))
        )
        raise ConfigError(f"{source or path}: {error}") from error
    return config


def list_sources(path: Path, overrides: Sequence[Override]) -> dict[str, str]:
    """Return where the value of each key comes from that a file, its bases or overrides name; ConfigError as `load`."""
    layers = [*_read_layers(path), *_list_overrides(overrides)]
    return {name: layer.source for layer in layers for name in _list_names(layer.value)}


def section_of(path: Path, overrides: Sequence[Override], name: str) -> dict[str, Any]:
    """Return what a YAML file and overrides say of one section; nothing is checked against a configuration.

    Raises ConfigError as `load` does for a file that cannot be read and for bad YAML.
    """
    layers = [*_read_layers(path), *_list_overrides(overrides)]
    sections = [layer.value.get(name) for layer in layers]
    return {key: value for section in sections if isinstance(section, dict) for key, value in section.items()}


def rebuild(cls: type[T], tree: dict[str, Any], source: str, overrides: Sequence[Override] = ()) -> T:
    """Return the configuration that `to_dict` made `tree` of, with overrides applied; ConfigError as in `load`.

    The tree may be of an earlier version: removed keys are left out.
    """
    for name in getattr(cls, "removed", {}):
        tree = _remove_key(tree, name.split("."))
    return _build_config(cls, [_Layer(source, tree), *_list_overrides(overrides)], source)


def _remove_key(tree: dict[str, Any], names: Sequence[str]) -> dict[str, Any]:
    """Return a configuration without a key; names: of its sections, then its own."""
    first, *others = names
    if not others:
        return {name: value for name, value in tree.items() if name != first}
    section = tree.get(first)
    return tree | {first: _remove_key(section, others)} if isinstance(section, dict) else tree


def to_dict(config: Any, path_text: Callable[[Path], str] = str) -> dict[str, Any]:
    """Return a configuration as dicts, tuples, numbers and text; paths become what `path_text` makes of them."""
    return msgspec.to_builtins(config, enc_hook=path_text)


def to_yaml(config: Any, all_keys: bool = True) -> str:
    """Return the YAML text from which `load` makes an equal configuration.

    all_keys: also those whose values are their defaults.
    """
    tree = to_dict(config, _escape_path)
    return yaml.dump(tree if all_keys else _without_defaults(config, tree), Dumper=_Dumper, sort_keys=False)


def _without_defaults(config: Any, tree: dict[str, Any]) -> dict[str, Any]:
    """Return the values of a configuration, which `to_dict` made `tree` of, that are not the defaults of their keys."""
    changed: dict[str, Any] = {}
    for leaf in list_leaves(type(config)):
        if attrgetter(leaf.name)(config) != leaf.default:
            *names, name = leaf.name.split(".")
            section, source = changed, tree
            for part in names:
                section, source = section.setdefault(part, {}), source[part]
            section[name] = source[name]
    return changed


def _read_layers(path: Path, named_by: tuple[Path, ...] = ()) -> list[_Layer]:
    """Return the layers of a file and of its bases, the innermost base first."""
    source = f"{path} (base of {named_by[-1]})" if named_by else str(path)
    if path.resolve() in [file.resolve() for file in named_by]:
        raise ConfigError(f"{source}: the files name each other as base in a circle; remove one `base:`")
    try:
        with NAMED.open(path) as file:
            text = file.read().decode("utf-8")
    except OSError as error:
        near = suggest_name(path.name, (file.name for file in path.parent.glob("*.y*ml")))
        raise ConfigError(
            f"{source}: cannot be read: {describe_reason(error)}; expected a YAML file{near}"
            + (_locate_configs(path.stem) if named_by else "")
        ) from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{source}: not text in UTF-8 (byte {error.start}); expected a YAML file") from error
    tree = _parse_yaml(text, source)
    if not isinstance(tree, dict):
        problem = "empty" if tree is None else f"contains {quote_value(tree)}"
        raise ConfigError(f"{source}: {problem}; expected lines such as `key: value`")
    base = tree.pop("base", None)
    if base is None:
        return [_Layer(source, tree, text)]
    if not isinstance(base, str):
        raise ConfigError(f"{source}: base: expected the name of a YAML file; got {quote_value(base)}")
    return [*_read_layers(path.parent / base, (*named_by, path)), _Layer(source, tree, text)]


def _locate_configs(name: str) -> str:
    """Return where the configurations of a name lie, for a base that is meant as one; "" if there are none."""
    from common.benchmarks import PACKAGES  # only a wrong base pays for these
    from common.installed import named_configs

    paths = [str(configs[name]) for configs in map(named_configs, PACKAGES) if name in configs]
    return f"; a base is a path, and {name} is {' or '.join(paths)}" if paths else ""


def _list_overrides(overrides: Sequence[Override]) -> Iterator[_Layer]:
    """Yield each override as the layer of a file with this one key."""
    for override in overrides:
        if isinstance(override, str):
            key, sign, text = override.partition("=")
            source = f"override {mask_secrets(override)!r}"
            if not sign:
                form = "section.key=value without blanks, such as train.epochs=3, or in quotes: 'key=a b'"
                raise ConfigError(f"{source}: expected {form}")
            yield _make_layer(key, _parse_yaml(text, source), source)
        else:
            for key, value in override.items():
                yield _make_layer(key, _make_plain(value), f"override {key}={mask_secrets(str(value))}")


def _make_plain(value: Any) -> Any:
    """Return a value as YAML would give it; those of numpy become numbers and lists."""
    if isinstance(value, Path):
        return _escape_path(value)
    if isinstance(value, Mapping):
        return {key: _make_plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_make_plain(item) for item in value]
    return value.tolist() if hasattr(value, "tolist") else value


def _make_layer(key: str, value: Any, source: str) -> _Layer:
    names = key.strip().split(".")
    if not all(names):
        raise ConfigError(f"{source}: expected section.key=value, such as train.epochs=3")
    tree = value
    for name in reversed(names):
        tree = {name: tree}
    return _Layer(source, tree)


def _parse_yaml(text: str, source: str) -> Any:
    try:
        return yaml.load(text, Loader=Loader)
    except yaml.MarkedYAMLError as error:
        place, problem = find_fault(text, error)
        raise ConfigError(f"{source}{place}: not valid YAML: {problem}") from error
    except (yaml.YAMLError, ValueError) as error:  # characters that YAML forbids; numbers beyond Python's limit
        raise ConfigError(f"{source}: not valid YAML: {error}") from error
    except RecursionError:
        raise ConfigError(f"{source}: nested too deeply; expected sections with keys and values") from None


def _build_config(cls: type[T], layers: Sequence[_Layer], file: str) -> T:
    for layer in layers:
        _check_keys(cls, layer, "", cls)
    try:
        return _build_section(cls, layers, "", file)
    except _RefusedError as error:
        section, own_layers, parent, message = error.args
        make = partial(_build_section, section, parent=parent, file=file)
        source = _find_culprit(own_layers, error, lambda earlier, later: make(earlier, later=later)) or file
        raise ConfigError(f"{source}: {parent}: {message}" if parent else f"{source}: {message}") from error.__cause__


def _build_section(cls: type[T], layers: Sequence[_Layer], parent: str, file: str, later: Sequence[_Layer] = ()) -> T:
    """Return a section made of what the layers say; `parent` is its dotted name, "" at the top.

    later: layers of which only required keys are taken, if they are missing otherwise.
    """
    hints = get_type_hints(cls)
    values: dict[str, Any] = {}
    for entry in fields(cls):  # type: ignore[arg-type]  # a dataclass, by contract
        name, hint = entry.name, hints[entry.name]
        dotted = f"{parent}.{name}" if parent else name
        stated, more = _layers_of(layers, name), _layers_of(later, name)
        required = entry.default is MISSING and entry.default_factory is MISSING
        if is_dataclass(hint) and (stated or required):
            values[name] = _build_section(hint, stated, dotted, file, more)  # type: ignore[arg-type]  # a class, no instance
        elif stated:
            values[name] = _convert_value(hint, stated[-1], dotted)
        elif required and more:
            values[name] = _convert_value(hint, more[0], dotted)
        elif required:
            raise ConfigError(f"{file}: {dotted} is missing; expected {_describe_type(hint)}")
    try:
        return cls(**values)
    except ValueError as error:
        raise _RefusedError(cls, layers, parent, str(error)) from error


def _layers_of(layers: Sequence[_Layer], name: str) -> list[_Layer]:
    """Return what the layers say of a section or key in them."""
    return [layer._replace(value=layer.value[name]) for layer in layers if name in layer.value]


def _find_culprit(
    layers: Sequence[_Layer], error: ValueError, make: Callable[[Sequence[_Layer], Sequence[_Layer]], object]
) -> str | None:
    """Return the source of the layer without which, and without later ones, there is no such error; None: always.

    make: makes the configuration of the first layers, with required keys of the others; raises ValueError if it cannot.
    """
    for number in reversed(range(len(layers))):
        try:
            make(layers[:number], layers[number:])
        except ValueError as other:
            if other.args[-1:] == error.args[-1:]:
                continue
        return layers[number].source
    return None


def _list_names(tree: dict[str, Any], prefix: str = "") -> Iterator[str]:
    """Yield the dotted names of sections and keys."""
    for name, value in tree.items():
        yield f"{prefix}{name}"
        if isinstance(value, dict):
            yield from _list_names(value, f"{prefix}{name}.")


def _check_keys(cls: type, layer: _Layer, parent: str, root: type) -> None:
    """Raise ConfigError unless the layer has known keys only, in this section and those in it."""
    hints = get_type_hints(cls)
    keys = {entry.name: hints[entry.name] for entry in fields(cls)}
    if not isinstance(layer.value, dict):
        source, where = layer.source, ""
        if parent:
            source, where = layer.locate(*parent.split(".")), f"{parent}: "
        name, kind = next(iter(keys.items()))
        hint = suggest_section(layer.value) or f"for example {{{name}: {_make_sample(kind)}}}"
        got = f"expected a section with the keys {', '.join(keys)}; got {quote_value(layer.value)}"
        raise ConfigError(f"{source}: {where}{got}; {hint}")
    for name, value in layer.value.items():
        dotted = f"{parent}.{name}" if parent else str(name)
        if last := getattr(root, "removed", {}).get(dotted):
            source = layer.locate(*dotted.split("."))
            raise ConfigError(
                f"{source}: {dotted} was a key up to version {last[0]} and has no effect any more; remove it"
            )
        if name not in keys:
            section = isinstance(value, dict)
            inside = _guess_key(str(name), cls, f"{parent}." if parent else "", section)
            meant = inside or _guess_key(str(name), root, "", section)
            hint = f"; did you mean {meant}?" if meant else ";"
            of_section = f" of {parent}" if parent else ""
            quoted = dotted[: len(parent) + SHOWN]
            source = layer.locate(*(parent.split(".") if parent else ()), str(name))
            if parent and layer.text and any(name == entry.name for entry in fields(root)):
                hint = f": {name} is indented, and so stands inside {parent}; move it to the left margin;"
            elif owners := _find_owners(dotted, root):
                hint = f", which is of {owners}, not of {root.__module__.partition('.')[0]}{hint}"
                hint += f" is this a configuration of {owners}? Then name that benchmark;" if layer.text else ""
            raise ConfigError(f"{source}: unknown key {quoted}{hint} known keys{of_section}: {', '.join(keys)}")
        if is_dataclass(keys[name]):
            _check_keys(keys[name], layer._replace(value=value), dotted, root)


def _find_owners(dotted: str, root: type) -> str:
    """Return which benchmarks of the suite have a key that another benchmark's configuration has not; "" if none."""
    if not hasattr(root, "run_facts"):
        return ""
    from common.benchmarks import PACKAGES  # only a wrong key pays for these
    from common.installed import named_configs

    def has_key(path: Path) -> bool:
        section = yaml.load(path.read_text(encoding="utf-8"), Loader=Loader)
        for name in dotted.split("."):
            section = section.get(name) if isinstance(section, dict) else None
        return section is not None

    return " and ".join(name for name in PACKAGES if any(map(has_key, named_configs(name).values())))


def guess_key(cls: type, name: str) -> str | None:
    """Return the dotted key that a name stands for: the name itself, or what its last part means; None if unknown."""
    names = {dotted for dotted, _, _ in _list_keys(cls, "")}
    return name if name in names else _guess_key(name.rpartition(".")[2], cls, "", False)


def _guess_key(name: str, cls: type, prefix: str, section: bool) -> str | None:
    """Return the dotted key of a section that an unknown name stands for, None if none is like it.

    The last part decides: who writes `momentum` at the top is told `optim.momentum`. What is directly in the section
    comes first, so that `modle` is told `model` and not `staging.mode`. section: only what can have keys of its own.
    """
    names: dict[str, str] = {}
    aliases: dict[str, str] = {}
    for dotted, entry, nested in _list_keys(cls, prefix):
        if nested or not section:
            called = dotted.rpartition(".")[2]
            names[called] = dotted if dotted == prefix + called else names.get(called, dotted)
            for alias in entry.metadata[Key].aliases if Key in entry.metadata else ():
                aliases.setdefault(alias, dotted)
    by_name = aliases | names
    inside = [called for called, dotted in by_name.items() if dotted == prefix + called]
    near = (
        [called for called in by_name if called == name]
        or [called for called in inside if name and called.startswith(name)]
        or difflib.get_close_matches(name, inside, 1, 0.75)
        or difflib.get_close_matches(name, by_name, 1, 0.75)
    )
    return by_name[near[0]] if near else None


def _list_keys(cls: type, prefix: str) -> Iterator[tuple[str, Field[Any], bool]]:
    """Yield the dotted keys of a section, their fields, and whether they have keys of their own; inner ones first."""
    hints = get_type_hints(cls)
    for entry in fields(cls):
        if is_dataclass(hints[entry.name]):
            yield from _list_keys(hints[entry.name], f"{prefix}{entry.name}.")
    for entry in fields(cls):
        hint = hints[entry.name]
        yield prefix + entry.name, entry, is_dataclass(hint) or get_origin(hint) is dict


def _convert_value(hint: Any, layer: _Layer, dotted: str) -> Any:
    """Return the value of a key, of the type that its field has; whole numbers are numbers too."""
    try:
        return msgspec.convert(layer.value, hint, dec_hook=_expand_path)
    except msgspec.ValidationError as error:
        part, value, inner = _find_misfit(hint, layer.value, ())
        if value is None and inner and ":" in inner[-1]:
            name, _, text = inner[-1].partition(":")
            place = layer.locate(*dotted.split("."))
            raise ConfigError(
                f"{place}: {dotted}: a blank is missing after the colon: write {{{name}: {text}}}"
            ) from error
        got = f"expected {_describe_type(part)}; got {quote_value(value)}{_propose_value(part, value)}"
        if inner and isinstance(value, dict) and value:
            got += f"; or is the key {inner[-1]}.{next(iter(value))} meant, with a dot?"
        source, names = layer.locate(*dotted.split("."), *inner), ": ".join((dotted, *inner))
        raise ConfigError(f"{source}: {names}: {error.__cause__ or got}") from error


def _find_misfit(hint: Any, value: Any, names: tuple[str, ...]) -> tuple[Any, Any, tuple[str, ...]]:
    """Return type and value of the innermost part of a value that does not fit, and the names that lead to it."""
    args, parts = get_args(hint), []
    if get_origin(hint) is dict and isinstance(value, dict):
        parts = [(args[1], item, str(name)) for name, item in value.items()]
    elif get_origin(hint) is tuple and args[-1] is ... and isinstance(value, list):
        parts = [(args[0], item, f"item {number}") for number, item in enumerate(value, 1)]
    for part, item, name in parts:
        if not _fits(part, item):
            return _find_misfit(part, item, (*names, name))
    return hint, value, names


def _fits(hint: Any, value: Any) -> bool:
    """Tell whether a value is of a type."""
    try:
        msgspec.convert(value, hint, dec_hook=_expand_path)
    except msgspec.ValidationError:
        return False
    return True


def _propose_value(hint: Any, value: Any) -> str:
    """Return what to write in place of a value of another type, else an example; "" for what the type's name says."""
    text = value if isinstance(value, str) else json.dumps(value, default=str)
    empty = "{}" if get_origin(hint) is dict else "[]" if get_args(hint)[-1:] == (...,) else ""
    if empty and text.lower() in ("null", "none", "no", "off", "false", ""):
        return f"; write {empty} for none"
    if problem := explain_range(value):
        return f"; {problem}, in [ ]" if get_origin(hint) is tuple else f"; {problem.partition(';')[0]}"
    if re.search(r"\s\w+\.[\w.]+=", text):
        return "; are these two settings? Write each without the quotes around both"
    for kind in get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,):
        proposal = ""
        if get_origin(kind) is tuple and text and not isinstance(value, list | dict | None):
            proposal = f"[{text.strip('()[] ')}]"
        elif kind in (int, float) and isinstance(value, str):
            number = NUMBERS[kind].fullmatch(text.strip())
            proposal = number[1].replace(",", "" if kind is int else ".") if number else ""
        if proposal and len(proposal) <= SHOWN and _fits(kind, yaml.load(f"[{proposal}]", Loader=Loader)[0]):
            is_list = get_origin(kind) is tuple and get_args(kind)[-1] is ...
            only = " for this one value, or list them all" if is_list and "," not in proposal else ""
            return f"; write {proposal}{only}"
    return f"; for example {_make_sample(hint)}" if get_origin(hint) in (tuple, dict) else ""


def explain_range(value: Any) -> str:
    """Return what to write in place of a range such as 1-4, which YAML reads as text; "" for any other value."""
    if not (match := re.fullmatch(r"(\d{1,9})(?:-|:|\.\.+)(\d{1,9})", str(value))):
        return ""
    first, last = map(int, match.groups())
    numbers = ",".join(map(str, range(first, last + 1))) if 0 < last - first < 20 else f"{first},{first + 1} ..."
    return f"{value} is text, as there are no ranges; write each number: {numbers}"


def _make_sample(hint: Any) -> str:
    """Return an example of a type as YAML has it."""
    args = get_args(hint)
    if get_origin(hint) is tuple:
        return f"[{', '.join(_make_sample(part) for part in args if part is not ...)}]"
    if get_origin(hint) is dict:
        return f"{{{_make_sample(args[0])}: {_make_sample(args[1])}}}"
    return _make_sample(args[0]) if args and get_origin(hint) is not Literal else SAMPLES.get(hint, "...")


def _describe_type(hint: Any) -> str:
    """Return a type in words."""
    args = get_args(hint)
    match get_origin(hint):
        case origin if origin in (Union, UnionType):
            return " or ".join(map(_describe_type, args))
        case origin if origin is Literal:
            return "one of " + ", ".join(map(quote_value, args))
        case origin if origin is tuple and args[-1] is ...:
            return "a list" if args[0] is Any else f"a list, each {_describe_type(args[0])}"
        case origin if origin is tuple:
            return f"a list of {len(args)}: " + ", ".join(map(_describe_type, args))
        case origin if origin is dict:
            name = "a name" if args[0] is str else _describe_type(args[0])
            return f"a mapping of {name} to {_describe_type(args[1])}"
    return TYPE_NAMES.get(hint, str(hint))


def quote_value(value: Any) -> str:
    """Return a value as a message quotes it: its beginning, if it is long."""
    return textwrap.shorten(json.dumps(value, default=str), SHOWN, placeholder=" ...")


def _expand_path(_type: Any, text: Any) -> Path:
    """Return the path in a text, expanded."""
    if not isinstance(text, str) or not text or "\0" in text:
        raise ValueError(f"expected a path; got {quote_value(text)}")
    if re.search(r"[\x01-\x1f\x7f]", text):
        raise ValueError(
            f"expected a path; got {quote_value(text)}, with a control character: between double quotes, YAML reads "
            r"\r, \n and \t as such; use single quotes"
        )
    try:
        path = Path(Template(text).substitute(os.environ))
        return path.expanduser() if text.startswith("~") else path
    except KeyError as error:
        raise ValueError(
            f"{text!r} names the environment variable {error.args[0]}, which is not set: export it, or write its value"
        ) from None
    except ValueError:
        raise ValueError(f"{text!r} has a $ without a name; write $$ for a dollar sign") from None
    except RuntimeError as error:
        raise ValueError(f"{text!r}: {error}") from None


def _escape_path(path: Path) -> str:
    """Return the text from which `_expand_path` makes this path."""
    text = str(path).replace("$", "$$")
    return f"./{text}" if text.startswith("~") else text
