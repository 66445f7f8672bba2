"""Staging: copying a dataset from shared storage to the nodes before training reads it."""
