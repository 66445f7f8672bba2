"""Summarise results as tables."""
