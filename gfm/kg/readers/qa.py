"""Documents and questions in the field's raw layout: `documents.json` beside `train.json` and `test.json`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from gfm.errors import InputError
from gfm.kg.readers.files import check_text, lines_of, parse_json, read_text, shorten
from gfm.types import Document, Question


def read_documents(path: str | os.PathLike[str]) -> list[Document]:
    """Reads the documents of a corpus, in file order.

    Args:
        path: a JSON object `{title: text}`, or a folder that holds `raw/documents.json` or `documents.json`.

    Raises:
        InputError: no such file, not an object of texts, an empty title, a title that occurs twice, or no
            document at all.
    """
    path = Path(path)
    if path.is_dir():
        candidates = [path / "raw" / "documents.json", path / "documents.json"]
        found = next((candidate for candidate in candidates if candidate.is_file()), None)
        if found is None:
            raise InputError(f"{path}: neither raw/documents.json nor documents.json is in this folder")
        path = found
    documents = parse_documents(path)
    if not documents:
        raise InputError(f"{path}: the file holds no document; give an object of title: text")
    return documents


def parse_documents(path: Path) -> list[Document]:
    """The documents of one JSON file, which may be empty. Errors as in `read_documents`."""
    value = parse_json(read_text(path), str(path), pairs_hook=_Pairs)
    if not isinstance(value, _Pairs):
        raise InputError(f"{path}: holds {shorten(value)}; it must be a JSON object of title: text")
    texts: dict[str, str] = {}
    for title, text in value:
        check_text(title, f"{path}: a title")
        if title in texts:
            raise InputError(f"{path}: the title {shorten(title)} occurs twice; titles must be unique")
        texts[title] = check_text(text, f"{path}: the text of {shorten(title)}", empty=True)
    return [Document(title, text) for title, text in texts.items()]


class _Pairs(list[tuple[str, Any]]):
    """A JSON object that still has every key: a dict would keep only the last of two equal ones."""


def read_questions(path: str | os.PathLike[str]) -> list[Question]:
    """Reads questions, in file order; fields that `Question` lacks are ignored.

    `id` and `question` are required. A numeric id becomes a string; `null` counts as missing.

    Args:
        path: a JSON list of objects, or one object a line where the suffix is `.jsonl`.

    Raises:
        InputError: no such file, not JSON, a field of the wrong type (with the index, from 0, or the line),
            an id that occurs twice, or no question at all.
    """
    path = Path(path)
    text = read_text(path)
    if path.suffix.lower() == ".jsonl":
        lines = [(f"{path}, line {number}", line) for number, line in lines_of(text) if line.strip()]
        items = [(where, parse_json(line, where)) for where, line in lines]
    else:
        value = parse_json(text, str(path))
        if not isinstance(value, list):
            raise InputError(f"{path}: holds {shorten(value)}; it must be a JSON list of questions")
        items = [(f"{path}, question {index}", item) for index, item in enumerate(value)]
    if not items:
        raise InputError(f"{path}: the file holds no question; give objects with id and question")
    seen: dict[str, str] = {}
    questions = []
    for where, item in items:
        question = _question(item, where)
        if question.id in seen:
            raise InputError(f"{where}: the id {shorten(question.id)} is also that of {seen[question.id]}")
        seen[question.id] = where
        questions.append(question)
    return questions


def _question(item: object, where: str) -> Question:
    if not isinstance(item, dict):
        raise InputError(f"{where}: holds {shorten(item)}; it must be a JSON object with id and question")
    fields: dict[str, Any] = {key: value for key, value in item.items() if value is not None}
    for name in ("id", "question"):
        if name not in fields:
            raise InputError(f"{where}: has no {name!r}, only {shorten(list(fields))}; every question needs one")
    identity = fields["id"]
    if isinstance(identity, (int, float)) and not isinstance(identity, bool):
        identity = str(identity)
    hops = fields.get("num_hops")
    if hops is not None and (isinstance(hops, bool) or not isinstance(hops, int)):
        raise InputError(f"{where}: 'num_hops' is {shorten(hops)}; it must be an integer")
    return Question(
        id=check_text(identity, f"{where}: 'id'"),
        question=check_text(fields["question"], f"{where}: 'question'"),
        answer=check_text(fields.get("answer", ""), f"{where}: 'answer'", empty=True),
        answer_aliases=_texts(fields, "answer_aliases", where),
        supporting_documents=_texts(fields, "supporting_documents", where),
        num_hops=hops,
    )


def _texts(fields: dict[str, Any], name: str, where: str) -> tuple[str, ...]:
    values = fields.get(name, [])
    if not isinstance(values, list):
        raise InputError(f"{where}: {name!r} is {shorten(values)}; it must be a list of strings")
    return tuple(check_text(value, f"{where}: {name!r}[{i}]", empty=True) for i, value in enumerate(values))
