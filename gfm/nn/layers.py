"""Small pieces that several parts of the model share."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

ROW_CHUNK_ELEMENTS = 1 << 19
"""Numbers of a row chunk: 2 MiB in float32, so that what is made of them stays in the cache."""


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


def in_row_chunks(function: Callable[[Tensor], Tensor], rows: Tensor) -> Tensor:
    """Applies `function` to `rows` along the first axis; without gradients in chunks.

    The intermediate results of 88,000 entities take hundreds of megabytes, and on a CPU the first touch of that memory
    costs as much as the arithmetic. With gradients they have to be kept anyway.
    """
    size = rows_per_chunk(rows)
    if torch.is_grad_enabled() or len(rows) <= size:
        return function(rows)
    return torch.cat([function(chunk) for chunk in rows.split(size)])


def rows_per_chunk(rows: Tensor) -> int:
    """How many of these rows make a chunk."""
    return max(1, ROW_CHUNK_ELEMENTS // max(1, rows[:1].numel()))
