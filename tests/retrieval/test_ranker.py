"""Documents: Eq. 20 by hand, fusion free of scale, one fixed order under ties."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse

from gfm.errors import InputError
from gfm.retrieval.ranker import fuse, path_counts, rank_documents, top_k
from gfm.types import Path

# Three entities, four documents: e0 in d0 and d1, e1 in d1, e2 nowhere; nobody is in d2 and d3.
MENTIONS = sparse.csr_matrix(np.array([[1, 1, 0, 0], [0, 1, 0, 0], [0, 0, 0, 0]]))

finite = st.floats(-100, 100, allow_subnormal=False)


def path(*entities: int) -> Path:
    hops = len(entities) - 1
    names = tuple(f"e{e}" for e in entities)
    return Path(names, ("r",) * hops, (True,) * hops, 1.0, entity_ids=entities)


def test_documents_score_as_computed_by_hand():
    scores = rank_documents([0.8, 0.5, 1.0], MENTIONS, {0: 2}, [0, 1, 2])
    # w_0 = 0.8 / 2 * (1 + 2) = 1.2, w_1 = 0.5 / 1 * (1 + 0) = 0.5, e2 is in no document.
    np.testing.assert_allclose(scores, [1.2, 1.7, 0.0, 0.0])
    assert scores.dtype == np.float64


def test_only_candidates_vote_and_each_of_them_once():
    gates, counts = torch.tensor([0.8, 0.5, 1.0], dtype=torch.float64), torch.tensor([2, 0, 0])
    np.testing.assert_allclose(rank_documents(gates, MENTIONS, counts, [1, 1]), [0.0, 0.5, 0.0, 0.0])
    np.testing.assert_allclose(rank_documents(gates, MENTIONS, counts, torch.tensor([0])), [1.2, 1.2, 0.0, 0.0])
    assert rank_documents(gates, MENTIONS, counts, set()).tolist() == [0.0] * 4


def test_how_often_a_document_mentions_an_entity_does_not_count():
    counted = sparse.csr_array(np.array([[3.0, 7.0, 0, 0], [0, 2.0, 0, 0], [0, 0, 0, 0]]))
    stored_zero = counted.copy()
    stored_zero.data[0] = 0.0
    np.testing.assert_array_equal(
        rank_documents([0.8, 0.5, 1.0], counted, {}, [0, 1]), rank_documents([0.8, 0.5, 1.0], MENTIONS, {}, [0, 1])
    )
    np.testing.assert_allclose(rank_documents([0.8, 0.5, 1.0], stored_zero, {}, [0, 1]), [0.0, 1.3, 0.0, 0.0])
    assert counted.data.tolist() == [3.0, 7.0, 2.0]


def test_paths_are_counted_through_every_entity_of_theirs():
    assert path_counts([path(0, 2), path(2, 3, 0), path(2, 1)], 5).tolist() == [2, 1, 3, 1, 0]
    assert path_counts([], 2).tolist() == [0, 0]


def test_fusion_mixes_min_max_scaled_scores():
    mixed = fuse([0.0, 5.0, 10.0], torch.tensor([0.75, 0.25, 0.5]), 0.25)
    np.testing.assert_allclose(mixed, [0.25, 0.375, 0.875])


def test_a_constant_score_adds_nothing():
    np.testing.assert_array_equal(fuse([3.0, 3.0], [0.1, 0.2], 0.5), [0.0, 0.5])
    assert fuse([], [], 0.5).shape == (0,)


@given(
    st.lists(st.tuples(st.integers(-50, 50), st.integers(-50, 50)), min_size=1, max_size=8),
    st.floats(0, 1),
    st.sampled_from([0.5, 2.0, 1024.0]),
    st.integers(-64, 64),
)
def test_fusion_ignores_scale_and_offset_and_stays_in_the_unit_range(pairs, weight, scale, offset):
    graph, dense = np.array(pairs, dtype=np.float64).T
    mixed = fuse(graph, dense, weight)
    assert ((mixed >= 0) & (mixed <= 1 + 1e-12)).all()
    np.testing.assert_allclose(fuse(graph * scale + offset, dense, weight), mixed, atol=1e-12)
    np.testing.assert_allclose(fuse(graph, dense * scale + offset, weight), mixed, atol=1e-12)


@given(st.lists(finite, max_size=12), st.integers(1, 15))
def test_the_top_k_are_a_prefix_of_the_order_by_score_then_id(scores, k):
    expected = sorted(range(len(scores)), key=lambda i: (-scores[i], i))[:k]
    assert top_k(scores, k).tolist() == expected


def test_ties_go_to_the_smaller_id_and_k_beyond_what_exists_returns_what_exists():
    assert top_k(torch.tensor([1.0, 2.0, 1.0, 2.0]), 3).tolist() == [1, 3, 0]
    assert top_k([1.0, 2.0], 99).tolist() == [1, 0]
    assert top_k([], 5).tolist() == []


@pytest.mark.parametrize("k", [0, -3])
def test_k_below_one_is_refused_with_its_value(k):
    with pytest.raises(InputError, match=f"k is {k};"):
        top_k([1.0], k)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: rank_documents([1.0], MENTIONS, {}, [0]), r"gates have shape \(1,\) for 3 rows"),
        (lambda: rank_documents([1.0] * 3, MENTIONS, {}, [-1, 2]), "candidate ids run from -1 to 2"),
        (lambda: rank_documents([1.0] * 3, MENTIONS, [1], [0]), r"path counts have shape \(1,\)"),
        (lambda: rank_documents([1.0, float("nan"), 1.0], MENTIONS, {}, [0]), "gates hold nan at position 1"),
        (lambda: path_counts([Path(("a", "b"), ("r",), (True,), 0.0)], 2), "0 entity ids for 2 entities"),
        (lambda: path_counts([path(0, 5)], 2), "from 0 to 5; the graph has 2"),
        (lambda: fuse([1.0], [1.0], 1.5), "dense_weight is 1.5"),
        (lambda: fuse([1.0], [1.0], float("nan")), "dense_weight is nan"),
        (lambda: fuse([1.0], [1.0, 2.0], 0.5), "1 graph scores and 2 dense scores"),
        (lambda: top_k([[1.0]], 1), r"scores have shape \(1, 1\)"),
    ],
)
def test_wrong_input_is_named_with_its_value(call, message):
    with pytest.raises(InputError, match=message):
        call()
