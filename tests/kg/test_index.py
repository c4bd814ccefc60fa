from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from gfm.config import IndexConfig
from gfm.errors import InputError
from gfm.kg.build import build_graph
from gfm.kg.graph import KnowledgeGraph
from gfm.kg.index import KGIndex
from gfm.kg.verify import verify_index
from gfm.types import Document, Extraction
from tests.fakes import HashEncoder

ROOT = Path(__file__).resolve().parents[2]
HOSTILE = [
    "NA",
    "null",
    "1984",
    "東京",
    "🙂",
    "a\tb",
    "c,d",
    'it\'s "quoted"',
    "new\nline",
    "../../up",
    "x\0y",
    "'; DROP--",
]
DOCUMENTS = [Document("A", "about a"), Document("B (song)", "about b"), Document("C", "")]
EXTRACTIONS = [
    Extraction("A", ("A", "x"), (("A", "knows", "B"), ("A", "has", "y"))),
    Extraction("B (song)", ("B", "x", "y"), (("B", "by", "x"),)),
]


def make(path: Path, **options: object) -> KGIndex:
    arguments = {"documents": DOCUMENTS, "extractions": EXTRACTIONS, **options}
    return KGIndex.build(path, HashEncoder(), **arguments)  # type: ignore[arg-type]


def files_below(path: Path) -> set[str]:
    return {p.relative_to(path).as_posix() for p in path.rglob("*")}


def test_an_index_opens_as_it_was_built(tmp_path: Path) -> None:
    built = make(tmp_path / "i")
    index = KGIndex.open(tmp_path / "i")
    expected = build_graph(DOCUMENTS, EXTRACTIONS, HashEncoder(), IndexConfig())
    assert index.version == built.version
    assert index.graph.same_as(expected.graph)
    assert index.titles == ["A", "B (song)", "C"]
    assert (index.mentions != expected.mentions).nnz == 0
    assert index.entity_document_counts.tolist() == expected.mentions.sum(axis=1).astype(int).ravel().tolist()[0]
    encoder = HashEncoder()
    assert torch.equal(index.entity_embeddings, encoder.encode(list(index.graph.entity_names)))
    assert torch.equal(index.relation_embeddings, encoder.encode(index.graph.relation_texts()))
    assert torch.equal(index.document_embeddings, encoder.encode(["A about a", "B (song) about b", "C "]))
    assert index.all_documents() == DOCUMENTS


def test_a_given_graph_gives_the_index_that_extractions_give(tmp_path: Path) -> None:
    first = make(tmp_path / "a")
    rows, columns = first.mentions.nonzero()
    pairs = [(first.graph.entity_names[v], first.titles[d]) for v, d in zip(rows, columns, strict=True)]
    second = KGIndex.build(tmp_path / "b", HashEncoder(), documents=DOCUMENTS, graph=first.graph, mentions=pairs)
    assert second.graph.same_as(first.graph)
    assert (second.mentions != first.mentions).nnz == 0
    assert torch.equal(second.entity_embeddings, first.entity_embeddings)
    assert torch.equal(second.document_embeddings, first.document_embeddings)


@pytest.mark.parametrize("typed", [True, False])
def test_hostile_names_and_titles_survive_in_a_given_graph(tmp_path: Path, typed: bool) -> None:
    triples = [(head, f"rel {head}", tail) for head, tail in itertools.pairwise(HOSTILE)]
    types = {name: f"type {name}" for name in HOSTILE} if typed else None
    graph = KnowledgeGraph.from_triples(triples * 2, entities=["isolated"], entity_types=types)
    documents = [Document(name, f"text\n{name}") for name in HOSTILE]
    mentions = [(name, name) for name in HOSTILE]
    KGIndex.build(tmp_path / "i", HashEncoder(), documents=documents, graph=graph, mentions=mentions)
    index = KGIndex.open(tmp_path / "i")
    assert index.graph.same_as(graph)
    assert (index.graph.entity_types is None) is not typed
    assert index.all_documents() == sorted(documents, key=lambda d: d.title)
    assert index.info()["isolated_entities"] == 1
    assert files_below(tmp_path) & set(HOSTILE) == set()


def test_hostile_names_survive_in_a_graph_from_extractions(tmp_path: Path) -> None:
    documents = [Document(name, name) for name in HOSTILE]
    index = make(tmp_path / "i", documents=documents, extractions=[Extraction(HOSTILE[0], tuple(HOSTILE), ())])
    assert set(index.graph.entity_names) == set(HOSTILE)
    assert [d.title for d in index.all_documents()] == sorted(HOSTILE)


