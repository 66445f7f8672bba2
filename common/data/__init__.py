"""The path of samples to a rank's device: order, sharding, reading and prefetching."""
