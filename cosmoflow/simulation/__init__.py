"""The universes of the mini problem: physics, recipe and pictures."""
