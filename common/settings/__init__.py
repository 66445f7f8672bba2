"""What can be configured: each key is declared once, and read by trainer, checker and docs. Standard library only."""
