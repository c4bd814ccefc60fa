"""Replies of language models, read as data: whatever can be understood of them, and nothing is ever run."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import zip_longest
from typing import Any, NamedTuple

Triple = tuple[str, str, str]

_MAX_PARSED = 200_000  # characters: repairing garbage takes time that grows with it
_MAX_NAME = 1000

_NAME = {"type": "string"}


def _items(properties: dict[str, Any]) -> dict[str, Any]:
    item = {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}
    return {"type": "array", "items": item}


_PROPERTIES = {
    "entities": _items({"name": _NAME, "type": _NAME}),
    "triples": _items({"head": _NAME, "relation": _NAME, "tail": _NAME, "sentence": _NAME}),
    "aliases": _items({"alias": _NAME, "name": _NAME}),
}
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": _PROPERTIES,
    "required": list(_PROPERTIES),
    "additionalProperties": False,
}
"""What a model is asked to reply with."""


class Parsed(NamedTuple):
    """What a reply says; `skipped` items could not be used.

    Attributes:
        entities: `(name, type)`.
        triples: with the sentence of each.
        aliases: `(alias, name)`.
    """

    entities: list[tuple[str, str]]
    triples: list[tuple[Triple, str]]
    aliases: list[tuple[str, str]]
    skipped: int


def parse_reply(text: str, *, truncated: bool = False) -> Parsed | None:
    """Reads a reply; None where it holds no JSON at all.

    Fences and prose around the JSON, missing brackets, an array in place of the object, arrays in place of objects and
    numbers in place of text are understood.

    Args:
        text: the reply.
        truncated: the model ran out of tokens, so that the last item may be half of one; it is left out.
    """
    import json_repair

    value = json_repair.loads(text[:_MAX_PARSED], skip_json_loads=False)
    if isinstance(value, list):
        # json_repair gives a list of all values that stand in the text; an object with our keys is the reply.
        value = next((v for v in value if isinstance(v, dict) and _PROPERTIES.keys() & v.keys()), {"triples": value})
    if not isinstance(value, dict):
        return None
    if truncated or len(text) > _MAX_PARSED:
        last = next((key for key in reversed(list(value)) if isinstance(value[key], list) and value[key]), None)
        value = {key: items[:-1] if key == last else items for key, items in value.items()}
    entities, no_entities = _sorted_out(value.get("entities"), ("name", "type"), 1)
    triples, no_triples = _sorted_out(value.get("triples"), ("head", "relation", "tail", "sentence"), 3)
    aliases, no_aliases = _sorted_out(value.get("aliases"), ("alias", "name"), 2)
    return Parsed(
        [(name, kind) for name, kind in entities],
        [((head, relation, tail), sentence) for head, relation, tail, sentence in triples],
        [(alias, name) for alias, name in aliases],
        no_entities + no_triples + no_aliases,
    )


def _sorted_out(items: object, fields: tuple[str, ...], needed: int) -> tuple[list[list[str]], int]:
    """The items as texts by field, of which the first `needed` must not be blank; and how many items break that."""
    if items is None:
        return [], 0
    if not isinstance(items, list):
        return [], 1
    parsed = [list(_texts(item, fields)) for item in items]
    good = [texts for texts in parsed if all(texts[:needed])]
    return good, len(parsed) - len(good)


def _texts(item: object, fields: tuple[str, ...]) -> Iterator[str]:
    """The fields of an object, or of an array in their order, or a text as the first; blank where there is none."""
    if isinstance(item, dict):
        return (_text(item.get(field)) for field in fields)
    listed = item if isinstance(item, list) else [item]
    return (_text(value) for _, value in zip_longest(fields, listed[: len(fields)]))


def _text(value: object) -> str:
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        value = str(value)
    if not isinstance(value, str) or len(value) > _MAX_NAME:
        return ""
    # JSON can spell a lone surrogate; no file, database or encoder takes one.
    return "" if any("\ud800" <= char <= "\udfff" for char in value) else value.strip()
