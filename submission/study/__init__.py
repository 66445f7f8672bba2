"""Studies: runs over axes, the curves through them and the laws that these follow."""
