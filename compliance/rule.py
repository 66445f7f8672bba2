"""The earlier name of `compliance.rules.rule`, for rules of your own; goes with version 0.4."""

from compliance.model.judging import Case
from compliance.rules.rule import LogRule, PackageRule, SetRule, SubmissionsRule, show

__all__ = ["Case", "LogRule", "PackageRule", "SetRule", "SubmissionsRule", "show"]
