"""The scripts of `submission.round --emit`: a round as jobs of Slurm or PBS, or as a loop on one machine."""
