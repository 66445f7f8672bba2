"""Damaged logs for the comparison with the official checker, thousands of them; the same ones in every run.

A `Base` is a valid log (round, division, benchmark, variant). `list_mutations` damages its records, `LINE_EDITS` one of
its lines, `FILE_EDITS` the whole file; `list_cases` yields all damaged logs.
"""

from __future__ import annotations

import json
import math
import random
import zlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

from compliance.benchmarks import benchmarks_of
from compliance.logs.log import STRUCTURE, SUBMISSION
from compliance.samples.log import SampleLog
from tests.conformance.variants.logtext import TOKEN

# -- bytes ---

Edit = Callable[[bytes], bytes]

MEMBERS = ("namespace", "time_ms", "event_type", "key", "value", "metadata")
SPACES = {
    "a blank": b" ",
    "a tab": b"\t",
    "VT": b"\x0b",
    "FF": b"\x0c",
    "FS": b"\x1c",
    "US": b"\x1f",
    "NEL in Latin-1": b"\x85",
    "a no-break space in Latin-1": b"\xa0",
    "NEL in UTF-8": b"\xc2\x85",
    "a no-break space in UTF-8": b"\xc2\xa0",
    "an em space in UTF-8": b"\xe2\x80\x83",
    "a line separator in UTF-8": b"\xe2\x80\xa8",
    "a byte order mark": b"\xef\xbb\xbf",
    "NUL": b"\0",
    "a Latin-1 letter": b"\xe9",
}
LINE_ENDS = {
    "CRLF": b"\r\n",
    "CR": b"\r",
    "CR CR LF": b"\r\r\n",
    "LF CR": b"\n\r",
    "LF LF": b"\n\n",
    "CRLF CRLF": b"\r\n\r\n",
}
NO_OBJECTS = (b"[1, 2]", b"null", b"1", b'"text"', b"{}", b"[]", b"", b"NaN", b"true")
VALUES = (
    *(b"01", b"1.", b".5", b"+1", b"0x10", b"1e5", b"1E+400", b"-1e400", b"-0", b"NaN", b"-NaN", b"nan"),
    *(b"Infinity", b"-Infinity", b"inf", b"True", b"None", b"undefined", b"'text'", b"1_000", b"1,", b"[1,]", b"{,}"),
    *(b'"\\ud800"', b'"\\ud83d\\ude00"', b'"\\x41"', b'"\\u00"', b'"\t"', b'"\x7f"', b'"\x85"', b'"\xe9"'),
    *(b'"\xc3\xa9"', b'"\xff\xfe"', b'"\xc0\x80"', b'"\xed\xa0\x80"', b'"open', b"/* no */ 1", b"1 // no", b"9" * 30),
    *(b"9" * 5000, b"[" * 300 + b"]" * 300, b'{"a":' * 300 + b"1" + b"}" * 300),
    *(b'"a\nb"', b'"a\rb"', b'"a\\nb"', b'":::MLLOG "', b'":::MLLOG {}"', b'{"a": 1, "a": 2}', b"0", b"-1", b"1.0"),
)
KEYS: tuple[Any, ...] = (1, None, True, 1.5, [1], {"a": 1}, [], "", "unknown", "RUN_STOP", "run_stop ", "run_stop\n")


def _body(line: bytes) -> bytes:
    return line.split(TOKEN, 1)[1]


def _changed(line: bytes, /, **members: Any) -> bytes:
    return TOKEN + json.dumps(json.loads(_body(line)) | members).encode()


def _without(line: bytes, name: str) -> bytes:
    record = json.loads(_body(line))
    del record[name]
    return TOKEN + json.dumps(record).encode()


def _with_value(line: bytes, text: bytes) -> bytes:
    """Return the line with this text as its value, whatever it is."""
    head, tail = _changed(line, value="VALUE").split(b'"VALUE"')
    return head + text + tail


