"""Linking: names in a question become seeds, longest first; similarity only where no name occurs."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from gfm.config import LinkingConfig
from gfm.errors import InputError
from gfm.retrieval.linking import EntityLinker, seed_weights
from gfm.text.names import FUNCTION_WORDS, tokens
from gfm.types import Seed
from tests.fakes import HashEncoder

ENCODER = HashEncoder()
WORDS = ["new", "york", "city", "ballet", "the", "of", "north", "京", "c++"]


def link(names: Sequence[str], question: str, similar: int = 3) -> list[Seed]:
    linker = EntityLinker(names, ENCODER.encode(names), LinkingConfig(similar=similar))
    return linker.link(question, ENCODER.encode([question])[0])


def found(names: Sequence[str], question: str) -> dict[str, str]:
    """Reason by name of the seeds that a name gave."""
    return {seed.name: seed.reason for seed in link(names, question) if seed.reason != "similar"}


def occurs(part: Sequence[str], whole: Sequence[str]) -> bool:
    return any(list(whole[i : i + len(part)]) == list(part) for i in range(len(whole) - len(part) + 1))


def test_the_longest_name_wins_and_its_tokens_are_not_used_again() -> None:
    names = ["York", "New York", "New York City Ballet", "City Ballet", "Ballet", "City"]
    assert found(names, "When did the New York City Ballet first tour?") == {"New York City Ballet": "exact"}


def test_a_shorter_name_links_where_it_stands_alone() -> None:
    names = ["York", "New York"]
    assert found(names, "Is New York older than York?") == {"New York": "exact", "York": "exact"}


def test_of_two_overlapping_names_of_one_length_only_the_first_links() -> None:
    assert found(["Orange River", "River Bank"], "Who owns the Orange River Bank?") == {"Orange River": "exact"}


def test_a_name_matches_whole_tokens_only() -> None:
    assert found(["art", "Iran", "10"], "Which party ran in 1910 in Irania?") == {}


@pytest.mark.parametrize(
    ("name", "question", "reason"),
    [
        ("Marie Curie", "Where was Marie Curie born?", "exact"),
        ("Marie Curie", "where was MARIE CURIE born?", "normalised"),
        ("Jean-Luc Picard", "Who plays Jean Luc Picard?", "normalised"),
        ("Jean-Luc Picard", "Who plays Jean-Luc Picard?", "exact"),
        ("Dr. Strangelove", "Who directed dr strangelove?", "normalised"),
        ("AC/DC", "Who founded AC/DC?", "exact"),
        ("Ｆｕｌｌ width", "What is full width?", "normalised"),
        ("L'Aquila", "In which region is L’Aquila?", "normalised"),
        ("Simon & Garfunkel", "Where did Simon & Garfunkel meet?", "exact"),
        ("Mission: Impossible – Fallout", "Who directed Mission: Impossible - Fallout?", "normalised"),
    ],
)
def test_the_reason_says_whether_a_name_was_found_letter_by_letter(name: str, question: str, reason: str) -> None:
    seeds = link([name, "something else"], question)
    assert seeds == [Seed(0, name, reason, 1.0)]


@pytest.mark.parametrize("name", ["The Who", "It", "who", "of the", "What", "AND"])
def test_a_name_of_function_words_alone_never_links(name: str) -> None:
    question = "Who is it, and what was the who of the band and what of it?"
    assert set(tokens(name)) <= FUNCTION_WORDS
    assert found([name], question) == {}


def test_a_name_may_contain_function_words() -> None:
    assert found(["Bank of the West"], "Who runs Bank of the West?") == {"Bank of the West": "exact"}


@pytest.mark.parametrize(
    ("name", "question"),
    [
        ("東京タワー", "東京タワーはいつ建てられましたか"),
        ("北京大学", "谁创立了北京大学?"),
        ("서울", "서울의 인구는 얼마입니까?"),
        ("กรุงเทพ", "กรุงเทพอยู่ที่ไหน"),
    ],
)
def test_a_name_is_found_inside_text_without_spaces(name: str, question: str) -> None:
    assert found([name, "大阪"], question) == {name: "exact"}


def test_the_longest_name_wins_without_spaces_too() -> None:
    assert found(["東京", "東京大学", "大学"], "東京大学の学長は誰ですか") == {"東京大学": "exact"}


@pytest.mark.parametrize("name", ["C++", "C#", "🙂 band", "Vitamin B12", "Café", "3%", "Ωmega"])
def test_names_with_symbols_are_told_apart_and_found(name: str) -> None:
    others = ["C", "band", "Vitamin B", "Cafe", "3", "mega"]
    assert found([*others, name], f"Who invented {name} and why?") == {name: "exact"}


def test_a_word_that_is_no_name_as_written_counts_only_where_no_name_is() -> None:
    names = ["country", "Rome", "東京", "1984"]
    assert found(names, "Which country did they choose?") == {"country": "exact"}
    assert found(names, "Which country is Rome in?") == {"Rome": "exact"}
    assert found(names, "Which country has 東京?") == {"東京": "exact"}
    assert found(names, "In which country is 1984 set?") == {"1984": "exact"}


def test_a_name_of_several_words_is_one_as_soon_as_one_of_them_is_written_like_one() -> None:
    assert found(["university of Oslo", "river"], "Which river is near the university of Oslo?") == {
        "university of Oslo": "exact"
    }


def test_all_entities_of_one_spelling_are_seeds() -> None:
    seeds = link(["Paris", "Rome", "PARIS", "paris."], "How old is Paris?")
    assert [(seed.entity, seed.reason) for seed in seeds] == [(0, "exact"), (2, "normalised"), (3, "normalised")]


def test_an_entity_that_is_named_twice_is_one_seed() -> None:
    assert [seed.entity for seed in link(["Paris"], "Is Paris, Texas bigger than Paris, France?")] == [0]


def test_a_question_without_a_name_gets_the_nearest_entities_by_falling_similarity() -> None:
    names = [f"name {i}" for i in range(20)]
    question = "Which colour did they choose?"
    seeds = link(names, question, similar=4)
    similarity = ENCODER.encode(names) @ ENCODER.encode([question])[0]
    assert [seed.entity for seed in seeds] == torch.argsort(similarity, descending=True)[:4].tolist()
    assert [seed.score for seed in seeds] == pytest.approx(similarity.sort(descending=True).values[:4].tolist())
    assert {seed.reason for seed in seeds} == {"similar"}


def test_similarity_adds_nothing_where_a_name_occurs() -> None:
    assert [seed.name for seed in link(["Rome", "Paris", "Berlin"], "What lies south of Rome?")] == ["Rome"]


def test_a_graph_smaller_than_the_number_of_similar_seeds_gives_all_its_entities() -> None:
    assert {seed.entity for seed in link(["Rome", "Paris"], "What is this?", similar=50)} == {0, 1}


@pytest.mark.parametrize("question", ["?!", " ", "the of", "\n", "Rome"])
def test_an_empty_graph_gives_no_seed(question: str) -> None:
    linker = EntityLinker([], torch.empty(0, ENCODER.dim))
    assert linker.link(question, ENCODER.encode([question])[0]) == []


@pytest.mark.parametrize("similar", [0, -1])
def test_a_linker_that_could_leave_a_question_without_seeds_is_refused(similar: int) -> None:
    with pytest.raises(InputError, match=rf"linking\.similar' is {similar}; .*at least 1"):
        EntityLinker(["Rome"], ENCODER.encode(["Rome"]), LinkingConfig(similar=similar))


phrases = st.lists(st.sampled_from(WORDS), min_size=1, max_size=4).map(" ".join)


@given(
    names=st.lists(phrases, min_size=1, max_size=8, unique=True),
    question=phrases.map(lambda q: f"{q} {q} york".upper()),
)
def test_what_links_occurs_and_the_longest_that_occurs_links(names: list[str], question: str) -> None:
    words = tokens(question)
    usable = {name: tokens(name) for name in names if not FUNCTION_WORDS.issuperset(tokens(name))}
    inside = {name: key for name, key in usable.items() if occurs(key, words)}
    seeds = link(names, question)
    named = {seed.name for seed in seeds if seed.reason != "similar"}
    assert seeds
    assert named <= inside.keys()
    assert bool(named) == bool(inside)
    if inside:
        longest = max(len(key) for key in inside.values())
        # Names of one length may compete for tokens, so one of the longest must link, the first surely.
        first = next(words[i : i + longest] for i in range(len(words)) if words[i : i + longest] in inside.values())
        assert {name for name, key in inside.items() if key == first} <= named
    assert seeds == link(names, question)


@given(question=st.text(max_size=40), names=st.lists(st.text(min_size=1, max_size=6), max_size=6))
def test_any_text_links_to_distinct_entities_of_the_graph(question: str, names: list[str]) -> None:
    seeds = EntityLinker(names, torch.ones(len(names), 4) / 2).link(question, torch.ones(4) / 2)
    ids = [seed.entity for seed in seeds]
    assert bool(ids) == bool(names)
    assert len(set(ids)) == len(ids)
    assert [seed.name for seed in seeds] == [names[entity] for entity in ids]


def test_inverse_document_frequency_weighs_rare_seeds_more() -> None:
    counts = np.array([1, 4, 0, 2])
    assert seed_weights(torch.tensor([3, 1, 0, 2]), counts, "idf").tolist() == [0.5, 0.25, 1.0, 1.0]


def test_the_weighting_one_ignores_documents() -> None:
    assert seed_weights(torch.tensor([1, 1, 0]), np.array([7, 9]), "one").tolist() == [1.0, 1.0, 1.0]


@pytest.mark.parametrize("weighting", ["idf", "one"])
def test_no_seed_has_no_weight(weighting: str) -> None:
    weights = seed_weights(torch.empty(0, dtype=torch.int64), np.array([1, 2]), weighting)
    assert weights.shape == (0,)
    assert weights.dtype == torch.float32


def test_an_unknown_weighting_is_refused_with_the_known_ones() -> None:
    with pytest.raises(InputError, match=r"linking\.seed_weighting is 'tfidf'; use idf or one"):
        seed_weights(torch.tensor([0]), np.array([1]), "tfidf")
