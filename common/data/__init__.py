"""Datasets: fetching, building, describing and verifying them; and the path of their samples to a rank's device."""

from __future__ import annotations
