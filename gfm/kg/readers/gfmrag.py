"""Graphs with documents in the two folder layouts of the GFM-RAG project.

New layout: `nodes.csv` (name, type, attributes), `relations.csv` (name, attributes) and `edges.csv` (source,
relation, target, attributes). Old layout: `kg.txt` (`head,relation,tail` lines) and `document2entities.json`.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from gfm.errors import InputError
from gfm.kg.graph import KnowledgeGraph, Triple
from gfm.kg.readers.files import check_text, csv_text, lines_of, parse_json, read_text, shorten, write_texts
from gfm.kg.readers.gfmrag_tables import DOCUMENT_TYPE, ROLE, Row, check_unique, read_edges, read_rows
from gfm.kg.readers.qa import parse_documents
from gfm.types import Document

MENTION_RELATION = "is_mentioned_in"
_CORPUS_NAMES = ("documents.json", "dataset_corpus.json")


@dataclass(frozen=True)
class GfmRagData:
    """What a GFM-RAG folder holds.

    Attributes:
        graph: everything that is not a document or a mention.
        documents: in file order.
        mentions: `(entity name, document title)`, in file order, duplicates kept.
    """

    graph: KnowledgeGraph
    documents: list[Document]
    mentions: list[tuple[str, str]]


def read_gfmrag(folder: str | os.PathLike[str]) -> GfmRagData:
    """Reads a GFM-RAG folder in either layout; names are text as they stand (`NA`, `1984`).

    New layout: nodes of type `document` become documents, all others entities with their type. An edge that
    joins an entity and a document is a mention; where the file uses `is_mentioned_in` for that, only those
    edges are, and any other edge of a document is a triple whose end is an entity of type `document`. A
    document's text is its attribute `content`. Other attributes have no place here: they are parsed, never
    evaluated, and dropped. An optional `uid` column identifies rows in place of `name`.

    Old layout: entities have no type; entities of `document2entities.json` without a triple are isolated.

    Either way a document without text gets it from a `documents.json` (or `dataset_corpus.json`) in the
    folder, in `raw/` beside it, or up to two folders above, and the empty text where there is none.

    Args:
        folder: holds the files, or `processed/stage1` with them.

    Raises:
        InputError: a file is missing or a line is wrong (both are named).
    """
    root = Path(folder)
    for place in (root, root / "processed" / "stage1"):
        if (place / "nodes.csv").is_file():
            return _read_tables(place)
        if (place / "kg.txt").is_file():
            return _read_old_layout(place)
    raise InputError(f"{root}: holds neither nodes.csv nor kg.txt; give a folder in a GFM-RAG layout")


def write_gfmrag(
    graph: KnowledgeGraph,
    documents: Sequence[Document],
    mentions: Iterable[tuple[str, str]],
    folder: str | os.PathLike[str],
) -> None:
    """Writes the new layout so that `read_gfmrag` returns the same graph, documents and mentions.

    Rows get a `uid` only where a document is named like an entity: the layout knows a node by one name.

    Args:
        graph: types, isolated entities, duplicates and unused relations are kept.
        documents: their text goes into the attribute `content`.
        mentions: `(entity name, document title)`.
        folder: made if it does not exist; its three files are replaced together.

    Raises:
        InputError: an empty or repeated name, or a mention of an unknown entity or document.
    """
    uid = _document_uids(graph, documents)
    nodes = []
    for i, name in enumerate(graph.entity_names):
        kind = graph.type_of(i)
        nodes.append([name, kind, _dump({ROLE: "entity"} if kind == DOCUMENT_TYPE else {}), name])
    nodes += [[d.title, DOCUMENT_TYPE, _dump({"content": d.text}), uid[d.title]] for d in documents]
    header = ["name", "type", "attributes", "uid"]
    if all(title == identity for title, identity in uid.items()):
        nodes, header = [row[:3] for row in nodes], header[:3]

    edges = [[head, relation, tail, "{}"] for head, relation, tail in graph.triples()]
    relations = [[n, _dump({ROLE: "relation"} if n == MENTION_RELATION else {})] for n in graph.relation_names]
    known = graph.entity_ids
    num_triples = len(edges)
    for entity, title in mentions:
        if entity not in known or title not in uid:
            kind, name = ("entity", entity) if entity not in known else ("document", title)
            raise InputError(f"mention {shorten((entity, title))}: no {kind} is named {shorten(name)}; add it first")
        edges.append([entity, MENTION_RELATION, uid[title], "{}"])
    if len(edges) > num_triples and MENTION_RELATION not in graph.relation_ids:
        relations.append([MENTION_RELATION, "{}"])
    place = Path(folder)
    write_texts(
        {
            place / "nodes.csv": csv_text([header, *nodes]),
            place / "relations.csv": csv_text([["name", "attributes"], *relations]),
            place / "edges.csv": csv_text([["source", "relation", "target", "attributes"], *edges]),
        }
    )


def _dump(attributes: dict[str, str]) -> str:
    # The peer reads attributes as a Python literal; JSON of plain strings is one.
    return json.dumps(attributes, ensure_ascii=False)


def _document_uids(graph: KnowledgeGraph, documents: Sequence[Document]) -> dict[str, str]:
    """What identifies each document among all nodes, by title: the title itself unless an entity has it."""
    titles = [document.title for document in documents]
    for kind, names in (("entity", graph.entity_names), ("relation", graph.relation_names), ("document", titles)):
        if "" in names:
            raise InputError(f"{kind} {list(names).index('')} has an empty name; give it one")
    _ = graph.relation_ids  # raises where a relation name occurs twice
    taken = set(graph.entity_ids) | set(titles)
    uid: dict[str, str] = {}
    for title in titles:
        if title in uid:
            raise InputError(f"the document title {shorten(title)} occurs twice; titles must be unique")
        identity = title
        if title in graph.entity_ids:
            while identity in taken:
                identity = f"document:{identity}"
            taken.add(identity)
        uid[title] = identity
    return uid


def _read_tables(folder: Path) -> GfmRagData:
    nodes = read_rows(folder / "nodes.csv", ("name", "type"))
    relations = read_rows(folder / "relations.csv", ("name",))
    check_unique(folder / "nodes.csv", "document title", [n for n in nodes.values() if n.is_document])
    check_unique(folder / "nodes.csv", "entity", [n for n in nodes.values() if not n.is_document])
    check_unique(folder / "relations.csv", "relation", list(relations.values()))
    triples, mentions, in_graph, dropped = _split_edges(read_edges(folder / "edges.csv", nodes, relations))

    types: dict[str, str] = {}
    for node in nodes.values():
        if not node.is_document:
            types[node.name] = node.kind
    for node in nodes.values():
        if node.is_document and node.name in in_graph:
            types.setdefault(node.name, DOCUMENT_TYPE)
    kept = [row.name for row in relations.values() if row.name not in dropped or row.attributes.get(ROLE) == "relation"]
    graph = KnowledgeGraph.from_triples(triples, entities=types, relations=kept, entity_types=types)
    return GfmRagData(graph, _texts_of(nodes, folder), mentions)


def _split_edges(
    edges: list[tuple[Row, Row, Row]],
) -> tuple[list[Triple], list[tuple[str, str]], set[str], set[str]]:
    """Tells triples from mentions.

    Returns:
        Triples, mentions, the names that stand for an entity in either, and the relations that only link
        documents and so are not part of the graph.
    """
    linking = {r.name for u, r, v in edges if u.is_document != v.is_document}
    if MENTION_RELATION in linking:
        linking = {MENTION_RELATION}
    triples: list[Triple] = []
    mentions: list[tuple[str, str]] = []
    in_graph: set[str] = set()
    for u, r, v in edges:
        # An entity that shares its node with a document of its name is mentioned from document to document.
        between = u.is_document and v.is_document and r.name == MENTION_RELATION
        if between or (u.is_document != v.is_document and r.name in linking):
            entity, document = (u, v) if v.is_document else (v, u)
            mentions.append((entity.name, document.name))
            in_graph.add(entity.name)
        else:
            triples.append((u.name, r.name, v.name))
            in_graph.update((u.name, v.name))
    return triples, mentions, in_graph, (linking | {MENTION_RELATION}) - {relation for _, relation, _ in triples}


def _texts_of(nodes: dict[str, Row], folder: Path) -> list[Document]:
    rows = [node for node in nodes.values() if node.is_document]
    corpus: dict[str, str] = {}
    if any("content" not in node.attributes for node in rows):
        corpus = {document.title: document.text for document in _corpus(folder)}
    documents = []
    for node in rows:
        text = node.attributes.get("content", corpus.get(node.name, ""))
        where = f"{folder / 'nodes.csv'}, line {node.line}: the content of {shorten(node.name)}"
        documents.append(Document(node.name, check_text(text, where, empty=True)))
    return documents


def _corpus(folder: Path) -> list[Document]:
    """The documents of the nearest corpus file, or none."""
    folder = folder.resolve()
    above = folder.parent, folder.parent.parent
    for place in (place for base in (folder, *above) for place in (base, base / "raw")):
        for name in _CORPUS_NAMES:
            if (place / name).is_file():
                return parse_documents(place / name)
    return []


def _read_old_layout(folder: Path) -> GfmRagData:
    triples = _read_kg_txt(folder / "kg.txt")
    path = folder / "document2entities.json"
    value = parse_json(read_text(path), str(path))
    if not isinstance(value, dict):
        raise InputError(f"{path}: holds {shorten(value)}; it must be an object of title: list of entities")
    mentions: list[tuple[str, str]] = []
    texts = {document.title: document.text for document in _corpus(folder)}
    for title, entities in value.items():
        check_text(title, f"{path}: a title")
        if not isinstance(entities, list):
            raise InputError(f"{path}: the entities of {shorten(title)} are {shorten(entities)}; give a list")
        texts.setdefault(title, "")
        mentions += [(check_text(name, f"{path}: an entity of {shorten(title)}"), title) for name in entities]
    names = [name for head, _, tail in triples for name in (head, tail)] + [name for name, _ in mentions]
    graph = KnowledgeGraph.from_triples(triples, entities=names)
    return GfmRagData(graph, [Document(title, text) for title, text in texts.items()], mentions)


def _read_kg_txt(path: Path) -> list[Triple]:
    """The triples of kg.txt: plain commas, no quoting, so a name with a comma cannot stand in it."""
    triples: list[Triple] = []
    for number, line in lines_of(read_text(path)):
        if not line.strip():
            continue
        parts = line.strip().split(",")
        if len(parts) != 3 or "" in parts:
            raise InputError(
                f"{path}, line {number}: expected head,relation,tail but found {len(parts)} parts in {shorten(line)}"
            )
        triples.append((parts[0], parts[1], parts[2]))
    return triples
