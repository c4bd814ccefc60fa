"""An index of millions: built once, then opened and asked in a fresh process."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np
import torch
from torch import Tensor

from benchmarks.graphs import random_triples, unit_vectors
from benchmarks.measure import GB, Stopwatch, high_water
from benchmarks.models import random_model
from gfm.checkpoint import Checkpoint, CheckpointInfo
from gfm.config import ModelConfig, RetrievalConfig
from gfm.kg.graph import KnowledgeGraph
from gfm.kg.index import KGIndex
from gfm.retrieval.gfm_retriever import GFMRetriever
from gfm.retrieval.ranker import top_k
from gfm.types import Document

MENTIONS, RELATIONS, SELECTED = 5, 20_000, 100
"""Entities a document mentions; direct relations; entities that a question's threshold lets through."""

SYLLABLES = [consonant + vowel for consonant in "bdfgklmnprstvz" for vowel in "aeiou"]


class RandomEncoder:
    """Embeds texts as random directions: what they mean does not matter for time."""

    def __init__(self, dim: int) -> None:
        self.name, self.dim, self.fingerprint = "random", dim, f"random/{dim}"

    def encode(self, texts: Sequence[str], *, progress: bool = False) -> Tensor:
        """Embeds N texts as `(N, dim)`."""
        return unit_vectors(len(texts), self.dim, seed=crc32(texts[0].encode()) if texts else 0)


def names(count: int, words: int) -> list[str]:
    """Made-up names of `words` words, all different, such as a person's or a place's."""
    base = 1
    while base**words < count:
        base += 1
    vocabulary = [_word(i) for i in range(base)]
    return [" ".join(vocabulary[i // base**j % base] for j in range(words)) for i in range(count)]


def build_case(folder: str, entities: int, triples: int, documents: int, text_dim: int, seed: int) -> dict[str, Any]:
    """Builds the index of a random graph whose documents mention a few entities each."""
    relations = min(RELATIONS, triples)
    head, relation, tail = random_triples(entities, triples, relations, seed).T.contiguous()
    names_of_relations = [f"relation {i}" for i in range(relations)]
    graph = KnowledgeGraph(names(entities, 2), names_of_relations, torch.stack([head, tail]), relation)
    titles = [f"Page {i}" for i in range(documents)]
    mentioned = np.random.default_rng(seed).integers(0, entities, (documents, MENTIONS)).tolist()
    pairs = ((graph.entity_names[e], title) for title, row in zip(titles, mentioned, strict=True) for e in row)
    pages = [Document(title, f"What {title} says.") for title in titles]
    watch = Stopwatch()
    KGIndex.build(Path(folder), RandomEncoder(text_dim), documents=pages, graph=graph, mentions=pairs)
    return {"build_seconds": watch.lap(), "peak_process_gb": high_water() / GB}


def index_case(
    folder: str, text_dim: int, hidden_dim: int, layers: int, budget: int, repeats: int, seed: int
) -> dict[str, Any]:
    """Opens the index and asks it questions with a random model; everything a user waits for."""
    watch = Stopwatch()
    index = KGIndex.open(folder)
    figures: dict[str, Any] = {"open_seconds": watch.lap()}
    encoder: Any = RandomEncoder(text_dim)
    model = random_model("ours", text_dim, hidden_dim, layers, seed).eval()
    info = CheckpointInfo(text_dim, ModelConfig(hidden_dim, layers), encoder.name, encoder.fingerprint, "pretrain")
    watch.restart()
    # Random weights know no threshold: the first question selects nothing, later ones the best `SELECTED` entities.
    config = RetrievalConfig(frontier_budget=budget, threshold=1.0)
    retriever = GFMRetriever(Checkpoint(model, None, info), index, encoder, config)
    figures["retriever_seconds"] = watch.lap()
    first = retriever.retrieve(_question(index, seed + repeats))
    figures |= {"first_seconds": watch.lap(), "first_steps": dict(first.timings)}
    new, asked, steps = [], [], []
    for question in [_question(index, seed + number) for number in range(repeats)]:
        watch.restart()
        gates = retriever.gates(retriever.link([question]))[0].numpy()
        new.append(watch.lap())
        threshold = float(gates[top_k(gates, SELECTED)[-1]])
        retriever.config = replace(config, threshold=threshold)
        watch.restart()
        steps.append(dict(retriever.retrieve(question).timings))
        # The question's first pass, with the steps behind it: what a user waits for.
        behind = watch.lap() - steps[-1]["link"] - steps[-1]["propagate"]
        asked.append(new[-1] + behind)
    figures |= {"gates_seconds": statistics.median(new), "question_seconds": statistics.median(asked)}
    figures["steps"] = {name: statistics.median(step[name] for step in steps) for name in steps[0]}
    return figures | {"peak_process_gb": high_water() / GB}


def _question(index: KGIndex, number: int) -> str:
    known = index.graph.entity_names
    first, second, third = (known[i] for i in np.random.default_rng(number).integers(0, len(known), 3))
    return f"Where did {first} meet {second} before {third} was founded?"


def _word(number: int) -> str:
    word = ""
    for _ in range(3):
        number, syllable = divmod(number, len(SYLLABLES))
        word += SYLLABLES[syllable]
    return word.capitalize()
