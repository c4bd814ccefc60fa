"""Compiled CPU loops behind `relational_spmm` and `update_rows`; numba compiles them at first and caches them on disk.

bfloat16 comes in as its bits (uint16): it is the upper half of a float32, so reading it is a shift. Sums are always
float32, or float64 for float64 input. Edges are taken two at a time: half as many passes over the sum, and twice as
many rows on their way from memory; measured 15 to 40 % faster.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numba
import numpy as np
import torch
from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic, overload
from torch import Tensor

from gfm.errors import InputError
from gfm.nn.edges import EdgeGroups

# Not every threading layer of numba takes parallel loops from two Python threads at once; a server has many.
_one_loop_at_a_time = threading.Lock()


def launch(groups: EdgeGroups, keep: Tensor | None, a: Tensor, b: Tensor, out: Tensor, partial: Tensor) -> None:
    """Runs `sum_messages` where `b` is relation states, `sum_products` where it is entity states, into `out`."""
    kernel = sum_messages if b.dim() == 2 else sum_products
    columns = (groups.chunk_ptr, groups.block_ptr, groups.block_row, groups.first, groups.second, groups.edge)
    mask = torch.empty(0, dtype=torch.bool) if keep is None else keep.contiguous()
    run(kernel, *columns, mask, a, b, out, partial)


def run(kernel: Callable[..., None], *arguments: Tensor | float) -> None:
    """Runs a compiled loop on the memory of tensors.

    Raises:
        InputError: numba is told not to compile; as Python loops these would take hours, or fail.
    """
    if numba.config.DISABLE_JIT:
        raise InputError("NUMBA_DISABLE_JIT is set, and the loops on the CPU must be compiled; unset it")
    arrays = [as_array(value) if isinstance(value, Tensor) else value for value in arguments]
    with _one_loop_at_a_time:
        # numba's first parallel loop sets the threads of the OpenMP that it shares with torch to its own number.
        threads = torch.get_num_threads()
        kernel(*arrays)
        if torch.get_num_threads() != threads:
            torch.set_num_threads(threads)


def as_array(tensor: Tensor) -> np.ndarray:
    """The tensor's memory as an array; bfloat16 as its bits, which numpy has no name for."""
    tensor = tensor.detach()
    return (tensor.view(torch.uint16) if tensor.dtype == torch.bfloat16 else tensor).numpy()


@intrinsic
def _as_float(typing_context: Any, bits: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.bitcast(arguments[0], ir.FloatType())

    return types.float32(types.uint32), generate


@intrinsic
def _as_bits(typing_context: Any, value: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.bitcast(arguments[0], ir.IntType(32))

    return types.uint32(types.float32), generate


def widen(value: Any) -> Any:
    """A stored number as one to compute with: bfloat16 bits as float32, anything else as it is."""
    if value.dtype != np.uint16:
        return value
    return np.left_shift(np.uint32(value), np.uint32(16)).view(np.float32)


@overload(widen, inline="always")
def _widen(value: Any) -> Callable[[Any], Any]:
    def upper_half(value: Any) -> Any:
        return _as_float(np.uint32(np.uint32(value) << np.uint32(16)))

    def plain(value: Any) -> Any:
        return value

    return upper_half if value == types.uint16 else plain


def store(row: Any, j: int, value: Any) -> None:
    """Writes a computed number into a row, rounded to the nearest even bfloat16 where the row holds such bits."""
    if row.dtype != np.uint16:
        row[j] = value
        return
    bits = int(np.float32(value).view(np.uint32))
    row[j] = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16


@overload(store, inline="always")
def _store(row: Any, j: Any, value: Any) -> Callable[[Any, Any, Any], None]:
    def rounded(row: Any, j: Any, value: Any) -> None:
        bits = _as_bits(value)
        row[j] = np.uint16((bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))) >> np.uint32(16))

    def plain(row: Any, j: Any, value: Any) -> None:
        row[j] = value

    return rounded if row.dtype == types.uint16 else plain


@numba.njit(parallel=True, fastmath={"contract", "nsz"}, cache=True)
def sum_messages(
    chunk_ptr: np.ndarray,
    block_ptr: np.ndarray,
    block_row: np.ndarray,
    first: np.ndarray,
    second: np.ndarray,
    edge: np.ndarray,
    keep: np.ndarray,
    x: np.ndarray,
    rel: np.ndarray,
    out: np.ndarray,
    partial: np.ndarray,
) -> None:
    """Sums `x[first] * rel[second]` over the kept edges of every block into its row of `out` or `partial`.

    `keep` of length 0 keeps all edges. Shapes: `x (N, B, d)`, `rel (R, d)`, `out (G, B, d)`, `partial (P, B, d)`.
    """
    batch, dim = x.shape[1], x.shape[2]
    for chunk in numba.prange(len(chunk_ptr) - 1):
        total = np.empty((batch, dim), partial.dtype)
        for block in range(chunk_ptr[chunk], chunk_ptr[chunk + 1]):
            total[:] = 0
            u = r = -1  # an edge that waits for a second one
            for i in range(block_ptr[block], block_ptr[block + 1]):
                if len(keep) > 0 and not keep[edge[i]]:
                    continue
                if u < 0:
                    u, r = first[i], second[i]
                    continue
                u2, r2 = first[i], second[i]
                for b in range(batch):
                    for j in range(dim):
                        total[b, j] += widen(x[u, b, j]) * widen(rel[r, j]) + widen(x[u2, b, j]) * widen(rel[r2, j])
                u = -1
            if u >= 0:
                for b in range(batch):
                    for j in range(dim):
                        total[b, j] += widen(x[u, b, j]) * widen(rel[r, j])
            row = block_row[block]
            for b in range(batch):
                for j in range(dim):
                    if row >= 0:
                        store(out[row, b], j, total[b, j])
                    else:
                        partial[-1 - row, b, j] = total[b, j]


