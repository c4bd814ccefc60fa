"""Relational propagation: the sum of relation-modulated neighbour states, without an edge-sized buffer.

`relational_spmm` computes Eq. 2 and the sum of Eq. 3,

    out[v, b, :] = sum over edges (u, r, v) of x[u, b, :] * rel[r, :]

Four implementations agree: `reference` materialises every message and is the truth for tests; `chunked` works for any
type on any device in bounded memory; `numba` (CPU) and `triton` (GPU) run compiled loops over grouped edges and write
no message at all.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from gfm.nn.edges import EdgeGroups, RelationalEdges

CHUNK_ELEMENTS = 1 << 22
"""Numbers in one chunk of messages: 16 MiB in float32, small enough to stay near the cache."""

BACKENDS = ("auto", "numba", "triton", "chunked", "reference")


def relational_spmm(x: Tensor, rel: Tensor, edges: RelationalEdges, backend: str = "auto") -> Tensor:
    """Sums relation-modulated neighbour states into every destination (Eq. 2, 3).

    Args:
        x: entity states `(num_sources, B, d)`.
        rel: relation states `(num_edge_types, d)`, cast to the type of `x`.
        edges: edges with inverses; masked ones carry nothing.
        backend: `"auto"` (numba on the CPU, triton on a GPU where it is installed, else chunked), or one of
            `BACKENDS`.

    Returns:
        `(num_nodes, B, d)`; exactly zero where no message arrives or all arriving states are zero. Sums are float32
        for bfloat16 input.

    Raises:
        ValueError: an unknown backend, or one asked for a type or a device that it does not have.
    """
    if backend == "auto":
        backend = best_backend(x)
    if backend not in BACKENDS:
        raise ValueError(f"backend {backend!r} is unknown; use {', '.join(BACKENDS[:-1])} or {BACKENDS[-1]}")
    if len(x) != edges.num_rows_in or rel.shape != (edges.num_edge_types, x.size(2)):
        # Compiled loops do not check: they would read whatever lies behind.
        raise ValueError(
            f"states {tuple(x.shape)} and relations {tuple(rel.shape)} do not fit edges from {edges.num_rows_in} "
            f"sources by {edges.num_edge_types} types; give (sources, B, d) and (types, d)"
        )
    rel = rel.to(x.dtype)
    if backend == "reference":
        return _reference(x, rel, edges)
    if backend == "triton" and not _has_triton():
        raise ValueError("backend 'triton' needs the package triton; install it or use 'chunked'")
    if backend == "numba" and not _fits_numba(x):
        raise ValueError(
            f"backend 'numba' needs float32, float64 or bfloat16 on the CPU, got {x.dtype} on {x.device}; use 'chunked'"
        )
    out: Tensor = _RelationalSum.apply(x, rel, edges, backend)
    return out


def best_backend(x: Tensor) -> str:
    """The fastest backend for the type and device of `x`."""
    if _fits_numba(x):
        return "numba"
    if x.device.type == "cuda" and x.dtype in (torch.float32, torch.bfloat16) and _has_triton():
        return "triton"
    return "chunked"


def _fits_numba(x: Tensor) -> bool:
    return x.device.type == "cpu" and x.dtype in (torch.float32, torch.float64, torch.bfloat16)


def _has_triton() -> bool:
    return find_spec("triton") is not None


def _reference(x: Tensor, rel: Tensor, edges: RelationalEdges) -> Tensor:
    (source, target), edge_type = edges.kept
    messages = x[source] * rel[edge_type].unsqueeze(1)
    return x.new_zeros(edges.num_nodes, *x.shape[1:]).index_add(0, target, messages)


class _RelationalSum(torch.autograd.Function):
    """Saves only its inputs: the backward pass recomputes messages instead of keeping `E x B x d` of them."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, rel: Tensor, edges: RelationalEdges, backend: str) -> Tensor:
        ctx.save_for_backward(x, rel)
        ctx.edges, ctx.backend = edges, backend
        return _sum(edges.by_destination, edges.keep, x, rel, backend)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor | None, None, None]:
        x, rel = ctx.saved_tensors
        edges, backend = ctx.edges, ctx.backend
        grad_x = grad_rel = None
        if ctx.needs_input_grad[0]:
            grad_x = _sum(edges.by_source, edges.keep, grad, rel, backend)
        if ctx.needs_input_grad[1]:
            grad_rel = _sum(edges.by_relation, edges.keep, x, grad, backend)
        return grad_x, grad_rel, None, None


def _sum(groups: EdgeGroups, keep: Tensor | None, a: Tensor, b: Tensor, backend: str) -> Tensor:
    """Per key the sum of `a[first] * b[second]`: `(G, B, d)` where `b (R, d)` serves all questions.

    Where both factors are entity states `(N, B, d)`, the sum runs over the questions as well: `(G, d)`.
    """
    shape = a.shape[1:] if b.dim() == 2 else a.shape[2:]
    accumulator = torch.float64 if a.dtype == torch.float64 else torch.float32
    if backend == "chunked":
        total = a.new_zeros(groups.num_keys, *shape, dtype=accumulator)
        _sum_in_chunks(groups, keep, a, b, total)
        return total.to(a.dtype)
    if backend == "numba":
        from gfm.nn.cpu_kernels import launch
    else:
        from gfm.nn.gpu_kernels import launch
    out = a.new_empty(groups.num_keys, *shape)
    partial = a.new_empty(len(groups.partial_owner), *shape, dtype=accumulator)
    launch(groups, keep, a.contiguous(), b.contiguous(), out, partial)
    if len(partial):
        total = partial.new_zeros(len(groups.shared_key), *shape).index_add_(0, groups.partial_owner, partial)
        out[groups.shared_key] = total.to(out.dtype)
    return out


def _sum_in_chunks(groups: EdgeGroups, keep: Tensor | None, a: Tensor, b: Tensor, total: Tensor) -> None:
    key = torch.repeat_interleave(torch.arange(groups.num_keys, device=a.device), groups.indptr.diff())
    first, second = groups.first, groups.second
    if keep is not None:
        kept = keep[groups.edge]
        key, first, second = key[kept], first[kept], second[kept]
    size = max(1, CHUNK_ELEMENTS // max(1, a[:1].numel()))
    for part in zip(*(column.split(size) for column in (key, first, second)), strict=True):
        rows = a[part[1]].to(total.dtype)
        if b.dim() == 2:
            total.index_add_(0, part[0], rows * b[part[2]].unsqueeze(1))
        else:
            total.index_add_(0, part[0], (rows * b[part[2]]).sum(1))
