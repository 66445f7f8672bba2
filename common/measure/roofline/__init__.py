"""Measure what the parts of a machine can do, and which of them a training step is bound by."""
