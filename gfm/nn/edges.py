"""The edges of one graph in the orders that propagation and its gradients read them in."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

RELATION_BLOCK = 512
"""Edges per unit of parallel work in the gradient of relation states; evens out frequent relations."""


class EdgeOrder(NamedTuple):
    """Edges grouped by one endpoint: `indptr (N + 1,)`, then per edge the other endpoint, relation and original id."""

    indptr: np.ndarray
    neighbour: np.ndarray
    relation: np.ndarray
    edge: np.ndarray


class RelationOrder(NamedTuple):
    """Edges grouped by relation and cut into blocks of at most `RELATION_BLOCK` edges of one relation."""

    block_ptr: np.ndarray
    block_relation: np.ndarray
    source: np.ndarray
    target: np.ndarray
    edge: np.ndarray


@dataclass(frozen=True, eq=False)
class RelationalEdges:
    """All edges that propagation runs on, inverses included, with an optional mask of edges to leave out.

    The grouped orders cost one sort each, are made when first needed and are shared by `masked` copies, so that
    leaving out a batch's training edges never sorts again.

    Attributes:
        edge_index: `(2, E)` int64, messages flow from row 0 to row 1.
        edge_type: `(E,)` int64 in `[0, num_edge_types)`.
        keep: `(E,)` bool, False where an edge carries no message; None keeps all.
    """

    edge_index: Tensor
    edge_type: Tensor
    num_nodes: int
    num_edge_types: int
    keep: Tensor | None = None
    _orders: dict[str, EdgeOrder | RelationOrder] = field(default_factory=dict, repr=False)

    @property
    def num_edges(self) -> int:
        """Number of edges, masked ones included."""
        return int(self.edge_index.size(1))

    def masked(self, keep: Tensor) -> RelationalEdges:
        """The same edges with another mask; the grouped orders are shared, not rebuilt."""
        return replace(self, keep=keep)

    def to(self, device: torch.device | str) -> RelationalEdges:
        """The same edges on another device."""
        keep = None if self.keep is None else self.keep.to(device)
        return replace(self, edge_index=self.edge_index.to(device), edge_type=self.edge_type.to(device), keep=keep)

    @cached_property
    def kept(self) -> tuple[Tensor, Tensor]:
        """`edge_index` and `edge_type` of the edges that carry messages."""
        if self.keep is None:
            return self.edge_index, self.edge_type
        return self.edge_index[:, self.keep], self.edge_type[self.keep]

    def by_endpoint(self, row: int) -> EdgeOrder:
        """Edges grouped by their source (`row=0`) or destination (`row=1`)."""
        key = f"endpoint{row}"
        if key not in self._orders:
            own, other = self.edge_index[row].cpu().numpy(), self.edge_index[1 - row].cpu().numpy()
            edge = np.argsort(own, kind="stable")
            indptr = np.zeros(self.num_nodes + 1, dtype=np.int64)
            np.cumsum(np.bincount(own, minlength=self.num_nodes), out=indptr[1:])
            relation = self.edge_type.cpu().numpy()
            self._orders[key] = EdgeOrder(indptr, other[edge], relation[edge], edge)
        order = self._orders[key]
        assert isinstance(order, EdgeOrder)
        return order

    def by_relation(self) -> RelationOrder:
        """Edges grouped by relation, in blocks."""
        if "relation" not in self._orders:
            relation = self.edge_type.cpu().numpy()
            edge = np.argsort(relation, kind="stable")
            counts = np.bincount(relation, minlength=self.num_edge_types)
            blocks = -(-counts // RELATION_BLOCK)
            block_relation = np.repeat(np.arange(self.num_edge_types), blocks)
            nth = np.arange(len(block_relation)) - np.repeat(np.cumsum(blocks) - blocks, blocks)
            starts = (np.cumsum(counts) - counts)[block_relation] + nth * RELATION_BLOCK
            block_ptr = np.append(starts, len(edge)).astype(np.int64)
            source, target = self.edge_index.cpu().numpy()
            self._orders["relation"] = RelationOrder(block_ptr, block_relation, source[edge], target[edge], edge)
        order = self._orders["relation"]
        assert isinstance(order, RelationOrder)
        return order

    @cached_property
    def keep_array(self) -> np.ndarray:
        """The mask as a numpy array in original edge order, all True where there is none."""
        if self.keep is None:
            return np.ones(self.num_edges, dtype=np.bool_)
        return self.keep.cpu().numpy()
