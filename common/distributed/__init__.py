"""The ranks of a run: who they are, how they communicate, and how all stop when one fails."""
