"""Triple files: hostile names survive, and every fault is named with its line."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gfm.errors import InputError
from gfm.kg.graph import KnowledgeGraph
from gfm.kg.readers import read_triples, write_triples

HOSTILE = [
    "NA", "null", "1984", "", "知識グラフ", "🦉", "a,b", 'say "hi"', "'", '"', "a\tb", "a\nb", "\n", "a\r\nb", "\r",
    "\\", "\\t", "\\n", "c:\\temp", "a\\", "\u2028", "x\x0by", "\x85", "\x1c", " lead", "trail ", " ", "#",
    "# no comment", "\ufeff", "\ufeffx", "\x00", "=1+1",
]  # fmt: skip
# Before 3.11 Python's csv module reads no NUL; the reader then says so, with the line.
NUL = "\x00" if sys.version_info < (3, 11) else ""
CHARS = st.characters(exclude_characters=NUL, codec="utf-8")
NAMES = st.one_of(st.sampled_from([n for n in HOSTILE if n not in ("", NUL)]), st.text(CHARS, min_size=1, max_size=6))
# Few names, so that duplicates, parallel relations and self-loops are common.
TRIPLES = st.lists(NAMES, min_size=1, max_size=4).flatmap(
    lambda names: st.lists(st.tuples(st.sampled_from(names), NAMES, st.sampled_from(names)), min_size=1, max_size=6)
)


def write(tmp_path: Path, content: str | bytes, name: str = "graph.tsv") -> Path:
    path = tmp_path / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


@pytest.mark.parametrize("suffix", [".tsv", ".csv", ".txt"])
@settings(max_examples=40)
@given(triples=TRIPLES, isolated=st.lists(NAMES, max_size=3))
def test_a_graph_survives_the_round_trip(tmp_path_factory, suffix, triples, isolated):
    graph = KnowledgeGraph.from_triples(triples, entities=isolated)
    folder = tmp_path_factory.mktemp("round")
    path, entities = folder / f"graph{suffix}", folder / f"entities{suffix}"
    write_triples(graph, path, entities)
    back = read_triples(path, entities)
    assert list(back.triples()) == triples
    assert list(back.entity_names) == list(graph.entity_names)
    assert back.same_as(graph)


def test_quotes_are_part_of_a_tab_separated_name(tmp_path):
    path = write(tmp_path, 'a(GO:"RNA viral genome")\tincreases\t"p\n')
    assert list(read_triples(path).triples()) == [('a(GO:"RNA viral genome")', "increases", '"p')]


def test_only_four_escapes_are_decoded(tmp_path):
    path = write(tmp_path, r"a\tb\nc\rd\\n" + "\t" + r"Paul \u0022Bear\u0022 \"x\"" + "\tfour legs\\\n")
    head, relation, tail = next(read_triples(path).triples())
    assert head == "a\tb\nc\rd\\n"
    assert relation == r"Paul \u0022Bear\u0022 \"x\""
    assert tail == "four legs\\"


def test_csv_takes_standard_quoting(tmp_path):
    path = write(tmp_path, 'a,"b, ""c""","d\ne"\r\n\r\nx,y,z', "graph.CSV")
    assert list(read_triples(path).triples()) == [("a", 'b, "c"', "d\ne"), ("x", "y", "z")]


@pytest.mark.parametrize("content", ["\ufeffa\tr\tb\n", "a\tr\tb\r\n", "\na\tr\tb\n\n   \n", "a\tr\tb"])
def test_byte_order_mark_crlf_blank_lines_and_a_missing_newline_are_accepted(tmp_path, content):
    assert list(read_triples(write(tmp_path, content)).triples()) == [("a", "r", "b")]


def test_lines_end_at_newlines_only(tmp_path):
    path = write(tmp_path, "a\u2028b\tr\x0b\tc\x85\nd\tr\te\n")
    assert list(read_triples(path).triples()) == [("a\u2028b", "r\x0b", "c\x85"), ("d", "r", "e")]


