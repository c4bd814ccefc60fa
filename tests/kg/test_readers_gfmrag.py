"""GFM-RAG folders: both layouts, lossless round trips, and every fault with its line."""

from __future__ import annotations

import csv
import json
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gfm.errors import InputError
from gfm.kg.graph import KnowledgeGraph
from gfm.kg.readers import GfmRagData, read_gfmrag, write_gfmrag
from gfm.types import Document

HOSTILE = ["NA", "null", "1984", "知識", "🦉", "a,b", 'say "hi"', '"', "a\tb", "a\nb", "\r", "a\r\nb", "\\", "\u2028",
           " x ", "#", "\ufeff", "{}", "name", "document", "document:NA", "is_mentioned_in", "'", "\x00"]  # fmt: skip
# Before 3.11 Python's csv module reads no NUL; the reader then says so, with the line.
NUL = "\x00" if sys.version_info < (3, 11) else ""
CHARS = st.characters(exclude_characters=NUL, codec="utf-8")
NAMES = st.one_of(st.sampled_from([n for n in HOSTILE if n != NUL]), st.text(CHARS, min_size=1, max_size=4))
TYPES = st.sampled_from(["entity", "document", "person", "", "NA"])


@st.composite
def folders(draw) -> GfmRagData:
    names = draw(st.lists(NAMES, min_size=1, max_size=5, unique=True))
    relations = draw(st.lists(NAMES, min_size=1, max_size=3))
    end = st.sampled_from(names)
    triples = draw(st.lists(st.tuples(end, st.sampled_from(relations), end), max_size=8))
    types = draw(st.none() | st.dictionaries(end, TYPES))
    # Titles often equal entity names.
    titles = draw(st.lists(end | NAMES, max_size=4, unique=True))
    documents = [Document(title, draw(st.text(max_size=8) | NAMES)) for title in titles]
    mentions = draw(st.lists(st.tuples(end, st.sampled_from(titles)), max_size=6)) if titles else []
    return GfmRagData(KnowledgeGraph.from_triples(triples, names, relations, types), documents, mentions)


@settings(max_examples=100)
@given(folders())
def test_a_folder_survives_the_round_trip(tmp_path_factory, data):
    folder = tmp_path_factory.mktemp("gfmrag")
    write_gfmrag(data.graph, data.documents, data.mentions, folder)
    back = read_gfmrag(folder)
    assert back.graph.same_as(data.graph)
    assert list(back.graph.entity_names) == list(data.graph.entity_names)
    assert list(back.graph.triples()) == list(data.graph.triples())
    assert (back.documents, back.mentions) == (data.documents, data.mentions)


def fill(folder: Path, nodes: str = "", relations: str = "", edges: str = "", **files: str) -> Path:
    tables = {
        "nodes.csv": "name,type,attributes\n" + nodes,
        "relations.csv": "name,attributes\n" + relations,
        "edges.csv": "source,relation,target,attributes\n" + edges,
    }
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in (tables | {name.replace("_csv", ".csv"): content for name, content in files.items()}).items():
        (folder / name).write_bytes(content.encode())
    return folder


def test_mentions_in_the_direction_and_relation_of_the_documented_example(tmp_path):
    folder = fill(
        tmp_path / "data" / "processed" / "stage1",
        'France,document,"{}"\nParis,document,"{}"\ncapital,entity,"{}"\n',
        'mentions,"{}"\n',
        'France,mentions,capital,"{}"\nParis,mentions,capital,"{}"\n',
    )
    raw = tmp_path / "data" / "raw"
    raw.mkdir()
    (raw / "documents.json").write_text('{"France": "A country.", "Unused": "x"}')
    data = read_gfmrag(tmp_path / "data")
    assert read_gfmrag(folder).mentions == data.mentions
    assert data.documents == [Document("France", "A country."), Document("Paris", "")]
    assert data.mentions == [("capital", "France"), ("capital", "Paris")]
    assert data.graph.same_as(KnowledgeGraph.from_triples([], entities=["capital"]))


def test_attributes_written_by_pandas_are_python_literals(tmp_path):
    text = 'It\'s "here",\nhe said \\d.'
    nodes = tmp_path / "nodes.csv"
    fill(tmp_path, relations="r,{}\n", edges="a,r,b,{}\n")
    with nodes.open("w", newline="") as out:
        writer = csv.writer(out)
        writer.writerow(["name", "type", "attributes"])
        writer.writerows([["D", "document", repr({"content": text, "n": None})], ["a", "person", "{}"], ["b", "", ""]])
    data = read_gfmrag(tmp_path)
    assert data.documents == [Document("D", text)]
    assert [data.graph.type_of(i) for i in range(2)] == ["person", ""]


