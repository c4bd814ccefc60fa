"""Relation states of every layer, projected for the relations that a layer meets and no others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from gfm.nn.edges import RelationalEdges
from gfm.nn.frontier import numbered
from gfm.nn.layers import in_row_chunks


class RelationStates:
    """`g_l(R^0)` with `R^0 = W_r · TextEmb(r)` for the relations of one graph, by layer.

    The first layers of a frontier meet few relations, so each layer projects only those on its edges. In training the
    weights change every step and nothing is cached. At inference a relation is projected once per layer, when a
    question first meets it, and cached: at d = 512 and 90,000 relations all of six layers take 1.1 GB.

    Args:
        embeddings: text embeddings `(num_edge_types, text_dim)` of direct, then inverse relations.
        projection: `W_r`.
        layers: `g_l` of every layer.
        cache: whether states are cached; then they carry no gradient, and belong to the weights as they are now.
    """

    def __init__(self, embeddings: Tensor, projection: nn.Linear, layers: Sequence[Any], cache: bool = False) -> None:
        self.embeddings, self.projection, self.layers, self.cache = embeddings, projection, layers, cache
        self._cached: dict[int, tuple[Tensor, Tensor]] = {}
        self._base = None if cache else self._project_text(embeddings)

    def of_layer(self, number: int, edges: RelationalEdges) -> tuple[Tensor, RelationalEdges]:
        """States `(R', d)` of layer `number`, and the edges with their types numbered by row of these states."""
        if self.cache:
            return self._from_cache(number, edges), edges
        assert self._base is not None
        if edges.num_sources is None:  # the whole graph
            return self.layers[number](self._base), edges
        used, row = numbered(_met(edges))
        compact = replace(edges, edge_type=row[edges.edge_type], num_edge_types=len(used), _groups={})
        return self.layers[number](self._base.index_select(0, used)), compact

    @torch.inference_mode(False)  # what is cached outlives the caller's mode
    @torch.no_grad()
    def _from_cache(self, number: int, edges: RelationalEdges) -> Tensor:
        if number not in self._cached:
            shape = (len(self.embeddings), self.projection.out_features)
            table = torch.empty(shape, dtype=self.projection.weight.dtype, device=self.embeddings.device)
            self._cached[number] = table, torch.zeros(shape[0], dtype=torch.bool, device=table.device)
        table, known = self._cached[number]
        new = (~known if edges.num_sources is None else _met(edges) & ~known).nonzero().squeeze(1)
        if len(new):
            # Written before it is marked: another thread may compute it once more, but reads no unwritten row.
            with torch.autocast(table.device.type, enabled=False):  # and has the type of the weights
                table[new] = in_row_chunks(
                    lambda rows: self.layers[number](self._project_text(rows)), self.embeddings[new]
                )
            known[new] = True
        return table

    def _project_text(self, embeddings: Tensor) -> Tensor:
        out: Tensor = self.projection(embeddings.to(self.projection.weight.dtype))
        return out


def _met(edges: RelationalEdges) -> Tensor:
    """Mask `(num_edge_types,)` of the relations on the edges."""
    met = torch.zeros(edges.num_edge_types, dtype=torch.bool, device=edges.edge_type.device)
    return met.index_fill_(0, edges.edge_type.long(), True)
