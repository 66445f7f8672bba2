"""OC20's data: file formats and their conversion, sizes, balanced batches, and the dataset that training reads."""
