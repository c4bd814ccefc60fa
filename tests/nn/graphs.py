"""Small graphs and models for the tests of the model."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from gfm.nn.edges import RelationalEdges
from gfm.nn.states import Seeds

Triple = tuple[int, int, int]


def directed(
    triples: Sequence[Triple],
    num_nodes: int,
    num_edge_types: int,
    keep: Tensor | None = None,
    num_sources: int | None = None,
) -> RelationalEdges:
    """Edges exactly as given, `(source, type, destination)`, without inverses."""
    source, kind, target = torch.tensor(triples, dtype=torch.int64).reshape(-1, 3).unbind(1)
    edge_index = torch.stack([source, target])
    return RelationalEdges(edge_index, kind.contiguous(), num_nodes, num_edge_types, keep, num_sources)


def with_inverses(triples: Sequence[Triple], num_nodes: int, num_relations: int) -> RelationalEdges:
    """The triples and, in the same order behind them, their inverses."""
    inverse = [(tail, relation + num_relations, head) for head, relation, tail in triples]
    return directed([*triples, *inverse], num_nodes, 2 * num_relations)


def random_triples(seed: int, count: int, num_nodes: int, num_relations: int) -> list[Triple]:
    """Triples drawn uniformly, self-loops and duplicates included."""
    generator = torch.Generator().manual_seed(seed)
    columns = [torch.randint(high, (count,), generator=generator) for high in (num_nodes, num_relations, num_nodes)]
    return [(h, r, t) for h, r, t in torch.stack(columns, dim=1).tolist()]


def seeds_of(*questions: dict[int, float]) -> Seeds:
    """Seeds from one `{entity: weight}` a question."""
    rows = [(entity, row, weight) for row, question in enumerate(questions) for entity, weight in question.items()]
    entity, question, weight = zip(*rows, strict=True) if rows else ((), (), ())
    return Seeds(
        torch.tensor(entity, dtype=torch.int64),
        torch.tensor(question, dtype=torch.int64),
        torch.tensor(weight, dtype=torch.float32),
    )
