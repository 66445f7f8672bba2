"""Building, describing and verifying datasets."""
