"""Scripts that make the runs of a plan: as jobs of Slurm or PBS, or as a loop on one machine."""
