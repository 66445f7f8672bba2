"""Rules of your own: from a file, a module, an installed package, and from Python."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import compliance
from common.errors import UsageError
from compliance.check import main
from compliance.model.judging import OFFICIAL_RULE
from compliance.rules import catalog
from compliance.rules.catalog import all_rules, load_rules
from compliance.rules.rule import FAMILIES, RETIRED, LogRule, prefix, rules_of
from compliance.samples.log import SampleLog

GUIDE = Path(__file__).parents[3] / "docs" / "guide" / "new-rule.md"
BODY = '''
from compliance.rules.rule import LogRule
class Never(LogRule):
    """Nothing is logged."""
    id = "{id}"
    def check(self, log, case):
        yield self.finding(log.path, 1, "something is logged")
'''


@pytest.fixture(autouse=True)
def registry():
    """Forget what a test registers."""
    rules, modules = dict(all_rules()), set(sys.modules)
    yield
    all_rules().clear()
    all_rules().update(rules)
    rules_of.cache_clear()
    for name in set(sys.modules) - modules:
        if name.startswith(("file ", "own_")):
            del sys.modules[name]


@pytest.fixture
def own(tmp_path) -> str:
    """Return a file with the guide's example."""
    path = tmp_path / "own.py"
    path.write_text(re.search(r"```python\n(.*?)```", GUIDE.read_text(), re.S)[1])
    return str(path)


@pytest.fixture
def log(tmp_path) -> str:
    path = tmp_path / "result_0.txt"
    path.write_bytes(SampleLog().set("number_of_nodes", 65).bytes())
    return str(path)


def ran(capsys, *arguments) -> tuple[int, str]:
    status = main(arguments)
    return status, capsys.readouterr().out


def test_the_guides_example_shows_up_like_a_rule_of_the_suite(own, log, capsys):
    status, text = ran(capsys, "--rules", own, log)
    assert status == 1
    assert "error OWN01" in text and "fix:  Ask for fewer nodes." in text
    assert f"Rules besides the suite's: OWN01 ({own})" in text
    assert "65 nodes (expected: at most 64)" in ran(capsys, "--rules", own, "--explain", "OWN01")[1]
    assert "The run uses at most 64 nodes." in ran(capsys, "--rules", own, "--list-rules")[1]
    document = json.loads(ran(capsys, "--rules", own, "--format", "json", log)[1])
    assert document["own_rules"] == [{"source": own, "ids": ["OWN01"]}]
    assert [found["message"] for found in document["logs"][0]["findings"] if found["rule"] == "OWN01"] == ["65 nodes"]
    run = json.loads(ran(capsys, "--rules", own, "--format", "sarif", log)[1])["runs"][0]
    assert "OWN01" in {rule["id"] for rule in run["tool"]["driver"]["rules"]}
    assert "OWN01" in {result["ruleId"] for result in run["results"]}
    assert not list(Path(own).parent.glob("__pycache__"))


def test_a_rule_that_is_defined_late_is_applied(log):
    assert compliance.check_logs(log, select=("OWN",)).findings == []

    class Late(LogRule):
        """A rule may come late."""

        id = "OWN02"

        def check(self, log, case):
            yield self.finding(log.path, 0, "late")

    assert [found.message for found in compliance.check_logs(log, select=("OWN",)).findings] == ["late"]


def test_rules_of_a_module(tmp_path, log, monkeypatch):
    (tmp_path / "own_module.py").write_text(BODY.format(id="OWN03"))
    monkeypatch.syspath_prepend(tmp_path)
    assert "OWN03" in {found.rule for found in compliance.check_logs(log, rules=("own_module",)).findings}


def test_rules_of_an_installed_package_are_loaded_unasked(tmp_path, log, monkeypatch):
    (tmp_path / "own_installed.py").write_text(BODY.format(id="OWN04"))
    info = tmp_path / "own_installed-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: own-installed\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[{catalog.GROUP}]\nown = own_installed\n")
    monkeypatch.syspath_prepend(tmp_path)
    catalog._load_installed.cache_clear()
    assert "OWN04" in {found.rule for found in compliance.check_logs(log).findings}


