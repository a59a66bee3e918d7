"""What is done differently on the CPU, and why."""

import jax


def is_cpu() -> bool:
    """Return whether JAX computes on the CPU by default."""
    return jax.default_backend() == "cpu"


def loops_are_slow() -> bool:
    """Return whether convolutions are better called one by one, or unrolled, than in a compiled loop.

    XLA's CPU backend runs a convolution inside a loop about nine times slower than outside
    (`python -m benchmarks train_step`).
    """
    return is_cpu()


def steps_per_call() -> int:
    """Return the number of training steps in one call of the compiled program.

    One where loops are slow: there, a step takes much longer than its dispatch.
    """
    return 1 if loops_are_slow() else 50
