"""Recall and reciprocal rank by hand, and which entities count as gold."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gfm.errors import InputError
from gfm.evaluation.retrieval import entities_by_key, gold_entities, recall_at_k, reciprocal_rank
from gfm.kg.graph import KnowledgeGraph
from gfm.types import Question


def test_recall_is_the_share_of_gold_within_the_first_k():
    ranked = ["a", "b", "c", "d"]
    assert recall_at_k(ranked, ["b", "d", "z"], 2) == pytest.approx(1 / 3)
    assert recall_at_k(ranked, {"b", "d"}, 4) == 1.0
    assert recall_at_k(ranked, ["b"], 99) == 1.0
    assert recall_at_k(ranked, ["a", "a"], 1) == 1.0
    assert recall_at_k([], ["a"], 5) == 0.0


def test_recall_is_set_recall_so_many_gold_items_cap_it():
    assert recall_at_k([1, 2], [1, 2, 3, 4], 2) == 0.5


def test_a_question_without_gold_has_no_value():
    assert recall_at_k(["a"], [], 5) is None
    assert reciprocal_rank(["a"], []) is None


def test_reciprocal_rank_is_that_of_the_first_gold_item():
    assert reciprocal_rank(["a", "b", "c"], ["c", "b"]) == 0.5
    assert reciprocal_rank(["a"], ["z"]) == 0.0


@pytest.mark.parametrize("k", [0, -1])
def test_k_below_one_is_refused_with_its_value(k):
    with pytest.raises(InputError, match=f"k is {k};"):
        recall_at_k(["a"], ["a"], k)


@given(st.lists(st.integers(0, 9), unique=True), st.sets(st.integers(0, 9), min_size=1), st.integers(1, 9))
def test_recall_never_falls_with_k_and_ignores_order_within_it(ranked, gold, k):
    value = recall_at_k(ranked, gold, k)
    assert value <= recall_at_k(ranked, gold, k + 1)
    assert value == recall_at_k([*reversed(ranked[:k]), *ranked[k:]], gold, k)
    assert (value > 0) == (reciprocal_rank(ranked[:k], gold) > 0)


NAMES = ["Hank Snow", "hello  love (SONG)", "Publix", "Publix (2)", "Tennessee", "35", "thirty-five", "Else", "!", " "]
INDEX = SimpleNamespace(graph=KnowledgeGraph.from_triples([], entities=NAMES))


def gold_names(**fields: object) -> set[str]:
    question = Question("1", "?", **fields)
    found = gold_entities(INDEX, question)
    assert found == gold_entities(INDEX, question, entities_by_key(INDEX))
    return {NAMES[i] for i in found}


def test_gold_entities_are_named_like_a_title_the_answer_or_an_alias():
    assert gold_names(supporting_documents=("hank snow",)) == {"Hank Snow"}
    assert gold_names(answer="35", answer_aliases=("Thirty Five",)) == {"35", "thirty-five"}
    assert gold_names(supporting_documents=("Hello Love (song)", "Nowhere"), answer="36") == {"hello  love (SONG)"}


def test_a_title_also_counts_without_its_parenthetical_but_an_answer_does_not():
    assert gold_names(supporting_documents=("Publix (2)",)) == {"Publix", "Publix (2)"}
    assert gold_names(supporting_documents=("Tennessee (U.S. state)",)) == {"Tennessee"}
    assert gold_names(answer="Tennessee (state)") == set()


def test_nothing_known_is_no_gold():
    assert gold_names() == set()
    assert gold_names(supporting_documents=("",), answer=" ", answer_aliases=("\u200b",)) == set()
    assert gold_names(supporting_documents=("(2)",)) == set()
