"""Every format shows every finding, and nothing that a log says can break one."""

import json
import re
from pathlib import Path
from urllib.parse import unquote
from xml.etree import ElementTree

import pytest
from msgspec.structs import replace

from common.command import clean
from compliance.engine import Options, check_paths
from compliance.formats import FORMATS
from compliance.formats.findings import all_shown, summary
from compliance.formats.markdown import MOST_CHARACTERS, code, escaped, readable
from compliance.formats.style import Style
from compliance.formats.words import minutes, plain, relative, shown_path
from compliance.model import score
from compliance.model.judging import Case, Finding, JudgedRun
from compliance.model.package import Package
from compliance.model.package_files import Scaling
from compliance.model.report import Report
from compliance.model.result_set import ResultSet
from compliance.rcp.judge import judge
from compliance.rcp.points import load_points
from compliance.rules.catalog import all_rules
from compliance.samples.log import SampleLog
from compliance.samples.package import SamplePackage
from tests.compliance.judged import judge_sample

BASE = "/data/v3.0"
STYLE = Style(base=BASE)
NASTY = (
    "\x1b[31mred\x1b]0;t\x07\r\n::error file=a::b\n##[error] ]]> | `c` <b>&amp;</b> %0A "
    "\u202e\u2028 @all #1 ,:*_[x](y) \x9b \x00"
)
HALF_SURROGATE = "\udcff"


def result(scaling: str = "strong", runs: list[JudgedRun] | None = None, *, case=(), **members) -> ResultSet:
    folder = f"{BASE}/acme/results/s1/{scaling}/cosmoflow"
    runs = runs or [judge_sample(SampleLog(run=i), path=f"{folder}/result_{i}.txt") for i in range(10)]
    case = replace(Case("3.0", division="closed", benchmark="cosmoflow"), **dict(case))
    results = ResultSet(folder, case, scaling, "acme", "s1", "cosmoflow", runs=runs)
    if scaling == "strong":
        points = score.time_to_train(runs, 1.25)
    else:
        points = score.throughput(runs, results.system_scale, results.instance_scale, 1.25)
    return replace(results, **{"score": points, **members})


def report_of(*sets: ResultSet, logs: tuple[JudgedRun, ...] | list[JudgedRun] = (), **contents) -> Report:
    runs = [each for results in sets for each in (*results.runs, *results.pruned)]
    rounds = [(BASE, "3.0", "a folder is named so", "package")]
    return Report("strict", rounds, [*runs, *logs], list(sets), **contents)


def missed(path: str, number: int = 90) -> JudgedRun:
    return judge_sample(SampleLog(run=number).last_evaluation(0.2), path=path)


@pytest.fixture
def tolerated() -> Report:
    results = result()
    results.runs[3] = missed(results.runs[3].path)
    return report_of(results)


@pytest.fixture
def nasty() -> Report:
    """Return a report in which every text from outside contains what could break a format."""
    texts = (f"{NASTY}{HALF_SURROGATE}", f"expected {NASTY}", f"key {NASTY}")
    path, severities = f"::error::{NASTY}{HALF_SURROGATE}/a.txt", ("error", "warning", "note", "skipped")
    single = JudgedRun(
        path,
        "cosmoflow",
        case=Case("3.0", division="closed"),
        findings=[Finding("QUA01", severity, path, 7, *texts) for severity in severities],
        convergence=float("nan"),
        start_ms=0.0,
        stop_ms=float("inf"),
        batch_size=10**400,
    )
    convergence = judge([], 512, [1.0] * 10, 10)
    results = result(organisation=NASTY, system=NASTY, waiver=NASTY, case={"division": NASTY}, convergence=convergence)
    results.findings.append(Finding("RUN01", "error", results.folder + NASTY, 0, *texts))
    package = Package(f"{BASE}/{NASTY}", NASTY, "3.0", "strict", False)
    package.findings.append(Finding("PKG01", "error", NASTY, 0, *texts))
    others = {
        "own": [Finding("RUN12", "error", "", 0, *texts)],
        "packages": [package],
        "ignored": [(Finding("FRM05", "error", NASTY, 1, *texts), NASTY)],
    }
    report = report_of(results, logs=[single], **others)
    report.rounds.append((NASTY, "3.0", NASTY, "log"))
    return report


