"""Sources: each layout is recognised by its files, and what cannot be told is refused with the mend."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gfm.errors import InputError
from gfm.kg.graph import KnowledgeGraph
from gfm.kg.index import KGIndex
from gfm.kg.readers import write_gfmrag, write_triples
from gfm.kg.sources import read_source
from gfm.types import Document, Extraction
from tests.fakes import HashEncoder

DOCUMENTS = [Document("Rome", "A city."), Document("東京", "A city, too.")]
GRAPH = KnowledgeGraph.from_triples([("Rome", "in", "Italy"), ("東京", "in", "日本")])
MENTIONS = [("Rome", "Rome"), ("東京", "東京"), ("日本", "東京")]
RECORDS = [
    {"passage": "Rome", "extracted_entities": ["Rome", "Italy"], "extracted_triples": [["Rome", "in", "Italy"]]},
    {
        "passage": "東京",
        "extracted_entities": ["東京", 7, None],
        "extracted_triples": [["東京", "in"], ["a", "b", "c"]],
    },
]


def write_raw(folder: Path, *, nested: bool = True, records: tuple[str, ...] = ("openie.jsonl",)) -> Path:
    place = folder / "raw" if nested else folder
    place.mkdir(parents=True, exist_ok=True)
    texts = {document.title: document.text for document in DOCUMENTS}
    (place / "documents.json").write_text(json.dumps(texts, ensure_ascii=False), encoding="utf-8")
    for name in records:
        lines = "".join(json.dumps(record) + "\n" for record in RECORDS)
        (folder / name).write_text(lines, encoding="utf-8")
    return folder


def write_old_layout(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "kg.txt").write_text("Rome,in,Italy\n東京,in,日本\n", encoding="utf-8")
    found = {"Rome": ["Rome"], "東京": ["東京", "日本"]}
    (folder / "document2entities.json").write_text(json.dumps(found), encoding="utf-8")
    return folder


@pytest.mark.parametrize("nested", [True, False])
@pytest.mark.parametrize("name", ["openie.jsonl", "openie_ner_triples.jsonl"])
def test_documents_with_records_are_a_raw_layout(tmp_path: Path, nested: bool, name: str) -> None:
    source = read_source(write_raw(tmp_path, nested=nested, records=(name,)))
    assert source.layout == "raw"
    assert source.documents == DOCUMENTS
    assert source.extractions is not None
    assert source.extractions[0] == Extraction("Rome", ("Rome", "Italy"), (("Rome", "in", "Italy"),))
    assert (source.graph, source.mentions) == (None, None)


def test_what_the_record_reader_could_not_use_is_counted(tmp_path: Path) -> None:
    assert read_source(write_raw(tmp_path)).reader_counts() == {"malformed_triples": 1, "malformed_entities": 1}


@pytest.mark.parametrize("below", ["", "processed/stage1"])
def test_tables_are_a_gfmrag_layout(tmp_path: Path, below: str) -> None:
    write_gfmrag(GRAPH, DOCUMENTS, MENTIONS, tmp_path / below)
    source = read_source(tmp_path)
    assert source.layout == "gfmrag"
    assert source.graph is not None and source.graph.same_as(GRAPH)
    assert source.documents == DOCUMENTS
    assert source.mentions == MENTIONS
    assert (source.extractions, source.reader_counts()) == (None, {})


@pytest.mark.parametrize("below", ["", "processed/stage1"])
def test_kg_txt_is_a_gfmrag_layout(tmp_path: Path, below: str) -> None:
    write_old_layout(tmp_path / below)
    source = read_source(tmp_path)
    assert source.layout == "gfmrag"
    assert source.graph is not None and source.graph.same_as(GRAPH)
    assert source.mentions == MENTIONS


def test_a_finished_graph_wins_over_the_raw_files_it_was_made_from(tmp_path: Path) -> None:
    write_raw(tmp_path)
    write_old_layout(tmp_path / "processed" / "stage1")
    source = read_source(tmp_path)
    assert source.layout == "gfmrag"
    assert source.documents == DOCUMENTS


@pytest.mark.parametrize("name", ["graph.tsv", "train.tsv"])
def test_a_folder_with_triples_is_a_graph_without_documents(tmp_path: Path, name: str) -> None:
    write_triples(GRAPH, tmp_path / name)
    source = read_source(tmp_path)
    assert source.layout == "triples"
    assert source.graph is not None and source.graph.same_as(GRAPH)
    assert (source.documents, source.extractions, source.mentions) == ([], None, None)


def test_the_whole_graph_wins_over_its_training_split(tmp_path: Path) -> None:
    write_triples(GRAPH, tmp_path / "graph.tsv")
    write_triples(KnowledgeGraph.from_triples([("a", "b", "c")]), tmp_path / "train.tsv")
    graph = read_source(tmp_path).graph
    assert graph is not None and graph.same_as(GRAPH)


@pytest.mark.parametrize("name", ["any.tsv", "any.csv"])
def test_a_file_is_read_as_triples_whether_given_as_path_or_text(tmp_path: Path, name: str) -> None:
    write_triples(GRAPH, tmp_path / name)
    for path in (tmp_path / name, str(tmp_path / name)):
        source = read_source(path)
        assert source.layout == "triples"
        assert source.graph is not None and source.graph.same_as(GRAPH)


def test_every_layout_becomes_an_index(tmp_path: Path) -> None:
    folders = {name: tmp_path / name for name in ("raw", "tables", "old", "triples")}
    write_raw(folders["raw"])
    write_gfmrag(GRAPH, DOCUMENTS, MENTIONS, folders["tables"])
    write_old_layout(folders["old"])
    write_triples(GRAPH, folders["triples"] / "graph.tsv")
    for name, folder in folders.items():
        data = read_source(folder)
        index = KGIndex.build(
            tmp_path / f"{name}-index",
            HashEncoder(),
            documents=data.documents,
            extractions=data.extractions,
            graph=data.graph,
            mentions=data.mentions,
            reader_counts=data.reader_counts(),
        )
        assert ("Rome", "in", "Italy") in set(index.graph.triples())
        assert index.titles == ([] if name == "triples" else ["Rome", "東京"])


def test_named_records_are_taken_where_several_are_there(tmp_path: Path) -> None:
    write_raw(tmp_path, records=("openie_a.jsonl", "openie_b.jsonl"))
    (tmp_path / "openie_b.jsonl").write_text(json.dumps(RECORDS[0]) + "\n", encoding="utf-8")
    source = read_source(tmp_path, tmp_path / "openie_b.jsonl")
    assert source.extractions is not None
    assert [extraction.passage for extraction in source.extractions] == ["Rome"]


def test_several_record_files_are_refused_with_their_names(tmp_path: Path) -> None:
    write_raw(tmp_path, records=("openie_b.jsonl", "openie_a.jsonl"))
    with pytest.raises(InputError, match=r"openie_a\.jsonl, openie_b\.jsonl.*--records"):
        read_source(tmp_path)


def test_documents_without_records_have_no_extraction(tmp_path: Path) -> None:
    write_raw(tmp_path, records=("records.jsonl",))
    source = read_source(tmp_path)
    assert (source.documents, source.extractions) == (DOCUMENTS, None)


def test_records_are_left_alone_where_the_documents_are_to_be_extracted(tmp_path: Path) -> None:
    assert read_source(write_raw(tmp_path), extract=True).extractions is None


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("d.json", '{"Rome": "A city.", "東京": "A city, too."}'),
        ("d.jsonl", '{"title": "Rome", "text": "A city."}\n\n{"id": "東京", "text": "A city, too."}\n'),
    ],
)
def test_a_file_of_documents_is_read_by_its_ending(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text, encoding="utf-8")
    source = read_source(tmp_path / name)
    assert (source.layout, source.documents, source.graph) == ("documents", DOCUMENTS, None)


def test_the_text_files_of_a_folder_are_its_documents(tmp_path: Path) -> None:
    (tmp_path / "deep" / "er").mkdir(parents=True)
    (tmp_path / ".git").mkdir()
    for name in ("Rome.txt", "deep/Oslo.md", "deep/er/東京.TXT", "deep/picture.png", ".git/notes.txt", ".hidden.md"):
        (tmp_path / name).write_text(f"about {name}", encoding="utf-8")
    assert read_source(tmp_path).documents == [
        Document("Rome", "about Rome.txt"),
        Document("deep/Oslo", "about deep/Oslo.md"),
        Document("deep/er/東京", "about deep/er/東京.TXT"),
    ]
    assert read_source(tmp_path / "deep" / "Oslo.md").documents == [Document("Oslo", "about deep/Oslo.md")]


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("d.jsonl", '{"title": "A"}', r"d\.jsonl, line 1.*title and text"),
        ("d.jsonl", '["A", "text"]', "line 1.*title and text"),
        ("d.jsonl", "\n", "holds no document"),
        ("d.jsonl", '{"title": 3, "text": ""}', "'title' is 3"),
        ("d.json", "[]", "must be a JSON object"),
        ("d.md", b"\xff", "not UTF-8"),
    ],
)
def test_a_file_that_holds_no_documents_is_refused(tmp_path: Path, name: str, text: str | bytes, message: str) -> None:
    (tmp_path / name).write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(InputError, match=message):
        read_source(tmp_path / name)


def test_two_files_of_one_title_are_refused_with_their_names(tmp_path: Path) -> None:
    for name in ("a.md", "a.txt"):
        (tmp_path / name).write_text("")
    with pytest.raises(InputError, match=r"a\.md.*a\.txt.*rename"):
        read_source(tmp_path)


def test_records_that_are_not_there_are_refused_with_their_path(tmp_path: Path) -> None:
    write_raw(tmp_path)
    with pytest.raises(InputError, match=r"missing\.jsonl: no such file"):
        read_source(tmp_path, tmp_path / "missing.jsonl")


def test_a_folder_without_a_known_layout_is_refused_with_all_that_are_known(tmp_path: Path) -> None:
    (tmp_path / "notes.pdf").write_text("nothing")
    with pytest.raises(InputError, match=r"no layout known.*documents\.json.*nodes\.csv.*kg\.txt.*graph\.tsv"):
        read_source(tmp_path)


def test_a_path_that_is_not_there_is_refused_with_what_it_may_be(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"source '.*nowhere' does not exist; give a folder"):
        read_source(tmp_path / "nowhere")


def test_messages_are_one_line(tmp_path: Path) -> None:
    strange = tmp_path / "two\nlines"
    strange.mkdir()
    for path in (strange, strange / "nowhere"):
        with pytest.raises(InputError) as caught:
            read_source(path)
        assert "\n" not in str(caught.value)
