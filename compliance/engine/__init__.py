"""The check: finds the logs below the paths, judges each, then results and packages; or follows a log as it grows."""

from compliance.engine.checker import check_paths
from compliance.engine.log_checker import LogTask, Options, judge_log

__all__ = ["LogTask", "Options", "check_paths", "judge_log"]