def merge(tables: Iterable[dict[str, Edit]]) -> dict[str, Edit]:
    """Return one table of several."""
    return {name: edit for table in tables for name, edit in table.items()}


def shorten(text: bytes) -> str:
    """Return the beginning of a text, and its length if that is not all."""
    name = repr(text[:24])[2:-1]
    return name + f"… ({len(text)} bytes)" if len(text) > 24 else name


DEEP = TOKEN + b'{"time_ms": 1, "key": "k", "metadata": {}, "value": ' + b"[" * 12_000 + b"]" * 12_000 + b"}"
FOREIGN = TOKEN + b'{"time_ms": 1, "key": "k", "value": 1, "metadata": {}}\n'
LINE_EDITS: dict[str, Edit] = {
    **merge(
        {
            f"{name} after the record": lambda line, space=space: line + space,
            f"{name} before the record": lambda line, space=space: TOKEN + space + _body(line),
            f"{name} before the token": lambda line, space=space: space + line,
            f"{name} for the token's blank": lambda line, space=space: TOKEN[:-1] + space + _body(line),
            f"{name} after the first member": lambda line, space=space: line.replace(b", ", b"," + space, 1),
        }
        for name, space in SPACES.items()
    ),
    **merge(
        {
            f"record {text.decode()!r}": lambda line, text=text: TOKEN + text,
        }
        for text in NO_OBJECTS
    ),
    **merge(
        {
            f"value {shorten(text)}": lambda line, text=text: _with_value(line, text),
        }
        for text in VALUES
    ),
    **merge(
        {
            f"key {key!r}": lambda line, key=key: _changed(line, key=key),
        }
        for key in KEYS
    ),
    **merge(
        {
            f"without {name}": lambda line, name=name: _without(line, name),
            f"{name} twice": lambda line, name=name: line.replace(b"{", b'{"%s": 1, ' % name.encode(), 1),
            f"{name} again at the end": lambda line, name=name: line[:-1] + b', "%s": 1}' % name.encode(),
            f"{name} null": lambda line, name=name: _changed(line, **{name: None}),
        }
        for name in MEMBERS
    ),
    "cut in half": lambda line: line[: len(line) // 2],
    "broken in two": lambda line: line[: len(line) // 2] + b"\n" + line[len(line) // 2 :],
    "with {# for {": lambda line: line.replace(b"{", b"{#", 1),
    "one brace more": lambda line: line + b"}",
    "one brace less": lambda line: line[:-1],
    "text behind": lambda line: line + b" done",
    "text before": lambda line: b"12: gpu-07 | " + line,
    "another record behind": lambda line: line + b" " + _changed(line, key="unknown"),
    "another record before": lambda line: _changed(line, key="unknown") + b" " + line,
    "an empty token behind": lambda line: line + b" " + TOKEN,
    "half a token behind": lambda line: line + b" :::MLLOG",
    "token in lower case": lambda line: line.replace(TOKEN, TOKEN.lower()),
    "token of another tool": lambda line: line.replace(TOKEN, b":::MLPv0.5.0 "),
    "in single quotes": lambda line: line.replace(b'"', b"'"),
    "CRLF": lambda line: line + b"\r",
    "CR in between": lambda line: line.replace(b", ", b",\r", 1),
    "written twice": lambda line: line + b"\n" + line,
    "commented out": lambda line: b"# " + line,
    "unknown members": lambda line: _changed(line, rank=3, line=1, order=0),
    "members of other types": lambda line: _changed(line, namespace=[1], event_type={"a": 1}),
}
FILE_EDITS: dict[str, Edit] = {
    "empty": lambda data: b"",
    "text only": lambda data: b"epoch 1 loss 0.3\n" * 50,
    "token without records": lambda data: data.replace(TOKEN, b""),
    "no line end at the end": lambda data: data[:-1],
    **merge(
        {
            f"line ends {name}": lambda data, end=end: data.replace(b"\n", end),
        }
        for name, end in LINE_ENDS.items()
    ),
    **merge(
        {
            f"{name} before every line end": lambda data, space=space: data.replace(b"\n", space + b"\n"),
            f"{name} for every line end": lambda data, space=space: data.replace(b"\n", space),
            f"{name} at the start": lambda data, space=space: space + data,
            f"{name} at the end": lambda data, space=space: data + space,
            f"{name} for every blank": lambda data, space=space: data.replace(b" ", space),
        }
        for name, space in SPACES.items()
    ),
    "ranks before every line": lambda data: data.replace(TOKEN, b"0: " + TOKEN),
    "text with tokens around": lambda data: b"see :::MLLOG\n" + data + b":::MLLOG\n",
    "an empty record at the end": lambda data: data + TOKEN,
    "a record cut at the end": lambda data: data + data[:60],
    "FF FE at the start": lambda data: b"\xff\xfe" + data,
    "FE FF at the start": lambda data: b"\xfe\xff" + data,
    "UTF-16 with mark": lambda data: data.decode().encode("utf-16"),
    "UTF-16 LE": lambda data: data.decode().encode("utf-16-le"),
    "UTF-16 BE": lambda data: data.decode().encode("utf-16-be"),
    "UTF-32": lambda data: data.decode().encode("utf-32"),
    "twice": lambda data: data + data,
    "its lines backwards": lambda data: b"\n".join(reversed(data.splitlines())) + b"\n",
    "its lines sorted": lambda data: b"\n".join(sorted(data.splitlines())) + b"\n",
    **merge(
        {
            f"cut after {part:.0%}": lambda data, part=part: data[: int(len(data) * part)],
            f"first {part:.0%} lost": lambda data, part=part: data[int(len(data) * part) :],
        }
        for part in (0.1, 0.3, 0.5, 0.7, 0.9, 0.99)
    ),
    "all in one line": lambda data: data.replace(b"\n", b" "),
    "a deeply nested record at the end": lambda data: data + DEEP,
    "a long line of text": lambda data: b"x" * 100_000 + b"\n" + data,
    "a thousand foreign records": lambda data: data + FOREIGN * 1000,
}


# -- records ---

PUBLISHED = ("cosmoflow", "deepcam", "oc20", "openfold")
"""The benchmarks of the rounds that were held: the official tool knows no other."""
NEIGHBOURS = ("init_start", "init_stop", "run_start", "run_stop", "epoch_start")
JUDGED_IN_OPEN = (*SUBMISSION, *STRUCTURE, "train_samples", "eval_samples")

WRONG_TYPES = ("text", "", "1", None, True, False, [], [1, 2], {}, {"a": 1}, math.nan, math.inf, -math.inf)
NUMBERS = (0, -1, 1, -0.0, 5e-324, -5e-324, 0.5, 1e300, 2**64)
UNIT = (math.nextafter(1, 0), 1.0, math.nextafter(1, 2), 10)
SEQUENCES = ([0.9], [0.9, 0.99], [0.9, 0.99, 0.999], [2, -1], ["a", "b"], [[1], [2]], "ab", {"a": 1, "b": 2})
INTERESTING: dict[str, tuple[Any, ...]] = {
    "submission_division": ("Closed", "CLOSED", "open", "closed", "closed ", ["closed"], "opne"),
    "submission_status": ("cloud", "onprem", "preview", "research", "Cloud", "available", ["cloud"]),
    "submission_benchmark": (*PUBLISHED, "CosmoFlow", "common", "../../etc/passwd", ["cosmoflow"], "resnet"),
    "submission_org": ("Université", "\ud800", "a" * 5000),
    "opt_name": ("sgd", "SGD", "Sgd", "Adam", "adam", "AdamW", "adamw", "LAMB", "lamb", ["LAMB"]),
    "opt_betas": SEQUENCES,
    "opt_eps": (1e-8, *(1e-6 * (1 + part) for part in (9e-10, -9e-10, 1.1e-9, -1.1e-9, 1e-6, -1e-6))),
    "scheduler_type": ("multistep", "MultiStep", "cosine_annealing", "Cosine_annealing", "poly", ["multistep"]),
    "scheduler_milestones": SEQUENCES,
    "train_samples": (121_266, 121_216, 524_288, 262_144, 2_000_000, 594_595, 594_595.0, "121266"),
    "eval_samples": (15_158, 65_536, 999_866, 180, 180.0, "180"),
    "dropout": UNIT,
    "opt_max_grad_norm": UNIT,
    "scheduler_decay_rate": UNIT,
    "scheduler_t_max": UNIT,
    "scheduler_lr_warmup_factor": UNIT,
}
TIMES = (0, -1, 1.5, math.nan, math.inf, -math.inf, 1e300, 10**25, 10**400, True, None, [1], {"a": 1})
TIME_TEXTS = ("1694000000000", " 1694000000000 ", "1.2.3", "1_000", "nan", "-inf", "", "soon")
METADATA = (None, "text", "epoch_num status epoch_count first_epoch_num", ["epoch_num", "status"], {}, 3)
NUMBERING = (None, "3", [], 0, -1, 1.5, True, math.nan)


class Mutation(NamedTuple):
    """One thing to do to a log: what, to which key, and the function that does it, with its arguments."""

    label: str
    key: str
    change: Callable[..., Any]
    arguments: tuple[Any, ...]

    def apply(self, log: SampleLog) -> None:
        """Damage the log."""
        self.change(log, *self.arguments)


def does(label: str, key: str, change: Callable[..., Any], *arguments: Any) -> Mutation:
    """Return the mutation that calls `change(log, *arguments)`."""
    return Mutation(label, key, change, arguments)


def mutations(log: SampleLog, keys: tuple[str, ...], plain: bool) -> Iterator[Mutation]:
    """Yield what can be wrong with these keys of this log; in the plain log also qualities and times.

    The rules on events are those of no benchmark: one log has its events damaged in every way, the others in a few.
    """
    thorough, special = log.benchmark == "cosmoflow", (log.reference.target.key, "opt_name", "scheduler_type")
    for key in keys:
        if log.division == "open" and key not in JUDGED_IN_OPEN:
            yield does("missing", key, SampleLog.drop, key)
            continue
        if log.records_of(key):
            yield from presence(key)
            if key in special or (thorough and key in (*STRUCTURE, *SUBMISSION)):
                yield from places(log, key)
            if key in special or (thorough and key in STRUCTURE):
                yield from metadata(log, key)
        if key in STRUCTURE:
            yield does("value of another type", key, SampleLog.set, key, "text")
        else:
            yield from values(log, key)
    if plain:
        yield from quality(log)
        if thorough:
            yield from times(log)


def presence(key: str) -> Iterator[Mutation]:
    """Yield: the key is missing, or too often there."""
    yield does("missing", key, SampleLog.drop, key)
    yield does("missing once", key, SampleLog.drop, key, 0)
    yield does("doubled", key, SampleLog.double, key)
    yield does("doubled with another value", key, SampleLog.double, key, 0, "another")
    yield does("repeated at the end", key, _repeat, key, -1)
    yield does("repeated at the start", key, _repeat, key, 0)


def values(log: SampleLog, key: str) -> Iterator[Mutation]:
    """Yield: the value has another type, lies on a boundary, or just beside it."""
    valid = log.records_of(key)[:1]
    near = [value for record in valid for value in _near(record["value"])]
    for value in (*WRONG_TYPES, *NUMBERS, *near, *INTERESTING.get(key, ())):
        yield does(named(value), key, SampleLog.set, key, value)
    for value in ("text", 0, -1) if valid else ():
        yield does(f"first {value!r}, then right", key, _precede, key, value)


def _near(value: Any) -> list[Any]:
    """Return values that resemble this one."""
    if isinstance(value, bool):
        return [not value, int(value), float(value), str(value).lower()]
    if isinstance(value, (int, float)):
        beside = [math.nextafter(value, -math.inf), math.nextafter(value, math.inf)]
        return [*beside, value + 1, value - 1, -value, float(value), str(value), [value]]
    if isinstance(value, str):
        return [value.upper(), value.lower(), value + " ", value[:-1], [value]]
    return [value[:1], value + value, value[0]]


def places(log: SampleLog, key: str) -> Iterator[Mutation]:
    """Yield: the key's first record stands right before or after each event that others are compared with."""
    for neighbour in NEIGHBOURS:
        if neighbour != key and log.records_of(neighbour):
            yield does(f"before {neighbour}", key, SampleLog.move, key, neighbour)
            yield does(f"after {neighbour}", key, SampleLog.move, key, "", neighbour)
    yield does("at the end", key, _carry, key, -1)
    yield does("at the start", key, _carry, key, 0)


def metadata(log: SampleLog, key: str) -> Iterator[Mutation]:
    """Yield: the metadata is missing or no object, or lacks what the key needs, or says nonsense there."""
    for value in METADATA:
        yield does(f"metadata {named(value)}", key, SampleLog.field, key, "metadata", value, 0)
    yield does("without metadata", key, _lose_field, key, "metadata")
    for name in log.records_of(key)[0]["metadata"]:
        if name not in ("file", "lineno"):
            yield does(f"without {name}", key, SampleLog.meta, key, name, None)
            yield does(f"last without {name}", key, SampleLog.meta, key, name, None, -1)
            for value in NUMBERING:
                yield does(f"{name} {named(value)}", key, _number, key, name, value)


def quality(log: SampleLog) -> Iterator[Mutation]:
    """Yield: evaluations around the target, of other types, and in places where they should not count."""
    key, goal = log.reference.target.key, log.reference.target.value
    edge = [math.nextafter(goal, 0), math.nextafter(goal, 1), goal, goal + 1e-9, goal - 1e-9, -goal, *UNIT]
    for value in (*edge, *WRONG_TYPES, *NUMBERS):
        yield does(f"last {named(value)}", key, SampleLog.last_evaluation, value)
        yield does(f"first {named(value)}", key, SampleLog.evaluation, 1, value)
    for place in ("run_start", "run_stop", "init_start"):
        yield does(f"target met after {place} only", key, _meet_after, place, goal)
    other = "eval_error" if key == "eval_accuracy" else "eval_accuracy"
    yield does(f"called {other}", key, _rename, key, other)
    yield does(f"joined by {other}", key, SampleLog.add, other, "text", "run_stop")


def times(log: SampleLog) -> Iterator[Mutation]:
    """Yield: times of other types and sizes; an initialisation just as long as allowed."""
    for key in ("init_start", "init_stop", "run_start", "run_stop", log.reference.target.key, "train_samples"):
        for value in (*TIMES, *TIME_TEXTS):
            yield does(f"at {named(value)[:40]}", key, SampleLog.field, key, "time_ms", value)
        yield does("without time", key, _lose_field, key, "time_ms")
    for extra in (-1, -0.25, 0, 0.25, 1):
        label, length_ms = f"takes 30 min {extra:+} ms", 30 * 60_000 + extra
        yield does(label, "init_stop", let_init_take, length_ms)
        for first in (math.nan, math.inf, -math.inf, 1.0):
            yield does(f"{label} from the second start, after {first}", "init_stop", let_init_take, length_ms, first)


# -- changes that SampleLog does not know -----------------------------------------------------------------------


def _repeat(log: SampleLog, key: str, at: int) -> None:
    log.records.insert(len(log.records) if at else 0, log.records_of(key)[0])


def _lose_field(log: SampleLog, key: str, name: str) -> None:
    del log.records_of(key)[-1][name]


def _rename(log: SampleLog, key: str, other: str) -> None:
    for record in log.records_of(key):
        record["key"] = other


def _carry(log: SampleLog, key: str, at: int) -> None:
    record = log.records.pop(log.records.index(log.records_of(key)[0]))
    log.records.insert(len(log.records) if at else 0, record)


def _precede(log: SampleLog, key: str, value: Any) -> None:
    log.double(key)
    log.set(key, value)


def _number(log: SampleLog, key: str, name: str, value: Any) -> None:
    log.records_of(key)[0]["metadata"][name] = value


def _meet_after(log: SampleLog, place: str, goal: float) -> None:
    log.last_evaluation(0.5).add_evaluation(goal, after=place)


def let_init_take(log: SampleLog, duration_ms: float, first_ms: float | None = None) -> None:
    """Let the initialisation take so long, from a second start if a first one has another time."""
    start = log.records_of("init_start")[0]
    if first_ms is not None:
        log.double("init_start")
        start["time_ms"] = first_ms
        start = log.records_of("init_start")[1]
    start["time_ms"] = log.records_of("init_stop")[0]["time_ms"] - duration_ms


def named(value: Any) -> str:
    """Return a short text for a value."""
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:40]}… ({len(text)} characters)"