def test_what_is_written_is_also_a_python_literal(tmp_path):
    import ast

    text = "a\x01\"'\\\u2028\n🦉"
    write_gfmrag(KnowledgeGraph.from_triples([]), [Document("D", text)], [], tmp_path)
    with (tmp_path / "nodes.csv").open(newline="", encoding="utf-8") as source:
        (row,) = csv.DictReader(source)
    assert list(row) == ["name", "type", "attributes"]
    assert ast.literal_eval(row["attributes"]) == {"content": text}


def test_attributes_are_never_evaluated(tmp_path):
    marker = tmp_path / "ran"
    folder = fill(tmp_path / "x", f"a,entity,\"{{'k': open({str(marker)!r}, 'w')}}\"\n")
    with pytest.raises(InputError, match=r"nodes.csv, line 2: the attributes .* neither JSON nor a Python literal"):
        read_gfmrag(folder)
    assert not marker.exists()


def test_a_documents_other_edges_stay_in_the_graph(tmp_path):
    folder = fill(
        tmp_path,
        "paris,document,{}\nulm,document,{}\nann,entity,{}\n",
        "born in,{}\nnear,{}\nis_mentioned_in,{}\n",
        "ann,born in,paris,{}\nann,is_mentioned_in,ulm,{}\nparis,is_mentioned_in,ulm,{}\nulm,near,paris,{}\n",
    )
    data = read_gfmrag(folder)
    assert data.mentions == [("ann", "ulm"), ("paris", "ulm")]
    types = {"paris": "document", "ulm": "document"}
    triples = [("ann", "born in", "paris"), ("ulm", "near", "paris")]
    assert data.graph.same_as(KnowledgeGraph.from_triples(triples, entity_types=types))
    write_gfmrag(data.graph, data.documents, data.mentions, tmp_path / "again")
    again = read_gfmrag(tmp_path / "again")
    assert again.graph.same_as(data.graph)
    assert (again.documents, again.mentions) == (data.documents, data.mentions)


def test_columns_may_stand_in_any_order_and_uid_identifies(tmp_path):
    folder = fill(
        tmp_path,
        nodes_csv="uid,type,name\nQ1,entity,Ulm\nQ2,document,Ulm\n",
        relations_csv="name\nr\n",
        edges_csv="source,target,relation\nQ1,Q1,r\nQ1,Q2,r\n",
    )
    data = read_gfmrag(folder)
    assert (data.documents, data.mentions) == ([Document("Ulm", "")], [("Ulm", "Ulm")])
    assert list(data.graph.triples()) == [("Ulm", "r", "Ulm")]


def test_a_long_document_leaves_the_csv_limit_as_it_was(tmp_path):
    before = csv.field_size_limit()
    text = "x" * (before + 10)
    write_gfmrag(KnowledgeGraph.from_triples([]), [Document("D", text)], [], tmp_path)
    assert read_gfmrag(tmp_path).documents == [Document("D", text)]
    (tmp_path / "nodes.csv").write_text('"open')
    with pytest.raises(InputError):
        read_gfmrag(tmp_path)
    assert csv.field_size_limit() == before


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"nodes": "a,entity,[1]\n"}, r"nodes.csv, line 2: the attributes '\[1\]' must be an object"),
        ({"nodes": "a,entity,{\n"}, "nodes.csv, line 2: the attributes '{' are neither"),
        ({"nodes": 'a,entity,{}\n"b\nc",entity,{}\nd,entity\n'}, "nodes.csv, line 5: expected 3 columns but found 2"),
        ({"nodes": "a,entity,{}\n,entity,{}\n"}, "nodes.csv, line 3: the name or uid is empty"),
        ({"nodes": "a,entity,{}\na,document,{}\n"}, "nodes.csv, line 3: 'a' already stands in line 2"),
        ({"nodes": 'a,entity,{}\n"b,entity,{}\n'}, "nodes.csv, line 3: not valid CSV"),
        ({"nodes": 'D,document,"{""content"": 3}"\n'}, "nodes.csv, line 2: the content of 'D' is 3"),
        ({"relations": "r,oops\n"}, "relations.csv, line 2: the attributes 'oops'"),
        ({"relations": "r,{}\nr,{}\n"}, "relations.csv, line 3: 'r' already stands in line 2"),
        ({"edges": "b,r,a,{}\n"}, "edges.csv, line 2: the source 'b' is not in nodes.csv"),
        ({"nodes": "a,entity,{}\n", "edges": "a,r,a,{}\n"}, "edges.csv, line 2: the relation 'r' is not in relations"),
        ({"nodes_csv": "name,kind\na,entity\n"}, r"nodes.csv: the header \['name', 'kind'\] lacks the column 'type'"),
        ({"nodes_csv": "name,name,type\n"}, "nodes.csv: the header .* names a column twice"),
        ({"nodes_csv": ""}, r"nodes.csv: the header \[\] lacks the column 'name'"),
        ({"nodes_csv": "uid,name,type\n1,a,x\n2,a,y\n"}, "nodes.csv, line 3: the entity 'a' already stands in line 2"),
    ],
)
def test_a_fault_is_named_with_file_and_line(tmp_path, files, message):
    with pytest.raises(InputError, match=message) as caught:
        read_gfmrag(fill(tmp_path, **files))
    assert "\n" not in str(caught.value)


