"""The reports on the published logs in both profiles, made once for all tests of this folder that read them."""

from __future__ import annotations

import pytest

from compliance.engine import Options, check_paths
from compliance.model.judging import OFFICIAL
from compliance.model.report import Report


@pytest.fixture(scope="session")
def official(corpus) -> Report:
    """Check the published logs in the official profile, with what is read for an analysis."""
    return check_paths([corpus], Options(profile=OFFICIAL, details=True))


@pytest.fixture(scope="session")
def strict(corpus) -> Report:
    """Check the published logs in the strict profile, with what is read for an analysis."""
    return check_paths([corpus], Options(details=True))
