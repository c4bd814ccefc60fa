"""The shipped example corpus: it is complete, consistent, and its questions need what they say they need."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path
from typing import Any, TypeAlias

import pytest

Texts: TypeAlias = dict[str, str]
Items: TypeAlias = list[dict[str, Any]]
Names: TypeAlias = dict[str, set[str]]

CORPUS = Path(__file__).resolve().parents[1] / "examples" / "corpus"


def _load(name: str) -> Any:
    return json.loads((CORPUS / name).read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def documents() -> Texts:
    return _load("raw/documents.json")


@pytest.fixture(scope="module")
def splits() -> dict[str, Items]:
    return {split: _load(f"raw/{split}.json") for split in ("train", "test")}


@pytest.fixture(scope="module")
def questions(splits: dict[str, Items]) -> Items:
    return [question for split in splits.values() for question in split]


@pytest.fixture(scope="module")
def records() -> Items:
    return [json.loads(line) for line in (CORPUS / "openie.jsonl").read_text(encoding="utf-8").splitlines()]


@pytest.fixture(scope="module")
def names(records: Items) -> Names:
    """The casefolded entities of each document, with the one that its title names."""
    return {
        record["passage"]: {name.casefold() for name in record["extracted_entities"]}
        | {re.sub(r" \([^)]*\)$", "", record["passage"]).casefold()}
        for record in records
    }


def test_the_corpus_is_large_enough_to_retrieve_from(documents: Texts, splits: dict[str, Items]) -> None:
    assert len(documents) >= 60
    assert len(splits["test"]) >= 25
    assert len(splits["train"]) >= 25


def test_documents_are_short_paragraphs(documents: Texts) -> None:
    lengths = {title: len(text.split()) for title, text in documents.items()}
    assert {title: length for title, length in lengths.items() if not 40 <= length <= 100} == {}


def test_every_question_names_two_or_more_documents_of_the_corpus(documents: Texts, questions: Items) -> None:
    for question in questions:
        supporting = question["supporting_documents"]
        assert len(set(supporting)) == len(supporting) >= 2, question["id"]
        assert set(supporting) <= documents.keys(), question["id"]
        assert question["num_hops"] >= len(supporting), question["id"]


def test_every_answer_stands_in_a_supporting_document(documents: Texts, questions: Items) -> None:
    for question in questions:
        text = "\n".join(documents[title] for title in question["supporting_documents"]).casefold()
        answers = [question["answer"], *question["answer_aliases"]]
        assert any(answer.casefold() in text for answer in answers), question["id"]


def test_no_question_gives_its_answer_away(questions: Items) -> None:
    for question in questions:
        text = question["question"].casefold()
        for answer in [question["answer"], *question["answer_aliases"]]:
            assert not re.search(rf"\b{re.escape(answer.casefold())}\b", text), question["id"]


def test_question_ids_are_unique(questions: Items) -> None:
    counts = Counter(question["id"] for question in questions)
    assert [identity for identity, count in counts.items() if count > 1] == []


def test_train_and_test_share_no_question(splits: dict[str, Items]) -> None:
    texts = {split: {item["question"].casefold() for item in items} for split, items in splits.items()}
    assert {split: len(found) for split, found in texts.items()} == {s: len(items) for s, items in splits.items()}
    assert texts["train"].isdisjoint(texts["test"])


def test_every_document_has_exactly_one_extraction_record(documents: Texts, records: Items) -> None:
    assert sorted(record["passage"] for record in records) == sorted(documents)


def test_every_triple_is_three_texts_between_listed_entities(records: Items) -> None:
    for record in records:
        assert len(record["extracted_triples"]) >= 5, record["passage"]
        for triple in record["extracted_triples"]:
            assert len(triple) == 3 and all(isinstance(part, str) and part.strip() for part in triple), triple
            assert {triple[0], triple[2]} <= set(record["extracted_entities"]), (record["passage"], triple)


def test_every_entity_occurs_in_its_document(documents: Texts, records: Items) -> None:
    missing = []
    for record in records:
        source = f"{record['passage']}\n{documents[record['passage']]}".casefold()
        missing += [(record["passage"], name) for name in record["extracted_entities"] if name.casefold() not in source]
    assert missing == []


def test_each_entity_is_spelled_in_one_way(records: Items) -> None:
    spellings: dict[str, set[str]] = {}
    for record in records:
        for name in record["extracted_entities"]:
            spellings.setdefault(name.casefold(), set()).add(name)
    assert {key: found for key, found in spellings.items() if len(found) > 1} == {}


def test_supporting_documents_hang_together_by_shared_entities(questions: Items, names: Names) -> None:
    for question in questions:
        reached, *rest = question["supporting_documents"]
        known, pending = set(names[reached]), set(rest)
        while joined := {title for title in pending if names[title] & known}:
            pending -= joined
            known = known.union(*(names[title] for title in joined))
        assert not pending, (question["id"], pending)


def test_triples_lead_from_the_question_to_the_answer(questions: Items, records: Items) -> None:
    triples = {record["passage"]: record["extracted_triples"] for record in records}
    for question in questions:
        edges = [
            {head.casefold(), tail.casefold()}
            for title in question["supporting_documents"]
            for head, _, tail in triples[title]
        ]
        text = question["question"].casefold()
        reached = {name for edge in edges for name in edge if re.search(rf"\b{re.escape(name)}\b", text)}
        assert reached, question["id"]
        for _ in range(question["num_hops"]):
            reached = reached.union(*(edge for edge in edges if edge & reached))
        assert question["answer"].casefold() in reached, question["id"]
