"""Relational propagation: the sum of relation-modulated neighbour states, without an edge-sized buffer.

`relational_spmm` computes Eq. 2 and the sum of Eq. 3,

    out[v, b, :] = sum over edges (u, r, v) of x[u, b, :] * rel[r, :]

Three implementations agree: `reference` materialises every message and is the truth for tests; `chunked` works on
any device in bounded memory; `numba` runs compiled loops over grouped edges on the CPU and writes no message at all.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from gfm.nn.edges import RelationalEdges

CHUNK_ELEMENTS = 1 << 22
"""Numbers in one chunk of messages: 16 MiB in float32, small enough to stay near the cache."""


def relational_spmm(x: Tensor, rel: Tensor, edges: RelationalEdges, backend: str = "auto") -> Tensor:
    """Sums relation-modulated neighbour states into every destination (Eq. 2, 3).

    Args:
        x: entity states `(V, B, d)`.
        rel: relation states `(num_edge_types, d)`.
        edges: edges with inverses; masked ones carry nothing.
        backend: `"auto"` (numba for float32 on the CPU, else chunked), `"numba"`, `"chunked"` or `"reference"`.

    Returns:
        `(V, B, d)`; exactly zero where no message arrives or all arriving states are zero.

    Raises:
        ValueError: an unknown backend, or numba asked for anything but float32 on the CPU.
    """
    fits_numba = x.device.type == "cpu" and x.dtype == rel.dtype == torch.float32
    if backend == "auto":
        backend = "numba" if fits_numba else "chunked"
    if backend == "reference":
        return _reference(x, rel, edges)
    if backend == "numba" and not fits_numba:
        raise ValueError(f"backend 'numba' needs float32 on the CPU, got {x.dtype} on {x.device}; use 'chunked'")
    if backend not in ("numba", "chunked"):
        raise ValueError(f"backend {backend!r} is unknown; use auto, numba, chunked or reference")
    out: Tensor = _RelationalSum.apply(x, rel, edges, backend)
    return out


def _reference(x: Tensor, rel: Tensor, edges: RelationalEdges) -> Tensor:
    (source, target), edge_type = edges.kept
    messages = x[source] * rel[edge_type].unsqueeze(1)
    return torch.zeros_like(x).index_add(0, target, messages)


class _RelationalSum(torch.autograd.Function):
    """Saves only its inputs: the backward pass recomputes messages instead of keeping `E x B x d` of them."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, rel: Tensor, edges: RelationalEdges, backend: str) -> Tensor:
        ctx.save_for_backward(x, rel)
        ctx.edges, ctx.backend = edges, backend
        return _sum_messages(x, rel, edges, 1, backend)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor | None, None, None]:
        x, rel = ctx.saved_tensors
        grad_x = _sum_messages(grad, rel, ctx.edges, 0, ctx.backend) if ctx.needs_input_grad[0] else None
        grad_rel = _relation_gradient(x, grad, rel, ctx.edges, ctx.backend) if ctx.needs_input_grad[1] else None
        return grad_x, grad_rel, None, None


def _sum_messages(x: Tensor, rel: Tensor, edges: RelationalEdges, into: int, backend: str) -> Tensor:
    """Messages summed into row `into` of `edge_index`; `into=0` is the transposed graph, the gradient of `x`."""
    out = torch.zeros(x.shape, dtype=x.dtype, device=x.device)
    if backend == "numba":
        from gfm.nn.kernels import sum_messages

        order = edges.by_endpoint(into)
        arrays = (t.detach().contiguous().numpy() for t in (x, rel))
        sum_messages(order.indptr, order.neighbour, order.relation, order.edge, edges.keep_array, *arrays, out.numpy())
        return out
    edge_index, edge_type = edges.kept
    for part in _chunks(edge_index.size(1), x):
        source, target = edge_index[1 - into, part], edge_index[into, part]
        out.index_add_(0, target, x[source] * rel[edge_type[part]].unsqueeze(1))
    return out


def _relation_gradient(x: Tensor, grad: Tensor, rel: Tensor, edges: RelationalEdges, backend: str) -> Tensor:
    if backend == "numba":
        from gfm.nn.kernels import sum_relation_products

        order = edges.by_relation()
        arrays = (t.detach().contiguous().numpy() for t in (x, grad))
        partial = torch.zeros(len(order.block_relation), rel.size(1), dtype=rel.dtype)
        sum_relation_products(
            order.block_ptr, order.source, order.target, order.edge, edges.keep_array, *arrays, partial.numpy()
        )
        return torch.zeros_like(rel).index_add_(0, torch.from_numpy(order.block_relation), partial)
    out = torch.zeros_like(rel)
    (source, target), edge_type = edges.kept
    for part in _chunks(source.numel(), x):
        out.index_add_(0, edge_type[part], (x[source[part]] * grad[target[part]]).sum(1))
    return out


def _chunks(num_edges: int, x: Tensor) -> list[slice]:
    size = max(1, CHUNK_ELEMENTS // max(1, x[0].numel())) if len(x) else 1
    return [slice(start, start + size) for start in range(0, num_edges, size)]
