"""The part of a graph that one layer touches: entities within reach of the seeds, and the edges between them."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from gfm.nn.edges import RelationalEdges, ranges

FULL_SHARE = 0.8
"""Share of the edges that leave the reached entities above which a layer runs over the whole graph (measured)."""


class Hop(NamedTuple):
    """One layer's work: from the rows of the last layer to the rows of the next.

    Attributes:
        edges: from source rows to destination rows.
        entities: `(n',)` rising ids of the destination rows; None: all entities, and the sources are they too.
        carried: `(k,)` source rows that have a destination row; None: all, in order.
        carried_to: `(k,)` the destination row of each of those, rising; None: the same row.
        mass: `(n',)` priority of the destinations where a budget is set.
    """

    edges: RelationalEdges
    entities: Tensor | None = None
    carried: Tensor | None = None
    carried_to: Tensor | None = None
    mass: Tensor | None = None


def next_hop(
    edges: RelationalEdges, active: Tensor, mass: Tensor | None = None, budget: int | None = None
) -> Hop | None:
    """Finds what the next layer has to compute when only the `active` entities carry a state.

    Without a budget those are the active entities and their neighbours: every other message is zero, so the result is
    that of the full graph. With one, they are the `budget` entities of highest priority among them; the others' states
    are dropped. The priority is the mass of a lazy random walk from the seeds, `m' = m + Σ_(u→v) m_u / degree_u`: an
    entity near the seeds, or reached from them in many ways, keeps its state, while what a hub's thousands of edges
    lead to shares the hub's mass. It costs one number per edge and is known before anything of size d is computed;
    the norm of the incoming messages, the usual choice, is not (docs/performance.md: what a budget costs in quality).

    Args:
        edges: the whole graph.
        active: `(n,)` rising ids.
        mass: `(n,)` their priorities; needed with a budget.
        budget: K, the number of entities that may carry a state.

    Returns:
        The hop, or None where it would touch so much of the graph that the full layer is cheaper.
    """
    groups = edges.by_source
    active = active.long()
    begin = groups.indptr[active].long()
    count = groups.indptr[active + 1].long() - begin
    total = int(count.sum())
    if budget is None and total >= FULL_SHARE * edges.num_edges:
        return None
    source, position = ranges(begin, count, total)
    if edges.keep is not None:
        kept = edges.keep[groups.edge[position]]
        source, position = source[kept], position[kept]
    target, relation = groups.first[position], groups.second[position]
    reached = torch.zeros(edges.num_nodes, dtype=torch.bool, device=active.device)
    reached[target] = True
    reached[active] = True
    if budget is not None:
        assert mass is not None, "a budget needs priorities"
        spread = _walk(edges.num_nodes, active, mass, source, target)
        reached = _highest(spread, reached, budget)
        kept = reached[target]
        source, target, relation = source[kept], target[kept], relation[kept]
    entities, row = numbered(reached)
    between = RelationalEdges(
        torch.stack([source.int(), row[target]]), relation, len(entities), edges.num_edge_types, num_sources=len(active)
    )
    if budget is None:
        return Hop(between, entities, None, row[active].long())
    carried = reached[active].nonzero().squeeze(1)
    return Hop(between, entities, carried, row[active[carried]].long(), spread[entities])


def numbered(mask: Tensor) -> tuple[Tensor, Tensor]:
    """Where a mask `(N,)` is True `(n,)` int64, and for each of those places its number `(N,)` int32; no sort."""
    chosen = mask.nonzero().squeeze(1)
    number = torch.empty(len(mask), dtype=torch.int32, device=mask.device)
    number[chosen] = torch.arange(len(chosen), dtype=torch.int32, device=mask.device)
    return chosen, number


def _walk(num_nodes: int, active: Tensor, mass: Tensor, source: Tensor, target: Tensor) -> Tensor:
    """Mass of all entities `(V,)` after one step of the lazy walk."""
    degree = torch.bincount(source, minlength=len(active)).clamp_min(1)
    spread = mass.new_zeros(num_nodes).index_add_(0, target, (mass / degree)[source])
    return spread.index_add_(0, active, mass)


def _highest(priority: Tensor, reached: Tensor, count: int) -> Tensor:
    """The `count` reached entities of highest priority as a mask; of equal ones those of lower id."""
    candidates = reached.nonzero().squeeze(1)
    if len(candidates) <= count:
        return reached
    value = priority[candidates]
    least = value.topk(count, sorted=False).values.min()
    above, equal = value > least, value == least
    chosen = above | (equal & (equal.cumsum(0) <= count - above.sum()))
    return torch.zeros_like(reached).index_fill_(0, candidates[chosen], True)
