"""The files of New Benchmark's datasets, and the dataset that training reads."""
