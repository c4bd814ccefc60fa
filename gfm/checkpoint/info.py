"""What a checkpoint says of itself."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from gfm.config import ModelConfig
from gfm.types import INVERSE_TEXT


@dataclass(frozen=True)
class CheckpointInfo:
    """What a checkpoint says of itself.

    Attributes:
        encoder: name of the sentence encoder its text embeddings came from; `encoder_fingerprint` decides identity.
        phase: `"pretrain"`, `"pretrain-2"`, `"finetune-gnn"` or `"selector"`.
        threshold: δ, the gate above which an entity is selected.
        data_fingerprint: of the triples, or graphs and questions, that the last phase trained on; the parent's is in
            the parent.
        parent: sha256 of the weights it was trained from.
        inverse_text: what stands before a relation's name where its inverse is embedded.
        entity_votes: what an entity gives the documents that mention it: its `"gate"`, or `"one"` where the model was
            made for a ranking that lets the best entities vote alike.
        training: free-form facts of the run (data, steps, metrics).
    """

    text_dim: int
    model: ModelConfig
    encoder: str
    encoder_fingerprint: str
    phase: str
    threshold: float = 0.5
    seed_weighting: str = "idf"
    data_fingerprint: str = ""
    parent: str = ""
    inverse_text: str = INVERSE_TEXT
    entity_votes: str = "gate"
    training: dict[str, Any] = field(default_factory=dict)
