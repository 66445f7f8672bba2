"""The files of Open Catalyst's datasets, and the dataset that training reads."""
