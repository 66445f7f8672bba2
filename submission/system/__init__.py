"""Describe a system from the machine at hand."""
