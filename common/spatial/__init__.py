"""A sample on several ranks: which block each has, halos of convolutions, and weights of which each has a part."""
