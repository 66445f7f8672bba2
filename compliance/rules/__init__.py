"""The rules. Importing this package registers all of them."""

from compliance.rules import convergence, form, order, package, quality, runs, settings, system

__all__ = ["convergence", "form", "order", "package", "quality", "runs", "settings", "system"]
