"""The edges of one graph, grouped in the orders that propagation and its gradients read them in."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor

BLOCK = 512
"""Edges per unit of parallel work: a hub or a frequent relation is summed in several pieces, not by one thread."""

CHUNKS = 64
"""Shares of about equal work that a group's blocks are dealt out in; more than the cores of most machines."""


class EdgeGroups(NamedTuple):
    """Edges sorted by one key (a destination, a source or a relation) and cut into blocks of one key each.

    All index tensors are int32 on the device of the edges: at 10⁷ edges the three orders of a graph take 0.4 GB.

    Attributes:
        first: `(E,)` row of the first factor of every edge's product, in sorted order.
        second: `(E,)` row of the second factor.
        edge: `(E,)` original number of the edge, what a mask is read by.
        indptr: `(G + 1,)` where each key's edges begin.
        block_ptr: `(N + 1,)` where each block's edges begin; keys without edges have one empty block.
        block_row: `(N,)` the key where its sum is the block's alone, else `-1 - i` for row `i` of the partial sums.
        shared_key: `(M,)` int64 keys that have more edges than one block, rising.
        partial_owner: `(P,)` int64, for each partial sum the row of its key in `shared_key`.
        chunk_ptr: `(CHUNKS + 1,)` first block of each share of the work.
    """

    first: Tensor
    second: Tensor
    edge: Tensor
    indptr: Tensor
    block_ptr: Tensor
    block_row: Tensor
    shared_key: Tensor
    partial_owner: Tensor
    chunk_ptr: Tensor

    @property
    def num_keys(self) -> int:
        """Number of sums, empty ones included."""
        return len(self.indptr) - 1


@dataclass(frozen=True, eq=False)
class RelationalEdges:
    """All edges that propagation runs on, inverses included, with an optional mask of edges to leave out.

    The grouped orders cost one sort each, are made when first needed and are shared by `masked` copies, so that
    leaving out a batch's training edges never sorts again.

    Attributes:
        edge_index: `(2, E)` integer, messages flow from row 0 to row 1.
        edge_type: `(E,)` integer in `[0, num_edge_types)`.
        num_nodes: V, the number of destinations.
        num_edge_types: R, the number of relation states.
        keep: `(E,)` bool, False where an edge carries no message; None keeps all.
        num_sources: number of rows that messages are read from; None: the destinations themselves.
    """

    edge_index: Tensor
    edge_type: Tensor
    num_nodes: int
    num_edge_types: int
    keep: Tensor | None = None
    num_sources: int | None = None
    _groups: dict[str, EdgeGroups] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        keep = self.keep
        if keep is not None and (keep.shape != self.edge_type.shape or keep.dtype != torch.bool):
            raise ValueError(
                f"keep is {keep.dtype} of shape {tuple(keep.shape)} for {self.num_edges} edges; give one bool each"
            )

    @property
    def num_edges(self) -> int:
        """Number of edges, masked ones included."""
        return int(self.edge_index.size(1))

    @property
    def num_rows_in(self) -> int:
        """Number of rows that messages are read from."""
        return self.num_nodes if self.num_sources is None else self.num_sources

    def masked(self, keep: Tensor) -> RelationalEdges:
        """The same edges with another mask; the grouped orders are shared, not rebuilt."""
        return replace(self, keep=keep)

    def to(self, device: torch.device | str) -> RelationalEdges:
        """The same edges on another device; orders that were made on another one stay behind."""
        device, here = torch.device(device), self.edge_index.device
        if here.type == device.type and device.index in (None, here.index):
            return self
        keep = None if self.keep is None else self.keep.to(device)
        moved = (self.edge_index.to(device), self.edge_type.to(device))
        return replace(self, edge_index=moved[0], edge_type=moved[1], keep=keep, _groups={})

    @cached_property
    def kept(self) -> tuple[Tensor, Tensor]:
        """`edge_index` and `edge_type` of the edges that carry messages."""
        if self.keep is None:
            return self.edge_index, self.edge_type
        return self.edge_index[:, self.keep], self.edge_type[self.keep]

    @property
    def by_destination(self) -> EdgeGroups:
        """Grouped by destination, products of source and relation: the forward pass."""
        return self._grouped("destination", self.edge_index[1], self.num_nodes, self.edge_index[0], self.edge_type)

    @property
    def by_source(self) -> EdgeGroups:
        """Grouped by source, products of destination and relation: the gradient of entity states."""
        return self._grouped("source", self.edge_index[0], self.num_rows_in, self.edge_index[1], self.edge_type)

    @property
    def by_relation(self) -> EdgeGroups:
        """Grouped by relation, products of source and destination: the gradient of relation states."""
        return self._grouped("relation", self.edge_type, self.num_edge_types, *self.edge_index)

    def _grouped(self, name: str, key: Tensor, num_keys: int, first: Tensor, second: Tensor) -> EdgeGroups:
        if name not in self._groups:
            if not self._groups and self.num_sources is None:
                self._check_ids()
            indptr, edge = sort_by_key(key, num_keys)
            first, second = first.to(torch.int32)[edge], second.to(torch.int32)[edge]
            self._groups[name] = EdgeGroups(first, second, edge, indptr, *_blocks(indptr))
        return self._groups[name]

    def _check_ids(self) -> None:
        """Compiled loops do not check: an id out of range would read or write whatever lies there."""
        for name, ids, bound in (
            ("entity", self.edge_index, self.num_nodes),
            ("type", self.edge_type, self.num_edge_types),
        ):
            if ids.numel() and not (0 <= int(ids.min()) and int(ids.max()) < bound):
                raise ValueError(
                    f"{name} ids of edges run from {int(ids.min())} to {int(ids.max())}, not within [0, {bound})"
                )


