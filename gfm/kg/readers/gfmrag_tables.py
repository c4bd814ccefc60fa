"""The three tables of the GFM-RAG layout: rows with a line, checked against each other."""

from __future__ import annotations

import ast
import json
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gfm.errors import InputError
from gfm.kg.readers.files import csv_rows, read_text, shorten

DOCUMENT_TYPE = "document"
# Attribute that says what a node of type "document", or the mention relation, is when it belongs to the graph.
ROLE = "gfm_role"


@dataclass(frozen=True)
class Row:
    """A node or relation as its table has it."""

    name: str
    kind: str
    attributes: dict[str, Any]
    line: int

    @property
    def is_document(self) -> bool:
        """Whether the node is a document: its type says so and no mark makes it an entity of that type."""
        return self.kind == DOCUMENT_TYPE and self.attributes.get(ROLE) != "entity"


def read_rows(path: Path, required: tuple[str, ...]) -> dict[str, Row]:
    """The rows of nodes.csv or relations.csv by what identifies them: `uid` where there is one, else `name`."""
    rows: dict[str, Row] = {}
    for line, cells in _table(path, required):
        where = f"{path}, line {line}"
        identity = cells.get("uid", cells["name"])
        if not cells["name"] or not identity:
            raise InputError(f"{where}: the name or uid is empty; give it one")
        if identity in rows:
            first = rows[identity].line
            raise InputError(f"{where}: {shorten(identity)} already stands in line {first}; names must be unique")
        attributes = _attributes(cells.get("attributes", ""), where)
        rows[identity] = Row(cells["name"], cells.get("type", ""), attributes, line)
    return rows


def check_unique(path: Path, what: str, rows: list[Row]) -> None:
    """Refuses rows that share a name: the graph and the corpus know theirs by name alone."""
    lines: dict[str, int] = {}
    for row in rows:
        if row.name in lines:
            raise InputError(
                f"{path}, line {row.line}: the {what} {shorten(row.name)} already stands in line {lines[row.name]} "
                "under another uid; names must be unique"
            )
        lines[row.name] = row.line


def read_edges(path: Path, nodes: dict[str, Row], relations: dict[str, Row]) -> list[tuple[Row, Row, Row]]:
    """The `(source, relation, target)` rows that every line of edges.csv names."""
    edges = []
    for line, cells in _table(path, ("source", "relation", "target")):
        where = f"{path}, line {line}"
        for column, known in (("source", nodes), ("relation", relations), ("target", nodes)):
            if cells[column] not in known:
                table = "relations.csv" if column == "relation" else "nodes.csv"
                raise InputError(f"{where}: the {column} {shorten(cells[column])} is not in {table}; add it there")
        _attributes(cells.get("attributes", ""), where)
        edges.append((nodes[cells["source"]], relations[cells["relation"]], nodes[cells["target"]]))
    return edges


def _table(path: Path, required: tuple[str, ...]) -> list[tuple[int, dict[str, str]]]:
    """The rows of a CSV file with a header, as `{column: cell}`; columns may stand in any order."""
    rows = csv_rows(read_text(path), path)
    header = rows[0][1] if rows else []
    missing = [name for name in required if name not in header]
    if missing or len(set(header)) != len(header):
        problem = f"lacks the column {missing[0]!r}" if missing else "names a column twice"
        raise InputError(f"{path}: the header {shorten(header)} {problem}; it needs {', '.join(required)}")
    for line, cells in rows[1:]:
        if len(cells) != len(header):
            raise InputError(
                f"{path}, line {line}: expected {len(header)} columns but found {len(cells)} in {shorten(cells)}"
            )
    return [(line, dict(zip(header, cells, strict=True))) for line, cells in rows[1:]]


def _attributes(cell: str, where: str) -> dict[str, Any]:
    """Attributes as JSON or, as that project writes them, as a Python literal; nothing is evaluated."""
    if cell in ("", "{}"):
        return {}
    value: object
    try:
        value = json.loads(cell)
    except (ValueError, RecursionError):
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", SyntaxWarning)  # about a backslash in somebody's text
                value = ast.literal_eval(cell)
        except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError) as error:
            raise InputError(
                f"{where}: the attributes {shorten(cell)} are neither JSON nor a Python literal; give JSON"
            ) from error
    if not isinstance(value, dict):
        raise InputError(f"{where}: the attributes {shorten(cell)} must be an object such as {{}}")
    return value