def test_a_process_that_was_not_forked_loads_them_too(own, log, tmp_path):
    script = tmp_path / "check_spawned.py"
    script.write_text(
        "import multiprocessing, sys\n"
        "from compliance.model.judging import Case\n"
        "from compliance.engine.log_checker import Examine\n"
        "from compliance.engine.log_checker import LogTask\n"
        "from compliance.rules.catalog import load_rules\n"
        "if __name__ == '__main__':\n"
        "    load_rules([sys.argv[1]])\n"
        "    with multiprocessing.get_context('spawn').Pool(1) as pool:\n"
        "        run = pool.map(Examine(), [LogTask(sys.argv[2], Case('3.0'))])[0]\n"
        "    print(*(finding.rule for finding in run.findings))\n"
    )
    command = [sys.executable, str(script), own, log]
    environment = {**os.environ, "PYTHONPATH": str(GUIDE.parents[2])}
    out = subprocess.run(command, env=environment, capture_output=True, text=True, check=True, timeout=60).stdout
    assert "OWN01" in out.split()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "cannot be read: No such file"),
        ("x = 1\n", "no rule of your own in it; expected a class derived from LogRule"),
        (BODY.format(id="QUA01"), "line 3: Never: id QUA01 is taken by TargetReached"),
        (BODY.format(id="QUA99"), "the ids QUA… are the suite's; choose another prefix, such as OWN"),
        (BODY.format(id="own-1"), "expected three capital letters and two digits, such as OWN01"),
        (BODY.format(id="OWN05").replace('"""', "#"), "lacks a docstring"),
        ("import nowhere\n", "line 1: ModuleNotFoundError: No module named 'nowhere'"),
        ("def\n", "line 1: invalid syntax"),
        ("raise SystemExit(3)\n", "line 1: SystemExit: 3"),
        ("\0", "not Python in UTF-8: "),
    ],
)
def test_what_cannot_be_loaded_is_one_message(text, message, tmp_path, capsys):
    path, before = tmp_path / "own.py", dict(all_rules())
    if text is not None:
        path.write_text(text)
    with pytest.raises(SystemExit) as ended:
        main(["--rules", str(path), "--list-rules"])
    error = capsys.readouterr().err
    assert ended.value.code == 2 and "Traceback" not in error
    assert error.splitlines()[-1].startswith(f"error: argument --rules: {path}: ")
    assert message in error
    assert before == all_rules()


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("", "'' is neither a Python file nor the name of a module"),
        (".", "'.' is neither a Python file"),
        ("compliance", "compliance: no rule of your own in it"),
        ("nowhere.rules", "no such module; give a Python file, or"),
    ],
)
def test_what_is_not_a_source_of_rules_is_one_message(source, message):
    with pytest.raises(UsageError, match=message):
        load_rules([source])


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("raise SystemExit(0)", "line 7: SystemExit(0)"),
        ("yield 'hello'", "check yields 'hello'; expected self.finding(…)"),
        ("return 1 / 0", "line 7: ZeroDivisionError("),
    ],
)
@pytest.mark.parametrize("base", ["LogRule", "SetRule"])
def test_a_rule_that_fails_itself_is_an_error_of_the_check(base, body, reason, tmp_path, log, capsys):
    text = BODY.format(id="OWN06").replace("LogRule", base).replace("self, log, case", "self, log, case=None")
    own, folder = tmp_path / "own.py", tmp_path / "logs"
    own.write_text(text.replace('yield self.finding(log.path, 1, "something is logged")', body))
    folder.mkdir()
    for number in range(2):
        (folder / f"result_{number}.txt").write_bytes(SampleLog(run=number).bytes())
    status, out = ran(capsys, "--rules", str(own), "--select", "OWN", "--format", "json", str(folder))
    found = [one for subject in (*json.loads(out)["logs"], *json.loads(out)["sets"]) for one in subject["findings"]]
    assert status == 1 and {one["rule"] for one in found} == {"OWN06"}
    assert all(one["message"].startswith(f"the rule itself failed: {reason}") for one in found)
    assert not any("please report" in one["message"] for one in found)


def test_ctrl_c_in_a_rule_ends_the_check(tmp_path, log):
    own = tmp_path / "own.py"
    own.write_text(BODY.format(id="OWN07").replace("yield self", "raise KeyboardInterrupt; yield self"))
    assert main(["--rules", str(own), log]) == 130


def test_what_a_rule_prints_goes_to_standard_error(tmp_path, log, capsys):
    own = tmp_path / "own.py"
    own.write_text(
        "print('loading')\n" + BODY.format(id="OWN08").replace("yield self", "print('checking'); yield self")
    )
    main(["--rules", str(own), "--format", "json", log])
    out, err = capsys.readouterr()
    assert json.loads(out) and err == "loading\nchecking\nchecking\n", "once for each profile"


def test_every_rule_has_a_family_and_no_retired_id_is_used_again():
    assert {prefix(id_) for id_ in all_rules()} == set(FAMILIES)
    with pytest.raises(UsageError, match="PKG12 is retired"):
        type("Again", (LogRule,), {"id": "PKG12", "__doc__": "Again.", "__module__": "compliance.rules.package"})
    for family in FAMILIES.keys() - {OFFICIAL_RULE}:
        numbers = {int(id_[3:]) for id_ in (*all_rules(), *RETIRED) if prefix(id_) == family}
        assert numbers == set(range(1, max(numbers) + 1)), "an id was left out: assign it or list it as retired"
