"""`python -m benchmarks.linking`: from a question to its entities, in indexes of up to a million names."""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable, Sequence
from typing import Any
from zlib import crc32

import numpy as np
import torch
from torch import Tensor

from benchmarks.child import FOOTNOTE, run_case
from benchmarks.graphs import unit_vectors
from benchmarks.large import names
from benchmarks.measure import GB, Stopwatch, high_water
from benchmarks.report import Report, Table, cells, new_parser, positive, run_benchmark
from gfm.kg.graph import KnowledgeGraph
from gfm.kg.index import KGIndex
from gfm.kg.vector_search import compare_all
from gfm.retrieval.linking import EntityLinker

SIZES = (100_000, 1_000_000)
K = 3
_WORDS, _NOISE = 1 << 14, 0.5


class WordEncoder:
    """Embeds a text as the sum of its words' random directions and noise: names that share a word are alike."""

    def __init__(self, dim: int) -> None:
        self.name, self.dim, self.fingerprint = "words", dim, f"words/{dim}"
        self._words = unit_vectors(_WORDS, dim)

    def encode(self, texts: Sequence[str], *, progress: bool = False) -> Tensor:
        """Embeds N texts as `(N, dim)`; the noise depends on which texts are embedded together."""
        split = [text.split() for text in texts]
        words = torch.tensor([crc32(word.encode()) % _WORDS for words in split for word in words], dtype=torch.int64)
        begin = torch.tensor([0, *(len(words) for words in split)])[:-1].cumsum(0)
        sums = torch.nn.functional.embedding_bag(words, self._words, begin, mode="sum")
        noise = unit_vectors(len(texts), self.dim, seed=crc32(texts[0].encode()) if texts else 0)
        return torch.nn.functional.normalize(sums + _NOISE * noise, dim=1)


def measure_all(options: argparse.Namespace) -> Report:
    """Builds an index of each size and links questions in a fresh process."""
    cases = []
    for entities in options.entities:
        with tempfile.TemporaryDirectory() as folder:
            shared = {"folder": folder, "text_dim": options.text_dim}
            built = run_case("benchmarks.linking:build_case", {**shared, "entities": entities}, f"{entities:,} names")
            asked = {"questions": options.repeats, "seed": options.seed}
            linked = (
                built if "failed" in built else run_case("benchmarks.linking:link_case", {**shared, **asked}, "links")
            )
        cases.append({"entities": entities, **built, **linked})
    lines = [
        ("index built, s", "build_seconds", 1),
        ("of which vector index, s", "vector_index_seconds", 1),
        ("opened with its table of names, s", "open_seconds", 2),
        ("first question by similarity, ms", "first_ms", 1),
        *((f"question by {kind}, {of}, ms", f"{kind}_{of}_ms", 2) for kind in KINDS for of in ("median", "p95", "max")),
        (f"recall@{K} of similarity", "recall", 3),
        ("all embeddings compared instead, median, ms", "exact_median_ms", 2),
        ("peak GB of the process", "peak_process_gb", 2),
    ]
    table = Table("linking", ["", *(f"{entities:,} names" for entities in options.entities)])
    table.rows = [[what, *(cells(case, (key, digits))[0] for case in cases)] for what, key, digits in lines]
    note = (
        f"{options.repeats} questions of each kind, their embedding not counted; by name: three names of two words in "
        "a question of eleven; by similarity: a question that names nothing, near to one entity"
    )
    return Report([table], {"cases": cases}, [note, FOOTNOTE])


KINDS = ("name", "similarity")


def build_case(folder: str, entities: int, text_dim: int) -> dict[str, Any]:
    """Builds an index of made-up names, each linked to the next."""
    ring = torch.arange(entities)
    edges = torch.stack([ring, ring.roll(-1)])
    graph = KnowledgeGraph(names(entities, 2), ["precedes"], edges, torch.zeros(entities, dtype=torch.int64))
    watch = Stopwatch()
    index = KGIndex.build(folder, WordEncoder(text_dim), graph=graph)
    return {"build_seconds": watch.lap(), "vector_index_seconds": index.info()["seconds"].get("vector index", 0.0)}


def link_case(folder: str, text_dim: int, questions: int, seed: int) -> dict[str, Any]:
    """Opens the index and links questions that name entities, and questions that are only near to some."""
    watch = Stopwatch()
    index = KGIndex.open(folder)
    linker = EntityLinker.for_index(index)
    figures: dict[str, Any] = {"open_seconds": watch.lap()}
    known, generator = index.graph.entity_names, np.random.default_rng(seed)
    drawn = generator.integers(0, len(known), (questions + 1, 3))
    vectors = WordEncoder(text_dim).encode([known[row[0]] for row in drawn])
    watch.restart()
    linker.link("nothing is named here", vectors[-1])
    figures["first_ms"] = 1e3 * watch.lap()
    texts = [f"Where did {known[a]} meet {known[b]} before {known[c]} was founded?" for a, b, c in drawn[:questions]]
    named = _timed(lambda i: {seed.entity for seed in linker.link(texts[i], vectors[i])}, questions)
    assert all(set(row.tolist()) <= found for row, found in zip(drawn, named[1], strict=False))
    near = _timed(lambda i: {seed.entity for seed in linker.link("nothing is named here", vectors[i])}, questions)
    exact = _timed(lambda i: set(compare_all(index.entity_embeddings, vectors[i], K)[0].tolist()), questions)
    figures["recall"] = sum(len(a & b) for a, b in zip(near[1], exact[1], strict=True)) / (K * questions)
    for name, (milliseconds, _) in zip((*KINDS, "exact"), (named, near, exact), strict=True):
        for of, share in (("median", 50), ("p95", 95), ("max", 100)):
            figures[f"{name}_{of}_ms"] = float(np.percentile(milliseconds, share))
    return figures | {"peak_process_gb": high_water() / GB}


def _timed(call: Callable[[int], set[int]], count: int) -> tuple[list[float], list[set[int]]]:
    """Milliseconds and result of each call."""
    watch, milliseconds, results = Stopwatch(), [], []
    for number in range(count):
        watch.restart()
        results.append(call(number))
        milliseconds.append(1e3 * watch.lap())
    return milliseconds, results


def main(argv: Sequence[str] | None = None) -> None:
    parser = new_parser("linking", __doc__.partition(": ")[2], repeats=200)
    parser.add_argument("--entities", type=positive, nargs="+", default=SIZES, help="names (100_000 1_000_000)")
    parser.add_argument("--text-dim", type=positive, default=384, help="size of text embeddings (default 384)")
    run_benchmark("linking", parser, measure_all, argv)


if __name__ == "__main__":
    main()
