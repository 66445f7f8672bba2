"""The files of CosmoFlow's datasets, and the dataset that training reads."""
