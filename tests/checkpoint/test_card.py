"""A model card says what the run knows, and what it does not know it leaves out."""

from __future__ import annotations

from gfm.checkpoint import Checkpoint, CheckpointInfo
from gfm.checkpoint.card import model_card
from gfm.config import ModelConfig
from gfm.nn.gnn import QueryConditionedGNN


def card(**training: object) -> str:
    info = CheckpointInfo(8, ModelConfig(4, 2), "mini|lm", "abc", "pretrain", parent="f00", training=training)
    return model_card(Checkpoint(QueryConditionedGNN(8, 4, 2), None, info), "run", "owner/run")


def test_the_card_names_form_encoder_parent_and_facts() -> None:
    text = card(graphs=["a", "b"], steps=20, steps_per_second=1.5)
    for line in (
        "| Encoder | `mini\\|lm`, 8 dimensions, fingerprint `abc` |",
        "| Trained from | weights with sha256 `f00` |",
        "| Graphs | a, b |",
        "| Steps | 20 |",
        "| Steps per second | 1.500 |",
    ):
        assert line in text.splitlines()
    assert "Results" not in text


def test_the_card_has_a_table_of_metrics() -> None:
    lines = card(metrics={"val/a": {"mrr": 0.25, "queries": 8}, "test/b": {"mrr": 1.0}}).splitlines()
    assert lines[-4:] == [
        "| | mrr | queries |",
        "| --- | ---: | ---: |",
        "| val/a | 0.250 | 8 |",
        "| test/b | 1.000 | – |",
    ]
