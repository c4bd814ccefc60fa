"""Small pieces that several parts of the model share."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

ROW_CHUNK_ELEMENTS = 1 << 19
"""Numbers of a row chunk on a CPU: 2 MiB in float32, so that what is made of them stays in the cache."""

ROW_CHUNK_ELEMENTS_GPU = 1 << 26
"""The same elsewhere, where it only bounds memory."""


def two_layer_mlp(in_dim: int, hidden_dim: int, out_dim: int) -> nn.Sequential:
    """Linear, ReLU, linear: the form of every MLP in the model."""
    return nn.Sequential(nn.Linear(in_dim, hidden_dim), nn.ReLU(), nn.Linear(hidden_dim, out_dim))


def apply_to_concat(mlp: nn.Sequential, rows: Tensor, shared: Tensor) -> Tensor:
    """Applies a `two_layer_mlp` to `[rows ‖ shared]` without concatenating.

    `W [a ‖ b] = W_a a + W_b b`: what all entities share (the question's part) is multiplied once and broadcast, not
    copied and multiplied for each of them.

    Args:
        mlp: takes as many inputs as the last axes of both have together.
        rows: `(n, B, d)`, or `(n, d)`.
        shared: `(B, k)`, or `(n, k)` where each row has its own.
    """
    first, activation, last = mlp
    assert isinstance(first, nn.Linear)
    for_rows, for_shared = first.weight.split([rows.size(-1), shared.size(-1)], dim=1)
    out: Tensor = last(activation(F.linear(rows, for_rows) + F.linear(shared, for_shared, first.bias)))
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
    elements = ROW_CHUNK_ELEMENTS if rows.device.type == "cpu" else ROW_CHUNK_ELEMENTS_GPU
    return max(1, elements // max(1, rows[:1].numel()))
