"""Wires the inference stage: config, retriever, questions, evidence as JSON lines, metrics beside the baselines."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path

from gfm.config import InferenceConfig
from gfm.config_files import save_config
from gfm.evaluation.compare import Ranking, as_json, bm25_method, compare, dense_method, rank_evidence
from gfm.kg.index import KGIndex
from gfm.kg.readers import read_questions
from gfm.progress import progress_bar
from gfm.retrieval.gfm_retriever import GFMRetriever
from gfm.stage import run_stage
from gfm.text.encoder import TextEncoder


def run(cfg: InferenceConfig) -> Path:
    """Retrieves evidence for every question and measures it; returns the folder of the results.

    Writes `retrievals.jsonl` (one retrieval with its prompt a line) and, where the questions name supporting documents,
    `metrics.json` in the form of `gfm eval --json`.
    """
    out = Path(cfg.out)
    questions = read_questions(cfg.questions)
    index = KGIndex.open(cfg.index)
    encoder = TextEncoder(cfg.encoder.name, device=cfg.encoder.device, dtype=cfg.encoder.dtype)
    retriever = GFMRetriever.from_pretrained(cfg.checkpoint, index, encoder, cfg.retrieval)
    save_config(cfg, out / "config.yaml")
    partial = out / "retrievals.jsonl.tmp"
    rankings: dict[str, Mapping[str, Ranking]] = {}
    bar = progress_bar("retrieve", len(questions), "questions", sys.stderr.isatty())
    with partial.open("w", encoding="utf-8") as lines, bar as advance:
        for question in questions:
            evidence = retriever.gather(question.question)
            rankings[question.question] = rank_evidence(evidence, cfg.retrieval.dense_weight)
            found = retriever.render(question.question, evidence, cfg.top_k)
            prompt = found.prompt(cfg.budget_tokens)
            row = {"id": question.id, **found.to_dict(), "messages": prompt.messages}
            lines.write(json.dumps(row, ensure_ascii=False) + "\n")
            advance(1)
    os.replace(partial, out / "retrievals.jsonl")
    if any(question.supporting_documents for question in questions):
        methods = [rankings.__getitem__, bm25_method(index), dense_method(index, encoder)]
        metrics = as_json(len(questions), compare(index, questions, methods))
        (out / "metrics.json").write_text(json.dumps(metrics, indent=1) + "\n", encoding="utf-8")
    return out


def main(argv: list[str] | None = None) -> Path:
    """Runs the stage with command-line arguments."""
    return run_stage(InferenceConfig, run, argv)


if __name__ == "__main__":
    main()
