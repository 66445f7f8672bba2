"""DeepCAM's data: file formats and their conversion, statistics, and the dataset that training reads."""
