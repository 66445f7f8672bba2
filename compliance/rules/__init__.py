"""The rules, and what a rule is; `catalog` lists the modules."""
