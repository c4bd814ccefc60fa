"""Reads indexes with their questions as fine-tuning batches."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from gfm.config import CorpusConfig, LinkingConfig
from gfm.errors import InputError
from gfm.files import content_fingerprint, sha256
from gfm.kg.index import KGIndex
from gfm.kg.readers import read_questions
from gfm.nn.edges import RelationalEdges
from gfm.nn.states import Seeds
from gfm.retrieval.gfm_retriever import LinkedQuestions, QuestionLinker
from gfm.text.encoder import TextEncoder
from gfm.training.losses import undirected_pairs
from gfm.training.steps import QuestionBatch
from gfm.types import INVERSE_TEXT


@dataclass(frozen=True, eq=False)
class QuestionCorpus:
    """An index with linked questions and, per question, the entities of its gold documents.

    Attributes:
        gold: per question the entity ids `(n_i,)` that its supporting documents mention.
        pairs: undirected pairs `(2, P)` for the connectivity loss.
        fingerprint: of the questions, the graph and its mentions.
    """

    relations: Tensor
    edges: RelationalEdges
    linked: LinkedQuestions
    gold: list[Tensor]
    pairs: Tensor
    fingerprint: str

    def to(self, device: torch.device | str) -> QuestionCorpus:
        """The same corpus with its graph on another device; questions follow batch by batch."""
        relations, pairs = self.relations.to(device), self.pairs.to(device)
        return replace(self, relations=relations, edges=self.edges.to(device), pairs=pairs)

    def batch(self, ids: Tensor) -> QuestionBatch:
        """The questions `ids` as one batch."""
        seeds, rows = self.linked.seeds, torch.full((len(self.gold),), -1)
        rows[ids] = torch.arange(len(ids))
        mine = rows[seeds.question] >= 0
        positives = torch.zeros(len(ids), self.edges.num_nodes, dtype=torch.bool)
        for row, question in enumerate(ids.tolist()):
            positives[row, self.gold[question]] = True
        chosen = Seeds(seeds.entity[mine], rows[seeds.question[mine]], seeds.weight[mine])
        return QuestionBatch(self.linked.embedding[ids], chosen, positives)


def load_corpus(
    cfg: CorpusConfig,
    encoder: TextEncoder,
    linking: LinkingConfig,
    labelled: bool = True,
    inverse_text: str = INVERSE_TEXT,
) -> QuestionCorpus:
    """Opens an index, links its questions and looks up the entities of their gold documents.

    Args:
        cfg: where the index and the questions are.
        encoder: must be the index's.
        linking: how questions find their seeds.
        labelled: whether training needs gold documents.
        inverse_text: how the model reads inverse relations.

    Raises:
        InputError: a question names a supporting document that the index lacks, or labels are needed and none exist.
    """
    index = KGIndex.open(cfg.index)
    questions = read_questions(cfg.questions)
    row_of = {title: row for row, title in enumerate(index.titles)}
    by_document = index.mentions.tocsc()
    gold = []
    for question in questions:
        unknown = [title for title in question.supporting_documents if title not in row_of]
        if unknown:
            raise InputError(
                f"{cfg.questions}: question {question.id!r} names document {unknown[0]!r}, which index "
                f"{cfg.index!r} lacks; build the index from the same corpus"
            )
        rows = [row_of[title] for title in question.supporting_documents]
        gold.append(torch.from_numpy(np.unique(by_document[:, rows].indices).astype(np.int64)))
    if labelled and not any(len(entities) for entities in gold):
        raise InputError(
            f"{cfg.questions}: no question has supporting_documents, so there is nothing to learn from; for adaptation "
            "without labels set unfreeze=none selector.supervised=false"
        )
    edge_index, edge_type = index.graph.with_inverses()
    arrays = (edge_index.numpy(), edge_type.numpy(), by_document.indices, by_document.indptr)
    read = [sha256(Path(cfg.questions)), *(hashlib.sha256(np.ascontiguousarray(part)).hexdigest() for part in arrays)]
    return QuestionCorpus(
        relations=index.relations_read_as(inverse_text, encoder),
        edges=RelationalEdges(edge_index, edge_type, index.graph.num_entities, index.graph.num_edge_types),
        linked=QuestionLinker(index, encoder, linking)([question.question for question in questions]),
        gold=gold,
        pairs=undirected_pairs(index.graph.edge_index),
        fingerprint=content_fingerprint(read),
    )


def question_batches(sizes: Sequence[int], batch_size: int, seed: int) -> Iterator[tuple[int, Tensor]]:
    """Yields `(corpus number, question ids)` without end: epoch after epoch, all corpora shuffled together."""
    generator = torch.Generator().manual_seed(seed)
    while True:
        batches = [
            (corpus, ids)
            for corpus, size in enumerate(sizes)
            for ids in torch.randperm(size, generator=generator).split(batch_size)
        ]
        for position in torch.randperm(len(batches), generator=generator).tolist():
            yield batches[position]
