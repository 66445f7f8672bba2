"""YAML and overrides become a tree of dataclasses; everything that does not fit is an error that helps."""

import math
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.config import PLACE, REQUIRED, ConfigError, key, list_leaves, load, rebuild, to_dict, to_yaml


@dataclass(frozen=True)
class Data:
    folder: Path
    cache: Path | None = None
    shuffle: bool = True
    limit: int | None = None


@dataclass(frozen=True)
class Optim:
    lr: float = 0.1
    momentum: float = 0.9
    betas: tuple[float, float] = (0.9, 0.999)
    name: Literal["sgd", "adam"] = "sgd"

    def __post_init__(self) -> None:
        if not self.lr > 0:
            raise ValueError(f"lr is {self.lr}; expected > 0")


@dataclass(frozen=True)
class Schedule:
    decay: dict[int, float] = field(default_factory=dict)
    boundaries: tuple[int, ...] = ()


@dataclass(frozen=True)
class Config:
    data: Data
    optim: Optim = field(default_factory=Optim)
    schedule: Schedule = field(default_factory=Schedule)
    epochs: int = 10
    title: str = ""


@pytest.fixture
def file(tmp_path):
    def write(text, name="run.yaml"):
        path = tmp_path / name
        path.write_text(text)
        return path

    return write


@pytest.fixture
def message(file):
    """Return what load() says of a file's text."""

    def of(text, *overrides):
        with pytest.raises(ConfigError) as error:
            load(Config, file(text), overrides)
        return str(error.value)

    return of


def test_sections_defaults_and_types(file):
    path = file("data: {folder: x}\noptim: {lr: 1, betas: [0.5, 1]}\nschedule:\n  decay: {2: 0.5, 3: 1}\n")
    config = load(
        Config, path, ["optim.momentum=1e-3", "schedule.boundaries=[1, 2]", "data.shuffle=false", "epochs=1_0"]
    )
    assert config == Config(
        Data(Path("x"), shuffle=False), Optim(1.0, 1e-3, (0.5, 1.0)), Schedule({2: 0.5, 3: 1.0}, (1, 2)), 10
    )
    assert type(config.optim.lr) is float and type(config.schedule.decay[3]) is float


@pytest.mark.parametrize(
    ("text", "value"),
    [("1e-3", 1e-3), ("5E3", 5e3), ("-.5", -0.5), ("1.", 1.0), ("+2e+2", 200.0), (".inf", math.inf), ("0x10", 16.0)],
)
def test_numbers_as_people_write_them(file, text, value):
    assert load(Config, file(f"data: {{folder: x}}\noptim: {{momentum: {text}}}")).optim.momentum == value


@pytest.mark.parametrize("text", ["no", "on", "2023-05-15", "1:30", "012", "1e", "=", "a=b", "~/x"])
def test_text_that_older_yaml_takes_for_something_else(file, text):
    assert load(Config, file("data: {folder: x}"), [f"title={text}"]).title == text


def test_a_base_lies_under_the_file_and_overrides_over_it(file, tmp_path):
    (tmp_path / "presets").mkdir()
    file("data: {folder: far}\noptim: {lr: 3, momentum: 0.5}\nschedule: {decay: {1: 0.5}}", "presets/root.yaml")
    file("base: root.yaml\noptim: {lr: 2}\nschedule: {decay: {2: 0.1}}", "presets/middle.yaml")
    config = load(Config, file("base: presets/middle.yaml\nepochs: 3"), ["optim.lr=0.25", "optim.lr=0.5"])
    # Sections merge, a value (the decay) is replaced.
    assert config == Config(Data(Path("far")), Optim(0.5, 0.5), Schedule({2: 0.1}), 3)


def test_paths_expand_home_and_variables_and_only_paths_do(file, monkeypatch):
    monkeypatch.setenv("HOME", "/home/somebody")
    monkeypatch.setenv("DATA", "/big/disk")
    config = load(Config, file('data: {folder: "$DATA/a$$b", cache: "~/${DATA}x"}\ntitle: "~ $DATA"'))
    assert config.data.folder == Path("/big/disk/a$b") and config.data.cache == Path("/home/somebody//big/diskx")
    assert config.title == "~ $DATA"


