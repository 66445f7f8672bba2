"""The synthetic weather: physics, labels, recipes and pictures."""
