"""Small completion graphs for the tests of training."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from gfm.training.graphs import CompletionGraph

Triple = tuple[int, int, int]
TEXT = 8


def completion_graph(
    train: Sequence[Triple],
    num_entities: int,
    num_relations: int,
    extra: Sequence[Triple] = (),
    name: str = "tiny",
    domain: Sequence[int] | None = None,
) -> CompletionGraph:
    """A graph whose known answers are its train triples and `extra`, with random relation embeddings."""
    triples = [torch.tensor(part, dtype=torch.int64).reshape(-1, 3) for part in (train, extra)]
    texts = torch.randn(2 * num_relations, TEXT, generator=torch.Generator().manual_seed(1))
    domains = None if domain is None else torch.tensor(domain)
    return CompletionGraph(
        name, num_entities, num_relations, triples[0], torch.cat(triples), texts, triples[1], domains
    )


def edge_set(edges) -> list[Triple]:
    """The edges that carry messages as sorted `(source, type, destination)`."""
    (source, target), kind = edges.kept
    return sorted(zip(source.tolist(), kind.tolist(), target.tolist(), strict=True))
