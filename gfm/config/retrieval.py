"""Settings of inference: linking, retrieval, the files of a run."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from gfm.config.checks import one_of, within
from gfm.config.training import EncoderConfig
from gfm.errors import InputError


@dataclass
class LinkingConfig:
    """Question → seeds. `similar`: how many entities embedding similarity adds where no name is found."""

    similar: int = 3
    # idf: 1 / number of documents that mention the entity | one | None: as the checkpoint was trained
    seed_weighting: str | None = None

    def __post_init__(self) -> None:
        if self.seed_weighting is not None:
            one_of("linking.seed_weighting", self.seed_weighting, "idf", "one")
        within("linking.similar", self.similar, 1)  # else a question could start nowhere


@dataclass
class RetrievalConfig:
    """Inference. `threshold` δ; `dense_weight` 0 ranks documents by the graph alone, 1 by dense similarity alone.

    `frontier_budget` bounds the entities that carry a state after each layer: a share of the graph below 1, a number
    from 1 on, None for all that are reached. `dtype` is that of the model; bfloat16 halves its memory and is faster
    only where the processor computes in it.
    """

    linking: LinkingConfig = field(default_factory=LinkingConfig)
    threshold: float | None = None  # None: the checkpoint's own, else 0.5
    dense_weight: float = 0.25
    rank_entities: int = 20
    max_hops: int = 3
    beam: int = 20
    max_paths: int = 20
    frontier_budget: float | None = None
    dtype: str = "float32"

    def __post_init__(self) -> None:
        budget = self.frontier_budget
        if budget is not None and not (0 < budget < 1 or (1 <= budget < math.inf and budget == int(budget))):
            raise InputError(
                f"config key 'retrieval.frontier_budget' is {budget}; it must be a share of the entities below 1, or a "
                "whole number of them (1 is one entity)"
            )
        one_of("retrieval.dtype", self.dtype, "float32", "bfloat16")
        if self.threshold is not None:
            within("retrieval.threshold", self.threshold, 0, 1)
        within("retrieval.dense_weight", self.dense_weight, 0, 1)
        for name in ("rank_entities", "max_hops", "beam", "max_paths"):
            within(f"retrieval.{name}", getattr(self, name), 1)


@dataclass
class InferenceConfig:
    """Retrieval for a file of questions, or its evaluation beside the baselines."""

    checkpoint: str = "???"
    index: str = "???"
    questions: str = "???"
    out: str = "outputs/inference"
    top_k: int = 5
    budget_tokens: int = 2000
    encoder: EncoderConfig = field(default_factory=EncoderConfig)
    retrieval: RetrievalConfig = field(default_factory=RetrievalConfig)

    def __post_init__(self) -> None:
        within("top_k", self.top_k, 1)
        within("budget_tokens", self.budget_tokens, 1)