# -- cases ---

ROUNDS = ("1.0", "2.0", "3.0")
FOCUS = {
    "blocks": ("block_start", "block_stop", "eval_start", "eval_stop"),
    "staged": ("staging_start", "staging_stop"),
    "optional": ("gradient_accumulation_steps", "gradient_accumulation_frequency", "sgd_opt_momentum"),
    "adam": ("opt_name", "opt_bias_correction", "opt_grad_averaging", "opt_max_grad_norm"),
    "cosine": (
        "scheduler_type",
        "scheduler_t_max",
        "scheduler_eta_min",
        "scheduler_milestones",
        "scheduler_decay_rate",
    ),
}
"""Which keys are damaged in the variants; in the plain log all of them."""
DECIDERS = ("submission_division", "submission_benchmark", "opt_name", "scheduler_type")
"""Keys on which other rules depend."""
EVERY_ROUND = ("missing", "doubled", "doubled with another value")
PAIRS = 20
SHUFFLES = 8


class Base(NamedTuple):
    """A valid log to damage."""

    round: str
    division: str
    benchmark: str
    variant: str = "plain"

    @property
    def plain(self) -> bool:
        """Whether it is the log without extras."""
        return self.variant == "plain"

    def log(self) -> SampleLog:
        """Return the valid log, short enough for thousands of checks."""
        log = SampleLog(self.benchmark, self.round, self.division, epochs=2)
        if self.variant == "blocks":
            log.blocks()
        elif self.variant == "staged":
            log.stage(after="run_start")
        elif self.variant == "optional":
            for key in FOCUS["optional"]:
                log.set(key, 1)
        elif self.variant == "adam":
            for key in ("opt_bias_correction", "opt_grad_averaging", "opt_max_grad_norm"):
                log.drop(key)
            log.set("opt_name", "Adam")
        elif self.variant == "cosine":
            log.drop("scheduler_milestones").drop("scheduler_decay_rate")
            log.set("scheduler_type", "cosine_annealing").set("scheduler_t_max", 9000).set("scheduler_eta_min", 0.0)
        return log

    def keys(self) -> tuple[str, ...]:
        """Return the keys that its records have, in file order."""
        return tuple(dict.fromkeys(record["key"] for record in self.log().records))

    def has_turn(self, key: str, label: str) -> bool:
        """Tell whether this round does a mutation: the rounds take turns, as their rules are nearly the same."""
        turn = zlib.crc32(f"{self.division} {key} {label}".encode()) % len(ROUNDS)
        return label in EVERY_ROUND or turn == ROUNDS.index(self.round)

    def __str__(self) -> str:
        return " ".join(self[: 3 if self.plain else 4])


