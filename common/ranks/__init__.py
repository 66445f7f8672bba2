"""The ranks of a run: launchers, devices, communication, and the end of all ranks when one fails."""
