"""Measure what a run uses."""
