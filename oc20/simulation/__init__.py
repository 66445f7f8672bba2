"""The surfaces of the mini problem: physics, recipe and pictures."""
