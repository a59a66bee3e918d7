"""Train classifiers whose confidence can be trusted, in JAX, and measure whether it can."""

__version__ = "0.1.0"