@numba.njit(parallel=True, fastmath={"contract", "nsz"}, cache=True)
def sum_products(
    chunk_ptr: np.ndarray,
    block_ptr: np.ndarray,
    block_row: np.ndarray,
    first: np.ndarray,
    second: np.ndarray,
    edge: np.ndarray,
    keep: np.ndarray,
    x: np.ndarray,
    grad: np.ndarray,
    out: np.ndarray,
    partial: np.ndarray,
) -> None:
    """Sums `sum_b x[first, b] * grad[second, b]` over the kept edges of every block into its row.

    Shapes: `x (N, B, d)`, `grad (M, B, d)`, `out (G, d)`, `partial (P, d)`.
    """
    batch, dim = x.shape[1], x.shape[2]
    for chunk in numba.prange(len(chunk_ptr) - 1):
        total = np.empty(dim, partial.dtype)
        for block in range(chunk_ptr[chunk], chunk_ptr[chunk + 1]):
            total[:] = 0
            u = v = -1  # an edge that waits for a second one
            for i in range(block_ptr[block], block_ptr[block + 1]):
                if len(keep) > 0 and not keep[edge[i]]:
                    continue
                if u < 0:
                    u, v = first[i], second[i]
                    continue
                u2, v2 = first[i], second[i]
                for b in range(batch):
                    for j in range(dim):
                        total[j] += widen(x[u, b, j]) * widen(grad[v, b, j]) + widen(x[u2, b, j]) * widen(
                            grad[v2, b, j]
                        )
                u = -1
            if u >= 0:
                for b in range(batch):
                    for j in range(dim):
                        total[j] += widen(x[u, b, j]) * widen(grad[v, b, j])
            row = block_row[block]
            for j in range(dim):
                if row >= 0:
                    store(out[row], j, total[j])
                else:
                    partial[-1 - row, j] = total[j]


@numba.njit(cache=True)
def counting_sort(key: np.ndarray, indptr: np.ndarray, order: np.ndarray) -> None:
    """Fills `indptr` (zeros on entry) with where each key begins and `order` with the stable sorted order."""
    for i in range(len(key)):
        indptr[key[i] + 1] += 1
    for k in range(len(indptr) - 1):
        indptr[k + 1] += indptr[k]
    cursor = indptr.copy()
    for i in range(len(key)):
        order[cursor[key[i]]] = i
        cursor[key[i]] += 1


@numba.njit(parallel=True, fastmath={"contract", "nsz", "reassoc"}, cache=True)
def rms_update(
    pre: np.ndarray, weight: np.ndarray, eps: float, state: np.ndarray, source: np.ndarray, out: np.ndarray
) -> None:
    """Writes `relu(pre / rms(pre) * weight)`, plus the row `source[v]` of `state` where that is not negative.

    An empty `source` takes `state` row by row. Shapes: `pre`, `out` `(n, B, d)`, `weight (d,)`; `out` may be `pre`.
    """
    rows, batch, dim = pre.shape
    for v in numba.prange(rows):
        own = np.int64(v) if len(source) == 0 else source[v]
        for b in range(batch):
            square = weight.dtype.type(0)
            for j in range(dim):
                square += pre[v, b, j] * pre[v, b, j]
            scale = weight.dtype.type(1 / np.sqrt(square / dim + eps))
            if own >= 0:
                for j in range(dim):
                    out[v, b, j] = max(pre[v, b, j] * scale * weight[j], weight.dtype.type(0)) + state[own, b, j]
            else:
                for j in range(dim):
                    out[v, b, j] = max(pre[v, b, j] * scale * weight[j], weight.dtype.type(0))


@numba.njit(parallel=True, fastmath={"contract", "nsz", "reassoc"}, cache=True)
def rms_update_backward(
    pre: np.ndarray, weight: np.ndarray, eps: float, grad: np.ndarray, grad_pre: np.ndarray, grad_weight: np.ndarray
) -> None:
    """Writes the gradients of `rms_update` with respect to `pre` and `weight`.

    With `h = pre / rms(pre)` and `y` the gradient behind the activation: `d pre = (y w - h mean(y w h)) / rms(pre)` and
    `d weight = sum of y h`. The latter goes to one row of `grad_weight (C, d)`, zeros on entry, for each of C equal
    shares of the rows.
    """
    rows, batch, dim = pre.shape
    shares = len(grad_weight)
    for share in numba.prange(shares):
        for v in range(rows * share // shares, rows * (share + 1) // shares):
            for b in range(batch):
                square = weight.dtype.type(0)
                for j in range(dim):
                    square += pre[v, b, j] * pre[v, b, j]
                scale = weight.dtype.type(1 / np.sqrt(square / dim + eps))
                along = weight.dtype.type(0)
                for j in range(dim):
                    if pre[v, b, j] * weight[j] > 0:
                        grad_weight[share, j] += grad[v, b, j] * pre[v, b, j] * scale
                        along += grad[v, b, j] * weight[j] * pre[v, b, j]
                along *= weight.dtype.type(scale * scale / dim)
                for j in range(dim):
                    inner = grad[v, b, j] * weight[j] if pre[v, b, j] * weight[j] > 0 else weight.dtype.type(0)
                    grad_pre[v, b, j] = (inner - pre[v, b, j] * along) * scale
