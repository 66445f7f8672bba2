"""Summarise results as a table."""
