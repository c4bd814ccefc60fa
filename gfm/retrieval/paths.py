"""Relational paths through a selected subgraph (Eq. 21)."""

from __future__ import annotations

import heapq
import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from gfm.errors import InputError
from gfm.kg.graph import KnowledgeGraph
from gfm.types import Path

Values = Sequence[float] | np.ndarray | Tensor
Ids = Collection[int] | np.ndarray | Tensor


def extract_paths(
    graph: KnowledgeGraph,
    seeds: Ids,
    selected: Ids,
    gates: Mapping[int, float] | Values,
    relation_scores: Values,
    *,
    max_hops: int = 3,
    beam: int | None = 20,
    max_paths: int | None = 50,
) -> list[Path]:
    """Finds the best simple paths that start at a seed and stay in the selected set, best first.

    A path has 1 to `max_hops` hops, visits no entity twice, and every entity after its seed is
    selected; the seed itself need not be. A hop runs along a triple or against it. Parallel relations
    give distinct paths, duplicate triples do not, self-loops never occur.

    `score(path) = sum of gates over its entities + sum of relation scores over its relations` (Eq. 21).

    Truncation: all paths of one seed grow one hop at a time, and after each hop only the `beam` best
    partial paths of that length are kept; the kept ones are reported and extended, the others dropped.
    So a seed reports at most `beam * max_hops` paths and looks at no more than `beam ** 2` partial
    paths per hop, however large the degrees are. `beam=None` enumerates every path, exponential in `max_hops`.

    Order, in the beam and in the result: score falling, then fewer hops, entity ids, relation ids, and
    hops along their triple before hops against it. A path between two seeds and its reverse are the
    same evidence: only the one first in this order is kept.

    Args:
        graph: where the paths run.
        seeds: entity ids; repeated ones count once.
        selected: entity ids of `V_q`.
        gates: `S_e` by entity, `(V,)` or a mapping; an entity that the mapping lacks has gate 0.
        relation_scores: `(num_relations,)`, `cos(TextEmb(r), q)` for direct relations; a hop against its
            triple has the score of the direct relation.
        max_hops: longest path, in hops.
        beam: partial paths kept per seed and hop.
        max_paths: paths returned in all; None returns all that were found.

    Raises:
        InputError: an id is out of range, a shape does not fit, a value is not finite, a limit is below 1.
    """
    _check_limits(max_hops=max_hops, beam=beam, max_paths=max_paths)
    starts = sorted(set(_id_array(seeds, graph.num_entities, "seed").tolist()))
    gate = _gate_array(gates, graph.num_entities)
    relation_score = _finite(relation_scores, graph.num_relations, "relation score")
    hops = _selected_hops(graph, starts, _id_array(selected, graph.num_entities, "selected"), gate, relation_score)
    found = [path for start in starts for path in _grow(start, float(gate[start]), hops, max_hops, beam)]
    found.sort(key=_order)
    distinct = _without_reversals(found)
    return [_named(graph, path) for path in distinct[:max_paths]]


def induced_edges(graph: KnowledgeGraph, selected: Ids) -> Tensor:
    """Ids of the triples whose head and tail are both selected, `(E_q,)` int64 in stored order.

    Self-loops and duplicates of the graph are among them.

    Raises:
        InputError: an id is out of range.
    """
    chosen = torch.zeros(graph.num_entities, dtype=torch.bool)
    chosen[torch.from_numpy(_id_array(selected, graph.num_entities, "selected"))] = True
    leaving = graph.edges_from(chosen.nonzero().flatten())
    return leaving[chosen[graph.edge_index[1, leaving]]].sort().values


class _Partial(NamedTuple):
    """A path by ids. `parts` are the summands of its score."""

    score: float
    entities: tuple[int, ...]
    relations: tuple[int, ...]
    against: tuple[bool, ...]
    parts: tuple[float, ...]


@dataclass(frozen=True)
class _Hops:
    """The hops that leave each start, best first: arrays by hop, and `span` = slice of them by entity id."""

    target: list[int]
    relation: list[int]
    against: list[bool]
    gate: list[float]
    relation_score: list[float]
    span: dict[int, tuple[int, int]]


