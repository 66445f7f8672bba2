"""A sample on several ranks: which block each has, halos of convolutions, and weights that they divide."""
