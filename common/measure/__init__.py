"""Measure a machine by the benchmarks: figures of merit and power."""
