"""Rule files: what is in them, and one message with file, line and reason for those that are refused."""

import os
import sys

import pytest

from common.errors import UsageError
from compliance.committee import rule_files
from compliance.committee.rule_files import UnreadableError, find_rules, list_rounds, read_rule_file
from tests.compliance.committee.written import COMMON, ROUND, begin, end, key, write_rules

WHOLE = (
    begin("s.update({'started': False})")
    + key("run_start", REQ="EXACTLY_ONE", PRE="s['a'] = 1", CHECK=["v['value'] is None", "True"], POST="s['a'] = 2")
    + key("block_start", REQ="AT_LEAST_ONE_OR(epoch_start, eval_start)")
    + key("eval_accuracy", REQ="AT_LEAST(2)", FIRST_CHECK="True", ATLEAST_ONE_CHECK="v['value'] <= 3.3")
    + key("seed", REQ="OPTIONAL")
    + end(CHECK="s['started']")
)


def read(folder, text):
    write_rules(folder, {"common": text})
    return read_rule_file(str(folder), COMMON)


def test_all_parts_of_a_file_are_read(tmp_path):
    rules = read(tmp_path, WHOLE)
    assert rules.begin and [check.text for check in rules.end_checks] == ["s['started']"]
    start, block, accuracy, seed = rules.keys.values()
    assert [step.text for step in start.steps] == ["s['a'] = 1", "v['value'] is None", "True", "s['a'] = 2"]
    assert (start.required, start.least, block.others) == ("EXACTLY_ONE", 1, ("epoch_start", "eval_start"))
    assert (accuracy.least, accuracy.once.text, len(accuracy.first_checks)) == (2, "v['value'] <= 3.3", 1)
    assert (seed.required, seed.least, seed.steps, seed.once) == ("OPTIONAL", 0, (), None)


def test_of_two_blocks_of_a_key_the_last_counts(tmp_path):
    rules = read(tmp_path, key("seed", CHECK="False") + key("seed", REQ="OPTIONAL"))
    assert rules.keys["seed"].steps == ()


def test_of_two_checks_in_a_block_the_last_counts(tmp_path):
    rules = read(tmp_path, "- KEY:\n    NAME: a\n    CHECK: 'False'\n    CHECK: 'True'\n")
    assert [step.text for step in rules.keys["a"].steps] == ["True"]


@pytest.mark.parametrize(
    ("text", "line", "reason"),
    [
        (key("a") + key("b", CHECK="open('x')"), 5, "Call is not allowed"),
        (key("a", CHECK=["True", "v.x"]), 3, "Attribute is not allowed"),
        (key("a", POST="import os"), 3, "Import is not allowed"),
        (key("a") + key("b", CHEKC="True"), 5, "'CHEKC' is unknown"),
        (key("a", REQ="TWICE"), 3, "REQ is 'TWICE'"),
        (key("a", ATLEAST_ONE_CHECK=["True", "True"]), 3, "expected an expression"),
        (key("a") + end(PRE="s['a'] = 1"), 4, "'PRE' is unknown"),
        ("- KEY:\n    NAME: a\n    POST: s['a'] = 1\n    POST: s['a'] = 2\n", 2, "twice"),
        ("- KEY:\n    NAME: !!str a\n", 2, "a tag"),
        (key("a", CHECK={"x": "True"}), 3, "expected an expression"),
        ("- KEY:\n    REQ: OPTIONAL\n", 2, "without a NAME"),
        ("- KEY:\n    NAME: a\n  END:\n    CHECK: 'True'\n", 1, "expected one of"),
        ("- LOOP:\n    NAME: a\n", 1, "'LOOP' is unknown"),
        (begin("s['a'] = 1") * 2, 1, "at most one BEGIN"),
        ("KEY: 1\n", 1, "expected a list"),
        ("- KEY:\n    NAME: &a b\n- KEY:\n    NAME: *a\n", 4, "an alias"),
        ("- " + "[" * 40 + "]" * 40, 1, "nested too deeply"),
        ("- KEY: {NAME: a\n- b\n", 3, "not YAML"),
        ("- KEY:\n    NAME: \tb\n\t- c", 3, "not YAML"),
    ],
)
def test_a_refused_file_is_named_with_line_and_reason(tmp_path, text, line, reason):
    with pytest.raises(UnreadableError, match=f"not readable: line {line}, .*{reason}") as raised:
        read(tmp_path, text)
    assert str(tmp_path / COMMON) in str(raised.value) and "\n" not in str(raised.value)


