"""Speed of `calib_jax` next to other libraries: `python -m benchmarks --help`."""