def ranges(begin: Tensor, count: Tensor, total: int | None = None) -> tuple[Tensor, Tensor]:
    """For every integer of the ranges `[begin, begin + count)` its range's number and itself, both `(total,)`."""
    owner = torch.repeat_interleave(torch.arange(len(begin), device=begin.device), count, output_size=total)
    offset = begin - (count.cumsum(0) - count)
    return owner, torch.arange(len(owner), device=begin.device) + offset[owner]


def sort_by_key(key: Tensor, num_keys: int) -> tuple[Tensor, Tensor]:
    """Stable sort of small integers: where each key begins `(num_keys + 1,)`, and the sorted order `(E,)`; int32.

    On the CPU one counting pass, several times faster than a comparison sort.

    Raises:
        ValueError: an integer outside `[0, num_keys)`; on the CPU alone, elsewhere it would cost a wait.
    """
    if key.device.type == "cpu":
        from gfm.nn.cpu_kernels import counting_sort

        if len(key) and not (0 <= int(key.min()) and int(key.max()) < num_keys):
            raise ValueError(f"keys run from {int(key.min())} to {int(key.max())}; they must lie in [0, {num_keys})")
        indptr, order = torch.zeros(num_keys + 1, dtype=torch.int32), torch.empty(len(key), dtype=torch.int32)
        counting_sort(key.contiguous().numpy(), indptr.numpy(), order.numpy())
        return indptr, order
    counts = torch.bincount(key.long(), minlength=num_keys)
    indptr = torch.zeros(num_keys + 1, dtype=torch.int64, device=key.device)
    torch.cumsum(counts, 0, out=indptr[1:])
    return indptr.int(), torch.argsort(key, stable=True).int()


def _blocks(indptr: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Cuts every key's edges into blocks of at most `BLOCK`; returns the last five fields of `EdgeGroups`."""
    num_keys, device = len(indptr) - 1, indptr.device
    count = indptr.diff()
    blocks = torch.clamp(torch.div(count + BLOCK - 1, BLOCK, rounding_mode="floor"), min=1)
    key = torch.repeat_interleave(torch.arange(num_keys, device=device), blocks)
    nth = torch.arange(len(key), device=device) - torch.repeat_interleave(blocks.cumsum(0) - blocks, blocks)
    block_ptr = torch.cat([indptr[:-1][key] + nth * BLOCK, indptr[-1:]])
    shared_key = (blocks > 1).nonzero().squeeze(1)
    partial_owner = torch.repeat_interleave(torch.arange(len(shared_key), device=device), blocks[shared_key])
    row = key.clone()
    row[(blocks > 1)[key]] = -1 - torch.arange(len(partial_owner), device=device)
    # Writing a row costs about as much as two messages.
    work = block_ptr + 2 * torch.arange(len(block_ptr), device=device)
    wanted = torch.linspace(0, float(work[-1]), CHUNKS + 1, dtype=torch.float64, device=device).long()
    chunk_ptr = torch.searchsorted(work, wanted)
    chunk_ptr[0], chunk_ptr[-1] = 0, len(key)
    return block_ptr.int(), row.int(), shared_key, partial_owner, chunk_ptr.int()
