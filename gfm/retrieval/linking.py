"""Linking: which entities of the graph a question names."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from gfm.config import LinkingConfig
from gfm.errors import InputError
from gfm.retrieval.baselines import DenseRetriever
from gfm.text.names import tokens, tokens_by_word
from gfm.types import Seed

# Function words: as the whole of a name they link every question that is written in English.
FUNCTION_WORDS = frozenset(
    "a about after all also an and any are as at be been before but by can did do does for from had has have he her "
    "his how if in into is it its many more most much no not of on one or other s she so some than that the their "
    "them then there these they this those to was we were what when where which while who whom whose why will with "
    "would you your".split()
)


DEFAULT_WEIGHTING = "idf"


class EntityLinker:
    """Finds seed entities by name, longest first, and by embedding similarity where no name occurs.

    Args:
        names: entity names, position = entity id.
        embeddings: their text embeddings `(V, text_dim)`, unit length.
        config: how many entities similarity gives.
    """

    def __init__(self, names: Sequence[str], embeddings: Tensor, config: LinkingConfig | None = None) -> None:
        self.names, self.embeddings, self.config = names, embeddings, config or LinkingConfig()
        self._by_tokens: dict[tuple[str, ...], list[int]] = {}
        for entity, name in enumerate(names):
            key = tuple(tokens(name))
            if key and not FUNCTION_WORDS.issuperset(key):
                self._by_tokens.setdefault(key, []).append(entity)
        self._longest = max(map(len, self._by_tokens), default=0)

    def link(self, question: str, embedding: Tensor) -> list[Seed]:
        """Links a question.

        Names are looked for as whole tokens, longest first; a token belongs to one name only. Graphs made from text
        have entities such as "country" or "the state", which half of all questions name without asking about them:
        names that the question writes in lower case count only where it writes no other name (a capital, a digit, or
        a script without case). A name found letter by letter has the reason `"exact"`, one found after folding case
        and punctuation `"normalised"`. Where no name occurs, the `config.similar` entities nearest to the question are
        seeds with the reason `"similar"`.

        Args:
            question: its text.
            embedding: its text embedding `(text_dim,)`.

        Returns:
            Seeds in order of strength; never empty on a graph with entities.
        """
        named = self._named(question)
        return named or self._similar(embedding)

    def _named(self, question: str) -> list[Seed]:
        written = question.split()
        words = tokens_by_word(question)
        taken = np.zeros(len(words), dtype=bool)
        proper: dict[int, Seed] = {}
        common: dict[int, Seed] = {}
        for length in range(min(self._longest, len(words)), 0, -1):
            for start in range(len(words) - length + 1):
                span = words[start : start + length]
                entities = self._by_tokens.get(tuple(word for word, _ in span))
                if entities is None or taken[start : start + length].any():
                    continue
                taken[start : start + length] = True
                found = proper if any(_is_proper(word, written[at]) for word, at in span) else common
                as_written = " ".join(written[span[0][1] : span[-1][1] + 1])
                for entity in entities:
                    reason = "exact" if self.names[entity] in as_written else "normalised"
                    found.setdefault(entity, Seed(entity, self.names[entity], reason, 1.0))
        return list((proper or common).values())

    def _similar(self, embedding: Tensor) -> list[Seed]:
        if not len(self.names):
            return []
        similarity = torch.from_numpy(DenseRetriever(self.embeddings).scores(embedding))
        best = torch.topk(similarity, min(self.config.similar, len(self.names)))
        pairs = zip(best.indices.tolist(), best.values.tolist(), strict=True)
        return [Seed(entity, self.names[entity], "similar", score) for entity, score in pairs]


def _is_proper(word: str, written: str) -> bool:
    """Whether a token looks like part of a name: not all lower case as written, and no function word."""
    return word not in FUNCTION_WORDS and not written.islower()


def seed_weights(entities: Tensor, document_counts: np.ndarray, weighting: str) -> Tensor:
    """Start weights `w_e` of Eq. 1 for seed entities `(S,)`.

    Args:
        entities: ids of the seeds.
        document_counts: documents that mention each entity `(V,)`; an entity without any has weight 1.
        weighting: `"idf"` (1 / documents) or `"one"`.

    Raises:
        InputError: an unknown weighting.
    """
    if weighting == "one":
        return torch.ones(len(entities))
    if weighting != "idf":
        raise InputError(f"linking.seed_weighting is {weighting!r}; use idf or one")
    counts = torch.from_numpy(np.maximum(document_counts[entities.numpy()], 1))
    return 1.0 / counts.to(torch.float32)
