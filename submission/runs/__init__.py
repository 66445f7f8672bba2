"""Many runs: a plan of them, made here as processes or printed as job scripts. The run folders are the only state."""