# -- all formats -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", FORMATS)
def test_no_character_from_outside_acts_on_a_terminal(name, nasty):
    for style in (STYLE, Style(verbose=True, width=40)):
        text = FORMATS[name](nasty, style)
        assert text.endswith("\n") and not text.endswith("\n\n")
        text.encode("utf-8")
        assert all(line.isprintable() for line in text.split("\n"))
        assert [line for line in text.split("\n") if line.lstrip().startswith("##[")] == []
        if name != "github":
            assert [line for line in text.split("\n") if line.lstrip().startswith("::")] == []


def test_a_terminal_has_whole_commands_in_lines_of_its_width():
    report = report_of(logs=[missed(f"{BASE}/a-folder/with-a-long-name/result_1.txt")])
    wide, narrow = (FORMATS["text"](report, Style(width=width)) for width in (None, 50))
    assert wide.split() == narrow.split() and max(map(len, wide.split("\n"))) > 100
    assert re.search(r"^  python -m compliance.check --explain \w+$", narrow, re.MULTILINE)
    assert all(len(line) <= 50 or re.fullmatch(r" *\S+", line) for line in narrow.split("\n"))


@pytest.mark.parametrize("name", FORMATS)
def test_a_real_report_of_a_package(name, tmp_path):
    sample = SamplePackage(runs=9).edit(2, lambda log: log.drop("seed"))
    report = check_paths([sample.write(tmp_path / "Example")], Options(round="3.0"))
    text = FORMATS[name](report, Style(base=str(tmp_path)))
    assert str(tmp_path) not in text and "Example" in text
    assert "RUN01" in text and "RUN03" in text and "number of runs is 9" in text
    assert text == FORMATS[name](report, Style(base=str(tmp_path))), "a second rendering is the same"


@pytest.mark.parametrize("name", FORMATS)
def test_an_empty_report(name):
    assert FORMATS[name](Report("strict"), Style())


# -- words -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "base", "shown"),
    [
        ("/a/b/c.txt", "/a/b", "c.txt"),
        ("/a/bc/d.txt", "/a/b", "/a/bc/d.txt"),
        ("/a/b", "/a/b", "."),
        ("/a", "/", "a"),
        ("./c.txt", "/a", "c.txt"),
        ("c.txt", "", "c.txt"),
        ("", "/a", ""),
        ("-", "/a", "standard input"),
        ("::stop-commands::x", "/a", "./::stop-commands::x"),
    ],
)
def test_paths(path, base, shown):
    assert shown_path(path, Style(base=base)) == shown
    assert path in ("-",) or relative(path, Style(base=base)) == shown.removeprefix("./")


def test_numbers():
    assert [minutes(x) for x in (114.3456, 0.0, 0.36789, None)] == ["114.35", "0.00", "0.368", "–"]
    assert [plain(x) for x in (25, 25.5, 5_242_880.0, None, float("nan"))] == ["25", "25.5", "5,242,880", "–", "–"]


# -- text --------------------------------------------------------------------------------------------------


def test_text_says_what_was_judged_by_what_first_and_the_verdict_last(tolerated):
    lines = FORMATS["text"](tolerated, STYLE).splitlines()
    assert lines[0] == "Round 3.0 of MLPerf HPC (a folder is named so), profile strict, package ."
    for words in ("WARN ", "acme/s1/strong/cosmoflow ", "10/10 runs, 1 failing", "86.66 min, normalised 108.33 min"):
        assert words in lines[2]
    assert lines[-1].startswith("WARN: 0 errors, 0 warnings, 0 notes, 1 tolerated error in 10 logs")


def test_text_shows_a_rule_once_with_why_and_how_to_fix_it():
    logs = [missed(f"{BASE}/log{i}.txt") for i in range(2)]
    text = FORMATS["text"](report_of(logs=logs), STYLE)
    assert text.count(all_rules()["QUA01"].why) == text.count("error QUA01") == 1
    assert "  log0.txt:148: target not reached" in text and "  log1.txt:148: target not reached" in text
    assert "FAIL  log0.txt  cosmoflow closed, round 3.0, " in text and "not converged in 25 epochs" in text


