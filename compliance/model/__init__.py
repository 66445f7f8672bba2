"""What is judged: runs, result sets, packages, their layout, systems, scores and findings."""
