"""Describe a system from the machine at hand, or from all nodes of a job."""