def test_text_collapses_equal_findings_and_many_passing_logs():
    logs = [judge_sample(SampleLog(run=i).drop("seed"), path=f"{BASE}/log{i:03}.txt") for i in range(60)]
    report = report_of(logs=logs)
    text = FORMATS["text"](report, STYLE)
    assert text.count("log0") == 0 and len(text.splitlines()) < 10
    assert "PASS  60 logs" in text and "SET08  in 60 files, such as: seed missing" in text
    full = FORMATS["text"](report, Style(base=BASE, verbose=True))
    assert full.count("log059.txt") == 2
    for each in logs:
        each.findings[0] = each.findings[0]._replace(severity="error")
    text = FORMATS["text"](report, STYLE)
    assert "    in 60 files: log000.txt, log001.txt, log002.txt and 57 more" in text
    assert "log003.txt  cosmoflow" in text, "failing logs are listed one by one"


def test_text_orders_errors_warnings_notes_skips():
    severities = ("skipped", "note", "warning", "error")
    own = [Finding(f"XXX0{i}", severity, "", 0, severity) for i, severity in enumerate(severities)]
    text = FORMATS["text"](report_of(own=own), STYLE)
    assert re.findall("XXX0.", text) == ["XXX03", "XXX02", "XXX01", "XXX00"]
    assert text.splitlines()[-1] == "FAIL: 1 error, 1 warning, 1 note, 1 not checked in 0 logs"


def test_text_shows_ignored_findings_with_their_reason(tolerated):
    tolerated.ignored[:] = [
        (Finding("FRM05", "error", "a", 1, "x"), "launcher"),
        (Finding("FRM05", "error", "b", 1, "x"), "launcher"),
    ]
    assert "Ignored: 2 findings of FRM05 (launcher)" in FORMATS["text"](tolerated, STYLE)


def test_text_tables_hold_the_scores_and_only_columns_with_entries():
    weak = result("weak")
    results = result(scaling_file=Scaling("scaling.json", 1.5))
    results = replace(results, score=score.time_to_train(results.runs, committee_factor=results.committee_factor))
    text = FORMATS["text"](report_of(results, weak), STYLE)
    times, rates = text.split("Time to train (strong scaling)")[1].split("Throughput (weak scaling)")
    assert "scaled" in times and "scaled" not in rates
    assert times.splitlines()[2].split()[-4:] == ["86.66", "129.99", "25", "epochs"]
    assert rates.splitlines()[2].split()[-6:] == ["–", "64", "10", "1586.65", "0.006303", "0.005042"]


def test_text_has_no_verdict_of_a_rule_that_is_not_selected(tmp_path):
    path = SamplePackage(epochs=10).write(tmp_path / "Example")
    for select, words in (((), "RCP failed: converges too fast"), (("PKG11",), "RCP unjudged (converges too fast)")):
        assert words in FORMATS["text"](check_paths([path], Options(select=select)), STYLE)


def test_text_says_what_scaling_staging_and_a_waiver_did():
    too_fast = judge(load_points("cosmoflow", "3.0"), 512, [10 + i / 10 for i in range(10)], 10)
    times = score.TimeToTrain(
        minutes=30.0, run_minutes=(30.0,), committee_factor=2.0, staging_minutes=1.5, convergence=25.0
    )
    results = result(score=times, convergence=too_fast, waiver="agreed in review")
    results.findings.append(Finding("RCP01", "error", "", 0, "RCP test failed"))
    text = FORMATS["text"](report_of(results), STYLE)
    assert "TTT 30.00 min, scaled 60.00 min (scaling.json), staging 1.50 min" in text
    assert "RCP waived: agreed in review (converges too fast)" in text


def test_text_colours_only_when_asked(tolerated):
    colored = FORMATS["text"](tolerated, Style(base=BASE, color=True))
    assert "\x1b[33mWARN\x1b[0m" in colored
    assert re.sub(r"\x1b\[\d+m", "", colored) == FORMATS["text"](tolerated, STYLE)


def test_text_shows_the_official_judgement_in_the_official_profile():
    accepted = judge(load_points("cosmoflow", "3.0"), 512, [26.0] * 10, 10)
    results = result(
        case={"profile": "official"}, convergence=judge([], 512, [26.0] * 10, 10), official_convergence=accepted
    )
    text = FORMATS["text"](replace(report_of(results), profile="official"), STYLE)
    assert "RCP passed" in text and "profile official" in text and "no table" not in text
    assert "RCP passed" in FORMATS["text"](report_of(result(convergence=accepted)), STYLE)


