"""Every rule proves itself on its own examples."""

import re
from pathlib import Path

import pytest

from common.benchmarks import PACKAGES
from common.reference import ROUNDS
from compliance.benchmarks import REFERENCES
from compliance.engine import Options, check_paths
from compliance.engine.log_checker import LogTask, judge_log
from compliance.logs.log import parse_log
from compliance.model.case import PROFILES, Case
from compliance.model.finding import OFFICIAL_RULE, SEVERITIES
from compliance.rules import catalog
from compliance.rules.catalog import all_rules
from compliance.rules.rule import LogRule, Rule
from compliance.samples.log import SampleLog
from compliance.samples.package import SamplePackage

EXAMPLES = [
    pytest.param(rule, kind, number, id=f"{id_}-{kind}-{number}")
    for id_, rule in sorted(all_rules().items())
    for kind in ("good", "bad")
    for number in range(len(getattr(rule, kind)))
]


def found_by_log_rule(rule: type[Rule], example, profile: str = "strict") -> list:
    made = []

    def log(**wanted):
        made.append(SampleLog(**wanted))
        return made[-1]

    result = example(log)
    data = result if isinstance(result, bytes) else result.bytes()
    run = judge_log(
        parse_log(data, "result_0.txt"), LogTask("result_0.txt", Case(made[-1].round if made else "3.0", profile))
    )
    return [finding for finding in run.findings if finding.rule == rule.id]


def found_by_package_rule(rule: type[Rule], example, folder, profile: str = "strict") -> list:
    package = example(SamplePackage)
    options = Options(profile=profile, round=package.round, waivers=package.waivers)
    report = check_paths([package.write(folder)], options)
    return [finding for finding in report.findings if finding.rule == rule.id and finding.severity != "skipped"]


@pytest.mark.parametrize(("rule", "kind", "number"), EXAMPLES)
def test_examples(rule, kind, number, tmp_path):
    example = getattr(rule, kind)[number]
    if issubclass(rule, LogRule):
        found = found_by_log_rule(rule, example)
    else:
        found = found_by_package_rule(rule, example, tmp_path / "Example")
    if kind == "bad":
        assert found, "the bad example goes unnoticed"
        for finding in found:
            assert finding.message and finding.severity in SEVERITIES and "rule itself failed" not in finding.message
    else:
        # Good examples may show milder findings of a rule, never its own severity.
        assert [f for f in found if f.severity in ("error", rule.severity)] == []


@pytest.mark.parametrize("rule", all_rules().values(), ids=all_rules())
def test_rule_is_documented(rule):
    assert rule.title().endswith(".") and len(rule.title()) < 130
    assert rule.cite and rule.why and rule.fix
    assert rule.bad
    assert set(rule.profiles) <= set(PROFILES) and set(rule.rounds) <= set(ROUNDS)
    assert rule.differs or rule.profiles == PROFILES, "a rule of one profile says what the other does"


def test_ids_are_a_prefix_and_two_digits():
    numbered = all_rules().keys() - {OFFICIAL_RULE}
    assert all(id_[:3].isalpha() and id_[:3].isupper() and id_[3:].isdecimal() for id_ in numbered)


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize(
    ("benchmark", "round_"),
    [(name, round_) for name, reference in REFERENCES.items() for round_ in reference.rounds],
)
@pytest.mark.parametrize("division", ["closed", "open"])
def test_a_valid_log_passes(benchmark, round_, division, profile):
    valid = [SampleLog(benchmark, round_, division)]
    if benchmark in PACKAGES:
        valid.append(SampleLog(benchmark, round_, division).by_suite())
    for log in valid:
        run = judge_log(parse_log(log.bytes()), LogTask("result_0.txt", Case(round_, profile)))
        assert run.findings == []
        assert run.converged and run.minutes > 10


@pytest.mark.parametrize(
    "package",
    [
        SamplePackage,
        lambda: SamplePackage("deepcam"),
        lambda: SamplePackage("openfold"),
        lambda: SamplePackage(round_="0.7"),
        lambda: SamplePackage(division="open"),
        lambda: SamplePackage("deepcam").power(),
        lambda: SamplePackage().by_suite(),
    ],
)
@pytest.mark.parametrize("profile", PROFILES)
def test_a_valid_package_passes(package, profile, tmp_path):
    package = package()
    report = check_paths([package.write(tmp_path / "Example")], Options(profile=profile, round=package.round))
    found = {finding.rule for finding in report.findings if finding.severity != "skipped"}
    assert found <= {"PKG08", "SET14"}, "notes: there is no code; the runs with power files are very short"
    assert report.verdict == "PASS" and report.sets[0].score.minutes > 1


def test_the_catalog_lists_every_module_with_rules():
    texts = {path.stem: path.read_text() for path in Path(catalog.__file__).parent.glob("*.py")}
    modules = {name for name, text in texts.items() if re.search("^    id = ", text, re.MULTILINE)}
    assert {*catalog.LOG_MODULES, *catalog.RESULT_MODULES} == modules
    about_logs = {rule.__module__ for rule in all_rules().values() if issubclass(rule, LogRule)}
    assert about_logs == {f"compliance.rules.{name}" for name in catalog.LOG_MODULES}
