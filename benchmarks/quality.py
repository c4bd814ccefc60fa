"""What a frontier budget costs in quality: the same real questions, exactly and with less and less of the graph."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any

from gfm.checkpoint import load_checkpoint
from gfm.config import RetrievalConfig
from gfm.errors import InputError
from gfm.evaluation.compare import Method, Ranking, compare, rank_evidence
from gfm.kg.index import KGIndex
from gfm.kg.readers import read_questions
from gfm.retrieval.gfm_retriever import GFMRetriever
from gfm.text.encoder import TextEncoder

TOP = 5


class Probe:
    """A retriever at one budget, as a method for `compare` that remembers its top documents and its seconds."""

    def __init__(self, retriever: GFMRetriever, share: float | None) -> None:
        self.retriever, self.share = retriever, share
        self.name = "exact" if share is None else f"{share:g}"
        self.top: list[set[int]] = []
        self.seconds: list[float] = []

    def __call__(self, question: str) -> dict[str, Ranking]:
        """The rankings of a question: fused as configured under the budget's name, by the graph alone as NAME-graph."""
        evidence = self.retriever.gather(question)
        ranked = rank_evidence(evidence, self.retriever.config.dense_weight)
        self.top.append(set(ranked["gfm"].documents[:TOP]))
        self.seconds.append(evidence.seconds["propagate"])
        return {self.name: ranked["gfm"], f"{self.name}-graph": ranked["gfm-graph"]}


def quality_case(index: str, questions: str, checkpoint: str, shares: Sequence[float]) -> dict[str, Any]:
    """Runs exact and budgeted retrieval; what the child process runs. A wrong file comes back under `invalid`."""
    try:
        return _quality(index, questions, checkpoint, shares)
    except InputError as error:
        return {"invalid": str(error)}


def _quality(index: str, questions: str, checkpoint: str, shares: Sequence[float]) -> dict[str, Any]:
    opened, model, asked = KGIndex.open(index), load_checkpoint(checkpoint), read_questions(questions)
    encoder = TextEncoder(opened.encoder_name)
    probes = [
        Probe(GFMRetriever(model, opened, encoder, RetrievalConfig(frontier_budget=share)), share)
        for share in (None, *shares)
    ]
    for probe in probes:
        probe.retriever.gather(asked[0].question)  # compiles
    methods: list[Method] = list(probes)
    table = compare(opened, asked, methods)
    exact, cases = probes[0], []
    for probe in probes:
        fused, graph = table[probe.name], table[f"{probe.name}-graph"]
        shared = [len(a & b) / max(1, len(a)) for a, b in zip(exact.top, probe.top, strict=True)]
        cases.append(
            {
                "share": probe.share,
                "budget": probe.retriever.frontier_budget,
                **{f"recall@{k}": fused[f"document_recall@{k}"].mean for k in (2, 5)},
                **{f"graph_recall@{k}": graph[f"document_recall@{k}"].mean for k in (2, 5)},
                "overlap@5": statistics.mean(shared),
                "gate_seconds": statistics.median(probe.seconds),
            }
        )
    return {"questions": len(asked), "entities": opened.graph.num_entities, "cases": cases}
