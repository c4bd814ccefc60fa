"""Ranks: filtered, 1-based, honest about ties; their summaries by hand."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from gfm.errors import InputError
from gfm.evaluation.ranking import filtered_ranks, hits_at_k, mrr, realistic_ranks

NAN = float("nan")


def test_ranks_are_as_counted_by_hand():
    scores = torch.tensor([[0.9, 0.5, 0.5, 0.1], [0.2, 0.2, 0.2, 0.2], [4.0, 3.0, 2.0, 1.0]])
    ranks = filtered_ranks(scores, torch.tensor([1, 0, 0]))
    assert ranks.optimistic.tolist() == [2, 1, 1]
    assert ranks.pessimistic.tolist() == [3, 4, 1]
    assert ranks.realistic.tolist() == [2.5, 2.5, 1]


def test_other_true_answers_do_not_compete_but_the_target_always_does():
    scores = torch.tensor([[3.0, 2.0, 2.0, 1.0]])
    mask = torch.tensor([[True, True, True, False]])
    before = mask.clone()
    assert realistic_ranks(scores, torch.tensor([3]), mask).tolist() == [1.0]
    assert realistic_ranks(scores, torch.tensor([1]), mask).tolist() == [1.0]
    assert torch.equal(mask, before)


def test_a_constant_score_ranks_in_the_middle():
    ranks = realistic_ranks(torch.zeros(1, 101), torch.tensor([7]))
    assert ranks.tolist() == [51.0]


@given(st.data(), st.integers(1, 7))
def test_ranks_agree_with_sorting_the_competitors(data, num_entities):
    scores = data.draw(st.lists(st.integers(0, 3), min_size=num_entities, max_size=num_entities))
    mask = data.draw(st.lists(st.booleans(), min_size=num_entities, max_size=num_entities))
    target = data.draw(st.integers(0, num_entities - 1))
    rivals = sorted(
        (s for i, (s, out) in enumerate(zip(scores, mask, strict=True)) if i != target and not out), reverse=True
    )
    places = [p for p in range(len(rivals) + 1) if sorted([*rivals[:p], *rivals[p:]], reverse=True) == rivals]
    places = [
        p
        for p in places
        if all(s >= scores[target] for s in rivals[:p]) and all(s <= scores[target] for s in rivals[p:])
    ]
    ranks = filtered_ranks(torch.tensor([scores]).float(), torch.tensor([target]), torch.tensor([mask]))
    assert ranks.optimistic.item() == places[0] + 1
    assert ranks.pessimistic.item() == places[-1] + 1
    assert ranks.realistic.item() == np.mean(places) + 1


def test_infinite_scores_are_ranked():
    scores = torch.tensor([[float("inf"), 0.0, float("-inf"), float("-inf")]])
    assert realistic_ranks(scores.expand(3, 4), torch.tensor([0, 1, 2])).tolist() == [1.0, 2.0, 3.5]


def test_no_queries_have_no_ranks():
    assert realistic_ranks(torch.zeros(0, 4), torch.zeros(0, dtype=torch.int64)).shape == (0,)


def test_summaries_are_as_computed_by_hand():
    ranks = torch.tensor([1.0, 2.0, 4.0, 1.5])
    assert mrr(ranks) == pytest.approx((1 + 1 / 2 + 1 / 4 + 1 / 1.5) / 4)
    assert [hits_at_k(ranks, k) for k in (1, 2, 3, 4)] == [0.25, 0.75, 0.75, 1.0]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: realistic_ranks(torch.tensor([[1.0, NAN]]), torch.tensor([0])), "1 of 2 scores are NaN.*entity 1"),
        (lambda: realistic_ranks(torch.zeros(1, 2), torch.tensor([2])), "from 2 to 2 for 2 entities"),
        (lambda: realistic_ranks(torch.zeros(1, 2), torch.tensor([-1])), "from -1 to -1"),
        (lambda: realistic_ranks(torch.zeros(2, 2), torch.tensor([0])), r"\(2, 2\) and target \(1,\)"),
        (
            lambda: realistic_ranks(torch.zeros(1, 2), torch.tensor([0]), torch.zeros(1, 2)),
            "filter_mask is torch.float",
        ),
        (lambda: mrr(torch.zeros(0)), "0 ranks"),
        (lambda: mrr(torch.tensor([0.0])), "a rank is 0.0"),
        (lambda: hits_at_k(torch.zeros(0), 1), "0 ranks"),
        (lambda: hits_at_k(torch.ones(1), 0), "k is 0"),
    ],
)
def test_wrong_input_is_named_with_its_value(call, message):
    with pytest.raises(InputError, match=message):
        call()
