"""What many tests of the checker do: judge one log or package, and take out the findings of a rule."""

from compliance.engine import Options, check_paths
from compliance.engine.log_checker import LogTask, judge_log
from compliance.logs.log import parse_log
from compliance.model.judging import Case
from compliance.samples.log import SampleLog


def judge_bytes(data, profile="strict", round_="3.0", path="result_0.txt", allow_mini=False):
    """Return the judged run of a log."""
    return judge_log(parse_log(data, path), LogTask(path, Case(round_, profile, allow_mini=allow_mini)))


def judge_sample(log: SampleLog, profile="strict", **options):
    """Return the judged run of a sample log, by the rules of its round."""
    return judge_bytes(log.bytes(), profile, log.round, **options)


def find_all(judged, rule):
    """Return the findings of a rule, of a run, a result or a report."""
    return [finding for finding in judged.findings if finding.rule == rule]


def check_package(package, folder, profile="strict"):
    """Write a sample package into a folder, and return the report on it."""
    return check_paths([package.write(folder / "Example")], Options(profile=profile))
