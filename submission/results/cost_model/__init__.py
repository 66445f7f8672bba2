"""The cost model: the least time of a step by the ceilings of the hardware."""