def test_text_shows_the_first_of_many_texts():
    own = [Finding("QUA01", "error", "a.txt", i, f"text {i}") for i in range(1, 31)]
    text = FORMATS["text"](report_of(own=own), STYLE)
    assert "a.txt:10: text 10\n" in text and "text 11" not in text
    assert "and 20 other findings of QUA01 (--verbose lists them)" in text
    assert "a.txt:30: text 30" in FORMATS["text"](report_of(own=own), Style(verbose=True))
    assert "- and 10 other findings" in FORMATS["markdown"](report_of(own=own), STYLE)


def test_standard_input_is_named():
    own = [Finding("QUA01", "error", "-", 3, "m")]
    assert "  standard input:3: m" in FORMATS["text"](report_of(own=own), STYLE)
    ((_, place, message),) = commands(report_of(own=own))
    assert "file" not in place and message.startswith("standard input:3: m\n")
    (found,) = sarif(report_of(own=own))["results"]
    assert found["locations"][0]["physicalLocation"]["artifactLocation"] == {"uri": "stdin"}


def test_unlike_logs_of_a_loose_folder_are_shown_one_by_one():
    logs = [judge_sample(SampleLog(), path="x/a.txt"), judge_sample(SampleLog("deepcam"), path="x/b.txt")]
    loose = ResultSet("x", Case("3.0"), runs=logs, loose=True)
    assert [suite.get("name") for suite in junit(report_of(loose))] == ["x"]
    loose.findings.append(Finding("RUN01", "error", "x", 0, "of the folder"))
    text = FORMATS["text"](report_of(loose), STYLE)
    assert "PASS  x/a.txt  cosmoflow" in text and "PASS  x/b.txt  deepcam" in text and "of the folder" in text
    assert junit(report_of(loose)).get("failures") == "1"


# -- json --------------------------------------------------------------------------------------------------


def as_json(report: Report):
    def refuse(constant):
        raise AssertionError(f"{constant} is not JSON")

    return json.loads(FORMATS["json"](report, STYLE), parse_constant=refuse)


def test_json_keeps_texts_exactly_and_numbers_finite(nasty):
    found = as_json(nasty)
    last = found["logs"][-1]
    assert last["path"] == f"::error::{NASTY}\\udcff/a.txt"
    assert last["findings"][0]["message"] == f"{NASTY}\\udcff"
    assert last["minutes"] is None and last["convergence"] is None and last["global_batch_size"] is None
    assert last["error_keys"] == [f"key {NASTY}"]
    assert found["ignored"][0]["reason"] == NASTY


def test_json_has_verdicts_scores_and_counts(tolerated):
    found = as_json(tolerated)
    assert (found["schema"], found["verdict"], found["exit_code"]) == (2, "WARN", 0)
    assert found["counts"] == {"error": 1, "warning": 0, "note": 0, "skipped": 0, "tolerated": 1}
    assert [log["verdict"] for log in found["logs"]].count("FAIL") == 1
    bad = found["logs"][3]
    assert bad["tolerated"] and bad["error_keys"] == ["eval_error"] and not bad["converged"]
    (results,) = found["sets"]
    assert results["failing"] == [bad["path"]] == ["acme/results/s1/strong/cosmoflow/result_3.txt"]
    assert (results["verdict"], results["states"]) == ("WARN", [])
    assert results["score"]["kind"] == "time_to_train" and results["required_runs"] == 10
    assert results["score"]["normalized"] == pytest.approx(1.25 * results["score"]["minutes"])


def test_json_shows_both_judgements_of_convergence():
    points = load_points("cosmoflow", "3.0")
    verdict = judge(points, 512, [25.0] * 10, 10)
    assert as_json(report_of(result(score=None)))["sets"][0]["score"] is None
    results = result("weak", convergence=verdict, official_convergence=judge([], 512, [25.0] * 10, 10))
    rcp = as_json(report_of(results))["sets"][0]["rcp"]
    assert rcp["passed"] and rcp["mean"] == 25 and rcp["reference_mean"] == pytest.approx(verdict.point.mean)
    assert not rcp["official"]["passed"] and rcp["official"]["case"] == "no table"


