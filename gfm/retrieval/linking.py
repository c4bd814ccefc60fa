"""Linking: which entities of the graph a question names."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import groupby

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gfm.config import LinkingConfig
from gfm.errors import InputError
from gfm.kg.index import KGIndex
from gfm.kg.name_table import Entry, NameTable, Tokens
from gfm.kg.vector_search import compare_all
from gfm.text.names import FUNCTION_WORDS, tokens, tokens_by_word
from gfm.types import Seed

DEFAULT_WEIGHTING = "idf"

Nearest = Callable[[Tensor, int], tuple[NDArray[np.int64], NDArray[np.float32]]]
"""A vector `(text_dim,)` and a number k to the k nearest entities and their cosines, by falling cosine."""


class EntityLinker:
    """Finds seed entities by name, longest first, and by embedding similarity where no name occurs.

    Args:
        names: entity names, position = entity id.
        embeddings: their text embeddings `(V, text_dim)`, unit length.
        config: how many entities similarity gives.
        table: of the names and aliases, as an index stores it; made here where absent.
        aliases: `(alias, entity)` pairs.
        nearest: searches by similarity; without it all embeddings are compared.
    """

    def __init__(
        self,
        names: Sequence[str],
        embeddings: Tensor,
        config: LinkingConfig | None = None,
        *,
        table: NameTable | None = None,
        aliases: Sequence[tuple[str, int]] = (),
        nearest: Nearest | None = None,
    ) -> None:
        self.names, self.embeddings, self.config = names, embeddings, config or LinkingConfig()
        self._aliases = aliases
        self._table = NameTable.build(names, aliases) if table is None else table
        self._nearest = nearest or partial(compare_all, embeddings)

    @classmethod
    def for_index(cls, index: KGIndex, config: LinkingConfig | None = None) -> EntityLinker:
        """The linker of an index, ready at once: its table of names is opened, not made."""
        return cls(
            index.graph.entity_names,
            index.entity_embeddings,
            config,
            table=index.name_table,
            aliases=index.aliases,
            nearest=index.nearest_entities,
        )

    def link(self, question: str, embedding: Tensor) -> list[Seed]:
        """Links a question.

        Names are looked for as whole tokens, longest first; a token belongs to one name only. Graphs made from text
        have entities such as "country" or "the state", which half of all questions name without asking about them:
        names that the question writes in lower case count only where it writes no other name (a capital, a digit, or
        a script without case). A name found letter by letter has the reason `"exact"`, one found after folding case
        and punctuation `"normalised"`, one that only a document uses for the entity `"alias"`. Where no name occurs,
        the `config.similar` entities nearest to the question are seeds with the reason `"similar"`.

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
        for start, key, entries in self._occurrences([word for word, _ in words]):
            part = slice(start, start + len(key))
            if taken[part].any():
                continue
            taken[part] = True
            span = words[part]
            found = proper if any(_is_proper(word, written[at]) for word, at in span) else common
            as_written = " ".join(written[span[0][1] : span[-1][1] + 1])
            for entry in entries:
                found.setdefault(entry.entity, self._seed(entry, as_written))
        return list((proper or common).values())

    def _occurrences(self, words: Sequence[str]) -> list[tuple[int, Tokens, list[Entry]]]:
        """Where names stand in the question: longest first, then from left to right."""
        spans = [
            (start, tuple(words[start : start + length]))
            for length in self._table.lengths[::-1].tolist()
            for start in range(len(words) - length + 1)
        ]
        found = self._table.find([key for _, key in spans])
        called = (self._called(key, entries) for (_, key), entries in zip(spans, found, strict=True))
        return [(start, key, entries) for (start, key), entries in zip(spans, called, strict=True) if entries]

    def _called(self, key: Tokens, entries: Sequence[Entry]) -> list[Entry]:
        """Entries that are really called so, not by a chance of the hash; an alias only where it is no one's name."""
        real = [entry for entry in entries if tuple(tokens(self._text(entry))) == key]
        names = [entry for entry in real if entry.alias < 0]
        return names or [next(group) for _, group in groupby(real, key=lambda entry: entry.entity)]

    def _text(self, entry: Entry) -> str:
        return self.names[entry.entity] if entry.alias < 0 else self._aliases[entry.alias][0]

    def _seed(self, entry: Entry, as_written: str) -> Seed:
        name = self.names[entry.entity]
        if entry.alias >= 0:
            return Seed(entry.entity, name, "alias", 1.0)
        return Seed(entry.entity, name, "exact" if name in as_written else "normalised", 1.0)

    def _similar(self, embedding: Tensor) -> list[Seed]:
        if not len(self.names):
            return []
        entities, scores = self._nearest(embedding, min(self.config.similar, len(self.names)))
        pairs = zip(entities.tolist(), scores.tolist(), strict=True)
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
