"""The weather of the mini problem: physics, labels, recipe and pictures."""
