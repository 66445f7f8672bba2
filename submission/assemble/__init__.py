"""Assemble a submission package from the logs of finished runs."""