@pytest.mark.parametrize(
    ("text", "overrides", "says"),
    [
        ("epochs: 3", (), ["run.yaml: data.folder is missing", "a path"]),
        ("data: {folder: x}\nepoch: 3", (), ["run.yaml:2: unknown key epoch", "did you mean epochs?", "title"]),
        (
            "data: {folder: x, foldr: y}",
            (),
            ["unknown key data.foldr", "data.folder?", "known keys of data: folder, cache"],
        ),
        ("data: {folder: x}", ["momentum=1"], ["override 'momentum=1'", "did you mean optim.momentum?"]),
        ("data: {folder: x}", ["limits.lr=1"], ["unknown key limits; known keys: data"]),  # data.limit has no keys
        ("data: {folder: x}", ["shedule.decay={}"], ["unknown key shedule; did you mean schedule?"]),
        ("data: {folder: x}", ["dcay={1: 0.5}"], ["unknown key dcay; did you mean schedule.decay?"]),
        ("data: {folder: x}", ["optim.xyz=1"], ["unknown key optim.xyz; known keys of optim: lr, momentum"]),
        ("data: {folder: x}", ["optim.lr.x=1"], ["optim.lr: expected a number", '{"x": 1}']),
        ("data: {folder: x}", ["base=y.yaml"], ["unknown key base"]),
        ("data: {folder: x}\nepochs: ten", (), ['run.yaml:2: epochs: expected a whole number; got "ten"']),
        ("data: {folder: x}\nepochs: 1.5", (), ["epochs: expected a whole number; got 1.5"]),
        ("data: {folder: x}\nepochs: true", (), ["epochs: expected a whole number; got true"]),
        ("data: {folder: x}\noptim: {lr: true}", (), ["optim.lr: expected a number; got true"]),
        ("data: {folder: x}\noptim: {lr: '1'}", (), ['optim.lr: expected a number; got "1"']),
        ("data: {folder: x}\ntitle: 3.0", (), ["title: expected text (in quotes", "got 3.0"]),
        ("data: {folder: x, shuffle: yes}", (), ['data.shuffle: expected true or false; got "yes"']),
        ("data: {folder: 3}", (), ["data.folder: expected a path; got 3"]),
        ("data: {folder: ''}", (), ["data.folder: expected a path"]),
        (r'data: {folder: "C:\runs\new"}', (), ["data.folder: expected a path", "control character", "single quotes"]),
        ('data: {folder: "a\\0b"}', (), ['data.folder: expected a path; got "a\\u0000b"']),
        (
            "data: {folder: $NO_SUCH_VARIABLE/x}",
            (),
            ["data.folder: ", "environment variable NO_SUCH_VARIABLE", "not set"],
        ),
        ("data: {folder: ~no-such-user/x}", (), ["data.folder: ", "home directory"]),
        ("data: {folder: x, limit: a}", (), ['data.limit: expected a whole number or null; got "a"']),
        ("data: {folder: a$}", (), ["data.folder: ", "write $$"]),
        ("data: {folder: x}\noptim: {name: lamb}", (), ['optim.name: expected one of "sgd", "adam"; got "lamb"']),
        ("data: {folder: x}\noptim: {betas: [1]}", (), ["optim.betas: expected a list of 2: a number, a number"]),
        (
            "data: {folder: x}\nschedule: {boundaries: [1, b]}",
            (),
            ['run.yaml:2: schedule.boundaries: item 2: expected a whole number; got "b"'],
        ),
        (
            "data: {folder: x}\nschedule: {decay: {a: 1}}",
            (),
            ["schedule.decay: expected a mapping of a whole number to a number", "for example {4: 0.1}"],
        ),
        ("data: {folder: x}\nschedule:\n  boundaries: 2, 5", (), ["run.yaml:3: schedule.boundaries: ", "write [2, 5]"]),
        ("data: {folder: x}", ["schedule.boundaries=3"], ["schedule.boundaries: ", "write [3]"]),
        ("data: {folder: x}", ["schedule.boundaries=none"], ["schedule.boundaries: ", "write [] for none"]),
        (
            "data: {folder: x}\nschedule: {boundaries: 2-4}",
            (),
            ["schedule.boundaries: ", "write each number: 2,3,4, in ["],
        ),
        ("data: {folder: x}", ["epochs=2 optim.lr=1"], ["epochs: expected a whole number", "two settings"]),
        ("data: {folder: x}", ["schedule.decay="], ["schedule.decay: ", "got null; write {} for none"]),
        (
            "data:\n  folder: x\n  optim:\n    lr: 1",
            (),
            ["run.yaml:3: unknown key data.optim: optim is indented, and so stands inside data; move it to the left"],
        ),
        ("data: {folder: x}\nschedule: {decay: {3: half}}", (), ['schedule.decay: 3: expected a number; got "half"']),
        ("data: {folder: x}", ["optim.lr=0,002"], ["optim.lr: expected a number", "write 0.002"]),
        ("data: {folder: x}", ["optim.lr=5 %"], ['optim.lr: expected a number; got "5 %"']),
        ("data: {folder: x}", ["epochs=16,384"], ["epochs: expected a whole number", "write 16384"]),
        ("data: {folder: x}\nepochs: 3 epochs", (), ["epochs: expected a whole number", "write 3"]),
        ("data: {folder: x}\noptim: 3", (), ["run.yaml:2: optim: ", "got 3; for example {lr: 0.1}"]),
        ("data: {folder: x}\noptim:", (), ["optim: expected a section with the keys lr, momentum", "got null; indent"]),
        ("data: {folder: x}\noptim: {lr: -1}", (), ["run.yaml: optim: lr is -1.0; expected > 0"]),
        ("data: {folder: x}", ["optim.lr"], ["override 'optim.lr': expected section.key=value without blanks"]),
        ("data: {folder: x}", ["=1"], ["expected section.key=value"]),
        ("data: {folder: x}", ["epochs=[1"], ["override 'epochs=[1'", "not valid YAML"]),
        ("title: " + "[" * 20_000, (), ["run.yaml: nested too deeply"]),
        ("", (), ["run.yaml: empty; expected lines such as"]),
        ("# all commented out", (), ["run.yaml: empty; expected lines such as"]),
        ("- a\n- b", (), ['run.yaml: contains ["a", "b"]; expected lines such as']),
        ("epochs: 3\ndata: {folder: x\n", (), ["run.yaml:2:7: not valid YAML: a bracket without"]),
        ("epochs: 3\nepochs: 4", (), ["run.yaml:2:1: not valid YAML: the key 'epochs' is repeated"]),
        (
            "data:\n  folder:x\n  b: 1",
            (),
            ["run.yaml:3:4: not valid YAML: a blank is missing after the colon in the line"],
        ),
        ("epochs: 3\n title: x", (), ["run.yaml:2:7: not valid YAML: indented more than the line above"]),
        ("title: a: b", (), ["run.yaml:1:9: not valid YAML: a second `: ` in the line"]),
        ("data:\n  folder: 'x\nepochs: 3", (), ["run.yaml:2:11: not valid YAML: a quotation mark without a second"]),
        ("optim: {betas: [0.9, 0.99}", (), ["run.yaml:1:16: not valid YAML: a bracket without its closing one"]),
        ("title: @x", (), ["run.yaml:1:8: not valid YAML: a value that begins with this character; put it in quotes"]),
        ("epochs: 3\n<<<<<<< HEAD\ntitle: x\n", (), ["run.yaml:2:1: not valid YAML: a conflict marker of git"]),
        ("data: 'folder:x'", (), ["data: expected a section", "write `folder: x`, with a blank after the colon"]),
        ("data: folder = x", (), ["data: expected a section", "write `folder: x`"]),
        ("data: {folder: x}\nepochs: 1,000", (), ['epochs: expected a whole number; got "1,000"; write 1000']),
        ("data: {folder: x}", ["optim.lr=0,002"], ['optim.lr: expected a number; got "0,002"; write 0.002']),
        ("base: rnu.yaml", (), ["cannot be read: No such file", "(did you mean 'run.yaml'?)"]),
        ("schedule:\n  decay:\n    1: 0.5\n    1: 0.2", (), ["run.yaml:4:5: ", "the key '1' is repeated"]),
        ("title: !!python/object/apply:os.getcwd []", (), ["run.yaml:1:8: not valid YAML: could not determine"]),
        ("title: \x07", (), ["run.yaml: not valid YAML"]),
        ("optim:\n\tlr: 3", (), ["run.yaml:2:1: not valid YAML", "by blanks, not by tabs"]),
        ("? [a]\n: 1", (), ["run.yaml:1:3: not valid YAML"]),
        ("base: 3", (), ["run.yaml: base: expected the name of a YAML file; got 3"]),
        ("base: no.yaml", (), ["no.yaml (base of", "run.yaml): cannot be read: No such file"]),
        ("base: mini", (), ["mini (base of", "a base is a path, and mini is", "cosmoflow/mini.yaml"]),
        ("base: run.yaml", (), ["in a circle"]),
    ],
)
def test_errors_name_the_place_and_what_is_expected(message, text, overrides, says):
    said = message(text, *overrides)
    assert all(part in said for part in says), said


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("none.yaml", r"none\.yaml: cannot be read: No such file"),
        ("", "cannot be read: this is a folder; expected a file"),
        ("latin.yaml", r"latin\.yaml: not text in UTF-8"),
    ],
)
def test_files_that_cannot_be_read(tmp_path, name, says):
    (tmp_path / "latin.yaml").write_bytes(b"title: Universit\xe9\n")
    with pytest.raises(ConfigError, match=says):
        load(Config, tmp_path / name)


