"""CosmoFlow's data: file formats, the split by universes, and the dataset that training reads."""
