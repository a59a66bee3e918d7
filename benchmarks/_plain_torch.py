"""The same quantities in plain torch, as one would write them. Needs torch."""

import itertools

import torch
from torch.nn import functional

from benchmarks._plain_numpy import mass_edges


def mass_ece(confidence: torch.Tensor, correct: torch.Tensor, num_bins: int = 15) -> torch.Tensor:
    """Equal-mass ECE, one mask for each bin."""
    edges = torch.from_numpy(mass_edges(confidence.numpy(), num_bins))
    total = torch.zeros(())
    for low, high in itertools.pairwise(edges):
        inside = confidence.ge(low) & confidence.lt(high)
        share = inside.float().mean()
        if share.item() > 0:
            total += share * (confidence[inside].mean() - correct[inside].mean()).abs()
    return total


def classwise_ece(probs: torch.Tensor, labels: torch.Tensor, num_bins: int = 15) -> torch.Tensor:
    """Mean ECE of the classes, one mask for each bin of each class."""
    edges = torch.linspace(0, 1, num_bins + 1)
    per_class = []
    for k in range(probs.shape[1]):
        scores, hit = probs[:, k], labels.eq(k)
        total = torch.zeros(())
        for low, high in itertools.pairwise(edges):
            inside = scores.gt(low) & scores.le(high)
            share = inside.float().mean()
            if share.item() > 0:
                total += share * (scores[inside].mean() - hit[inside].float().mean()).abs()
        per_class.append(total)
    return torch.stack(per_class).mean()


def cross_entropy(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    return functional.cross_entropy(logits, labels)


def focal(logits: torch.Tensor, labels: torch.Tensor, gamma: float) -> torch.Tensor:
    log_p = _label_log_probability(logits, labels)
    return (-((1 - log_p.exp()) ** gamma) * log_p).mean()


def adafocal(
    logits: torch.Tensor, labels: torch.Tensor, edges: list[float], gammas: list[float]
) -> torch.Tensor:
    """Each example's gamma is looked up in Python, bin after bin, from its probability."""
    log_p = _label_log_probability(logits, labels)
    p = log_p.exp()
    found = []
    for value in p.detach():
        probability = value.item()
        chosen = gammas[-1]
        for upper, candidate in zip(edges, gammas, strict=False):
            if probability < upper:
                chosen = candidate
                break
        found.append(chosen)
    gamma = torch.tensor(found)
    weight = torch.where(gamma >= 0, 1 - p, 1 + p) ** gamma.abs()
    return (-weight * log_p).mean()


def mmce_weighted(logits: torch.Tensor, labels: torch.Tensor, width: float = 0.4) -> torch.Tensor:
    """Weighted MMCE from the three blocks of the kernel matrix."""
    confidence, prediction = functional.softmax(logits, dim=1).max(dim=1)
    hit = prediction.eq(labels)
    right, wrong = confidence[hit], confidence[~hit]

    def block(a: torch.Tensor, b: torch.Tensor, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        kernel = torch.exp(-(a[:, None] - b[None, :]).abs() / width)
        return (x[:, None] * y[None, :] * kernel).mean()

    squared = (
        block(right, right, 1 - right, 1 - right)
        + block(wrong, wrong, wrong, wrong)
        - 2 * block(right, wrong, 1 - right, wrong)
    )
    return torch.sqrt(squared + 1e-10)


def temperature(
    logits: torch.Tensor, labels: torch.Tensor, *, lr: float, max_iter: int
) -> torch.Tensor:
    """The temperature with the lowest NLL by L-BFGS from 1.5 with a fixed step size."""
    t = torch.full((1,), 1.5, requires_grad=True)
    optimizer = torch.optim.LBFGS([t], lr=lr, max_iter=max_iter)

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss = functional.cross_entropy(logits / t, labels)
        loss.backward()
        return loss

    optimizer.step(closure)
    return t.detach()[0]


def grid_temperature(logits: torch.Tensor, labels: torch.Tensor, grid: list[float]) -> float:
    """The temperature of the grid with the lowest ECE: softmax and one mask per bin, for each."""
    edges = torch.linspace(0, 1, 16)
    best, found = float("inf"), grid[0]
    for t in grid:
        confidence, prediction = functional.softmax(logits / t, dim=1).max(dim=1)
        hit = prediction.eq(labels)
        total = 0.0
        for low, high in itertools.pairwise(edges):
            inside = confidence.gt(low) & confidence.le(high)
            if inside.any():
                gap = confidence[inside].mean() - hit[inside].float().mean()
                total += (inside.float().mean() * gap.abs()).item()
        if total < best:
            best, found = total, t
    return found


def _label_log_probability(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    return functional.log_softmax(logits, dim=1).gather(1, labels[:, None])[:, 0]
