"""Measure a machine by the benchmarks: figures of merit, power, and what its parts can do."""

from __future__ import annotations
