"""Make example logs and packages, good and bad, for rules, tests and the demonstration."""
