"""The synthetic surfaces: physics, recipes and pictures."""
