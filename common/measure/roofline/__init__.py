"""Measure what the parts of a machine can do, and which part limits a training step."""
