"""Retrieval metrics of one question, and the gold entities that they are measured against."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping, Sequence
from typing import Protocol, TypeVar

from gfm.errors import InputError
from gfm.kg.graph import KnowledgeGraph
from gfm.text.names import match_key, without_parenthetical
from gfm.types import Question

Item = TypeVar("Item", bound=Hashable)


def recall_at_k(ranked: Sequence[Item], gold: Collection[Item], k: int) -> float | None:
    """Share of the gold items among the first `k` ranked ones, in [0, 1].

    This is set recall: with more than `k` gold items even a perfect ranking stays below 1.

    Returns:
        The share, or None where there is no gold item: such a question says nothing and is left out of means.

    Raises:
        InputError: `k` is below 1.
    """
    if k < 1:
        raise InputError(f"k is {k}; give a whole number of at least 1")
    wanted = set(gold)
    return len(wanted.intersection(ranked[:k])) / len(wanted) if wanted else None


def reciprocal_rank(ranked: Sequence[Item], gold: Collection[Item]) -> float | None:
    """1 / position of the first gold item, 0 where none is ranked, None where there is no gold item."""
    wanted = set(gold)
    if not wanted:
        return None
    return next((1.0 / position for position, item in enumerate(ranked, start=1) if item in wanted), 0.0)


class HasGraph(Protocol):
    """Anything with a knowledge graph, for example an index."""

    @property
    def graph(self) -> KnowledgeGraph:
        """The graph."""
        ...


def entities_by_key(index: HasGraph) -> dict[str, list[int]]:
    """Entity ids by match key of their name; build it once and pass it to `gold_entities` for many questions."""
    by_key: dict[str, list[int]] = {}
    for entity, name in enumerate(index.graph.entity_names):
        by_key.setdefault(match_key(name), []).append(entity)
    return by_key


def gold_entities(
    index: HasGraph, question: Question, by_key: Mapping[str, Sequence[int]] | None = None
) -> frozenset[int]:
    """Entities that stand for the gold evidence of a question.

    These are the entities named like a supporting document (with or without a parenthetical at the end of its
    title: `Publix (2)`, `Publix`) or like the answer or one of its aliases. Names are compared by match key.

    Args:
        index: where the entities are.
        question: with supporting documents and answer.
        by_key: result of `entities_by_key(index)`; None computes it.

    Returns:
        Entity ids; empty where the graph has none of the names, and metrics are then None.
    """
    by_key = entities_by_key(index) if by_key is None else by_key
    titles = question.supporting_documents
    names = [*titles, *(without_parenthetical(t) for t in titles), question.answer, *question.answer_aliases]
    keys = {match_key(name) for name in names} - {""}
    return frozenset(entity for key in keys for entity in by_key.get(key, ()))
