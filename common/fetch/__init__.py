"""Fetching published datasets: resumable downloads, checksums, unpacking; `<benchmark>/fetch.py` lists the files."""
