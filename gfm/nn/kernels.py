"""Compiled CPU loops behind `relational_spmm`; numba compiles them at the first call and caches the result on disk."""

from __future__ import annotations

import numba
import numpy as np


@numba.njit(parallel=True, fastmath=True, cache=True)
def sum_messages(
    indptr: np.ndarray,
    neighbour: np.ndarray,
    relation: np.ndarray,
    edge: np.ndarray,
    keep: np.ndarray,
    x: np.ndarray,
    rel: np.ndarray,
    out: np.ndarray,
) -> None:
    """Adds `x[neighbour] * rel[relation]` of every kept edge to its row of `out`, one thread per row."""
    batch, dim = x.shape[1], x.shape[2]
    for v in numba.prange(len(indptr) - 1):
        for i in range(indptr[v], indptr[v + 1]):
            if keep[edge[i]]:
                u, r = neighbour[i], relation[i]
                for b in range(batch):
                    for j in range(dim):
                        out[v, b, j] += x[u, b, j] * rel[r, j]


@numba.njit(parallel=True, fastmath=True, cache=True)
def sum_relation_products(
    block_ptr: np.ndarray,
    source: np.ndarray,
    target: np.ndarray,
    edge: np.ndarray,
    keep: np.ndarray,
    x: np.ndarray,
    grad: np.ndarray,
    partial: np.ndarray,
) -> None:
    """Adds `sum_b x[source, b] * grad[target, b]` of every kept edge to its block's row of `partial`."""
    batch, dim = x.shape[1], x.shape[2]
    for block in numba.prange(len(block_ptr) - 1):
        for i in range(block_ptr[block], block_ptr[block + 1]):
            if keep[edge[i]]:
                u, v = source[i], target[i]
                for b in range(batch):
                    for j in range(dim):
                        partial[block, j] += x[u, b, j] * grad[v, b, j]