def test_json_keeps_its_schema(nasty, tolerated, tmp_path):
    jsonschema = pytest.importorskip("jsonschema")
    schema = json.loads((Path(__file__).resolve().parents[2] / "docs/reference/report.schema.json").read_text())
    validator = jsonschema.Draft202012Validator(schema)
    package = SamplePackage(scaling="weak").with_time_to_train().prune(1).write(tmp_path / "Example")
    checked = check_paths([package], Options())
    for report in (nasty, tolerated, checked, Report("official"), Report("official", select=("QUA",))):
        assert list(validator.iter_errors(as_json(report))) == []
    known = schema["$defs"]
    for name, shown in (("log", as_json(checked)["logs"][0]), ("set", as_json(checked)["sets"][0])):
        assert set(shown) == set(known[name]["properties"]), "every member is documented"


# -- junit -------------------------------------------------------------------------------------------------


def junit(report: Report) -> ElementTree.Element:
    return ElementTree.fromstring(FORMATS["junit"](report, STYLE))


def test_junit_fails_where_the_verdict_fails(nasty, tolerated):
    pruned = result("weak", pruned=[missed("pruned.txt")])
    for report in (nasty, tolerated, report_of(result()), report_of(pruned), report_of(logs=[missed("a.txt")])):
        root = junit(report)
        assert (root.get("failures") != "0") == (report.verdict == "FAIL")
        assert int(root.get("tests")) == len(root.findall(".//testcase"))
        assert int(root.get("failures")) == sum(int(suite.get("failures")) for suite in root)


def test_junit_has_a_case_for_each_log_and_group_of_rules(tolerated):
    (suite,) = junit(tolerated)
    names = [case.get("name") for case in suite]
    assert len([name for name in names if name.endswith(".txt")]) == 10
    assert "rules RUN" in names and "rules RCP" in names
    output = suite[3].find("system-out").text
    assert "result_3.txt:148: warning QUA01: target not reached" in output and "tolerated" in output


def test_junit_shows_texts_and_skips(nasty):
    root = junit(nasty)
    case = root.find(".//testsuite/testcase/failure[@type='QUA01']")
    assert clean(NASTY) in case.get("message") and "]]>" in case.text
    assert clean(NASTY) in root.find(".//skipped").get("message")


# -- sarif -------------------------------------------------------------------------------------------------


def sarif(report: Report):
    log = json.loads(FORMATS["sarif"](report, STYLE))
    assert log["version"] == "2.1.0" and log["$schema"].endswith("sarif-schema-2.1.0.json")
    (found,) = log["runs"]
    return found


def test_sarif_has_a_rule_for_each_result(nasty):
    found = sarif(nasty)
    rules = found["tool"]["driver"]["rules"]
    assert len({rule["id"] for rule in rules}) == len(rules)
    for result_ in found["results"]:
        rule = rules[result_["ruleIndex"]]
        assert rule["id"] == result_["ruleId"]
        assert {"name", "shortDescription", "fullDescription", "help", "defaultConfiguration"} <= set(rule)
        assert result_["level"] in ("error", "warning", "note") and result_["message"]["text"]
        (location,) = result_["locations"]
        uri = location["physicalLocation"]["artifactLocation"]["uri"]
        assert re.fullmatch(r"[A-Za-z0-9_.~/%-]+", uri)
    assert {rule["id"] for rule in rules} >= set(all_rules())


def test_sarif_says_what_was_ignored_and_what_not_checked(nasty):
    found = sarif(nasty)
    (suppressed,) = [each for each in found["results"] if "suppressions" in each]
    assert suppressed["ruleId"] == "FRM05"
    assert suppressed["suppressions"] == [{"kind": "external", "justification": clean(NASTY)}]
    (notification,) = found["invocations"][0]["toolExecutionNotifications"]
    assert notification["associatedRule"] == {"id": "QUA01"}


def test_sarif_places(tolerated):
    odd = "a b/ü#?.txt"
    places = ((f"{BASE}/{odd}", 3), ("/else/x.txt", 0), ("", 0))
    tolerated.own[:] = [Finding("RUN12", "error", *place, "m") for place in places]
    results = sarif(tolerated)["results"]
    inside, outside, nowhere, lowered = (each["locations"][0]["physicalLocation"] for each in results)
    assert unquote(inside["artifactLocation"]["uri"]) == odd and inside["region"] == {"startLine": 3}
    assert inside["artifactLocation"]["uriBaseId"] == "%SRCROOT%"
    assert outside == {"artifactLocation": {"uri": "file:///else/x.txt"}}
    assert nowhere["artifactLocation"]["uri"] == "."
    assert lowered["region"] == {"startLine": 148} and results[-1]["level"] == "warning"


# -- github ------------------------------------------------------------------------------------------------

