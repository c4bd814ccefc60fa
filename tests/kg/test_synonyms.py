"""Nearest names: exact, independent of order and history; synonyms: mutual, and never by another number or date."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

import gfm.kg.nearest
from gfm.kg.nearest import nearest_names, updated
from gfm.kg.synonyms import Nearest, synonym_pairs

Matrix = NDArray[np.float32]


def pairs(names: Sequence[str], vectors: Matrix, threshold: float, cap: int) -> list[list[int]]:
    nearest = nearest_names(names, vectors.astype(np.float32), threshold=threshold, cap=cap)
    return synonym_pairs(nearest, cap).tolist()


def same(a: Nearest, b: Nearest) -> bool:
    return np.array_equal(a.neighbours, b.neighbours) and np.array_equal(a.cosine, b.cosine)


@pytest.mark.parametrize(
    ("first", "second", "synonyms"),
    [
        ("Apollo 11", "Apollo 12", False),
        ("Apollo 11", "The Apollo 11", True),
        ("1963", "Year 1963", False),
        ("12 March 1960", "12 May 1960", False),
        ("March", "Mars", True),
    ],
)
def test_names_that_differ_in_digits_and_dates_are_no_synonyms(first: str, second: str, synonyms: bool) -> None:
    assert pairs([first, second], np.ones((2, 3)), 0.9, 5) == ([[0, 1]] if synonyms else [])


def test_a_pair_must_be_among_the_nearest_of_both() -> None:
    # b (10) is nearest to a (0); c (19) is nearest to b (9 apart), so with one synonym each only (b, c) is mutual.
    angles = np.deg2rad([0.0, 10.0, 19.0])
    vectors = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    assert pairs(["a", "b", "c"], vectors, 0.9, 1) == [[1, 2]]
    assert pairs(["a", "b", "c"], vectors, 0.98, 5) == [[0, 1], [1, 2]]
    assert pairs(["a", "b", "c"], vectors, 0.9, 0) == []


def test_equal_cosines_are_ordered_by_name() -> None:
    nearest = nearest_names(["d", "c", "a", "b"], np.ones((4, 2), np.float32), threshold=0.5, cap=2)
    assert nearest.neighbours.tolist() == [[2, 3], [2, 3], [3, 1], [2, 1]]


def corpus(seed: int, count: int) -> tuple[list[str], Matrix]:
    """Names in two digit classes; a third of the vectors are those of another name, so that there are ties."""
    rng = np.random.default_rng(seed)
    vectors = rng.standard_normal((count, 3)).astype(np.float32)
    vectors[::3] = vectors[rng.integers(0, count, len(vectors[::3]))]
    names = [f"{'xyz'[i % 3]}{chr(97 + i // 26)}{chr(97 + i % 26)} {i % 2}" for i in range(count)]
    return [names[i] for i in rng.permutation(count)], vectors


@given(st.integers(0, 2**31), st.integers(1, 40), st.integers(1, 4), st.integers(1, 2000))
def test_blocks_give_what_a_full_comparison_gives(seed: int, count: int, cap: int, block: int) -> None:
    names, vectors = corpus(seed, count)
    unit = vectors.astype(np.float64)
    unit /= np.linalg.norm(unit, axis=1, keepdims=True)
    cosine = (unit @ unit.T).round(6)
    near = [
        sorted(
            (j for j in range(count) if j != i and names[j][-1] == names[i][-1] and cosine[i, j] >= 0.5),
            key=lambda j, i=i: (-cosine[i, j], names[j]),
        )[:cap]
        for i in range(count)
    ]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gfm.kg.nearest, "_BLOCK_CELLS", block)
        nearest = nearest_names(names, vectors, threshold=0.5, cap=cap)
    assert [[j for j in row if j >= 0] for row in nearest.neighbours.tolist()] == near
    expected = [[i, j] for i in range(count) for j in range(i + 1, count) if j in near[i] and i in near[j]]
    assert synonym_pairs(nearest, cap).tolist() == expected


@given(st.integers(0, 2**31), st.integers(2, 60), st.integers(0, 4), st.data())
def test_an_update_gives_what_a_search_from_scratch_gives(seed: int, count: int, cap: int, data: st.DataObject) -> None:
    names, vectors = corpus(seed, count)
    subset = st.lists(st.integers(0, count - 1), unique=True)
    before, after = (np.array(data.draw(subset), dtype=np.int64) for _ in range(2))
    # The same name may have no part in one of the two: then it is as good as absent from it.
    usable = [
        np.array(data.draw(st.lists(st.booleans(), min_size=n, max_size=n)), dtype=bool)
        for n in map(len, (before, after))
    ]
    settings = {"threshold": 0.6, "cap": cap}
    old_names, new_names = ([names[i] for i in ids] for ids in (before, after))
    old = nearest_names(old_names, vectors[before], usable=usable[0], **settings)
    expected = nearest_names(new_names, vectors[after], usable=usable[1], **settings)
    assert same(updated(old, old_names, new_names, vectors[after], usable=usable[1], **settings), expected)


def test_only_what_changed_is_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    names = [f"name {chr(97 + i // 26)}{chr(97 + i % 26)}" for i in range(300)]
    vectors = rng.standard_normal((300, 8)).astype(np.float32)
    old = nearest_names(names[:295], vectors[:295], threshold=0.5, cap=300)
    searched = []
    search = gfm.kg.nearest._search
    monkeypatch.setattr(
        gfm.kg.nearest, "_search", lambda at, rows, *rest: searched.append(len(rows)) or search(at, rows, *rest)
    )
    updated(old, names[:295], names[3:], vectors[3:], threshold=0.5, cap=300)
    assert searched == [5]


@given(st.integers(0, 2**31))
def test_cells_find_most_pairs_whatever_the_order(seed: int) -> None:
    rng = np.random.default_rng(seed)
    centres = rng.standard_normal((40, 16))
    vectors = (np.repeat(centres, 5, axis=0) + 0.2 * rng.standard_normal((200, 16))).astype(np.float32)
    names = [f"{chr(97 + i // 26)}{chr(97 + i % 26)}" for i in range(200)]
    exact = nearest_names(names, vectors, threshold=0.85, cap=5)
    order = rng.permutation(200)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gfm.kg.nearest, "EXACT_UP_TO", 100)
        cells = nearest_names(names, vectors, threshold=0.85, cap=5)
        shuffled = nearest_names([names[i] for i in order], vectors[order], threshold=0.85, cap=5)
    found = (cells.neighbours >= 0).sum() / (exact.neighbours >= 0).sum()
    assert 0.9 < found <= 1
    assert np.array_equal(np.where(shuffled.neighbours < 0, -1, order[shuffled.neighbours]), cells.neighbours[order])
