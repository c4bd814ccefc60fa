"""The nearest names of every name by embedding: exact in blocks, in cells where names are very many.

Cosines are computed so that they depend on the two vectors alone, and equal ones are ordered by name: the result is a
function of the set of names, whichever of them were there before.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from gfm.kg.synonyms import UNUSABLE, Nearest, digit_classes
from gfm.progress import progress_bar

EXACT_UP_TO = 100_000  # names: about 80 s on two cores
_CELLS_OF_A_NAME = 4
_BLOCK_CELLS = 1 << 24  # of a block of cosines
_PAIRS_AT_ONCE = 1 << 14
_SLACK = 1e-4  # more than a blocked float32 product can be off
_DECIMALS = 6

Ids = NDArray[np.int64]


class _Pairs(NamedTuple):
    """Directed pairs `row → column` with their cosine."""

    rows: Ids
    columns: Ids
    cosine: NDArray[np.float32]


class _Names(NamedTuple):
    """What a search needs of V names: unit vectors, digit class (-1: no synonym), and the order of their texts."""

    vectors: NDArray[np.float32]
    unit: torch.Tensor
    digits: Ids
    order: Ids


def nearest_names(
    names: Sequence[str],
    embeddings: NDArray[np.float32],
    *,
    threshold: float,
    cap: int,
    usable: NDArray[np.bool_] | None = None,
    progress: bool = False,
) -> Nearest:
    """Finds for each name its `cap` nearest others with cosine >= `threshold`.

    Up to `EXACT_UP_TO` names every pair is compared, a block of rows at a time. Above, names are compared within the
    cells of their nearest pivots (names drawn by their hash): a pair that shares no cell is missed.

    Args:
        names: V different names.
        embeddings: `(V, dim)`; need not have unit length.
        threshold: cosine in [-1, 1].
        cap: most neighbours of a name; 0 for none.
        usable: `(V,)`; False excludes a name.
        progress: show a bar on stderr.
    """
    at = _prepared(names, embeddings, usable)
    rows = np.flatnonzero(at.digits >= 0)
    if cap < 1 or len(rows) < 2:
        return _table(_none(), at, cap)
    if len(rows) <= EXACT_UP_TO:
        return _table(_search(at, rows, rows, threshold, cap, progress), at, cap)
    return _table(_search_cells(at, names, rows, threshold, cap, progress), at, cap)


def updated(
    previous: Nearest,
    previous_names: Sequence[str],
    names: Sequence[str],
    embeddings: NDArray[np.float32],
    *,
    threshold: float,
    cap: int,
    usable: NDArray[np.bool_] | None = None,
    progress: bool = False,
) -> Nearest:
    """What `nearest_names` gives, from what it gave for other names under the same settings.

    Only new names, and names whose full list has lost one, are compared with all.
    """
    at = _prepared(names, embeddings, usable)
    old = _places(previous, previous_names, names, at)
    rows = np.flatnonzero(at.digits >= 0)
    new = rows[old[rows] < 0]
    if cap < 1 or len(rows) < 2 or len(rows) > EXACT_UP_TO or 2 * len(new) > len(rows):
        return nearest_names(names, embeddings, threshold=threshold, cap=cap, usable=usable, progress=progress)
    kept, short = _kept(previous, old, len(names), cap)
    search = np.union1d(new, short)
    found = _search(at, search, rows, threshold, None, progress)
    # What a new name is near to has it among its own nearest, too.
    back = np.isin(found.rows, new) & ~np.isin(found.columns, search)
    mirrored = _Pairs(found.columns[back], found.rows[back], found.cosine[back])
    stays = ~np.isin(kept.rows, search)
    stayed = _Pairs(kept.rows[stays], kept.columns[stays], kept.cosine[stays])
    return _table(_together([stayed, found, mirrored]), at, cap)


def _prepared(names: Sequence[str], embeddings: NDArray[np.float32], usable: NDArray[np.bool_] | None) -> _Names:
    digits = digit_classes(names)
    if usable is not None:
        digits[~usable] = -1
    order = np.empty(len(names), dtype=np.int64)
    order[sorted(range(len(names)), key=names.__getitem__)] = np.arange(len(names))
    vectors = np.ascontiguousarray(embeddings)
    return _Names(vectors, torch.nn.functional.normalize(torch.from_numpy(vectors), dim=1), digits, order)


def _search(at: _Names, rows: Ids, among: Ids, threshold: float, cap: int | None, progress: bool) -> _Pairs:
    """Pairs of `rows` with names `among`; with a cap, those that may be among a row's nearest."""
    block = max(1, _BLOCK_CELLS // max(len(among), 1))
    unit = at.unit[torch.from_numpy(among)]
    found = []
    with progress_bar("synonyms", len(rows), "names", progress) as advance:
        for start in range(0, len(rows), block):
            part = rows[start : start + block]
            cosine = (at.unit[torch.from_numpy(part)] @ unit.T).numpy()
            near = np.nonzero(cosine >= threshold - _SLACK)
            first, second = part[near[0]], among[near[1]]
            keep = (first != second) & (at.digits[first] == at.digits[second])
            if cap is not None:
                keep[keep] = _may_be_nearest(near[0][keep], cosine[near][keep], cap)
            found.append(_exact(at, first[keep], second[keep], threshold))
            advance(len(part))
    return _together(found)


def _may_be_nearest(rows: Ids, cosine: NDArray[np.float32], cap: int) -> NDArray[np.bool_]:
    """Which of the pairs are not clearly behind the `cap`-th of their row; `rows` rise."""
    order = np.lexsort((-cosine, rows))
    begin = np.searchsorted(rows, rows, side="left")
    count = np.searchsorted(rows, rows, side="right") - begin
    last = cosine[order][begin + np.minimum(count, cap) - 1]
    keep: NDArray[np.bool_] = (count <= cap) | (cosine >= last - _SLACK)
    return keep


def _exact(at: _Names, rows: Ids, columns: Ids, threshold: float) -> _Pairs:
    """The pairs with cosine >= `threshold`, each cosine in float64 from its two vectors alone."""
    cosine = np.empty(len(rows), dtype=np.float64)
    for start in range(0, len(rows), _PAIRS_AT_ONCE):
        part = slice(start, start + _PAIRS_AT_ONCE)
        a, b = (at.vectors[ids[part]].astype(np.float64) for ids in (rows, columns))
        lengths = np.sqrt((a * a).sum(axis=1) * (b * b).sum(axis=1))
        cosine[part] = (a * b).sum(axis=1) / np.maximum(lengths, 1e-300)
    cosine = cosine.round(_DECIMALS)
    near = cosine >= threshold
    return _Pairs(rows[near], columns[near], cosine[near].astype(np.float32))


def _table(pairs: _Pairs, at: _Names, cap: int) -> Nearest:
    """The `cap` first pairs of each row."""
    count = len(at.digits)
    neighbours = np.full((count, cap), -1, dtype=np.int32)
    cosine = np.zeros((count, cap), dtype=np.float32)
    neighbours[at.digits < 0] = UNUSABLE
    order = np.lexsort((at.order[pairs.columns], -pairs.cosine, pairs.rows))
    rows, columns = pairs.rows[order], pairs.columns[order]
    place = np.arange(len(rows)) - np.searchsorted(rows, rows)
    first = place < cap
    neighbours[rows[first], place[first]] = columns[first]
    cosine[rows[first], place[first]] = pairs.cosine[order][first]
    return Nearest(neighbours, cosine)


def _places(previous: Nearest, previous_names: Sequence[str], names: Sequence[str], at: _Names) -> Ids:
    """Where each name stood before; -1 for names that are new, or that had or have no part in the search."""
    before = {name: i for i, name in enumerate(previous_names)}
    old = np.array([before.get(name, -1) for name in names], dtype=np.int64)
    had_part = np.ones(len(previous.neighbours) + 1, dtype=bool)
    if previous.neighbours.shape[1]:
        had_part[:-1] = previous.neighbours[:, 0] != UNUSABLE
    old[(at.digits < 0) | ~had_part[old]] = -1
    return old


def _kept(previous: Nearest, old: Ids, count: int, cap: int) -> tuple[_Pairs, Ids]:
    """The earlier pairs that are left, and the names whose list was full and has lost one."""
    current = np.full(len(previous.neighbours), -1, dtype=np.int64)
    there = np.flatnonzero(old >= 0)
    current[old[there]] = there
    neighbours, cosine = previous.neighbours[old[there]], previous.cosine[old[there]]
    rows, places = np.nonzero(neighbours >= 0)
    columns = current[neighbours[rows, places]]
    left = columns >= 0
    full = (neighbours >= 0).sum(axis=1) == cap
    lost = np.bincount(rows[~left], minlength=len(there)) > 0
    return _Pairs(there[rows[left]], columns[left], cosine[rows, places][left]), there[full & lost]


def _search_cells(at: _Names, names: Sequence[str], rows: Ids, threshold: float, cap: int, progress: bool) -> _Pairs:
    """Pairs within cells: each name lies in those of its nearest pivots."""
    found, width = [], len(at.digits)
    with progress_bar("synonyms", len(rows) * _CELLS_OF_A_NAME, "places", progress) as advance:
        for members in _cells(at, names, rows):
            found.append(_search(at, members, members, threshold, cap, False))
            advance(len(members))
    together = _together(found)
    _, first = np.unique(together.rows * width + together.columns, return_index=True)  # a pair may share several cells
    return _Pairs(together.rows[first], together.columns[first], together.cosine[first])


def _cells(at: _Names, names: Sequence[str], rows: Ids) -> Iterator[Ids]:
    digests = (hashlib.blake2b(names[row].encode("utf-8", "surrogatepass"), digest_size=8).digest() for row in rows)
    hashes = np.frombuffer(b"".join(digests), dtype=">u8")
    number = 1 << (len(rows).bit_length() // 2 + 1)
    pivots = rows[np.argsort(hashes, kind="stable")[:number]]
    nearest = np.empty((len(rows), _CELLS_OF_A_NAME), dtype=np.int64)
    unit = at.unit[torch.from_numpy(pivots)]
    for start in range(0, len(rows), 4096):
        part = torch.from_numpy(rows[start : start + 4096])
        nearest[start : start + 4096] = torch.topk(at.unit[part] @ unit.T, _CELLS_OF_A_NAME).indices.numpy()
    cell_of, member = nearest.ravel(), np.repeat(rows, _CELLS_OF_A_NAME)
    order = np.argsort(cell_of, kind="stable")
    yield from (np.sort(members) for members in np.split(member[order], np.cumsum(np.bincount(cell_of))[:-1]))


def _together(parts: Sequence[_Pairs]) -> _Pairs:
    columns = zip(*(parts or [_none()]), strict=True)
    rows, others, cosine = (np.concatenate(column) for column in columns)
    return _Pairs(rows, others, cosine)


def _none() -> _Pairs:
    return _Pairs(np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0, np.float32))
