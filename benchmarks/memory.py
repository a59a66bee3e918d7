"""Memory of a training step per method: what XLA plans for it, and what `Trainer.memory` predicts."""

from collections.abc import Iterator

from benchmarks import overhead
from benchmarks._harness import Fact
from benchmarks._training import one_step

SECONDS = 10  # after `overhead`, whose programs it looks at; alone 100

_MB = 1e6


def cases(quick: bool) -> Iterator[Fact]:
    """The same steps as in `overhead`."""
    model, batch = overhead.network(quick)
    least = None
    for method in ("cross_entropy", *overhead.METHODS):
        step = one_step(method, model, batch)
        plan = step.compiled().memory_analysis()
        # Arguments that are given back as results (the donated state) are there once only.
        arguments, temporary = plan.argument_size_in_bytes, plan.temp_size_in_bytes
        results = plan.output_size_in_bytes - plan.alias_size_in_bytes
        peak = arguments + temporary + results
        least = least or peak
        state, kept = step.trainer.memory()
        yield Fact(
            f"High-water mark of one step, {model}, B={batch}, in MB, by XLA's memory analysis; "
            "predicted are the state and what the backward pass needs of the forward pass, without "
            "compiling.",
            {
                "method": method,
                "arguments": arguments / _MB,
                "temporary": temporary / _MB,
                "new results": results / _MB,
                "high-water mark": peak / _MB,
                "over cross entropy": peak / least,
                "predicted: state": state / _MB,
                "predicted: kept for the gradient": kept / _MB,
            },
        )