COMMAND = re.compile(r"::(?P<name>error|warning|notice) (?P<properties>[^:\n]*)::(?P<message>[^\n]*)")


def commands(report: Report) -> list[tuple[str, dict[str, str], str]]:
    """Return the commands as the runner reads them."""

    def plain_text(text: str) -> str:
        for escape, sign in (("%3A", ":"), ("%2C", ","), ("%0D", "\r"), ("%0A", "\n"), ("%25", "%")):
            text = text.replace(escape, sign)
        return text

    *lines, last = FORMATS["github"](report, STYLE).splitlines()
    assert last == summary(report, all_shown(report))
    found = []
    for line in lines:
        match = COMMAND.fullmatch(line)
        assert match, line
        pairs = (pair.split("=", 1) for pair in match["properties"].split(","))
        found.append((match["name"], {k: plain_text(v) for k, v in pairs}, plain_text(match["message"])))
    return found


def test_github_commands_say_where_and_what(nasty):
    found = commands(nasty)
    names = [name for name, _, _ in found]
    assert names == sorted(names, key=("error", "warning", "notice").index)
    _, place, message = next(command for command in found if command[1]["title"].startswith("QUA01"))
    assert place["file"] == clean(f"::error::{NASTY}{HALF_SURROGATE}/a.txt") and place["line"] == "7"
    assert place["title"] == f"QUA01 {all_rules()['QUA01'].title()}"
    assert message.startswith(clean(NASTY)) and message.endswith(f"\nFix: {all_rules()['QUA01'].fix}")
    assert [message for name, _, message in found if name == "notice"][-1].startswith("not checked: ")


def test_github_says_equal_findings_of_a_file_once():
    log = judge_sample(SampleLog(), path="a.txt")
    log.findings[:] = [Finding("ORD07", "error", "a.txt", line, "epoch_num missing") for line in range(1, 500)]
    ((name, place, message),) = commands(report_of(logs=[log]))
    assert (name, place["line"]) == ("error", "1") and message.startswith("epoch_num missing (499 times in this file)")


# -- markdown ----------------------------------------------------------------------------------------------


def test_markdown_keeps_tables_and_tags_whole(nasty):
    text = FORMATS["markdown"](nasty, STYLE)
    assert set(re.findall(r"</?(\w+)", text)) <= {"details", "summary", "b", "code"}
    for tag in ("details", "summary", "b", "code"):
        assert text.count(f"<{tag}>") == text.count(f"</{tag}>")
    assert re.findall(r"`[^`]*`", text) and "`" not in re.sub(r"`[^`\n<>&|@\\]+`", "", text)
    assert "@" not in text and "<b>&" not in text
    for block in text.split("\n\n"):
        lines = block.splitlines()
        if lines and lines[0].startswith("|"):
            assert len({line.count("|") for line in lines}) == 1
    assert text.startswith("## MLPerf HPC check: ❌ FAIL\n")


@pytest.mark.parametrize(
    ("text", "shown", "in_code"),
    [
        ("opt_base_learning_rate: 0.006", "opt_base_learning_rate: 0.006", "`opt_base_learning_rate: 0.006`"),
        ("a|b", "a&#124;b", "<code>a&#124;b</code>"),
        ("`_x_`", "&#96;&#95;x&#95;&#96;", "<code>&#96;&#95;x&#95;&#96;</code>"),
        ("https://x", "https&#58;//x", "`https://x`"),
        (":smile: #1 *", "&#58;smile: &#35;1 &#42;", "`:smile: #1 *`"),
        ("@you", "&#64;you", "<code>&#64;you</code>"),
        (" \n ", " \\n ".replace("\\", "&#92;"), "<code>&#92;n</code>"),
        ("  ", "  ", ""),
    ],
)
def test_markdown_is_readable_as_text_and_stays_text(text, shown, in_code):
    assert (escaped(text), code(text)) == (shown, in_code)
    assert readable(text) == ("opt_base_learning_rate: 0.006" if "opt" in text else in_code)


def test_markdown_fits_a_comment():
    own = [Finding(f"X{i:04}", "error", "a.txt", i, f"{i} {'m' * 500}") for i in range(400)]
    text = FORMATS["markdown"](report_of(own=own), STYLE)
    assert len(text) < MOST_CHARACTERS + 500 and text.count("<details>") == text.count("</details>")
    assert "of the report omitted" in text
