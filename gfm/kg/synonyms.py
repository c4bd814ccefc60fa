"""Which names may mean the same, and which of those that are near each other do."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

UNUSABLE = -2
"""In a row of `Nearest.neighbours`: this name can have no synonym. -1 fills what a row does not need."""

_DIGITS = re.compile(r"\d+")
_LETTERS = re.compile(r"[^\W\d_]+")
# "12 March 1960" and "12 May 1960" are close in every encoder and mean different days.
_DATE_WORDS = frozenset(
    "january february march april may june july august september october november december "
    "jan feb mar apr jun jul aug sep sept oct nov dec st nd rd th s bc ad bce ce c".split()
)


class Nearest(NamedTuple):
    """For each of V names the nearest others, by falling cosine; among equals by name.

    Attributes:
        neighbours: `(V, cap)` int32 ids.
        cosine: `(V, cap)` float32, 0 where there is no neighbour.
    """

    neighbours: NDArray[np.int32]
    cosine: NDArray[np.float32]


def synonym_pairs(nearest: Nearest, cap: int) -> NDArray[np.int64]:
    """Pairs of which each is among the other's `cap` nearest.

    So no name has more than `cap` synonyms, and the result depends on no order.

    Returns:
        `(P, 2)` int64, each unordered pair once with the smaller id first, sorted.
    """
    neighbours = nearest.neighbours[:, :cap].astype(np.int64)
    rows, places = np.nonzero(neighbours >= 0)
    directed = np.stack([rows, neighbours[rows, places]], axis=1)
    count = len(neighbours)
    codes = np.sort(directed, axis=1) @ np.array([count, 1])
    found, times = np.unique(codes, return_counts=True)
    mutual = found[times == 2]
    return np.stack([mutual // max(count, 1), mutual % max(count, 1)], axis=1)


def digit_classes(names: Sequence[str]) -> NDArray[np.int64]:
    """A number for the digits of each name, -1 where the name can have no synonym.

    Names that differ in their digits ("Apollo 11", "Apollo 12") and names that are only a number or a date are never
    synonyms.
    """
    classes: dict[tuple[str, ...], int] = {}
    return np.array(
        [classes.setdefault(tuple(_DIGITS.findall(n)), len(classes)) if _is_name(n) else -1 for n in names],
        dtype=np.int64,
    )


def _is_name(name: str) -> bool:
    if not _DIGITS.search(name):
        return True
    return any(word.casefold() not in _DATE_WORDS for word in _LETTERS.findall(name))