def test_documents_come_in_the_order_asked_for(tmp_path: Path) -> None:
    index = make(tmp_path / "i")
    assert [d.title for d in index.documents([2, 0, 2, 1])] == ["C", "A", "C", "B (song)"]
    assert index.documents([]) == []
    for bad in (-1, 3):
        with pytest.raises(InputError, match=f"document id {bad} "):
            index.documents([bad])


def test_a_graph_without_documents_is_an_index(tmp_path: Path) -> None:
    graph = KnowledgeGraph.from_triples([("a", "r", "b")])
    index = KGIndex.build(tmp_path / "i", HashEncoder(), graph=graph)
    assert index.mentions.shape == (2, 0)
    assert index.document_embeddings.shape == (0, 16)
    assert index.all_documents() == []


def test_a_graph_without_triples_is_an_index(tmp_path: Path) -> None:
    index = make(tmp_path / "i", extractions=None)
    assert index.graph.num_edges == 0
    assert index.relation_embeddings.shape == (0, 16)
    assert index.info()["isolated_entities"] == 3


def test_what_is_written_to_the_tensors_does_not_reach_the_disk(tmp_path: Path) -> None:
    before = make(tmp_path / "i").entity_embeddings.clone()
    KGIndex.open(tmp_path / "i").entity_embeddings.zero_()
    assert torch.equal(KGIndex.open(tmp_path / "i").entity_embeddings, before)


def test_info_counts_what_is_there(tmp_path: Path) -> None:
    info = make(tmp_path / "i", reader_counts={"malformed_triples": 7, "entities": -1}).info()
    # A, x, B, y, C; knows, has, by, mentions; 3 extracted + A-x, B-y from titles.
    assert (info["entities"], info["relations"], info["triples"], info["documents"]) == (5, 4, 5, 3)
    assert (info["mentions"], info["extracted_triples"], info["title_triples"]) == (8, 3, 2)
    assert info["malformed_triples"] == 7
    assert (info["degree_mean"], info["degree_max"], info["isolated_entities"]) == (2.0, 3, 1)
    assert info["encoder"] == {"name": "hash", "fingerprint": HashEncoder().fingerprint, "dim": 16}
    assert info["bytes_on_disk"] > 1000
    assert json.loads(json.dumps(info)) == info


def test_another_encoder_is_refused_with_both_names(tmp_path: Path) -> None:
    index, other = make(tmp_path / "i"), HashEncoder(name="other")
    index.check_encoder(HashEncoder())
    with pytest.raises(InputError) as error:
        index.check_encoder(other)
    for part in ("'hash'", "'other'", HashEncoder().fingerprint, other.fingerprint):
        assert part in str(error.value)


def test_a_rebuild_replaces_the_version_and_removes_the_old_arrays(tmp_path: Path) -> None:
    old = make(tmp_path / "i")
    new = make(tmp_path / "i", documents=[*DOCUMENTS, Document("D", "new")])
    assert new.version != old.version
    assert os.listdir(tmp_path / "i" / "arrays") == [new.version]
    assert KGIndex.open(tmp_path / "i").titles == ["A", "B (song)", "C", "D"]
    # A reader that opened the old version goes on reading it, documents included.
    assert old.all_documents() == DOCUMENTS
    assert float(old.document_embeddings.norm()) > 0
    graph = KnowledgeGraph.from_triples([("a", "r", "b")])
    assert KGIndex.build(tmp_path / "i", HashEncoder(), graph=graph).graph.same_as(graph)
    assert not (tmp_path / "i" / "lance" / "extractions.lance").exists()


