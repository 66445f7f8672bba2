"""The synthetic universes: physics, recipes and pictures."""
