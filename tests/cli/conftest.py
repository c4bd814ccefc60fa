"""The command line in this process, and an index, a checkpoint and sources for it."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
import torch

import gfm.retrieval.gfm_retriever
import gfm.text.encoder
from gfm.checkpoint import Checkpoint, CheckpointInfo
from gfm.cli import main
from gfm.config import ModelConfig
from gfm.kg.index import KGIndex
from gfm.nn.gnn import QueryConditionedGNN
from gfm.types import Document, Extraction
from tests.cli.cases import ENCODER, FACTS, Cli, Result
from tests.fakes import HashEncoder


@pytest.fixture
def cli(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Cli:
    """Runs `gfm ARGUMENTS` in this process, with an instant encoder in place of the model."""

    def encoder(name: str = "hash", **options: object) -> HashEncoder:
        return HashEncoder(name=name)

    monkeypatch.setattr(gfm.text.encoder, "TextEncoder", encoder)
    monkeypatch.setattr(gfm.retrieval.gfm_retriever, "TextEncoder", encoder)
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)  # typer replaces it

    def run(*arguments: object) -> Result:
        monkeypatch.setattr(sys, "argv", ["gfm", *map(str, arguments)])
        capsys.readouterr()
        with pytest.raises(SystemExit) as caught:
            main()
        out, err = capsys.readouterr()
        return Result(int(caught.value.code or 0), out, err)

    return run


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with `index`, `checkpoint`, `questions.json` and a raw corpus."""
    root = tmp_path_factory.mktemp("cli")
    documents = [Document(head, f"{head} is a place of {tail}.") for head, _, tail in FACTS]
    extractions = [Extraction(head, (head, tail), ((head, relation, tail),)) for head, relation, tail in FACTS]
    KGIndex.build(root / "index", ENCODER, documents=documents, extractions=extractions)
    torch.manual_seed(0)
    model = ModelConfig(hidden_dim=4, num_layers=2)
    info = CheckpointInfo(ENCODER.dim, model, ENCODER.name, ENCODER.fingerprint, "pretrain", threshold=0.0)
    Checkpoint(QueryConditionedGNN(ENCODER.dim, 4, 2), None, info).save(root / "checkpoint")
    questions = [
        {"id": i, "question": f"Where is {head}?", "answer": tail, "supporting_documents": [head]}
        for i, (head, _, tail) in enumerate(FACTS)
    ]
    (root / "questions.json").write_text(json.dumps(questions))
    (root / "raw").mkdir()
    (root / "raw" / "documents.json").write_text(json.dumps({d.title: d.text for d in documents}))
    records = [
        {"passage": head, "extracted_entities": [head], "extracted_triples": [[head, relation, tail], ["odd"]]}
        for head, relation, tail in FACTS
    ]
    (root / "openie.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    return root