@pytest.mark.parametrize(
    ("stop_at", "titles"),
    [("write_arrays", ["A", "B (song)", "C"]), ("write_json", ["A", "B (song)", "C"]), ("remove_old_files", ["D"])],
)
def test_a_killed_rebuild_leaves_a_complete_version(tmp_path: Path, stop_at: str, titles: list[str]) -> None:
    make(tmp_path / "i")
    script = f"""
import sys
from gfm.kg import commit
from gfm.kg.index import KGIndex
from gfm.kg.verify import verify_index
from gfm.types import Document
from tests.fakes import HashEncoder
def stop(*args):
    print("reached", flush=True)
    sys.stdin.read()
commit.{stop_at} = stop
KGIndex.build(sys.argv[1], HashEncoder(), documents=[Document("D", "new")])
"""
    with subprocess.Popen(
        [sys.executable, "-c", script, str(tmp_path / "i")], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"reached\n"
        os.kill(child.pid, signal.SIGKILL)
    index = KGIndex.open(tmp_path / "i")
    assert index.titles == titles
    assert [d.title for d in index.all_documents()] == titles
    again = make(tmp_path / "i", documents=[Document("E", "newest")], extractions=None)
    assert [d.title for d in again.all_documents()] == ["E"]
    assert os.listdir(tmp_path / "i" / "arrays") == [again.version]


def test_a_killed_first_build_can_be_started_again(tmp_path: Path) -> None:
    make(tmp_path / "i")
    (tmp_path / "i" / "index.json").unlink()
    assert make(tmp_path / "i").titles == ["A", "B (song)", "C"]


def test_a_folder_with_other_contents_is_never_overwritten(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("years of work")
    with pytest.raises(InputError, match="holds no index"):
        make(tmp_path)
    assert files_below(tmp_path) == {"thesis.txt"}
    with pytest.raises(InputError, match=r"thesis\.txt' is a file"):
        make(tmp_path / "thesis.txt")


def test_an_empty_folder_may_become_an_index(tmp_path: Path) -> None:
    assert make(tmp_path).titles == ["A", "B (song)", "C"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"documents": (), "extractions": None}, "nothing to index"),
        ({"extractions": None, "graph": KnowledgeGraph.from_triples([])}, "no entities"),
        ({"graph": KnowledgeGraph.from_triples([("a", "r", "b")])}, "both extractions and a graph"),
        ({"mentions": [("a", "A")]}, "mentions were given without a graph"),
        (
            {"extractions": None, "graph": KnowledgeGraph.from_triples([("a", "r", "b")]), "mentions": [("z", "A")]},
            "'z' in 'A'",
        ),
        (
            {"extractions": None, "graph": KnowledgeGraph.from_triples([("a", "r", "b")]), "mentions": [("a", "Z")]},
            "'a' in 'Z'",
        ),
        ({"documents": [Document("A", "half \ud83d emoji")], "extractions": None}, "surrogate"),
        ({"documents": [Document("A", ""), Document("A", "b")], "extractions": None}, "title 'A'"),
    ],
)
def test_what_cannot_be_indexed_is_refused_and_leaves_nothing(
    tmp_path: Path, options: dict[str, object], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        make(tmp_path / "i", **options)
    assert not (tmp_path / "i").exists()


def edit_manifest(path: Path, **changes: object) -> None:
    manifest = json.loads((path / "index.json").read_text())
    (path / "index.json").write_text(json.dumps(manifest | changes))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"format": 99}, "format 99.*upgrade gfm"),
        ({"format": "x"}, "names no format"),
        ({"version": "../../../etc"}, "32 hex digits"),
        ({"counts": {}}, r"index\.json.*KeyError"),
        ({"encoder": 3}, r"index\.json"),
    ],
)
def test_a_manifest_that_cannot_be_used_is_refused(tmp_path: Path, changes: dict[str, object], message: str) -> None:
    make(tmp_path / "i")
    edit_manifest(tmp_path / "i", **changes)
    with pytest.raises(InputError, match=message):
        KGIndex.open(tmp_path / "i")


@pytest.mark.parametrize("folder", ["missing", "empty"])
def test_a_folder_that_is_no_index_is_refused(tmp_path: Path, folder: str) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match=f"{folder}' is not an index"):
        KGIndex.open(tmp_path / folder)


@pytest.mark.parametrize("damage", ["missing", "short", "other", "wrong shape"])
@pytest.mark.parametrize(
    "name", ["edge_index.npy", "entity_embeddings.npy", "mention_indices.npy", "entities.json", "text_offsets.npy"]
)
def test_a_damaged_file_is_refused_by_name(tmp_path: Path, name: str, damage: str) -> None:
    path = tmp_path / "i" / "arrays" / make(tmp_path / "i").version / name
    if damage == "missing":
        path.unlink()
    elif damage == "short":
        path.write_bytes(path.read_bytes()[:-5])
    elif damage == "other":
        path.write_bytes(b"\x93 something else")
    elif name.endswith(".json"):
        path.write_text('["too", "few"]')
    else:
        np.save(path, np.zeros((1, 1), dtype=np.int64))
    with pytest.raises(InputError, match=name.replace(".", r"\.")):
        KGIndex.open(tmp_path / "i")


def test_a_missing_table_is_found_by_name_and_does_not_hinder_readers(tmp_path: Path) -> None:
    make(tmp_path / "i")
    manifest = json.loads((tmp_path / "i" / "index.json").read_text())
    edit_manifest(tmp_path / "i", tables=manifest["tables"] | {"documents": 77})
    assert KGIndex.open(tmp_path / "i").all_documents() == DOCUMENTS
    assert any("documents.lance" in problem for problem in verify_index(tmp_path / "i"))
