"""How well a graph leads from questions to their documents, whatever walks it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix
from torch import Tensor

from gfm.errors import InputError
from gfm.kg.index import KGIndex
from gfm.retrieval.linking import EntityLinker
from gfm.types import Question

HOPS = (1, 2, 3)


class QuestionEncoder(Protocol):
    """What embeds the questions."""

    def encode(self, texts: Sequence[str]) -> Tensor:
        """Embeds N texts as `(N, dim)` float32."""


@dataclass(frozen=True)
class Coverage:
    """Shares in [0, 1] by hops, 1 to 3; the last hop is that from an entity to a document that mentions it.

    Attributes:
        questions: those that were measured.
        left_out: questions none of whose supporting documents is in the index.
        by_similarity: questions that name no entity, so that their seeds are the most similar ones.
        gold: mean share of a question's supporting documents that are reached: documents that mention a seed (1 hop),
            a neighbour of a seed (2), a neighbour's neighbour (3).
        all_documents: mean share of all documents that are reached so. A graph that links everything with everything
            reaches all gold documents, and all others.
    """

    questions: int
    left_out: int
    by_similarity: int
    gold: dict[int, float]
    all_documents: dict[int, float]

    def to_dict(self) -> dict[str, Any]:
        """The numbers as plain dicts, ready for JSON."""
        return asdict(self)


def seed_coverage(index: KGIndex, questions: Sequence[Question], encoder: QuestionEncoder) -> Coverage:
    """Measures which documents are linked to the seeds of each question within 1, 2 and 3 hops.

    Raises:
        InputError: no question has a supporting document in the index.
    """
    number = {title: i for i, title in enumerate(index.titles)}
    gold = [sorted({number[t] for t in q.supporting_documents if t in number}) for q in questions]
    measured = [i for i, documents in enumerate(gold) if documents]
    if not measured:
        raise InputError("no question has a supporting document in this index; coverage cannot be measured")
    linker = EntityLinker.for_index(index)
    vectors = encoder.encode([questions[i].question for i in measured])
    neighbours = _neighbours(index)
    found, everything, similar = np.zeros((len(measured), 3)), np.zeros((len(measured), 3)), 0
    for row, i in enumerate(measured):
        seeds = linker.link(questions[i].question, vectors[row])
        similar += all(seed.reason == "similar" for seed in seeds)
        reached = np.zeros(index.graph.num_entities, dtype=np.float32)
        reached[[seed.entity for seed in seeds]] = 1
        for hop in range(len(HOPS)):
            if hop:
                reached = _spread(neighbours, reached)
            documents = index.mentions.T @ reached > 0
            found[row, hop] = documents[gold[i]].mean()
            everything[row, hop] = documents.mean()
    return Coverage(len(measured), len(questions) - len(measured), similar, _by_hops(found), _by_hops(everything))


def _neighbours(index: KGIndex) -> csr_matrix:
    heads, tails = index.graph.edge_index.numpy()
    size = index.graph.num_entities
    matrix = csr_matrix((np.ones(len(heads), dtype=np.float32), (heads, tails)), shape=(size, size))
    return (matrix + matrix.T).tocsr()


def _spread(neighbours: csr_matrix, reached: NDArray[np.float32]) -> NDArray[np.float32]:
    spread: NDArray[np.float32] = ((neighbours @ reached + reached) > 0).astype(np.float32)
    return spread


def _by_hops(shares: NDArray[np.float64]) -> dict[int, float]:
    return {hops: round(float(share), 4) for hops, share in zip(HOPS, shares.mean(axis=0), strict=True)}