class Case(NamedTuple):
    """A damaged log: a readable name, the key that was damaged ("" for the file as a whole), its bytes."""

    id: str
    base: Base
    key: str
    data: bytes


def bases() -> Iterator[Base]:
    """Yield every kind of valid log."""
    for round_ in ROUNDS:
        for benchmark in filter(PUBLISHED.__contains__, benchmarks_of(round_)):
            yield Base(round_, "closed", benchmark)
            yield Base(round_, "open", benchmark)
        for variant in ("blocks", "staged", "optional"):
            yield Base(round_, "closed", "cosmoflow", variant)
        for variant in ("adam", "cosine", "optional"):
            yield Base(round_, "closed", "deepcam", variant)


def cases(base: Base) -> Iterator[Case]:
    """Yield every damaged log of a base; no two have the same name."""
    yield Case(f"{base}: valid", base, "", base.log().bytes())
    found = mutations(base.log(), FOCUS.get(base.variant) or base.keys(), base.plain)
    known = list({(mutation.key, mutation.label): mutation for mutation in found}.values())
    for mutation in known:
        if base.has_turn(mutation.key, mutation.label):
            log = base.log()
            mutation.apply(log)
            yield Case(f"{base}: {mutation.key} {mutation.label}", base, mutation.key, log.bytes())
    yield from _two_missing(base)
    yield from _pairs(base, known)
    yield from _shuffled(base)
    if base == Base(base.round, "closed", "cosmoflow"):
        yield from _edited(base)


