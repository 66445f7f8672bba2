"""Rule files made to do harm: nothing of them runs, nothing outside is read, and no log passes by them."""

import os

import pytest

from compliance.check import main
from tests.compliance.committee.written import COMMON, ROUND, RUN, begin, end, key, write_log, write_rules

RUNS = "__import__('os').system('touch CANARY')"
GOOD = key("submission_division", REQ="EXACTLY_ONE")
NEVER = key("seed", REQ="AT_LEAST(2)")
"""A rule that the log breaks, so that PASS is wrong however the rest is read."""
LINES = (*RUN[:-1], *[("eval_accuracy", 3.2)] * 1000, RUN[-1])


def checked(text):
    return GOOD + key("eval_accuracy", CHECK=text)


def grown(start, step):
    """Return rules that change the state with each of 1,000 records."""
    return begin(start) + GOOD + key("eval_accuracy", POST=step) + NEVER


def enqueued(name):
    return GOOD + key("run_start", POST=f"enqueue_config({name!r})")


HOSTILE = {
    "a call in a check": checked(f"{RUNS} == 0"),
    "a call in a branch that is never taken": checked(f"True or {RUNS}"),
    "a call in code that runs first": begin(RUNS) + GOOD,
    "a call at the end": GOOD + end(CHECK=f"{RUNS} == 0"),
    "a call under a key that no log has": GOOD + key("none", CHECK=f"{RUNS} == 0"),
    "a chain of dunders": checked("().__class__.__base__.__subclasses__()"),
    "the globals of a function": checked("is_integer.__globals__['os'].system('touch CANARY') == 0"),
    "attributes in a format": checked("'{0.__class__.__init__.__globals__}'.format(v) != ''"),
    "letters that normalise to an import": checked("__\uff49mport__('os').system('touch CANARY') == 0"),
    "a decorator": GOOD + key("seed", POST=f"@(lambda f: {RUNS})\ndef f(): pass"),
    "a function stored in the state": begin("s['f'] = open") + GOOD,
    "leaving with status 0": checked("exit(0)"),
    "an endless loop": GOOD + key("seed", POST="while True: pass"),
    "deep brackets": checked("(" * 100_000 + "1" + ")" * 100_000),
    "a tower of powers": checked("10**10**10 > 0"),
    "a long text by multiplication": checked("len('a' * 10**9) > 0") + NEVER,
    "a number that is squared": grown("s['x'] = 3", "s['x'] = s['x'] * s['x']"),
    "a list that is doubled": grown("s['x'] = [1]", "s['x'] += s['x']"),
    "a text that is doubled": grown("s['x'] = 'ab'", "s['x'] = s['x'] + s['x']"),
    "a file that enqueues itself": enqueued(COMMON),
    "a file outside": enqueued("../outside.yaml"),
    "an absolute path": enqueued("/etc/passwd"),
    "a link to a file outside": enqueued(f"{ROUND}/link.yaml"),
    "a pipe": enqueued(f"{ROUND}/pipe.yaml"),
    "a tag that makes an object": "!!python/object/apply:os.system ['touch CANARY']\n",
    "laughs": "- &a [x, x]\n- &b [*a, *a]\n- [*b, *b]\n",
    "deep nesting": "[" * 100_000,
    "forged lines in a message": checked("nosuch('''\nFORGED PASS\x1b[2J\n''')"),
    "two documents": GOOD + "---\n" + NEVER,
    "no file": "",
}


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_hostile_rules_run_nothing_and_let_no_log_pass(text, empty_folder, capfd):
    rules = write_rules(empty_folder / "rules", {"common": text})
    (empty_folder / "rules/outside.yaml").write_text(key("LEAK", REQ="EXACTLY_ONE"))
    (empty_folder / "outside.yaml").write_text(key("LEAK", REQ="EXACTLY_ONE"))
    (rules / ROUND / "link.yaml").symlink_to(empty_folder / "outside.yaml")
    os.mkfifo(rules / ROUND / "pipe.yaml")
    write_log(empty_folder / "log.txt", LINES)
    before = sorted(empty_folder.rglob("*"))
    try:
        status = main(["log.txt", "--no-config", "--round", "9.9", "--committee-rules", "rules"])
    except SystemExit as ended:
        status = ended.code
    said = "".join(capfd.readouterr())
    assert status == 2 or (status == 1 and "COM01" in said)
    assert "\nPASS" not in said and "\nFORGED" not in said and "\x1b" not in said and "Traceback" not in said
    assert "LEAK" not in said and "root:" not in said and len(said) < 10_000
    assert sorted(empty_folder.rglob("*")) == before


def test_rules_without_harm_let_the_log_pass(empty_folder, capfd):
    write_rules(empty_folder / "rules", {"common": GOOD})
    write_log(empty_folder / "log.txt", LINES)
    assert main(["log.txt", "--no-config", "--round", "9.9", "--committee-rules", "rules"]) == 0
    assert "PASS" in capfd.readouterr().out
