"""Which samples a rank reads, in which order, and how they reach its device."""
