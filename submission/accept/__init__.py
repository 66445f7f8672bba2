"""Acceptance of a machine: measurements of now beside a baseline, with a verdict that knows the machine's own noise."""
