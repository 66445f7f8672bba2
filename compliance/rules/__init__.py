"""The rules. Importing this package registers all of them."""

from compliance.rules import convergence, epochs, form, order, package, quality, runs, settings, system, variant

__all__ = ["convergence", "epochs", "form", "order", "package", "quality", "runs", "settings", "system", "variant"]
