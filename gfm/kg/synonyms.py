"""Pairs of entities whose names mean the same, by exact blocked search."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

_DIGITS = re.compile(r"\d+")
_LETTERS = re.compile(r"[^\W\d_]+")
# "12 March 1960" and "12 May 1960" are close in every encoder and mean different days.
_DATE_WORDS = frozenset(
    "january february march april may june july august september october november december "
    "jan feb mar apr jun jul aug sep sept oct nov dec st nd rd th s bc ad bce ce c".split()
)
_BLOCK = 512


def synonym_pairs(
    names: Sequence[str], embeddings: Tensor, *, threshold: float, cap: int, block: int = _BLOCK
) -> NDArray[np.int64]:
    """Finds pairs of names with cosine >= `threshold`.

    A pair counts when each is among the other's `cap` nearest, so that no entity has more than `cap`
    synonyms and the result depends on no order. Names that differ in their digits ("Apollo 11",
    "Apollo 12") and names that are only a number or a date are never synonyms. Exact: `block` rows are
    compared with all V at a time, so memory is `block * V` and the `(V, V)` matrix never exists.

    Args:
        names: V names.
        embeddings: `(V, dim)`; need not have unit length.
        threshold: cosine in [-1, 1].
        cap: most synonyms per entity; 0 for none.
        block: rows per block.

    Returns:
        `(P, 2)` int64, each unordered pair once with the smaller id first, sorted.
    """
    digits, usable = _digit_classes(names)
    if cap < 1 or usable.sum() < 2:
        return np.empty((0, 2), dtype=np.int64)
    candidates = np.flatnonzero(usable)
    unit = torch.nn.functional.normalize(embeddings[torch.from_numpy(candidates)], dim=1)
    digits = digits[candidates]
    nearest = [
        _nearest_of_block(unit, digits, start, min(start + block, len(candidates)), threshold, cap)
        for start in range(0, len(candidates), block)
    ]
    directed = np.concatenate(nearest)
    codes = np.sort(directed, axis=1) @ np.array([len(candidates), 1])
    found, times = np.unique(codes, return_counts=True)
    mutual = found[times == 2]
    return np.stack([candidates[mutual // len(candidates)], candidates[mutual % len(candidates)]], axis=1)


def _nearest_of_block(
    unit: Tensor, digits: NDArray[np.int64], start: int, stop: int, threshold: float, cap: int
) -> NDArray[np.int64]:
    """The directed pairs `(row, neighbour)` of rows `start:stop`, at most `cap` per row."""
    cosine = unit[start:stop] @ unit.T
    rows, columns = (ids.numpy() for ids in (cosine >= threshold).nonzero(as_tuple=True))
    keep = (rows + start != columns) & (digits[rows + start] == digits[columns])
    rows, columns = rows[keep], columns[keep]
    order = np.lexsort((columns, -cosine.numpy()[rows, columns], rows))
    rows, columns = rows[order], columns[order]
    first_of_row = np.searchsorted(rows, rows)
    within = np.arange(len(rows)) - first_of_row < cap
    return np.stack([rows[within] + start, columns[within]], axis=1)


def _digit_classes(names: Sequence[str]) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Per name: the number of its digit sequence among all, and whether it is more than number or date."""
    classes: dict[tuple[str, ...], int] = {}
    digits = np.array([classes.setdefault(tuple(_DIGITS.findall(n)), len(classes)) for n in names], dtype=np.int64)
    usable = np.array([_is_name(name) for name in names], dtype=bool)
    return digits, usable


def _is_name(name: str) -> bool:
    if not _DIGITS.search(name):
        return True
    return any(word.casefold() not in _DATE_WORDS for word in _LETTERS.findall(name))
