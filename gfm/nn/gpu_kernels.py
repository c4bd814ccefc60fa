"""Triton kernels behind `relational_spmm`: one program sums one block of edges over one slice of columns.

Every step of a program loads a tile of several edges by many columns, so that enough rows are under way at once to hide
the latency of memory; the tile's rows are added up once, at the end. Sums are float32 whatever the input. A key
with more edges than one block gets its partial sums added by atomic operations: its last bits may differ between calls.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from gfm.nn.edges import EdgeGroups

TILE = 4096
"""Most numbers in one tile: 32 a thread with four warps, so that several programs share a multiprocessor."""


def launch(groups: EdgeGroups, keep: Tensor | None, a: Tensor, b: Tensor, out: Tensor, partial: Tensor) -> None:
    """Runs `sum_messages` where `b` is relation states, `sum_products` where it is entity states, into `out`.

    Raises:
        ValueError: numbers that are neither float32 nor bfloat16, or that lie on a device triton does not compile for.
    """
    on_device = a.is_cuda or not isinstance(sum_messages, triton.JITFunction)  # the interpreter takes any device
    if a.dtype not in (torch.float32, torch.bfloat16) or not on_device:
        raise ValueError(
            f"backend 'triton' needs float32 or bfloat16 on a GPU, got {a.dtype} on {a.device}; use 'auto' or 'chunked'"
        )
    if out.numel() == 0:
        return
    kernel, width, widest, most_edges = sum_messages, out.shape[1:].numel(), 512, 16
    if b.dim() > 2:
        # Few keys have all the edges here: narrow slices make more programs of them.
        kernel, widest, most_edges = sum_products, 128, 32
    columns = min(widest, triton.next_power_of_2(width))
    edges = min(most_edges, TILE // columns)
    num_blocks = len(groups.block_row)
    grid = (num_blocks * triton.cdiv(width, columns),)
    index = (groups.block_ptr, groups.block_row, groups.first, groups.second, groups.edge)
    mask = None if keep is None else keep.contiguous().view(torch.uint8)
    sizes = (num_blocks, a.size(1), a.size(2), edges, columns)
    options = {"num_warps": max(1, edges * columns // 1024), "enable_fp_fusion": True}
    with torch.cuda.device_of(a):
        kernel[grid](*index, mask, a, b, out, partial, *sizes, **options)


@triton.jit
def _place(num_blocks: tl.tensor, COLUMNS: tl.constexpr) -> tl.tensor:
    """This program's block and columns. Programs of one slice follow each other, so that it stays in the cache."""
    program = tl.program_id(0)
    return program % num_blocks, (program // num_blocks) * COLUMNS + tl.arange(0, COLUMNS)


@triton.jit
def _edges(
    first: tl.tensor,
    second: tl.tensor,
    edge: tl.tensor,
    keep: tl.tensor,
    start: tl.tensor,
    end: tl.tensor,
    EDGES: tl.constexpr,
) -> tl.tensor:
    """Both rows of `EDGES` edges, in int64 because offsets into states pass 2³¹, and whether each edge counts."""
    i = start + tl.arange(0, EDGES)
    kept = i < end
    if keep is not None:
        number = tl.load(edge + i, mask=kept, other=0)
        kept = kept & (tl.load(keep + number, mask=kept, other=0) != 0)
    u = tl.load(first + i, mask=kept, other=0).to(tl.int64)
    v = tl.load(second + i, mask=kept, other=0).to(tl.int64)
    return u[:, None], v[:, None], kept[:, None]


@triton.jit
def _store(
    out: tl.tensor, partial: tl.tensor, row: tl.tensor, width: tl.tensor, column: tl.tensor, total: tl.tensor
) -> None:
    """Writes a block's sum where it belongs: into its key's row, or among the partial sums of a shared key."""
    inside = column < width
    if row >= 0:
        tl.store(out + row.to(tl.int64) * width + column, total.to(out.dtype.element_ty), mask=inside)
    else:
        tl.store(partial + (-1 - row).to(tl.int64) * width + column, total, mask=inside)


# Triton compiles anew for arguments that are 1 or multiples of 16: worth it for widths, not for the number of blocks.
@triton.jit(do_not_specialize=["num_blocks"])
def sum_messages(
    block_ptr: tl.tensor,
    block_row: tl.tensor,
    first: tl.tensor,
    second: tl.tensor,
    edge: tl.tensor,
    keep: tl.tensor,
    x: tl.tensor,
    rel: tl.tensor,
    out: tl.tensor,
    partial: tl.tensor,
    num_blocks: tl.tensor,
    batch: tl.tensor,
    dim: tl.tensor,
    EDGES: tl.constexpr,
    COLUMNS: tl.constexpr,
) -> None:
    """Sums `x[first] * rel[second]` over the kept edges of one block; columns run over questions and dimensions.

    `keep` of None keeps all edges. Shapes: `x (N, B, d)`, `rel (R, d)`, `out (G, B, d)`, `partial (P, B, d)`.
    """
    block, column = _place(num_blocks, COLUMNS)
    width = batch * dim
    inside = (column < width)[None, :]
    x_column, rel_column = column[None, :], (column % dim)[None, :]
    end = tl.load(block_ptr + block + 1)
    total = tl.zeros((EDGES, COLUMNS), tl.float32)
    for start in range(tl.load(block_ptr + block), end, EDGES):
        u, r, kept = _edges(first, second, edge, keep, start, end, EDGES)
        state = tl.load(x + u * width + x_column, mask=kept & inside, other=0)
        relation = tl.load(rel + r * dim + rel_column, mask=kept & inside, other=0)
        total += state.to(tl.float32) * relation.to(tl.float32)
    _store(out, partial, tl.load(block_row + block), width, column, tl.sum(total, axis=0))


@triton.jit(do_not_specialize=["num_blocks"])
def sum_products(
    block_ptr: tl.tensor,
    block_row: tl.tensor,
    first: tl.tensor,
    second: tl.tensor,
    edge: tl.tensor,
    keep: tl.tensor,
    x: tl.tensor,
    grad: tl.tensor,
    out: tl.tensor,
    partial: tl.tensor,
    num_blocks: tl.tensor,
    batch: tl.tensor,
    dim: tl.tensor,
    EDGES: tl.constexpr,
    COLUMNS: tl.constexpr,
) -> None:
    """Sums `sum_b x[first, b] * grad[second, b]` over the kept edges of one block.

    Shapes: `x (N, B, d)`, `grad (M, B, d)`, `out (G, d)`, `partial (P, d)`.
    """
    block, column = _place(num_blocks, COLUMNS)
    width = batch * dim
    inside = (column < dim)[None, :]
    end = tl.load(block_ptr + block + 1)
    total = tl.zeros((EDGES, COLUMNS), tl.float32)
    for start in range(tl.load(block_ptr + block), end, EDGES):
        u, v, kept = _edges(first, second, edge, keep, start, end, EDGES)
        for b in range(batch):
            here = b * dim + column[None, :]
            state = tl.load(x + u * width + here, mask=kept & inside, other=0)
            back = tl.load(grad + v * width + here, mask=kept & inside, other=0)
            total += state.to(tl.float32) * back.to(tl.float32)
    _store(out, partial, tl.load(block_row + block), dim, column, tl.sum(total, axis=0))
