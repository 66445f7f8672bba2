"""Building, describing and verifying datasets: the shared parts of every `prepare` and `synthesize`."""
