"""Training graphs: their propagation edges, the edges that a batch hides, and all answers that are true."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any, NamedTuple

import torch
from torch import Tensor

from gfm.nn.edges import RelationalEdges, ranges
from gfm.nn.states import Seeds


class Queries(NamedTuple):
    """Completion queries `(entity, edge_type, ?)` with their answer; all `(Q,)`."""

    entity: Tensor
    edge_type: Tensor
    answer: Tensor

    def seeds(self) -> Seeds:
        """Each query starts at its known entity with weight 1."""
        number = torch.arange(len(self.entity), device=self.entity.device)
        return Seeds(self.entity, number, torch.ones(len(number), device=number.device))


def both_directions(triples: Tensor, num_relations: int) -> Queries:
    """Turns `(N, 3)` head-relation-tail ids into `2N` queries: `(h, r, ?)` for all, then `(t, r⁻¹, ?)` for all."""
    head, relation, tail = triples.unbind(1)
    return Queries(torch.cat([head, tail]), torch.cat([relation, relation + num_relations]), torch.cat([tail, head]))


@dataclass(frozen=True, eq=False)
class CompletionGraph:
    """One knowledge graph prepared for completion: propagation edges, relation embeddings, all true answers.

    Attributes:
        name: as in the config and the log keys.
        train: `(N, 3)` ids of the triples that are the graph's direct edges.
        known: `(M, 3)` ids of every true triple (train, valid, test): none of them is ever a negative.
        relation_embeddings: `(num_edge_types, text_dim)`.
        held_out: `(K, 3)` ids ranked in validation; not part of the graph.
        entity_domain: `(V,)` number of every entity's domain, where Phase II needs it.
    """

    name: str
    num_entities: int
    num_relations: int
    train: Tensor
    known: Tensor
    relation_embeddings: Tensor
    held_out: Tensor
    entity_domain: Tensor | None = None

    def to(self, device: torch.device | str) -> CompletionGraph:
        """The same graph on another device."""
        parts = {entry.name: getattr(self, entry.name) for entry in fields(self)}
        moved: dict[str, Any] = {name: part.to(device) for name, part in parts.items() if isinstance(part, Tensor)}
        return replace(self, **moved)

    def prepare(self) -> None:
        """Makes the tables that every batch needs now, rather than during the first one."""
        _ = self.edges.by_destination, self.edges.by_source, self.edges.by_relation, self._train_keys, self._answers

    @cached_property
    def edges(self) -> RelationalEdges:
        """The train triples and, in the same order behind them, their inverses."""
        head, relation, tail = self.train.unbind(1)
        return RelationalEdges(
            torch.stack([torch.cat([head, tail]), torch.cat([tail, head])]),
            torch.cat([relation, relation + self.num_relations]),
            self.num_entities,
            2 * self.num_relations,
        )

    @cached_property
    def _train_keys(self) -> Tensor:
        return self._key(self.train)

    @cached_property
    def _answers(self) -> tuple[Tensor, Tensor]:
        """Sorted query keys of all known triples in both directions, and the answers in that order."""
        queries = both_directions(self.known, self.num_relations)
        key, order = torch.sort(queries.entity * (2 * self.num_relations) + queries.edge_type, stable=True)
        return key, queries.answer[order]

    def edges_without(self, triples: Tensor) -> RelationalEdges:
        """Propagation edges less the given triples and their inverses, whatever their multiplicity.

        Takes triples as `(head, relation, tail)`, before any is rewritten as an inverse query: the answer edge of a
        head query would otherwise be looked for under the wrong key and stay.
        """
        keep = ~torch.isin(self._train_keys, self._key(triples))
        return self.edges.masked(torch.cat([keep, keep]))

    def known_answers(self, queries: Queries) -> Tensor:
        """Mask `(Q, V)` of every known true answer of each query, its own answer included."""
        keys, answers = self._answers
        wanted = queries.entity * (2 * self.num_relations) + queries.edge_type
        start, stop = torch.searchsorted(keys, wanted), torch.searchsorted(keys, wanted, right=True)
        row, position = ranges(start, stop - start)
        mask = torch.zeros(len(wanted), self.num_entities, dtype=torch.bool, device=wanted.device)
        mask[row, answers[position]] = True
        return mask

    def _key(self, triples: Tensor) -> Tensor:
        head, relation, tail = triples.unbind(1)
        return (head * self.num_relations + relation) * self.num_entities + tail
