"""Graphs as triple files: one `head, relation, tail` a line, tab-separated or CSV."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import torch

from gfm.errors import InputError
from gfm.kg.graph import KnowledgeGraph
from gfm.kg.readers.files import csv_rows, csv_text, lines_of, read_text, shorten, write_texts

_UNESCAPE = {"t": "\t", "n": "\n", "r": "\r", "\\": "\\"}
_ESCAPE = str.maketrans({value: "\\" + key for key, value in _UNESCAPE.items()})
_ESCAPED = re.compile(r"\\([tnr\\])")
_TRIPLE = ("head", "relation", "tail")


def read_triples(path: str | os.PathLike[str], entities_path: str | os.PathLike[str] | None = None) -> KnowledgeGraph:
    r"""Reads a graph from a triple file, numbering names in order of first appearance.

    The suffix decides the format. `.csv`: standard CSV quoting. Anything else: tab-separated; quotes are
    part of a name, and `\t`, `\n`, `\r` and `\\` stand for tab, newline, carriage return and backslash
    (a backslash before anything else is itself). There is no header and there are no comments: `#` may
    begin a name. Blank lines are skipped.

    Args:
        path: the triples, UTF-8 (a byte order mark is dropped).
        entities_path: one entity name a line in the same format, numbered first; how isolated entities
            and an order of entities survive.

    Raises:
        InputError: no such file, not UTF-8, a line without three names, or no triple at all.
    """
    names: Iterable[str] = ()
    if entities_path is not None:
        names = [name for _, (name,) in read_rows(entities_path, ("entity",))]
    graph = KnowledgeGraph.from_triples(((h, r, t) for _, (h, r, t) in read_rows(path, _TRIPLE)), entities=names)
    if graph.num_edges == 0:
        raise InputError(f"{path}: the file holds no triple; give lines of head, relation and tail")
    return graph


def write_triples(
    graph: KnowledgeGraph, path: str | os.PathLike[str], entities_path: str | os.PathLike[str] | None = None
) -> None:
    """Writes a graph as a triple file that `read_triples` reads back, replacing the file as a whole.

    A triple file holds triples and nothing else. Entity types are not written (`write_gfmrag` keeps them);
    names that no triple holds cannot be, so the call is refused rather than losing them.

    Args:
        graph: the graph; the order of its triples is kept.
        path: `.csv` for CSV, anything else for tab-separated.
        entities_path: writes every entity name there too, in order of id.

    Raises:
        InputError: no triple, an empty name, a relation without a triple, or an isolated entity with no
            `entities_path` to write it to.
    """
    if graph.num_edges == 0:
        raise InputError("the graph has no triple, so a triple file cannot hold it; use write_gfmrag")
    for kind, names in (("entity", graph.entity_names), ("relation", graph.relation_names)):
        if "" in names:
            raise InputError(f"{kind} {list(names).index('')} has an empty name; a triple file needs names")
    unused = _unused(graph.edge_type, graph.relation_names)
    if unused:
        raise InputError(f"relation {shorten(unused[0])} has no triple and would be lost; use write_gfmrag")
    isolated = _unused(graph.edge_index, graph.entity_names)
    if isolated and entities_path is None:
        raise InputError(
            f"{len(isolated)} entities have no triple and would be lost, the first is {shorten(isolated[0])}; "
            "give an entities_path"
        )
    texts = {Path(path): _text(Path(path), graph.triples())}
    if entities_path is not None:
        texts[Path(entities_path)] = _text(Path(entities_path), ((name,) for name in graph.entity_names))
    if len(texts) == 1 and entities_path is not None:
        raise InputError(f"{path}: triples and entities need two different files")
    write_texts(texts)


def _unused(ids: torch.Tensor, names: Sequence[str]) -> list[str]:
    used = torch.zeros(len(names), dtype=torch.bool)
    used[ids.reshape(-1)] = True
    return [names[i] for i in (~used).nonzero().reshape(-1).tolist()]


def read_rows(path: str | os.PathLike[str], columns: Sequence[str]) -> Iterator[tuple[int, list[str]]]:
    """Yields the number and the names of every line that is not blank, in the format of `read_triples`.

    Args:
        path: the file.
        columns: what the names are of, for errors.

    Raises:
        InputError: no such file, not UTF-8, a line with another number of columns or an empty name.
    """
    path = Path(path)
    is_csv = path.suffix.lower() == ".csv"
    text = read_text(path)
    for line, fields in csv_rows(text, path) if is_csv else _tsv_rows(text):
        if len(columns) > 1 and len(fields) == 1 and not fields[0].strip():
            continue
        if len(fields) != len(columns):
            sign = "comma" if is_csv else "tab"
            raise InputError(
                f"{path}, line {line}: expected {len(columns)} {sign}-separated columns ({', '.join(columns)}) "
                f"but found {len(fields)} in {shorten((',' if is_csv else chr(9)).join(fields))}"
            )
        if "" in fields:
            raise InputError(
                f"{path}, line {line}: the {columns[fields.index('')]} is empty in {shorten(fields)}; give it a name"
            )
        yield line, fields


def _tsv_rows(text: str) -> Iterator[tuple[int, list[str]]]:
    for number, line in lines_of(text):
        if line:
            yield number, [_unescape(field) for field in line.split("\t")]


def _unescape(field: str) -> str:
    return _ESCAPED.sub(lambda match: _UNESCAPE[match[1]], field) if "\\" in field else field


def _text(path: Path, rows: Iterable[Sequence[str]]) -> str:
    if path.suffix.lower() == ".csv":
        return csv_text(rows)
    return "".join("\t".join(name.translate(_ESCAPE) for name in row) + "\n" for row in rows)