def _selected_hops(
    graph: KnowledgeGraph, starts: list[int], selected: np.ndarray, gate: np.ndarray, relation_score: np.ndarray
) -> _Hops:
    chosen = np.zeros(graph.num_entities, dtype=bool)
    chosen[selected] = True
    leaves = chosen.copy()
    leaves[starts] = True
    head, tail = graph.edge_index.numpy()
    edge_type = graph.edge_type.numpy()
    leaving = torch.from_numpy(np.flatnonzero(leaves))
    along, against = graph.edges_from(leaving).numpy(), graph.edges_into(leaving).numpy()
    along = along[chosen[tail[along]] & (head[along] != tail[along])]
    against = against[chosen[head[against]] & (head[against] != tail[against])]
    source = np.concatenate([head[along], tail[against]])
    target = np.concatenate([tail[along], head[against]])
    relation = np.concatenate([edge_type[along], edge_type[against]])
    reverse = np.repeat([False, True], [len(along), len(against)])
    order = np.lexsort((reverse, relation, target, -(gate[target] + relation_score[relation]), source))
    rows = np.stack([source, target, relation, reverse])[:, order]
    # Gain is a function of target and relation, so duplicate triples are neighbours in this order.
    fresh = np.append(True, (rows[:, 1:] != rows[:, :-1]).any(axis=0))[: rows.shape[1]]
    source, target, relation, reverse = rows[:, fresh]
    entity, first, count = np.unique(source, return_index=True, return_counts=True)
    return _Hops(
        target=target.tolist(),
        relation=relation.tolist(),
        against=reverse.astype(bool).tolist(),
        gate=gate[target].tolist(),
        relation_score=relation_score[relation].tolist(),
        span={e: (f, f + c) for e, f, c in zip(entity.tolist(), first.tolist(), count.tolist(), strict=True)},
    )


def _grow(start: int, gate: float, hops: _Hops, max_hops: int, beam: int | None) -> Iterator[_Partial]:
    level = [_Partial(gate, (start,), (), (), (gate,))]
    for _ in range(max_hops):
        grown = (longer for path in level for longer in _extensions(path, hops, beam))
        level = list(grown) if beam is None else heapq.nsmallest(beam, grown, key=_order)
        yield from level


def _extensions(path: _Partial, hops: _Hops, limit: int | None) -> Iterator[_Partial]:
    """Yields the `limit` best one-hop extensions; a later one could not enter a beam of that width."""
    first, last = hops.span.get(path.entities[-1], (0, 0))
    produced = 0
    for i in range(first, last):
        if produced == limit:
            return
        if hops.target[i] in path.entities:
            continue
        produced += 1
        parts = (*path.parts, hops.relation_score[i], hops.gate[i])
        yield _Partial(
            # Exact summation: a path and its reverse must tie whatever the order of their summands.
            score=math.fsum(parts),
            entities=(*path.entities, hops.target[i]),
            relations=(*path.relations, hops.relation[i]),
            against=(*path.against, hops.against[i]),
            parts=parts,
        )


def _order(path: _Partial) -> tuple[object, ...]:
    return -path.score, len(path.relations), path.entities, path.relations, path.against


def _without_reversals(paths: list[_Partial]) -> list[_Partial]:
    seen: set[tuple[object, ...]] = set()
    kept = []
    for path in paths:
        mirrored = (path.entities[::-1], path.relations[::-1], tuple(not a for a in reversed(path.against)))
        if mirrored not in seen:
            seen.add((path.entities, path.relations, path.against))
            kept.append(path)
    return kept


def _named(graph: KnowledgeGraph, path: _Partial) -> Path:
    return Path(
        entities=tuple(graph.entity_names[e] for e in path.entities),
        relations=tuple(graph.relation_names[r] for r in path.relations),
        forward=tuple(not a for a in path.against),
        score=path.score,
        entity_ids=path.entities,
        entity_types=tuple(graph.type_of(e) for e in path.entities),
    )


def _check_limits(**limits: int | None) -> None:
    for name, limit in limits.items():
        if limit is not None and limit < 1:
            raise InputError(f"{name} is {limit}; give a whole number of at least 1")


def _id_array(ids: Ids, count: int, kind: str) -> np.ndarray:
    values = ids.cpu().numpy() if isinstance(ids, Tensor) else np.asarray(list(ids))
    array = values.astype(np.int64).reshape(-1)
    outside = array[(array < 0) | (array >= count)]
    if outside.size:
        raise InputError(f"{kind} entity id {outside[0]} is not in the graph; ids run from 0 to {count - 1}")
    return array


def _gate_array(gates: Mapping[int, float] | Values, num_entities: int) -> np.ndarray:
    if not isinstance(gates, Mapping):
        return _finite(gates, num_entities, "gate")
    dense = np.zeros(num_entities)
    dense[_id_array(gates.keys(), num_entities, "gate")] = list(gates.values())
    return _finite(dense, num_entities, "gate")


def _finite(values: Values, count: int, kind: str) -> np.ndarray:
    array = values.detach().cpu().double().numpy() if isinstance(values, Tensor) else np.asarray(values, np.float64)
    if array.shape != (count,):
        raise InputError(f"{kind}s have shape {array.shape}; the graph needs ({count},)")
    bad = np.flatnonzero(~np.isfinite(array))
    if bad.size:
        raise InputError(f"{kind} of id {bad[0]} is {array[bad[0]]}; every value must be finite")
    return array