def test_hash_and_header_are_names(tmp_path):
    path = write(tmp_path, "head\trelation\ttail\n#a\tr\tb\n")
    assert list(read_triples(path).triples()) == [("head", "relation", "tail"), ("#a", "r", "b")]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("g.tsv", "a\tr\tb\n\na\tr\n", r"g.tsv, line 3: expected 3 tab-separated .* found 2 in 'a\\tr'"),
        ("g.tsv", "a\tr\tb\tc\n", "line 1: .* found 4"),
        ("g.tsv", "a r b\n", "line 1: .* found 1 in 'a r b'"),
        ("g.tsv", "a\tr\tb\n\tr\tb\n", "line 2: the head is empty"),
        ("g.tsv", "a\tr\tb\n\t\t\n", "line 2: the head is empty"),
        ("g.tsv", "a\tr\t\n", "line 1: the tail is empty"),
        ("g.tsv", b"a\tr\tb\nc\tr\t\xff\xfe\n", r"line 2: bytes b'\\xff\\xfe\\n' are not UTF-8"),
        ("g.tsv", b"\xef\xbb\xbfa\n\n\xe9", "line 3: bytes"),
        ("g.tsv", "", "the file holds no triple"),
        ("g.tsv", "\n \n", "the file holds no triple"),
        ("g.csv", "a,r,b\na,r\n", "g.csv, line 2: expected 3 comma-separated .* found 2"),
        ("g.csv", 'a,"x\ny",b\na,,b\n', "line 3: the relation is empty"),
        ("g.csv", 'a,r,b\na,"r,b\nc,d,e\n', "line 2: not valid CSV"),
        ("g.csv", 'a,"r"x,b\n', "line 1: not valid CSV"),
    ],
)
def test_a_fault_is_named_with_file_and_line(tmp_path, name, content, message):
    with pytest.raises(InputError, match=message) as caught:
        read_triples(write(tmp_path, content, name))
    assert "\n" not in str(caught.value)
    assert str(tmp_path / name) in str(caught.value)


def test_long_content_is_shortened_in_the_message(tmp_path):
    with pytest.raises(InputError) as caught:
        read_triples(write(tmp_path, "x" * 100_000))
    assert len(str(caught.value)) < 400 + len(str(tmp_path))


def test_a_missing_file_and_a_folder_are_named(tmp_path):
    with pytest.raises(InputError, match=r"gone.tsv: no such file"):
        read_triples(tmp_path / "gone.tsv")
    with pytest.raises(InputError, match="cannot be read"):
        read_triples(tmp_path)


def test_what_a_triple_file_cannot_hold_is_refused_and_nothing_written(tmp_path):
    path = tmp_path / "graph.tsv"
    triples = [("a", "r", "b")]
    for graph, message in [
        (
            KnowledgeGraph.from_triples(triples, entities=["alone"]),
            "1 entities have no triple .*'alone'.* entities_path",
        ),
        (KnowledgeGraph.from_triples(triples, relations=["unused"]), "relation 'unused' has no triple"),
        (KnowledgeGraph.from_triples([], entities=["a"]), "no triple"),
        (KnowledgeGraph.from_triples([("a", "", "b")]), "relation 0 has an empty name"),
        (KnowledgeGraph.from_triples([("a", "r", "\ud800")]), "lone surrogates"),
    ]:
        with pytest.raises(InputError, match=message):
            write_triples(graph, path)
    with pytest.raises(InputError, match="two different files"):
        write_triples(KnowledgeGraph.from_triples(triples), path, path)
    assert list(tmp_path.iterdir()) == []


def test_a_failed_write_leaves_the_previous_file_and_no_other(tmp_path, monkeypatch):
    path = tmp_path / "graph.tsv"
    write_triples(KnowledgeGraph.from_triples([("old", "r", "b")]), path)

    def fail(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(InputError, match="No space left"):
        write_triples(KnowledgeGraph.from_triples([("new", "r", "b")]), path)
    assert [p.name for p in tmp_path.iterdir()] == ["graph.tsv"]
    assert next(read_triples(path).triples())[0] == "old"


@pytest.mark.parametrize("name", ["umls/train", "covid19/train", "conceptnet82k/valid", "yago_temporal/test"])
def test_public_graphs_read_line_by_line_and_survive(shared_data, tmp_path, name):
    source = shared_data / "kg" / f"{name}.tsv"
    lines = [line for line in source.read_bytes().decode().split("\n") if line]
    graph = read_triples(source)
    assert graph.num_edges == len(lines)
    write_triples(graph, tmp_path / "copy.tsv")
    assert list(read_triples(tmp_path / "copy.tsv").triples()) == list(graph.triples())


def test_umls_has_the_published_size(shared_data):
    names: set[str] = set()
    total = 0
    for split in ("train", "valid", "test"):
        graph = read_triples(shared_data / "kg" / "umls" / f"{split}.tsv")
        names |= set(graph.entity_names)
        total += graph.num_edges
    assert (total, len(names)) == (6529, 135)
