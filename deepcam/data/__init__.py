"""The files of DeepCAM's datasets, and the dataset that training reads."""