def test_an_error_in_a_base_names_the_base(message, file):
    file("epochs: many", "root.yaml")
    assert "root.yaml:1 (base of" in message("base: root.yaml\ndata: {folder: x}")


def test_plain_values_and_paths_as_wanted():
    config = Config(Data(Path("/home/somebody/data")), schedule=Schedule({2: 0.5}))
    assert to_dict(config)["data"] == {"folder": "/home/somebody/data", "cache": None, "shuffle": True, "limit": None}
    assert to_dict(config, lambda path: path.name)["data"]["folder"] == "data"
    assert to_dict(config)["schedule"]["decay"] == {2: 0.5}


TEXTS = st.text(st.characters(exclude_categories=["Cs"])) | st.sampled_from(
    ["1e-3", "no", "null", "~", "", "1_0", "0x1", "a: b", "# c", ".nan", "$HOME", "~root/x", "=", "<<", "2020-01-01"]
)
PATHS = TEXTS.filter(lambda text: not re.search(r"[\0-\x1f\x7f]", text)).map(Path)


@given(
    config=st.builds(
        Config,
        data=st.builds(Data, folder=PATHS, cache=st.none() | PATHS),
        optim=st.builds(Optim, lr=st.floats(1e-300, allow_nan=False), momentum=st.floats(allow_nan=False)),
        schedule=st.builds(
            Schedule,
            decay=st.dictionaries(st.integers(), st.floats(allow_nan=False)),
            boundaries=st.lists(st.integers()).map(tuple),
        ),
        epochs=st.integers(),
        title=TEXTS,
    )
)
def test_what_is_written_reads_back_the_same(tmp_path_factory, config):
    path = tmp_path_factory.getbasetemp() / "written.yaml"
    path.write_text(to_yaml(config), encoding="utf-8", newline="")
    assert load(Config, path) == config


