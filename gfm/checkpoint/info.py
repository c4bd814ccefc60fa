"""What a checkpoint says of itself."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from gfm.config import ModelConfig
from gfm.errors import InputError
from gfm.types import INVERSE_TEXT

MAX_TEXT_DIM = 1 << 20
_TYPES = {"str": (str,), "int": (int,), "float": (float, int), "bool": (bool,), "dict[str, Any]": (dict,)}


@dataclass(frozen=True)
class CheckpointInfo:
    """What a checkpoint says of itself.

    Attributes:
        encoder: name of the sentence encoder its text embeddings came from; `encoder_fingerprint` decides identity.
        phase: `"pretrain"`, `"pretrain-2"`, `"finetune-gnn"`, `"selector"` or `"imported"`.
        threshold: δ, the gate above which an entity is selected.
        data_fingerprint: of the triples, or graphs and questions, that the last phase trained on; the parent's is in
            the parent.
        parent: sha256 of the weights it was trained from.
        inverse_text: what stands before a relation's name where its inverse is embedded.
        entity_votes: what an entity gives the documents that mention it: its `"gate"`, or `"one"` where the model was
            made for a ranking that lets the best entities vote alike.
        training: free-form facts of the run (data, steps, metrics).

    Raises:
        InputError: a value that cannot be meant.
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

    def __post_init__(self) -> None:
        _check_types(self)
        _check_types(self.model)
        if not 1 <= self.text_dim <= MAX_TEXT_DIM:
            raise InputError(f"text_dim is {self.text_dim}; an embedding has 1 to {MAX_TEXT_DIM} dimensions")
        if not (math.isfinite(self.threshold) and 0 <= self.threshold <= 1):
            raise InputError(f"threshold is {self.threshold}; a gate is between 0 and 1")
        for name, choices in {"seed_weighting": ("idf", "one"), "entity_votes": ("gate", "one")}.items():
            if getattr(self, name) not in choices:
                raise InputError(f"{name} is {getattr(self, name)!r}; this gfm knows {' and '.join(choices)}")

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> CheckpointInfo:
        """The record that `dataclasses.asdict` made and JSON kept.

        Raises:
            InputError: a key that is missing or unknown, or a value that cannot be meant.
        """
        try:
            return cls(**{**record, "model": ModelConfig(**record["model"])})
        except (TypeError, KeyError) as error:
            raise InputError(f"its keys are not those of this gfm: {error}") from error


def _check_types(record: Any) -> None:
    """JSON has no types of ours: the text "false" would be true."""
    for entry in fields(record):
        value, kinds = getattr(record, entry.name), _TYPES.get(str(entry.type))
        if kinds is not None and type(value) not in kinds:
            raise InputError(f"{entry.name} is {value!r}, a {type(value).__name__}; it must be a {kinds[0].__name__}")
