"""The rule about what is around the records of a log: what precedes them in their lines, and the text between them.

Launchers label each line of a rank, number it or give its time; programs print their settings, results and times. None
of this is a record, and no tool reads it: who edits records leaves it. Of the 1,545 published logs none has anything
before its records; 40 of five results (four organisations) have text between them, all of which agrees.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterator
from itertools import chain, pairwise
from math import remainder
from typing import Final

from common.values import is_number
from compliance.logs.log import SETTINGS, Log
from compliance.logs.record import FILE_ORDER, Record
from compliance.model.judging import NOTE, WARNING, Case, Finding
from compliance.rules.pace import FEW_SHARE
from compliance.rules.rule import LogRule, show

MANY: Final = 10
"""More than one record in so many is usual."""
LATE_S: Final = 15.0
"""What writing a line may take."""
QUARTER_S: Final = 900
"""By which zones differ."""
LOADED: Final = (
    rb"(?i)\b(?:resum|restor|load|continu)(?:ed|ing)\b(?: training)? (?:from (?:checkpoint|ckpt|epoch|step)\b|.{0,40}?"
    rb"(?:checkpoint|ckpt|weights|model).{0,40}\.(?:pth?|h5|ckpt|tar)\b)"
)
LENGTH: Final = (
    rb"(\d+)/\1 (?:\[=+\] )?- (\d+)s\b|(?i:.{0,60}\btotal (?:time taken|epoch time|train(?:ing)? time)\W{1,5}"
    rb"(\d+(?:\.\d+)?)(?: ?s(?:ec(?:ond)?s?)?)?\W*$)"
)
"""The seconds of an epoch, as Keras prints them, or of all."""
STAMP: Final = (
    rb"\W{0,2}(?:\d{1,6}: )?(?:(1[4-9]\d{8})(\d{3})?(?:\.\d+)?(?=[\s\]:,])|"
    rb"(?:20\d\d[-/]\d\d[-/]\d\d[T _]|(?:[A-Z][a-z]{2} {1,2}){1,2}\d{1,2} (?:20\d\d )?|[IWEF]\d{4} )?"
    rb"(\d\d):(\d\d):(\d\d(?:[.,]\d{1,9})?)(?=[\s\]:Z+-]|$))"
)
"""A time with which a line begins: seconds or milliseconds since 1970, a date and a clock, or a clock."""
NAMED: Final = (
    rb"(?<![\w./-])-{0,2}([A-Za-z_][\w.-]{2,39})[\"']?(?: ?[:=] ?| )[\"']?"
    rb"(-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)(?![\w./:*%-])"
)
"""A name and a number: `--batch-size 64`, `seed=3`, `'n_train': 262144`, `val_loss: 0.12`."""
EXACT: Final = re.compile(r"\.\d{4}")
"""With fewer places, a number may be near a result by chance."""
ALIASES: Final = {
    **{setting.key: setting.key for setting in SETTINGS},
    **dict.fromkeys(("n_train", "num_train_samples", "num_global_train_samples"), "train_samples"),
    **dict.fromkeys(("n_valid", "num_validation_samples", "num_global_validation_samples"), "eval_samples"),
    **dict.fromkeys(("slurm_nnodes", "slurm_job_num_nodes", "nnodes", "num_nodes"), "number_of_nodes"),
    **dict.fromkeys(("world_size", "slurm_ntasks", "number_of_ranks"), "number_of_ranks"),
    **dict.fromkeys(("batch_size", "local_batch_size", "total_batch_size"), "global_batch_size"),
    "start_lr": "opt_base_learning_rate",
    "weight_decay": "opt_weight_decay",
    "lr_warmup_steps": "opt_learning_rate_warmup_steps",
    "lr_warmup_factor": "opt_learning_rate_warmup_factor",
}
"""The keys of settings, by the names that programs and schedulers have for them."""
UNSURE: Final = (
    "batch_size",
    "local_batch_size",
    "train_samples",
    "eval_samples",
    "n_train",
    "n_valid",
    "seed",
    "dropout",
)
"""Names that may mean something else, or what one rank does."""
Doubt = tuple[int, str, str]
"""What does not agree: the line, the severity, and what the report says of it."""


class AgreesWithText(LogRule, strict_only=True):
    """What precedes the records in their lines, and the text between them, agrees with them."""

    id = "FRM14"
    severity = NOTE
    cite = "compliance/rules/text.py (what published logs have around their records)"
    differs = "the official tool reads no text"
    why = "Launchers label or date each line, programs print settings, results and times: who edits records forgets it."
    fix = (
        "Submit the log as the run wrote it, and log what was used; nothing to fix if other programs write to the file."
    )
    good = (lambda log: log().prefix(b"0: "),)
    bad = (lambda log: log().prefix(b"0: ").raw("run_stop", lambda line: line[3:]),)

    def check(self, log: Log, case: Case) -> Iterator[Finding]:
        start, stop = log.first("run_start"), log.last("run_stop")
        if start and stop and (log.heads or log.text):
            events = [event for event in log.events if start.order <= event.order <= stop.order]
            doubts = chain(find_labels(log, events), find_times(log), find_values(log), find_claims(log, stop, case))
            yield from (
                self.finding(log.path, line, message, "text that agrees with the records", severity=severity)
                for line, severity, message in doubts
            )


def find_form(head: bytes, line: int) -> bytes:
    """Return the form of a label: all words are the same, but for the number of the line."""
    return b" ".join(re.sub(rb"[\w.]+", lambda word: b"LINE" if word[0] == b"%d" % line else b"a", head).split())


def find_labels(log: Log, events: list[Record]) -> Iterator[Doubt]:
    """Yield the first record of the run, written by the same code, with another form of label than most."""
    forms = {event.line: find_form(log.heads.get(event.line, b""), event.line) for event in events if log.heads}
    usual = Counter(forms.values()).most_common(1)[0][0] if forms else b""
    files = {str(event.meta("file")) for event in events if forms.get(event.line) == usual}
    # A rank may have the number of a line. Where no record has a label, only the marks of diff are odd: progress bars
    # end within lines.
    odd = [
        event
        for event in events
        if str(event.meta("file")) in files
        and (form := forms[event.line]) != usual
        and (b"LINE" not in form if usual else form in (b"+", b"-", b">", b"<"))
    ]
    if 0 < len(odd) <= FEW_SHARE * len(events) and b"%" not in usual:
        deciding = [event for event in odd if event.key in ("run_start", "run_stop", *log.metrics)]
        yield (
            odd[0].line,
            WARNING if deciding else NOTE,
            f"{len(odd)} of {len(events)} records of the run, such as {odd[0].key}, are not labelled"
            f" as line {min(line for line, form in forms.items() if form == usual)} is",
        )


def read_stamp(text: bytes) -> float | None:
    """Return the time with which a line begins, in s since 1970 or since midnight; date and zone do not matter."""
    match = re.match(STAMP, text)
    if match is None:
        return None
    since, thousandths, hours, minutes, seconds = (part or b"0" for part in match.groups())
    return (
        float(since + b"." + thousandths) + 3600 * int(hours) + 60 * int(minutes) + float(seconds.replace(b",", b"."))
    )


def find_times(log: Log) -> Iterator[Doubt]:
    """Yield the label whose time differs most from that of its record, or the text that is latest before a record.

    Zones differ by quarters of hours, several may occur. Text may be written late: it is earlier than the record
    before it. So may labels, if lines are held back, or records: text then stands between few of them.
    """
    texts = (*log.heads.items(), *log.text)
    stamps = [(line, stamp) for line, text in texts if (stamp := read_stamp(text)) is not None]
    every = chain.from_iterable(log.records.values()) if stamps else ()
    times = [(r.line, r.time_ms / 1000, r.key) for r in sorted(every, key=FILE_ORDER) if is_number(r.time_ms)]
    lines, seconds, keys = zip(*times, strict=True) if times else ((), (), ())
    points = [(line, stamp, at) for line, stamp in stamps if (at := bisect_left(lines, line)) < len(lines)]
    near = [s - seconds[at] for line, s, at in points if 0 <= seconds[at] - seconds[at - (lines[at] > line)] < 1]
    zones = Counter(round(by / QUARTER_S) for by in near if abs(remainder(by, QUARTER_S)) < 1)
    # Clocks of 12 hours are the same after half a day.
    zone, agreeing = zones.most_common(1)[0] if zones else (0, 0)
    late = [(remainder(stamp - seconds[at] - QUARTER_S * zone, 43_200), line, at) for line, stamp, at in points]
    odd = [
        (by, line, at)
        for by, line, at in late
        if by > LATE_S or (by < -LATE_S and lines[at] == line)
        if abs(by) < QUARTER_S / 2 or abs(remainder(by, QUARTER_S)) > LATE_S
    ]
    by, line, at = max(odd, key=lambda point: abs(point[0]), default=(0, 0, 0))
    labels = pairwise((stamp, seconds[at]) for line, stamp, at in points if lines[at] == line)
    held = sum(stamp == same and then - before > LATE_S for (stamp, before), (same, then) in labels)
    spread = len({at for *_, at in points}) * MANY > len(times) or max(stamps, default=(0,))[0] > max(lines, default=0)
    if agreeing > 2 and held < 2 and spread and odd and (len(odd) > 1 or lines[at] == line or keys[at] == "run_stop"):
        yield (
            line,
            WARNING if (by > 0) != (keys[at] == "run_start") and (len(odd) > 1 or lines[at] == line) else NOTE,
            f"the time with which the line begins is {abs(by):,.1f} s {'later' if by > 0 else 'earlier'}"
            f" than that of {keys[at]}, the record of this line or the next",
        )


# -- what the text says -------------------------------------------------------------------------------------------


def find_values(log: Log) -> Iterator[Doubt]:
    """Yield settings to which the text before the first epoch never gives the value of the record, and other results.

    Where most of the numbers that the text has after a name are results, the others should be.
    """
    said: dict[str, dict[str, int]] = defaultdict(dict)
    for line, text in log.text:
        for name, digits in re.findall(NAMED, text)[:50]:
            said[name.decode().lower().replace("-", "_")].setdefault(digits.decode(), line)
    end = log["run_stop"][0].line
    begin = min((record.line for key in ("epoch_start", "block_start") for record in log[key]), default=end)
    results = sorted(record.value for key in log.metrics for record in log[key] if is_number(record.value))
    for name, printed in said.items():
        key, may_be_part = ALIASES.get(name, ""), name in UNSURE
        values = [record.value for record in log[key][:MANY] if is_number(record.value)]
        stated = {float(digits): line for digits, line in printed.items() if line < begin} if values else {}
        agreeing = [n for n in stated for v in values if n == v or (may_be_part and 0 < n < v and v % n == 0)]
        if stated and not agreeing:
            yield (
                max(stated.values()),
                WARNING if name == key and not may_be_part else NOTE,
                f"the text says {name} {max(stated):.9g}, the record of {key} {show(values[0])}",
            )
        exact = {digits: line for digits, line in printed.items() if begin < line < end and EXACT.search(digits)}
        other = {digits: line for digits, line in exact.items() if not is_rounded(digits, results)}
        # From so many on, the name is known under which the program prints results.
        if 0 < len(other) <= FEW_SHARE * len(exact) and len(exact) >= 5:
            digits = max(other, key=other.__getitem__)
            yield (
                other[digits],
                WARNING,
                f"the text says {name} {digits}, which is no result; other numbers of this name are",
            )


def is_rounded(digits: str, values: list[float]) -> bool:
    """Tell whether one of the ascending values has these digits when it is written with as many."""
    half = 0.501 * 10.0 ** -len(digits.partition(".")[2])
    at = bisect_left(values, float(digits) - half)
    return at < len(values) and values[at] <= float(digits) + half


def find_claims(log: Log, stop: Record, case: Case) -> Iterator[Doubt]:
    """Yield text that tells of other weights at the start or of longer times."""
    begins = [record for key in ("epoch_start", "block_start") for record in log[key]] + [stop]
    lines, lengths = [r.line for r in begins], [(b.time_ms - a.time_ms) / 1000 for a, b in pairwise(begins)]
    stated = (
        any(log[key] for key in ("checkpoint", "run_resumed", "init_weights_sha256")) or case.benchmark == "openfold"
    )
    extent = (stop.time_ms - min(of_key[0].time_ms for of_key in log.records.values())) / 1000
    for line, text in log.text:
        at = bisect_left(lines, line)
        if at == 0 and not stated and re.search(LOADED, text[:200]):
            yield (
                line,
                NOTE,
                f"no record states that the run began with other weights, but: {show(text[:60].decode('latin-1'))}",
            )
        elif (length := re.match(LENGTH, text)) and (line < stop.line or not length[1]):
            longest = max(lengths[max(at - 3, 0) : at], default=extent) if length[1] else extent
            # A length that is so much longer is in another unit.
            if 1.01 * longest + LATE_S / 3 < float(length[2] or length[3]) < 50 * longest:
                yield (
                    line,
                    WARNING,
                    f"the text says {show(text[:60].decode('latin-1'))}; the records show {longest:,.1f} s",
                )
