"""What an LLM extracted from passages: JSON lines with `passage`, `extracted_entities`, `extracted_triples`."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from gfm.errors import InputError
from gfm.kg.readers.files import check_text, lines_of, parse_json, read_text, shorten
from gfm.types import Extraction

T = TypeVar("T")
_MAX_EXAMPLES = 5


@dataclass(frozen=True)
class OpenIEReport:
    """How much of an OpenIE file could be used.

    Attributes:
        passages: extractions read.
        triples: triples kept.
        malformed_triples: triples left out because they are not three non-empty texts.
        malformed_entities: entities left out because they are not a non-empty text.
        examples: the first malformed items, each with its line.
    """

    passages: int
    triples: int
    malformed_triples: int
    malformed_entities: int
    examples: tuple[str, ...]


def read_openie(path: str | os.PathLike[str]) -> tuple[list[Extraction], OpenIEReport]:
    """Reads extractions, leaving out and counting what an LLM wrote badly.

    A number in place of a text (a year, say) is kept as its text. Names are kept as written.

    Args:
        path: JSON lines, UTF-8; `extracted_entities` and `extracted_triples` may be missing.

    Returns:
        One extraction a line, in file order, and the report.

    Raises:
        InputError: no such file, a line that is not a JSON object with a `passage`, or no passage at all.
            These are faults of the file, not of the LLM.
    """
    extractions = []
    examples: list[str] = []
    malformed_triples = malformed_entities = 0
    for number, line in lines_of(read_text(path)):
        if not line.strip():
            continue
        where = f"{path}, line {number}"
        item = parse_json(line, where)
        if not isinstance(item, dict):
            raise InputError(f"{where}: holds {shorten(item)}; it must be a JSON object with a passage")
        passage = check_text(item.get("passage"), f"{where}: 'passage'")
        entities, bad_entities = _sort_out(item.get("extracted_entities"), _text)
        triples, bad_triples = _sort_out(item.get("extracted_triples"), _triple)
        malformed_entities += len(bad_entities)
        malformed_triples += len(bad_triples)
        examples += [f"line {number}: entity {shorten(bad)}" for bad in bad_entities]
        examples += [f"line {number}: triple {shorten(bad)}" for bad in bad_triples]
        del examples[_MAX_EXAMPLES:]
        extractions.append(Extraction(passage, entities, triples))
    if not extractions:
        raise InputError(f"{path}: the file holds no passage; give one JSON object a line")
    kept = sum(len(extraction.triples) for extraction in extractions)
    report = OpenIEReport(len(extractions), kept, malformed_triples, malformed_entities, tuple(examples))
    return extractions, report


def _sort_out(values: object, parse: Callable[[object], T | None]) -> tuple[tuple[T, ...], list[object]]:
    """The items that `parse` accepts, and those it does not; a value that is no list is one such item."""
    if values is None:
        return (), []
    if not isinstance(values, list):
        return (), [values]
    good, bad = [], []
    for value in values:
        parsed = parse(value)
        if parsed is None:
            bad.append(value)
        else:
            good.append(parsed)
    return tuple(good), bad


def _text(value: object) -> str | None:
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return str(value)
    if not isinstance(value, str) or not value.strip():
        return None
    # JSON can spell a lone surrogate; no file, database or encoder takes one.
    return None if any("\ud800" <= char <= "\udfff" for char in value) else value


def _triple(value: object) -> tuple[str, str, str] | None:
    if not isinstance(value, list) or len(value) != 3:
        return None
    head, relation, tail = map(_text, value)
    return None if head is None or relation is None or tail is None else (head, relation, tail)
