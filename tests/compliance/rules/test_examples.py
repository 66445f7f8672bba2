"""Every rule proves itself on its own examples, which the page of the rules shows, and on further ones."""

import functools
import re
import shutil
from pathlib import Path

import pytest

from common.benchmarks import PACKAGES
from common.reference import ROUNDS
from compliance import explain
from compliance.benchmarks import REFERENCES
from compliance.engine import Options, check_paths
from compliance.model.judging import PROFILES, SEVERITIES
from compliance.rules import catalog
from compliance.rules.catalog import all_rules
from compliance.rules.rule import LogRule
from compliance.samples.log import SampleLog
from compliance.samples.package import SamplePackage
from tests.bench_script import bench_script
from tests.compliance.judged import judge_sample
from tests.compliance.rules import log_examples, package_examples

docs = bench_script("reference_pages")

EXAMPLES = [
    pytest.param(rule, kind, getattr(rule, kind)[0], id=f"{id_}-{kind}")
    for id_, rule in sorted(all_rules().items())
    for kind in ("good", "bad")
    if getattr(rule, kind)
]
FURTHER_EXAMPLES = [
    pytest.param(all_rules()[id_], severities, sample, id=f"{id_}-{number}")
    for number, (id_, severities, sample) in enumerate((*log_examples.EXAMPLES, *package_examples.EXAMPLES))
]


@pytest.fixture(scope="module", autouse=True)
def examples_judged_once():
    """Let the page of the rules and the tests of the rules share what is found about an example."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("judge_log_example", "judge_package_example"):
            patch.setattr(explain, name, functools.cache(getattr(explain, name)))
        yield


def findings_on(rule, sample):
    """Return what a rule finds on a sample log or package."""
    judge = explain.judge_log_example if issubclass(rule, LogRule) else explain.judge_package_example
    findings = [finding for finding in judge(sample, "strict") if finding.rule == rule.id]
    assert all(finding.message and "rule itself failed" not in finding.message for finding in findings)
    return [finding for finding in findings if finding.severity != "skipped"]


@pytest.mark.parametrize(("rule", "kind", "sample"), EXAMPLES)
def test_examples(rule, kind, sample):
    findings = findings_on(rule, sample)
    if kind == "bad":
        assert findings, "the bad example goes unnoticed"
        assert all(finding.message and finding.severity in SEVERITIES for finding in findings)
    else:
        # Good examples may show milder findings of a rule, never its own severity.
        assert [finding for finding in findings if finding.severity in ("error", rule.severity)] == []


@pytest.mark.parametrize(("rule", "severities", "sample"), FURTHER_EXAMPLES)
def test_further_examples(rule, severities, sample):
    findings = findings_on(rule, sample)
    assert {finding.severity for finding in findings} == set(severities.split())


def test_the_pages_that_show_examples_are_up_to_date(capsys):
    assert docs.main(["--check"]) == 0, capsys.readouterr().err


def test_check_finds_what_is_out_of_date_and_writes_nothing(tmp_path, capsys):
    assert docs.main(["--check", "--folder", str(tmp_path)]) == 1
    assert list(tmp_path.iterdir()) == []
    for name in ("config.md", "rules.md", "profiles.md", "settings.md"):
        shutil.copy(docs.DOCS / name, tmp_path)
    page = tmp_path / "profiles.md"
    page.write_text(page.read_text().replace("| FRM05 |", "| FRM55 |"))
    capsys.readouterr()
    assert docs.main(["--check", "--folder", str(tmp_path)]) == 1
    assert "profiles.md is out of date" in capsys.readouterr().err
    assert docs.main(["--folder", str(tmp_path)]) == 0
    assert docs.main(["--check", "--folder", str(tmp_path)]) == 0


@pytest.mark.parametrize("rule", all_rules().values(), ids=all_rules())
def test_rule_is_documented(rule):
    assert rule.title().endswith(".") and len(rule.title()) < 130
    assert rule.cite and rule.why and rule.fix
    # Rules about MLPerf Training alone need rule files: see tests/compliance/committee.
    assert len(rule.bad) == bool(rule.rounds) and len(rule.good) <= 1, (
        "further examples are rows of log_examples or package_examples"
    )
    assert set(rule.profiles) <= set(PROFILES) and set(rule.rounds) <= set(ROUNDS)
    assert rule.differs or rule.profiles == PROFILES, "a rule of one profile says what the other does"


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
        run = judge_sample(log, profile)
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
        lambda: SamplePackage(division="open", epochs=12),
        lambda: SamplePackage("deepcam").power(),
        lambda: SamplePackage().by_suite(),
        lambda: (
            SamplePackage()
            .copy_to("gpu")
            .remove("results/example_n64")
            .remove("systems/example_n64.json")
            .remove("benchmarks/cosmoflow/example_n64")
        ),
        lambda: SamplePackage(scaling="weak", runs=14).with_time_to_train(),
        lambda: SamplePackage(scaling="weak", runs=12).with_time_to_train().prune(3),
        lambda: SamplePackage().edit(1, lambda log: log.set("seed", "31415")),
        lambda: SamplePackage(settings={"global_batch_size": 768}, epochs=33),
        lambda: SamplePackage(settings={"global_batch_size": 1024}, epochs=39),
        lambda: SamplePackage("oc20", "1.0"),
    ],
)
@pytest.mark.parametrize("profile", PROFILES)
def test_a_valid_package_passes(package, profile, tmp_path):
    package = package()
    report = check_paths([package.write(tmp_path / "Example")], Options(profile=profile, round=package.round))
    found = {finding.rule for finding in report.findings if finding.severity != "skipped"}
    assert found <= {"PKG08", "SET14", "RUN09", "RCP03", "RCP04"}, (
        "notes: there is no code; the runs with power files are short, on few nodes; the larger batch is normalised"
    )
    assert report.verdict == "PASS" and report.sets[0].score.minutes > 1


def test_the_catalog_lists_every_module_with_rules():
    texts = {path.stem: path.read_text() for path in Path(catalog.__file__).parent.glob("*.py")}
    modules = {name for name, text in texts.items() if re.search("^    id = ", text, re.MULTILINE)}
    log_modules = {*catalog.LOG_MODULES, catalog.COMMITTEE_MODULE}
    assert {*log_modules, *catalog.RESULT_MODULES} == modules
    about_logs = {rule.__module__ for rule in all_rules().values() if issubclass(rule, LogRule)}
    assert about_logs == {f"compliance.rules.{name}" for name in log_modules}
