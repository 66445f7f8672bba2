"""Rules explain themselves, and the generated pages of docs/ are those of the code."""

import re

import pytest

from common.reference import ABOVE_ZERO, ANY, COUNT, Check, Setting, equals
from compliance.explain import bad_findings, explain, list_rules, rounds_text
from compliance.rules.catalog import all_rules
from compliance.rules.rule import FAMILIES
from tests.bench_script import bench_script

docs = bench_script("reference_pages")


def ids(table: str) -> list[str]:
    return re.findall(r"^([A-Z]{3}[0-9]{2}|OFFICIAL) ", table, re.MULTILINE)


@pytest.mark.parametrize(
    "rule",
    [
        pytest.param(rule, marks=[pytest.mark.exhaustive] * (id_ != "QUA01"), id=id_)
        for id_, rule in all_rules().items()
    ],
)
def test_explain_says_all_of_a_rule(rule):
    text = explain(rule.id)
    words = " ".join(text.split())
    for part in (rule.title(), rule.severity, rule.cite, rule.why, rule.fix, rule.differs):
        assert " ".join(part.split()) in words
    if rule.rounds:  # examples are of MLPerf HPC
        assert "Messages for examples that break it:\n  " in text
    assert "lambda" not in text and "/tmp" not in text


def test_explain_runs_the_rule_on_its_bad_example():
    messages = [finding.message for finding in bad_findings(all_rules()["QUA01"])]
    assert messages == ["target not reached: the best eval_error of 25 evaluations is 0.125"]
    assert explain("qua01 ") == explain("QUA01")
    assert messages[0] in explain("QUA01")


@pytest.mark.parametrize(("wrong", "hint"), [("QAU01", "QUA01"), ("QUA99", "QUA"), ("", "AMT01"), ("\x1b[2J", r"x1b")])
def test_explain_helps_with_an_unknown_id(wrong, hint):
    with pytest.raises(ValueError, match=hint) as error:
        explain(wrong)
    assert str(error.value).isprintable()


def test_rules_are_listed_all_or_by_prefix():
    assert ids(list_rules()) == sorted(all_rules())
    assert ids(explain("QUA")) == [id_ for id_ in sorted(all_rules()) if id_.startswith("QUA")]
    headings = [line.partition(": ") for line in list_rules().splitlines() if re.match("[A-Z]+: ", line)]
    assert {family: about for family, _, about in headings} == FAMILIES
    assert ids(list_rules("official")) == [
        id_ for id_, rule in sorted(all_rules().items()) if "official" in rule.profiles
    ]


# -- pages -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("marks", ["", docs.BEGIN, docs.END + docs.BEGIN, f"{docs.BEGIN}{docs.END}{docs.BEGIN}"])
def test_a_page_without_its_marks_is_refused(marks, tmp_path, capsys):
    with pytest.raises(ValueError, match=r"p\.md: expected once"):
        docs.profiles_page(f"text {marks} text", "p.md")
    (tmp_path / "profiles.md").write_text(f"text {marks} text")
    assert docs.main(["--folder", str(tmp_path)]) == 2
    assert "put them back" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["profiles.md"]


def test_settings_that_the_profiles_judge_differently():
    found = {row.key: row for row in docs.differences()}
    assert found["sgd_opt_momentum"].official == "does not know the key"
    assert found["swa_enabled"].examples.startswith("only official accepts 1")
    assert "scheduler_type" not in found and "max_templates" not in found


@pytest.mark.parametrize(
    ("allowed", "official", "words"),
    [
        (COUNT, COUNT, ""),
        (COUNT, ABOVE_ZERO, "only official accepts 0.5, 1.5, true, inf"),
        (COUNT, ANY, "the official tool does not check the value"),
        (COUNT, None, "the official tool does not check the value"),
        (equals(1.0), Check("1.0", lambda value: value == 1.0), "only official accepts true"),
        (ABOVE_ZERO, COUNT, "only strict accepts 0.5, 1.5, true, inf"),
        (equals(77), Check("77", lambda value: value in (77, 78)), "none of the values tried"),
    ],
)
def test_differences_are_shown_by_values(allowed, official, words):
    assert docs.judged_apart(Setting("key", allowed, official)) == words


@pytest.mark.parametrize(
    ("rounds", "words"),
    [(("0.7", "1.0", "2.0", "3.0"), "all"), (("1.0", "2.0"), "1.0 to 2.0"), (("0.7", "3.0"), "0.7, 3.0")],
)
def test_rounds_in_words(rounds, words):
    assert rounds_text(rounds) == words


def test_markdown_of_texts():
    assert docs.prose("M · S <= T, a <b> `<b>` [0, 1) result_*") == r"M · S <= T, a \<b> `<b>` \[0, 1) result_\*"
    assert docs.span("a `b` c") == "`` a `b` c ``"
    assert docs.table(("a",), [("b | c",)]) == "| a |\n| --- |\n| b \\| c |\n"
