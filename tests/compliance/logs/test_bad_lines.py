"""Lines that are no records are one finding that names their cause, and the command in its fix repairs the log."""

import html
import json
import quopri
import re
import shutil
import subprocess

import pytest

from compliance.samples.log import SampleLog
from tests.compliance.judged import judge_bytes

TOKEN, LINES = ":::MLLOG ", SampleLog("deepcam").text().splitlines()


def each(write):
    """Return the log with each line written in another way."""
    return "".join(f"{write(line)}\n" for line in LINES).encode()


def records(write):
    return each(lambda line: TOKEN + write(line.removeprefix(TOKEN)))


def tear(key, noise):
    """Return the log with the text of another program in the middle of the last record of a key."""
    before, _, after = "\n".join(LINES).rpartition(f'"{key}"')
    return f'{before}"{key[:4]}{noise}\n{key[4:]}"{after}\n'.encode()


NCCL = "node017:40211:40388 [2] NCCL INFO Channel 03/0 : 70[c1000] -> 66[c1000]"
DAMAGES = {
    "mail": (b"From: a\n\n" + quopri.encodestring(each(str)), "quoted-printable"),
    "reply": (each(lambda line: f"> {line[:80]}\n> {line[80:]}"), "breaks off"),
    "torn result": (tear("eval_accuracy", NCCL), "may be the one that reaches the target"),
    "torn by lines": (tear("run_stop", f"{NCCL}\nRank 3: done"), "record of run_stop, whose end is in line"),
    "docker": (each(lambda line: json.dumps({"log": f"{line}\n", "stream": "stdout"})), "inside JSON"),
    "log store": (each(lambda line: json.dumps({"result": {"host": 1, "@message": f"0: {line}"}})), "inside JSON"),
    "pretty": (json.dumps([{"line": line} for line in LINES], indent=1).encode(), "inside JSON"),
    "late": (b'{"log": "%s"}\n' % (b"x" * 9000) + each(lambda line: json.dumps({"log": line})), "inside JSON"),
    "CSV": (each(lambda line: 'node01,"' + line.replace('"', '""') + '"'), "quote is doubled"),
    "logfmt": (each(lambda line: f"level=info msg={json.dumps(line)}"), "backslash before"),
    "twice": (records(json.dumps), "applied twice"),
    "repr": (records(lambda record: repr(json.loads(record))), "a Python dictionary"),
    "None": (records(lambda record: record.replace("null", "None")), "a Python dictionary"),
    "HTML": (records(html.escape), "HTML entities"),
    "typographic": (records(lambda record: re.sub('"(.*?)"', "\u201c\\1\u201d", record)), "typographic"),
    "no-break": (records(lambda record: record.replace(" ", "\u00a0")), "no-break"),
    "no blank": (each(lambda line: line.replace(TOKEN, TOKEN.strip())), "without the one blank"),
    "tab": (each(lambda line: line.replace(TOKEN, ":::MLLOG\t")), "without the one blank"),
    "case": (each(lambda line: line.replace(TOKEN, ":::mllog ")), "to the letter"),
    "Windows": (records(lambda record: record.replace('"file": "', r'"file": "C:\new\users\\'[:-1])), "backslash that"),
    "keys": (records(lambda record: re.sub(r'"(\w+)":', r"\1:", record)), "keys without quotes"),
    "comma": (records(lambda record: record[:-1] + ", }"), "comma before"),
    "decimal": (records(lambda record: re.sub(r'(?<="value": )(\d+)\.', r"\1,", record)), "decimal comma"),
    "colors": (each("\x1b[32m{}\x1b[0m".format), "terminal colors"),
    "wrapped": (records(lambda record: f"{record[:60]}\n{record[60:90]}\r\n{record[90:]}"), "breaks off"),
    "followed": (each("b'{}\\n'".format), "after the record"),
}


@pytest.mark.parametrize(("data", "words"), DAMAGES.values(), ids=DAMAGES)
def test_lines_in_another_form_are_one_finding_and_its_command_repairs_the_log(data, words, tmp_path):
    (tmp_path / "result_0.txt").write_bytes(data)
    causes = [finding for finding in judge_bytes(data).findings if finding.severity == "error" and not finding.cause]
    assert not [finding for finding in causes if finding.rule in ("QUA01", "ORD12")]
    assert causes[0].rule in ("FRM03", "FRM04") and words in causes[0].message and " line" in causes[0].message
    (command,) = [line.removeprefix("$ ") for line in causes[0].fix.split("\n") if line.startswith("$ ")]
    if shutil.which(command.removeprefix("LC_ALL=C ").split()[0]) is None:
        pytest.skip(f"no {command}")
    subprocess.run(command, shell=True, cwd=tmp_path, check=True)
    assert judge_bytes((tmp_path / "repaired.txt").read_bytes()).verdict == "PASS"
