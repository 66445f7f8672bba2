"""Build, describe and verify datasets: the shared parts of every `prepare` and `synthesize`."""