def test_missing_files_are_named(tmp_path):
    with pytest.raises(InputError, match=r"neither nodes.csv nor kg.txt"):
        read_gfmrag(tmp_path)
    (tmp_path / "nodes.csv").write_text("name,type\n")
    with pytest.raises(InputError, match=r"relations.csv: no such file"):
        read_gfmrag(tmp_path)


def test_a_folder_that_could_not_be_read_back_is_not_written(tmp_path):
    graph = KnowledgeGraph.from_triples([("a", "r", "b")])
    document = Document("D", "x")
    for documents, mentions, message in [
        ([document, document], [], "title 'D' occurs twice"),
        ([Document("", "x")], [], "document 0 has an empty name"),
        ([document], [("c", "D")], "no entity is named 'c'"),
        ([document], [("a", "E")], "no document is named 'E'"),
        ([Document("D", "\ud800")], [], "lone surrogates"),
    ]:
        with pytest.raises(InputError, match=message):
            write_gfmrag(graph, documents, mentions, tmp_path / "x")
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def old_layout(folder: Path, kg: str, mentions: object) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "kg.txt").write_text(kg, encoding="utf-8")
    (folder / "document2entities.json").write_text(json.dumps(mentions), encoding="utf-8")
    return folder


@pytest.mark.parametrize("corpus", ["raw/documents.json", "raw/dataset_corpus.json", "processed/stage1/documents.json"])
def test_the_old_layout_with_its_corpus(tmp_path, corpus):
    kg = "fred,played for,los angeles rams\r\n\nNA,was,1984\n"
    folder = old_layout(tmp_path / "processed" / "stage1", kg, {"Fred": ["fred", "alone"], "No text": []})
    (tmp_path / corpus).parent.mkdir(exist_ok=True)
    (tmp_path / corpus).write_text('{"Fred": "Text.", "Other": "Also."}')
    data = read_gfmrag(folder)
    assert list(data.graph.triples()) == [("fred", "played for", "los angeles rams"), ("NA", "was", "1984")]
    assert data.graph.entity_names == ["fred", "los angeles rams", "NA", "1984", "alone"]
    assert data.mentions == [("fred", "Fred"), ("alone", "Fred")]
    assert data.documents == [Document("Fred", "Text."), Document("Other", "Also."), Document("No text", "")]
    write_gfmrag(data.graph, data.documents, data.mentions, tmp_path / "new")
    new = read_gfmrag(tmp_path / "new")
    assert new.graph.same_as(data.graph) and (new.documents, new.mentions) == (data.documents, data.mentions)


@pytest.mark.parametrize(
    ("kg", "mentions", "message"),
    [
        ("a,r,b\na,r,b,c\n", {}, "kg.txt, line 2: expected head,relation,tail but found 4 parts in 'a,r,b,c'"),
        ("a,,b\n", {}, "kg.txt, line 1"),
        ("a,r,b\n", [], "must be an object of title: list of entities"),
        ("a,r,b\n", {"D": "a"}, "the entities of 'D' are 'a'; give a list"),
        ("a,r,b\n", {"D": [1]}, "an entity of 'D' is 1"),
    ],
)
def test_a_fault_of_the_old_layout_is_named(tmp_path, kg, mentions, message):
    with pytest.raises(InputError, match=message):
        read_gfmrag(old_layout(tmp_path / "a" / "b" / "c", kg, mentions))
