"""Random graphs with the uneven degrees of real ones, and questions on them.

How they compare with a graph made from text (musique100: 19,377 entities, 67,896 edges with inverses, greatest degree
442): there the entities within 1 to 6 hops of a question's seeds are for example 9, 28, 97, 501, 3461, 9975 or 49, 401,
3540, 8810, 16918, 18354. `random_triples` of the same size has a greatest degree of about 100, and three random seeds
reach for example 11, 45, 362, 2579, 9908, 15371 or 16, 179, 1466, 7227, 14209, 16560 entities. Its hubs are smaller,
since every hub draws from all entities alike, but it spreads as fast as the fastest real questions, for it has none of
the tightly knit neighbourhoods that hold a walk back. At 88,000 entities and 558,000 edges (greatest degree about 430)
it is faster still: for example 28, 1034, 17714, 69796, 84812, 85703, all but the last steps of nothing. What a frontier
saves on these graphs is therefore less than what it saves on real ones.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from gfm.nn.states import Seeds
from gfm.training.graphs import CompletionGraph

ENTITY_EXPONENT, RELATION_EXPONENT = 0.6, 0.8


def random_triples(
    entities: int,
    triples: int,
    relations: int,
    seed: int = 0,
    exponent: float = ENTITY_EXPONENT,
    relation_exponent: float = RELATION_EXPONENT,
) -> Tensor:
    """Draws `(triples, 3)` ids; duplicates and self-loops occur as chance has it.

    Heads and tails are drawn with weights `(rank + 20)^-exponent`, relations with `(rank + 5)^-relation_exponent`; the
    ranks of entities are a random order. Exponents of 0 draw uniformly.
    """
    generator = np.random.default_rng(seed)
    order = generator.permutation(entities)
    head, tail = (order[_draw(entities, 20, exponent, triples, generator)] for _ in range(2))
    relation = _draw(relations, 5, relation_exponent, triples, generator)
    return torch.from_numpy(np.stack([head, relation, tail], axis=1))


def random_graph(
    entities: int, triples: int, relations: int, text_dim: int, seed: int = 0, uniform: bool = False
) -> CompletionGraph:
    """A graph of `random_triples` with a random unit vector as the text embedding of each (inverse) relation.

    Its `edges` are the triples and their inverses. With `uniform` all entities and all relations are equally likely.
    """
    exponents = (0.0, 0.0) if uniform else (ENTITY_EXPONENT, RELATION_EXPONENT)
    drawn = random_triples(entities, triples, relations, seed, *exponents)
    embeddings = unit_vectors(2 * relations, text_dim, seed)
    return CompletionGraph("random", entities, relations, drawn, drawn, embeddings, drawn[:0])


def unit_vectors(count: int, dim: int, seed: int = 0) -> Tensor:
    """Random directions `(count, dim)`, as a sentence encoder might give them."""
    vectors = torch.randn(count, dim, generator=torch.Generator().manual_seed(seed))
    return vectors.div_(vectors.norm(dim=1, keepdim=True))


def random_question(entities: int, text_dim: int, seeds: int, number: int) -> tuple[Tensor, Seeds]:
    """One question: its embedding `(1, text_dim)` and `seeds` different entities of weight 1; the same per `number`."""
    entity = np.random.default_rng(number).choice(entities, min(seeds, entities), replace=False)
    zeros = torch.zeros(len(entity), dtype=torch.int64)
    return unit_vectors(1, text_dim, number), Seeds(torch.from_numpy(entity), zeros, torch.ones(len(entity)))


def _draw(count: int, shift: int, exponent: float, draws: int, generator: np.random.Generator) -> np.ndarray:
    if exponent == 0:
        return generator.integers(0, count, draws)
    share = np.cumsum((np.arange(count) + float(shift)) ** -exponent)
    return np.searchsorted(share / share[-1], generator.random(draws)).astype(np.int64)
