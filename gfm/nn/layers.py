"""Small pieces that several parts of the model share."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn


def linear_of_concat(linear: nn.Linear, *parts: Tensor) -> Tensor:
    """Applies `linear` to the concatenation of `parts` along the last axis without concatenating them.

    `W [a ‖ b] = W_a a + W_b b`: a part that is the same for all entities (the question) is multiplied once and
    broadcast, not copied and multiplied V times.

    Args:
        linear: its input size is the sum of the parts' last axes.
        parts: broadcastable against one another in all but the last axis.
    """
    widths = [part.size(-1) for part in parts]
    assert sum(widths) == linear.in_features, f"parts {widths} do not fill {linear.in_features} inputs"
    weights = linear.weight.split(widths, dim=1)
    out = F.linear(parts[0], weights[0], linear.bias)
    for part, weight in zip(parts[1:], weights[1:], strict=True):
        term = F.linear(part, weight)
        # In place where nothing broadcasts: one entity-sized buffer less, and no gradient reads the old value.
        out = out.add_(term) if term.shape == out.shape else out + term
    return out


def two_layer_mlp(in_dim: int, hidden_dim: int, out_dim: int) -> nn.Sequential:
    """Linear, ReLU, linear: the form of every MLP in the model."""
    return nn.Sequential(nn.Linear(in_dim, hidden_dim), nn.ReLU(), nn.Linear(hidden_dim, out_dim))


def apply_to_concat(mlp: nn.Sequential, *parts: Tensor) -> Tensor:
    """Applies a `two_layer_mlp` to the concatenation of `parts` (see `linear_of_concat`)."""
    first, activation, last = mlp
    assert isinstance(first, nn.Linear)
    out: Tensor = last(activation(linear_of_concat(first, *parts)))
    return out
