"""Documents and questions: what is optional, what is refused and where."""

from __future__ import annotations

import json

import pytest

from gfm.errors import InputError
from gfm.kg.readers import read_documents, read_questions
from gfm.types import Document, Question


def test_documents_keep_order_and_exact_text(tmp_path):
    texts = {"NA": "null", "1984": "", "知識 🦉": " a\u2028b\n", "a": "b"}
    path = tmp_path / "documents.json"
    path.write_text("\ufeff" + json.dumps(texts, ensure_ascii=False), encoding="utf-8")
    assert read_documents(path) == [Document(title, text) for title, text in texts.items()]


@pytest.mark.parametrize("place", ["documents.json", "raw/documents.json"])
def test_a_folder_stands_for_its_documents_file(tmp_path, place):
    (tmp_path / place).parent.mkdir(exist_ok=True)
    (tmp_path / place).write_text('{"a": "b"}')
    assert read_documents(tmp_path) == [Document("a", "b")]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("[1]", r"holds \[1\]; it must be a JSON object"),
        ('{"a": 1}', "the text of 'a' is 1; it must be a string"),
        ('{"a": null}', "the text of 'a' is None"),
        ('{"a": {"b": "c"}}', "the text of 'a' is "),
        ('{"a": "x", "b": "y", "a": "z"}', "the title 'a' occurs twice"),
        ('{" ": "x"}', "a title is ' '; it must not be empty"),
        ('{"a": "\\ud800"}', "lone surrogate"),
        ('{"a":\n "x",}', r"line 2: not valid JSON"),
        ("", "not valid JSON"),
        ("{}", "holds no document"),
        ("[" * 100_000, "not usable JSON"),
    ],
)
def test_documents_that_cannot_be_used_are_refused(tmp_path, content, message):
    path = tmp_path / "documents.json"
    path.write_text(content)
    with pytest.raises(InputError, match=message) as caught:
        read_documents(path)
    assert str(path) in str(caught.value) and "\n" not in str(caught.value)


def test_a_folder_without_documents_and_a_missing_file_are_named(tmp_path):
    with pytest.raises(InputError, match=r"neither raw/documents.json nor documents.json"):
        read_documents(tmp_path)
    with pytest.raises(InputError, match=r"gone.json: no such file"):
        read_documents(tmp_path / "gone.json")


FULL = {
    "id": 7,
    "question": "Who?",
    "answer": "A",
    "answer_aliases": ["a"],
    "supporting_documents": ["T", "U"],
    "num_hops": 2,
    "decomposition": [{"anything": 1}],
}


@pytest.mark.parametrize("suffix", [".json", ".jsonl"])
def test_questions_keep_every_known_field_and_ignore_others(tmp_path, suffix):
    items = [FULL, {"id": "x", "question": "a\u2028b", "answer": None, "num_hops": None}]
    lines = [json.dumps(item, ensure_ascii=False) for item in items]
    path = tmp_path / f"train{suffix}"
    path.write_text("\n\n".join(lines) + "\n" if suffix == ".jsonl" else f"[{','.join(lines)}]", encoding="utf-8")
    assert read_questions(path) == [Question("7", "Who?", "A", ("a",), ("T", "U"), 2), Question("x", "a\u2028b")]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"id": None}, "question 1: has no 'id'"),
        ({"question": None}, "question 1: has no 'question'"),
        ({"id": True}, "question 1: 'id' is True; it must be a string"),
        ({"id": ""}, "question 1: 'id' is ''; it must not be empty"),
        ({"question": " "}, "question 1: 'question' is ' '; it must not be empty"),
        ({"question": ["Who?"]}, "question 1: 'question' is .* must be a string"),
        ({"answer": 3}, "question 1: 'answer' is 3"),
        ({"answer_aliases": "a"}, "question 1: 'answer_aliases' is 'a'; it must be a list"),
        ({"supporting_documents": ["T", 4]}, r"question 1: 'supporting_documents'\[1\] is 4"),
        ({"num_hops": "2"}, "question 1: 'num_hops' is '2'; it must be an integer"),
        ({"num_hops": True}, "question 1: 'num_hops' is True"),
        ({"id": "x"}, "question 1: the id 'x' is also that of .*question 0"),
    ],
)
def test_a_wrong_question_is_named_with_index_and_field(tmp_path, change, message):
    path = tmp_path / "test.json"
    path.write_text(json.dumps([{"id": "x", "question": "Why?"}, FULL | change]))
    with pytest.raises(InputError, match=message) as caught:
        read_questions(path)
    assert str(path) in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("q.json", '{"id": "x"}', "must be a JSON list of questions"),
        ("q.json", '["x"]', "question 0: holds 'x'; it must be a JSON object"),
        ("q.json", "[]", "holds no question"),
        ("q.jsonl", '\n{"id": "x", "question": "Why?"}\n{"id": 1\n', "line 3: not valid JSON"),
        ("q.jsonl", '{"id": "x", "question": "Why?"}\n\n{"id": 1}\n', "line 3: has no 'question'"),
        ("q.jsonl", '{"id": ' + "1" * 5000 + "}", "line 1: not usable JSON"),
    ],
)
def test_a_wrong_questions_file_is_named_with_its_line(tmp_path, name, content, message):
    path = tmp_path / name
    path.write_text(content)
    with pytest.raises(InputError, match=message):
        read_questions(path)


@pytest.mark.parametrize(
    ("name", "documents", "split", "questions"),
    [("musique100", 1890, "test", 30), ("hotpot100", 994, "train", 100), ("2wiki_dev", 1294, "test", 164)],
)
def test_public_corpora_have_their_published_sizes(shared_data, name, documents, split, questions):
    folder = shared_data / "qa" / name
    titles = {document.title for document in read_documents(folder)}
    items = read_questions(folder / "raw" / f"{split}.json")
    assert (len(titles), len(items)) == (documents, questions)
    assert all(set(item.supporting_documents) <= titles for item in items)
