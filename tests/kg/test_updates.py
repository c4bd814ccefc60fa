"""Changing an index: whatever led to its documents, it is the index that a build from them gives."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gfm.config import IndexConfig
from gfm.errors import InputError
from gfm.files import SUMS
from gfm.kg.index import KGIndex
from gfm.kg.manifest import read_manifest
from gfm.kg.rows import content_of
from gfm.kg.tables import Tables
from gfm.kg.verify import compact_index, repair_index, verify_index
from gfm.kg.writer import BuildOptions, add_documents, build_index, delete_documents, update_documents
from gfm.types import Document
from tests.fakes import HashEncoder, WordExtractor

ENCODER = HashEncoder()
# Cosines of random vectors of 16 numbers reach this often enough for synonyms to come and go.
OPTIONS = BuildOptions(IndexConfig(synonym_threshold=0.3, synonym_cap=2))
TEXTS = ["Ann met Bob", "bob knows Cleo and ANN", "Cleo (CC) met Dan", "", "Eve", "Bob met Eve in Rome", "nothing here"]
CORPUS = [Document(f"T{i}", text) for i, text in enumerate(TEXTS)]


def build(path: Path, documents: Sequence[Document], extractor: WordExtractor | None = None) -> WordExtractor:
    used = extractor or WordExtractor()
    build_index(path, documents, used, ENCODER, OPTIONS)
    return used


def contents(path: Path) -> dict[str, bytes]:
    """Every derived file of an index."""
    folder = path / "arrays" / read_manifest(path)["version"]
    return {file.name: file.read_bytes() for file in folder.iterdir()}


DOCUMENT_SETS = st.dictionaries(st.sampled_from(["A", "B", "Ann", "Bob (man)", "東京"]), st.sampled_from(TEXTS))


@settings(max_examples=15)
@given(DOCUMENT_SETS.filter(bool), st.lists(st.tuples(st.sampled_from(["add", "update", "delete"]), DOCUMENT_SETS)))
def test_any_order_of_changes_gives_the_index_of_a_build_from_the_documents_that_are_left(
    first: dict[str, str], steps: list[tuple[str, dict[str, str]]]
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "changed"
        expected = dict(first)
        build(path, [Document(*item) for item in first.items()])
        for step, documents in steps:
            if step == "delete":
                gone = [title for title in documents if title in expected]
                if 0 < len(gone) < len(expected):
                    delete_documents(path, gone, ENCODER)
                    expected = {title: text for title, text in expected.items() if title not in gone}
                continue
            if step == "add":
                documents = {t: x for t, x in documents.items() if expected.get(t, x) == x}
            if documents:
                change = add_documents if step == "add" else update_documents
                change(path, [Document(*item) for item in documents.items()], WordExtractor(), ENCODER)
                expected |= documents
        build(Path(folder) / "rebuilt", [Document(*item) for item in reversed(expected.items())])
        assert contents(path) == contents(Path(folder) / "rebuilt")
        assert verify_index(path) == []


def test_only_what_is_new_is_extracted_and_embedded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    build(tmp_path / "i", CORPUS)
    embedded: list[str] = []
    encode = HashEncoder.encode
    monkeypatch.setattr(
        HashEncoder, "encode", lambda self, texts, **kw: embedded.extend(texts) or encode(self, texts, **kw)
    )
    extractor = WordExtractor()
    changes = add_documents(tmp_path / "i", [CORPUS[0], Document("New", "Zoe met Ann")], extractor, ENCODER)
    assert (changes.added, changes.unchanged, changes.updated) == (("New",), ("T0",), ())
    assert extractor.seen == ["New"]
    assert sorted(embedded) == ["New", "New Zoe met Ann", "Zoe"]


def test_a_build_on_an_index_brings_it_up_to_date_and_extracts_what_changed(tmp_path: Path) -> None:
    build(tmp_path / "i", CORPUS)
    changed = [Document("T1", "Ann met Zoe"), *CORPUS[2:]]
    extractor = WordExtractor()
    changes = build_index(tmp_path / "i", changed, extractor, ENCODER, OPTIONS)
    assert extractor.seen == ["T1"]
    assert (changes.updated, changes.deleted, changes.added) == (("T1",), ("T0",), ())
    build(tmp_path / "fresh", changed)
    assert contents(tmp_path / "i") == contents(tmp_path / "fresh")


def test_adding_a_title_that_has_another_text_is_refused_and_changes_nothing(tmp_path: Path) -> None:
    build(tmp_path / "i", CORPUS)
    before = contents(tmp_path / "i")
    with pytest.raises(InputError, match=r"'T0'.*gfm index update"):
        add_documents(tmp_path / "i", [Document("T0", "other"), Document("N", "Ann")], WordExtractor(), ENCODER)
    assert contents(tmp_path / "i") == before
    changes = update_documents(tmp_path / "i", [Document("T0", "other")], WordExtractor(), ENCODER)
    assert changes.updated == ("T0",)
    assert KGIndex.open(tmp_path / "i").documents([0]) == [Document("T0", "other")]


@pytest.mark.parametrize(
    ("titles", "message"),
    [(["T0", "Nowhere"], "'Nowhere'.*nothing was deleted"), ([d.title for d in CORPUS], "no doc")],
)
def test_what_cannot_be_deleted_is_refused_and_changes_nothing(tmp_path: Path, titles: list[str], message: str) -> None:
    build(tmp_path / "i", CORPUS)
    before = contents(tmp_path / "i")
    with pytest.raises(InputError, match=message):
        delete_documents(tmp_path / "i", titles, ENCODER)
    assert contents(tmp_path / "i") == before


def test_documents_with_the_same_text_are_kept_and_reported(tmp_path: Path) -> None:
    same = [Document("X", "Ann met Bob"), Document("Y", "Ann met Bob"), Document("Y", "Ann met Bob")]
    changes = build_index(tmp_path / "i", same, WordExtractor(), ENCODER, OPTIONS)
    assert (changes.duplicates, changes.repeated) == ((("X", "Y"),), ("Y",))
    assert KGIndex.open(tmp_path / "i").titles == ["X", "Y"]


def test_a_document_that_failed_is_reported_and_tried_again_by_the_next_write(tmp_path: Path) -> None:
    build(tmp_path / "i", CORPUS, WordExtractor(failing=["Cleo"]))
    assert KGIndex.open(tmp_path / "i").info()["failed_documents"] == 2
    assert [problem.split(" could")[0] for problem in verify_index(tmp_path / "i")] == [
        "document 'T1'",
        "document 'T2'",
    ]
    extractor = WordExtractor()
    add_documents(tmp_path / "i", [Document("New", "Zoe")], extractor, ENCODER)
    assert sorted(extractor.seen) == ["New", "T1", "T2"]
    build(tmp_path / "fresh", [*CORPUS, Document("New", "Zoe")])
    assert contents(tmp_path / "i") == contents(tmp_path / "fresh")
    assert verify_index(tmp_path / "i") == []


def test_each_triple_keeps_its_sentence(tmp_path: Path) -> None:
    build(tmp_path / "i", CORPUS)
    tables = Tables(str(tmp_path / "i" / "lance"), ENCODER.fingerprint)
    documents = tables.documents(read_manifest(tmp_path / "i")["tables"]["documents"])
    found, failures = tables.extractions(documents)
    by_title = {extraction.passage: extraction for extraction in found}
    assert by_title["T0"].sentences == ("Ann met Bob",)
    assert failures == []


def test_an_alias_and_a_type_reach_the_reader(tmp_path: Path) -> None:
    build(tmp_path / "i", CORPUS)
    index = KGIndex.open(tmp_path / "i")
    names = list(index.graph.entity_names)
    assert index.aliases == [("CC", names.index("Cleo"))]
    assert index.graph.entity_types is not None
    assert index.graph.entity_types[names.index("Cleo")] == "WORD"


def test_an_update_with_another_encoder_is_refused_with_both_names(tmp_path: Path) -> None:
    build(tmp_path / "i", CORPUS)
    other = HashEncoder(name="other")
    for change in (
        lambda: add_documents(tmp_path / "i", [Document("N", "")], WordExtractor(), other),
        lambda: delete_documents(tmp_path / "i", ["T0"], other),
        lambda: repair_index(tmp_path / "i", other),
    ):
        with pytest.raises(InputError, match=r"'hash'.*'other'"):
            change()


def test_a_build_with_another_encoder_embeds_anew_and_extracts_nothing(tmp_path: Path) -> None:
    build(tmp_path / "i", CORPUS)
    extractor = WordExtractor()
    build_index(tmp_path / "i", CORPUS, extractor, HashEncoder(8, "other"), OPTIONS)
    assert extractor.seen == []
    assert KGIndex.open(tmp_path / "i").entity_embeddings.shape[1] == 8
    assert verify_index(tmp_path / "i") == []


def test_tables_may_lie_elsewhere(tmp_path: Path) -> None:
    options = BuildOptions(OPTIONS.config, location=str(tmp_path / "store"))
    build_index(tmp_path / "i", CORPUS, WordExtractor(), ENCODER, options)
    assert not (tmp_path / "i" / "lance").exists()
    add_documents(tmp_path / "i", [Document("N", "Zoe")], WordExtractor(), ENCODER)
    assert verify_index(tmp_path / "i") == []
    with pytest.raises(InputError, match="tables of another index"):
        build_index(tmp_path / "j", CORPUS, WordExtractor(), ENCODER, options)


def test_documents_as_nodes_mention_what_they_hold(tmp_path: Path) -> None:
    options = BuildOptions(IndexConfig(document_nodes=True, synonym_threshold=0.3))
    build_index(tmp_path / "i", CORPUS, WordExtractor(), ENCODER, options)
    index = KGIndex.open(tmp_path / "i")
    assert index.document_nodes is not None
    names = [index.graph.entity_names[node] for node in index.document_nodes]
    assert names == [f"T{i} (document)" for i in range(len(CORPUS))]
    assert np.array_equal(index.entity_embeddings[index.document_nodes], index.document_embeddings)
    add_documents(tmp_path / "i", [Document("N", "Zoe met Ann")], WordExtractor(), ENCODER)
    build_index(tmp_path / "fresh", [*CORPUS, Document("N", "Zoe met Ann")], WordExtractor(), ENCODER, options)
    assert contents(tmp_path / "i") == contents(tmp_path / "fresh")


def damage_file(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize("name", ["edge_index.npy", "entity_embeddings.npy", "titles.json", "nearest_cosine.npy", SUMS])
def test_a_changed_file_is_found_and_repaired(tmp_path: Path, name: str) -> None:
    build(tmp_path / "i", CORPUS)
    before = contents(tmp_path / "i")
    damage_file(tmp_path / "i" / "arrays" / read_manifest(tmp_path / "i")["version"] / name)
    assert verify_index(tmp_path / "i") != []
    repair_index(tmp_path / "i", ENCODER)
    assert verify_index(tmp_path / "i") == []
    assert contents(tmp_path / "i") == before


def test_arrays_that_do_not_follow_from_the_tables_are_found(tmp_path: Path) -> None:
    build(tmp_path / "i", CORPUS)
    build(tmp_path / "j", CORPUS[1:])
    # A sealed, complete version of another corpus in the place of this one's.
    folder = tmp_path / "i" / "arrays" / read_manifest(tmp_path / "i")["version"]
    for file in folder.iterdir():
        file.unlink()
    for name, data in contents(tmp_path / "j").items():
        (folder / name).write_bytes(data)
    assert any("titles.json: not what the tables give" in problem for problem in verify_index(tmp_path / "i"))


def test_a_damaged_name_table_of_the_version_before_stops_an_update_with_the_mend(tmp_path: Path) -> None:
    build(tmp_path / "i", CORPUS)
    damage_file(tmp_path / "i" / "arrays" / read_manifest(tmp_path / "i")["version"] / "nearest_cosine.npy")
    with pytest.raises(InputError, match=r"nearest_cosine\.npy.*verify --repair"):
        add_documents(tmp_path / "i", [Document("N", "Zoe")], WordExtractor(), ENCODER)


def test_compacting_leaves_nothing_of_a_deleted_document_on_the_disk(tmp_path: Path) -> None:
    secret = Document("Secret Person", "Xanthippe met Yorick")
    build(tmp_path / "i", [*CORPUS, secret])
    delete_documents(tmp_path / "i", [secret.title], ENCODER)
    before, after = compact_index(tmp_path / "i")
    assert after < before
    left = b"".join(file.read_bytes() for file in (tmp_path / "i").rglob("*") if file.is_file())
    for word in ("Xanthippe", "Yorick", "Secret", content_of(secret)):
        assert word.encode() not in left
    assert verify_index(tmp_path / "i") == []
    add_documents(tmp_path / "i", [secret], WordExtractor(), ENCODER)
    build(tmp_path / "fresh", [*CORPUS, secret])
    assert contents(tmp_path / "i") == contents(tmp_path / "fresh")


@pytest.mark.parametrize("change", ["add", "delete"])
def test_an_index_of_a_given_graph_is_not_changed_document_by_document(tmp_path: Path, change: str) -> None:
    from gfm.kg.graph import KnowledgeGraph

    graph = KnowledgeGraph.from_triples([("a", "r", "b")], entity_types={"a": "t", "b": "u"})
    KGIndex.build(tmp_path / "i", ENCODER, documents=CORPUS, graph=graph, mentions=[("a", "T0")])
    calls: dict[str, Callable[[], object]] = {
        "add": lambda: add_documents(tmp_path / "i", [Document("N", "")], WordExtractor(), ENCODER),
        "delete": lambda: delete_documents(tmp_path / "i", ["T0"], ENCODER),
    }
    with pytest.raises(InputError, match="given graph"):
        calls[change]()
    assert verify_index(tmp_path / "i") == []
    compact_index(tmp_path / "i")
    repair_index(tmp_path / "i", ENCODER)
    assert verify_index(tmp_path / "i") == []


def test_an_index_of_an_older_format_is_refused_and_can_be_built_again(tmp_path: Path) -> None:
    build(tmp_path / "i", CORPUS)
    manifest = json.loads((tmp_path / "i" / "index.json").read_text())
    (tmp_path / "i" / "index.json").write_text(json.dumps(manifest | {"format": 1}))
    with pytest.raises(InputError, match=r"format 1 of an older gfm.*gfm index build"):
        KGIndex.open(tmp_path / "i")
    build(tmp_path / "i", CORPUS)
    assert verify_index(tmp_path / "i") == []
