"""Training and evaluation: the contract of a benchmark, the loop, and its parts."""

from __future__ import annotations