def test_a_removed_key_is_refused_in_a_file_and_left_out_of_an_earlier_configuration(tmp_path):
    @dataclass(frozen=True)
    class Inner:
        rate: float = 0.1

    @dataclass(frozen=True)
    class Outer:
        inner: Inner = field(default_factory=Inner)
        removed: ClassVar = {"inner.old": ("0.2.0", None)}

    (tmp_path / "x.yaml").write_text("inner: {old: 3}\n")
    with pytest.raises(ConfigError, match=r"x\.yaml:1: inner\.old was a key up to version 0\.2\.0 .* remove it"):
        load(Outer, tmp_path / "x.yaml")
    assert rebuild(Outer, {"inner": {"old": 3, "rate": 0.2}}, "checkpoint") == Outer(Inner(0.2))


def test_a_key_that_does_not_say_what_it_means_is_refused():
    @dataclass(frozen=True)
    class Inner:
        rate: float = key(0.1, "the rate", unit="1/s")

    @dataclass(frozen=True)
    class Outer:
        where: Path = key(REQUIRED, "a folder", PLACE)
        inner: Inner = field(default_factory=Inner)

    where, rate = list_leaves(Outer)
    assert (where.name, where.default, where.key.role) == ("where", REQUIRED, PLACE)
    assert (rate.name, rate.default, rate.key.unit) == ("inner.rate", 0.1, "1/s")
    assert rate.find_value({"inner": {"rate": 3}}) == 3
    # A checkpoint from before there was the key: its run did what is now the default.
    assert rate.find_value({"where": "x"}) == 0.1
    assert rate.find_value({"inner": {"rate": None}}) is None and where.find_value({}) is None

    @dataclass(frozen=True)
    class Silent(Outer):
        more: int = 0

    with pytest.raises(TypeError, match=r"class Silent, more does not say what it means"):
        list(list_leaves(Silent))


def test_a_value_out_of_range_is_blamed_on_its_override(tmp_path):
    @dataclass(frozen=True)
    class Section:
        low: int = 0
        high: int = 9

        def __post_init__(self):
            if self.low > self.high:
                raise ValueError(f"low is {self.low}, above high = {self.high}")

    @dataclass(frozen=True)
    class Top:
        name: str = ""
        section: Section = field(default_factory=Section)

    path = tmp_path / "x.yaml"
    path.write_text("section: {low: 1}")
    with pytest.raises(ConfigError, match=r"^override 'section\.low=10': section: low is 10, above high = 9$"):
        load(Top, path, ["name=a", "section.low=10"])
    path.write_text("section: {low: 10}")
    with pytest.raises(ConfigError, match=r"^\S+x\.yaml: section: low is 10"):
        load(Top, path, ["name=low"])
