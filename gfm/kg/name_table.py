"""Entities by name: a sorted table of hashes, made when an index is written and opened by memory map."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from gfm.text.names import FUNCTION_WORDS, tokens

_SEPARATOR = "\x1f"  # no token holds a control character

Tokens = tuple[str, ...]


class Entry(NamedTuple):
    """An entity whose name or alias has certain tokens; `alias` is its number among the aliases, -1 for its name."""

    entity: int
    alias: int


class NameTable:
    """Finds the entities that are called by a sequence of tokens, without a dictionary of all of them in memory.

    A hash that is met by chance is possible, so who asks compares the tokens of what was found.

    Args:
        hashes: `(N,)` uint64, rising: 64 bits of the tokens of a name or alias.
        entities: `(N,)` int32.
        aliases: `(N,)` int32 number of the alias, -1 for the entity's own name.
        lengths: `(K,)` int32, rising: the numbers of tokens that occur.
    """

    def __init__(
        self,
        hashes: NDArray[np.uint64],
        entities: NDArray[np.int32],
        aliases: NDArray[np.int32],
        lengths: NDArray[np.int32],
    ) -> None:
        if not (hashes.shape == entities.shape == aliases.shape and hashes.ndim == lengths.ndim == 1):
            raise ValueError(f"columns of {hashes.shape}, {entities.shape} and {aliases.shape} do not make a table")
        self._hashes, self._entities, self._aliases, self.lengths = hashes, entities, aliases, lengths

    @classmethod
    def build(cls, names: Sequence[str], aliases: Sequence[tuple[str, int]] = ()) -> NameTable:
        """Makes the table of entity names, position = entity id, and of `(alias, entity)` pairs.

        Names that are made of function words alone are left out.
        """
        keys = [tuple(tokens(name)) for name in names] + [tuple(tokens(alias)) for alias, _ in aliases]
        entities = np.concatenate([np.arange(len(names)), np.array([e for _, e in aliases], dtype=np.int64)])
        numbers = np.concatenate([np.full(len(names), -1), np.arange(len(aliases))])
        used = np.array([bool(key) and not FUNCTION_WORDS.issuperset(key) for key in keys], dtype=bool)
        kept = np.flatnonzero(used)
        hashes = hash_tokens([keys[i] for i in kept])
        order = np.lexsort((numbers[kept], entities[kept], hashes))
        lengths = np.unique(np.array([len(keys[i]) for i in kept], dtype=np.int32))
        columns = entities[kept][order].astype(np.int32), numbers[kept][order].astype(np.int32)
        return cls(hashes[order], *columns, lengths)

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[np.generic]]) -> NameTable:
        """The table that `arrays` gave.

        Raises:
            KeyError, ValueError: an array is missing or of another shape.
        """
        return cls(*(arrays[name] for name in ("hashes", "entities", "aliases", "lengths")))  # type: ignore[arg-type]

    def arrays(self) -> dict[str, NDArray[np.generic]]:
        """The columns, to be stored."""
        return {
            "hashes": self._hashes,
            "entities": self._entities,
            "aliases": self._aliases,
            "lengths": self.lengths,
        }

    def find(self, keys: Sequence[Tokens]) -> list[list[Entry]]:
        """What has the hash of each key: names before aliases, by entity."""
        hashes = hash_tokens(keys)
        begin = np.searchsorted(self._hashes, hashes, side="left")
        end = np.searchsorted(self._hashes, hashes, side="right")
        found: list[list[Entry]] = [[] for _ in keys]
        for i in np.flatnonzero(end > begin):
            rows = slice(begin[i], end[i])
            pairs = zip(self._entities[rows].tolist(), self._aliases[rows].tolist(), strict=True)
            found[i] = [Entry(*pair) for pair in pairs]
        return found


def hash_tokens(keys: Sequence[Tokens]) -> NDArray[np.uint64]:
    """64 bits of each key: the same in every process and on every machine."""
    texts = (_SEPARATOR.join(key).encode("utf-8", "surrogatepass") for key in keys)
    digests = b"".join(hashlib.blake2b(text, digest_size=8).digest() for text in texts)
    return np.frombuffer(digests, dtype="<u8").astype(np.uint64)
