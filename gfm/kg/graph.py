"""The in-memory knowledge graph: integer triples beside their names."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from scipy.sparse import coo_array
from torch import Tensor

from gfm.errors import InputError
from gfm.types import INVERSE_TEXT

Triple = tuple[str, str, str]


@dataclass(frozen=True, eq=False)
class KnowledgeGraph:
    """A directed multigraph of `(head, relation, tail)` triples.

    Only direct triples are stored; the inverse of relation `r` is `r + num_relations` and appears in
    `with_inverses()`, which is what propagation runs on. Duplicates, parallel relations, self-loops
    and isolated entities are kept as given.

    Attributes:
        entity_names: one name per entity; a name may hold any character.
        relation_names: one name per direct relation.
        edge_index: `(2, E)` int64, row 0 = head, row 1 = tail.
        edge_type: `(E,)` int64 in `[0, num_relations)`.
        entity_types: one type per entity, or None where the source has none.

    Raises:
        InputError: shapes do not fit, an id is out of range, or a name occurs twice.
    """

    entity_names: Sequence[str]
    relation_names: Sequence[str]
    edge_index: Tensor
    edge_type: Tensor
    entity_types: Sequence[str] | None = None

    def __post_init__(self) -> None:
        if self.edge_index.dim() != 2 or self.edge_index.size(0) != 2:
            raise InputError(f"edge_index has shape {tuple(self.edge_index.shape)}; it must be (2, E)")
        if self.edge_type.shape != (self.edge_index.size(1),):
            raise InputError(
                f"edge_type has shape {tuple(self.edge_type.shape)} for {self.edge_index.size(1)} edges; "
                "give one relation id per edge"
            )
        if self.entity_types is not None and len(self.entity_types) != self.num_entities:
            raise InputError(
                f"{len(self.entity_types)} entity types for {self.num_entities} entities; give one each, or None"
            )
        _check_ids("entity", self.edge_index, self.num_entities)
        _check_ids("relation", self.edge_type, self.num_relations)

    @classmethod
    def from_triples(
        cls,
        triples: Iterable[Triple],
        entities: Iterable[str] = (),
        relations: Iterable[str] = (),
        entity_types: dict[str, str] | None = None,
    ) -> KnowledgeGraph:
        """Builds a graph, numbering names in order of first appearance.

        Args:
            triples: `(head, relation, tail)` names.
            entities: names to number first; the way to add isolated entities or fix an order.
            relations: relation names to number first.
            entity_types: type by entity name; entities it lacks get the type `"entity"`.
        """
        entity_ids: dict[str, int] = {}
        relation_ids: dict[str, int] = {}
        for name in entities:
            entity_ids.setdefault(name, len(entity_ids))
        for name in relations:
            relation_ids.setdefault(name, len(relation_ids))
        heads, types, tails = [], [], []
        for head, relation, tail in triples:
            heads.append(entity_ids.setdefault(head, len(entity_ids)))
            types.append(relation_ids.setdefault(relation, len(relation_ids)))
            tails.append(entity_ids.setdefault(tail, len(entity_ids)))
        names = list(entity_ids)
        return cls(
            entity_names=names,
            relation_names=list(relation_ids),
            edge_index=torch.tensor([heads, tails], dtype=torch.int64).reshape(2, -1),
            edge_type=torch.tensor(types, dtype=torch.int64),
            entity_types=None if entity_types is None else [entity_types.get(n, "entity") for n in names],
        )

    @property
    def num_entities(self) -> int:
        """Number of entities, isolated ones included."""
        return len(self.entity_names)

    @property
    def num_relations(self) -> int:
        """Number of direct relations, inverses not counted."""
        return len(self.relation_names)

    @property
    def num_edge_types(self) -> int:
        """Number of relations that propagation sees: direct and inverse."""
        return 2 * self.num_relations

    @property
    def num_edges(self) -> int:
        """Number of direct triples."""
        return int(self.edge_index.size(1))

    @cached_property
    def entity_ids(self) -> dict[str, int]:
        """Entity id by name."""
        return _ids_by_name("entity", self.entity_names)

    @cached_property
    def relation_ids(self) -> dict[str, int]:
        """Direct relation id by name."""
        return _ids_by_name("relation", self.relation_names)

    def type_of(self, entity: int) -> str:
        """The type of an entity, `"entity"` where the graph has none."""
        return "entity" if self.entity_types is None else self.entity_types[entity]

    def with_inverses(self) -> tuple[Tensor, Tensor]:
        """All edges of propagation: the `E` direct ones, then their `E` inverses in the same order.

        Returns:
            `edge_index (2, 2E)` and `edge_type (2E,)`, the latter in `[0, num_edge_types)`.
        """
        edge_index = torch.cat([self.edge_index, self.edge_index.flip(0)], dim=1)
        return edge_index, torch.cat([self.edge_type, self.edge_type + self.num_relations])

    def edges_from(self, entities: Tensor) -> Tensor:
        """Ids of the triples whose head is one of `entities (n,)`, distinct ids.

        The first call groups all triples; after it the others cost nothing.
        """
        return _rows_of(self._by_head, entities)

    def edges_into(self, entities: Tensor) -> Tensor:
        """Ids of the triples whose tail is one of `entities (n,)`, distinct ids."""
        return _rows_of(self._by_tail, entities)

    @cached_property
    def _by_head(self) -> tuple[Tensor, Tensor]:
        return _grouped(self.edge_index[0], self.num_entities)

    @cached_property
    def _by_tail(self) -> tuple[Tensor, Tensor]:
        return _grouped(self.edge_index[1], self.num_entities)

    def relation_texts(self, inverse_text: str = INVERSE_TEXT) -> list[str]:
        """Texts to embed: every direct name, then `inverse_text` followed by the name for every inverse."""
        return [*self.relation_names, *(f"{inverse_text}{name}" for name in self.relation_names)]

    def triples(self) -> Iterator[Triple]:
        """Yields the direct triples as names, in stored order."""
        heads, tails = self.edge_index.tolist()
        for head, relation, tail in zip(heads, self.edge_type.tolist(), tails, strict=True):
            yield self.entity_names[head], self.relation_names[relation], self.entity_names[tail]

    def same_as(self, other: KnowledgeGraph) -> bool:
        """Whether both hold the same names, types and triples (with multiplicity), whatever the numbering."""
        return (
            Counter(self.triples()) == Counter(other.triples())
            and set(self.relation_names) == set(other.relation_names)
            and {n: self.type_of(i) for i, n in enumerate(self.entity_names)}
            == {n: other.type_of(i) for i, n in enumerate(other.entity_names)}
        )

    def __repr__(self) -> str:
        return f"KnowledgeGraph({self.num_entities} entities, {self.num_relations} relations, {self.num_edges} triples)"


def _check_ids(kind: str, ids: Tensor, count: int) -> None:
    if ids.numel() and not (0 <= int(ids.min()) and int(ids.max()) < count):
        raise InputError(
            f"{kind} ids run from {int(ids.min())} to {int(ids.max())} but there are {count} {kind} names; "
            "every id needs a name"
        )


def _grouped(entity: Tensor, num_entities: int) -> tuple[Tensor, Tensor]:
    """Where each entity's triples begin `(V + 1,)`, and the triples' ids grouped by entity `(E,)`."""
    columns = np.arange(len(entity))
    rows = coo_array(
        (np.ones(len(entity), dtype=np.int8), (entity.numpy(), columns)), shape=(num_entities, len(entity))
    ).tocsr()
    return torch.from_numpy(rows.indptr).long(), torch.from_numpy(rows.indices).long()


def _rows_of(grouped: tuple[Tensor, Tensor], entities: Tensor) -> Tensor:
    indptr, ids = grouped
    begin = indptr[entities]
    count = indptr[entities + 1] - begin
    first = torch.repeat_interleave(begin - (count.cumsum(0) - count), count)
    return ids[first + torch.arange(len(first))]


def _ids_by_name(kind: str, names: Sequence[str]) -> dict[str, int]:
    ids = {name: i for i, name in enumerate(names)}
    if len(ids) != len(names):
        twice = next(name for name, n in Counter(names).items() if n > 1)
        raise InputError(f"{kind} name {twice!r} occurs twice; names must be unique")
    return ids