def test_an_empty_binary_or_large_file_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(rule_files, "MOST_BYTES", 1000)
    write_rules(tmp_path, {"common": "# comment\n", "large": "#" * 1001})
    (tmp_path / ROUND / "binary.yaml").write_bytes(b"\xff\xfe\0")
    for name, reason in (("common", "empty"), ("large", "1,?000|large"), ("binary", "utf-8")):
        with pytest.raises(UnreadableError, match=f"{name}.yaml: not readable: .*({reason})"):
            read_rule_file(str(tmp_path), f"{ROUND}/{name}.yaml")


@pytest.mark.parametrize(
    "name", ["/etc/passwd", "../a/b.yaml", "r/../b.yaml", "r/s/b.yaml", "b.yaml", "r/b.yml", "r/b\n.yaml"]
)
def test_a_name_that_reaches_out_names_no_file(tmp_path, name):
    with pytest.raises(UnreadableError, match="no name of a rule file"):
        read_rule_file(str(tmp_path), name)


def test_neither_links_out_of_the_folder_nor_fifos_are_read(tmp_path):
    (tmp_path / "outside.yaml").write_text(key("a"))
    folder = tmp_path / "rules"
    (folder / ROUND).mkdir(parents=True)
    (folder / ROUND / "link.yaml").symlink_to(tmp_path / "outside.yaml")
    os.mkfifo(folder / ROUND / "fifo.yaml")
    (folder / ROUND / "folder.yaml").mkdir()
    for name in ("link", "fifo", "folder"):
        with pytest.raises(UnreadableError, match="not readable"):
            read_rule_file(str(folder), f"{ROUND}/{name}.yaml")
    with pytest.raises(FileNotFoundError):
        read_rule_file(str(folder), f"{ROUND}/none.yaml")


@pytest.mark.parametrize("inside", ["", "compliance_checker", "mlperf_logging/compliance_checker"])
def test_the_folder_may_be_that_of_the_rules_the_package_or_a_clone(tmp_path, inside):
    names = ("training_9.9.0", "training_10.0.0", "hpc_3.0.0")
    write_rules(tmp_path / inside, {f"{name}/common.yaml": key("a") for name in names})
    write_rules(tmp_path / inside, {"training_9.9.0_warn/common.yaml": "", "training_9.8.0/closed_common.yaml": ""})
    folder = find_rules(str(tmp_path))
    assert folder == str((tmp_path / inside).resolve())
    assert list_rounds(folder) == (("hpc", "3.0"), ("training", "9.9"), ("training", "10.0"))


def test_a_folder_without_rule_files_is_refused(tmp_path):
    with pytest.raises(UsageError, match=r"no rule files in it; expected .*common.yaml"):
        find_rules(str(tmp_path))


def test_no_rules_come_from_the_working_folder(empty_folder, monkeypatch):
    write_rules(empty_folder / "mlperf_logging/compliance_checker", {"common": key("a")})
    (empty_folder / "mlperf_logging/__init__.py").write_text("raise SystemExit(0)")
    monkeypatch.delitem(sys.modules, "mlperf_logging", raising=False)  # find_spec knows what is imported
    monkeypatch.syspath_prepend(str(empty_folder))
    find_rules.cache_clear()
    assert find_rules(None) == ""
    find_rules.cache_clear()
