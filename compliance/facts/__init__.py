"""Facts of benchmarks that no benchmark folder holds: those of OpenFold, and the fastest published training."""
