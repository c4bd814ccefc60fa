"""What a write of an index did to its documents."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from gfm.errors import InputError
from gfm.kg.rows import StoredDocument
from gfm.text.names import match_key
from gfm.types import Document


@dataclass(frozen=True)
class Changes:
    """What a write did, by title.

    Attributes:
        duplicates: groups of documents with the same text under different titles; all of them are kept.
        repeated: titles that the source holds more than once with the same text; kept once.
    """

    added: tuple[str, ...] = ()
    updated: tuple[str, ...] = ()
    deleted: tuple[str, ...] = ()
    unchanged: tuple[str, ...] = ()
    duplicates: tuple[tuple[str, ...], ...] = ()
    repeated: tuple[str, ...] = ()


def unique_documents(documents: Sequence[Document]) -> tuple[list[Document], tuple[str, ...]]:
    """The documents by title, each once, and the titles that are there more than once with the same text.

    Raises:
        InputError: two texts under one title, which is the identity of a document, or a blank title.
    """
    by_title: dict[str, Document] = {}
    repeated = []
    for document in documents:
        if by_title.setdefault(document.title, document) != document:
            raise InputError(f"two documents have the title {document.title!r}; titles must be unique")
        if by_title[document.title] is not document:
            repeated.append(document.title)
        if not match_key(document.title):
            raise InputError(f"a document has the blank title {document.title!r}; give every document a title")
    return [by_title[title] for title in sorted(by_title)], tuple(repeated)


def changes_between(
    before: Mapping[str, StoredDocument],
    after: Mapping[str, StoredDocument],
    given: Sequence[Document],
    repeated: tuple[str, ...],
) -> Changes:
    """Compares two sets of documents by title; `given` are those that the user named in this write."""
    by_text: dict[str, list[str]] = {}
    for title, stored in after.items():
        if stored.document.text.strip():
            by_text.setdefault(stored.document.text, []).append(title)
    named = {document.title for document in given}
    same = [tuple(titles) for titles in by_text.values() if len(titles) > 1 and not named.isdisjoint(titles)]
    return Changes(
        added=tuple(title for title in after if title not in before),
        updated=tuple(title for title, d in after.items() if title in before and before[title] != d),
        deleted=tuple(title for title in before if title not in after),
        unchanged=tuple(title for title in after if title in named and before.get(title) == after[title]),
        duplicates=tuple(same),
        repeated=repeated,
    )
