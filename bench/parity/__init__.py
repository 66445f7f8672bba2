"""The official networks of a clone of mlcommons/hpc beside ours: a file for each benchmark."""
