"""Names that mean one entity: by their match key, with spellings, types and aliases counted."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from gfm.text.names import match_key, without_parenthetical


class NameMerge:
    """Numbers entities in order of first appearance.

    The key of a spelling is computed once. Spellings are counted in one array, however often a name occurs.

    Attributes:
        blank: blank names that were skipped.
    """

    def __init__(self) -> None:
        self.blank = 0
        self._entities: dict[str, int] = {}  # by key
        self._spellings: dict[str, int] = {}
        self._entity_of: list[int] = []  # by spelling; -1 for a blank one
        self._times = array("q")
        self._types: Counter[tuple[int, str]] = Counter()
        self._aliases: Counter[tuple[str, str]] = Counter()

    def add(self, names: Iterable[str], types: Sequence[str] = ()) -> list[int]:
        """Entities of the names, one each; -1 for a blank name."""
        found = [self._add(name) for name in names]
        self._types.update((entity, kind) for entity, kind in zip(found, types, strict=False) if entity >= 0 and kind)
        return found

    def add_aliases(self, aliases: Iterable[tuple[str, str]]) -> None:
        """Remembers `(alias, name)` pairs."""
        self._aliases.update(aliases)

    def add_titles(self, titles: Sequence[str]) -> NDArray[np.int64]:
        """The title entity of each document: what its title names, with or without a trailing parenthetical."""
        entities = np.full(len(titles), -1, dtype=np.int64)
        # Titles without a parenthetical first: "Publix (2)" may then mean the entity of "Publix",
        # whichever document comes first.
        short = [without_parenthetical(title) for title in titles]
        for document in sorted(range(len(titles)), key=lambda d: short[d] != titles[d]):
            title = titles[document]
            meant = None if match_key(title) in self._entities else self._entities.get(match_key(short[document]))
            entities[document] = self._add(title) if meant is None else meant
        return entities

    def shown(self) -> list[str]:
        """The most frequent spelling of each entity; the first seen among equals."""
        texts = list(self._spellings)
        entity, times = self._columns()
        order = np.lexsort((np.arange(len(texts)), -times, entity))
        order = order[entity[order] >= 0]
        first = np.flatnonzero(np.diff(entity[order], prepend=-1))
        return [texts[spelling] for spelling in order[first]]

    def types(self) -> list[str]:
        """The most frequent type of each entity, the smaller text among equals; `""` where none is known."""
        best = [""] * len(self._entities)
        for (entity, kind), _ in sorted(self._types.items(), key=lambda item: (-item[1], item[0][1]), reverse=True):
            best[entity] = kind
        return best

    def aliases(self) -> list[tuple[str, int]]:
        """`(alias, entity)`, sorted: those that are no entity's name and mean one entity wherever they are used."""
        spellings: dict[str, Counter[str]] = {}
        meant: dict[str, set[int]] = {}
        for (alias, name), times in self._aliases.items():
            key, entity = match_key(alias), self._entities.get(match_key(name))
            if key and key not in self._entities and entity is not None:
                spellings.setdefault(key, Counter())[alias] += times
                meant.setdefault(key, set()).add(entity)
        return sorted(
            (min(texts, key=lambda text: (-texts[text], text)), min(meant[key]))
            for key, texts in spellings.items()
            if len(meant[key]) == 1
        )

    def merged_spellings(self) -> int:
        """Spellings beyond the first of each entity."""
        return int((self._columns()[0] >= 0).sum()) - len(self._entities)

    def _add(self, name: str) -> int:
        spelling = self._spellings.setdefault(name, len(self._spellings))
        if spelling == len(self._entity_of):
            key = match_key(name)
            self._entity_of.append(self._entities.setdefault(key, len(self._entities)) if key else -1)
            self._times.append(0)
        self._times[spelling] += 1
        entity = self._entity_of[spelling]
        self.blank += entity < 0
        return entity

    def _columns(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        return np.array(self._entity_of, dtype=np.int64), np.array(self._times, dtype=np.int64)