def _two_missing(base: Base) -> Iterator[Case]:
    """Yield logs without a key on which other rules depend, and without one more."""
    keys = base.keys()
    for decider in DECIDERS if base.variant not in ("blocks", "staged") else ():
        for key in keys if decider in keys else ():
            if key != decider and base.has_turn(key, decider):
                log = base.log().drop(decider).drop(key)
                yield Case(f"{base}: {decider} and {key} missing", base, key, log.bytes())


def _pairs(base: Base, known: list[Mutation]) -> Iterator[Case]:
    """Yield logs with two things wrong, chosen at random but always the same."""
    choice = random.Random(f"pairs {base}")
    for number in range(PAIRS):
        one, other = choice.sample(known, 2)
        log = base.log()
        try:
            one.apply(log)
            other.apply(log)
        except (IndexError, KeyError, TypeError, AttributeError):
            continue  # the first took away what the second changes
        name = f"{base}: pair {number}: {one.key} {one.label}; {other.key} {other.label}"
        yield Case(name, base, one.key, log.bytes())


def _shuffled(base: Base) -> Iterator[Case]:
    """Yield logs whose records changed places: all of them, or three."""
    for number in range(SHUFFLES):
        log, choice = base.log(), random.Random(f"shuffle {number} {base}")
        if number % 2:
            choice.shuffle(log.records)
        else:
            for _ in range(3):
                record = log.records.pop(choice.randrange(len(log.records)))
                log.records.insert(choice.randrange(len(log.records)), record)
        yield Case(f"{base}: shuffled {number}", base, "", log.bytes())


def _edited(base: Base) -> Iterator[Case]:
    """Yield logs whose bytes are damaged."""
    valid = base.log()
    for key in ("init_start", "submission_org", "global_batch_size", valid.reference.target.key, "run_stop"):
        for label, line_edit in LINE_EDITS.items():
            if base.has_turn(key, label):
                yield Case(f"{base}: line of {key}: {label}", base, key, base.log().raw(key, line_edit).bytes())
    for key in base.keys()[1:]:
        glued = base.log().raw(key, lambda line: b"^" + line).bytes().replace(b"\n^", b"")
        yield Case(f"{base}: line of {key}: glued to the one before", base, key, glued)
    for label, file_edit in FILE_EDITS.items():
        yield Case(f"{base}: file: {label}", base, "", file_edit(valid.bytes()))
