"""OpenIE files: what an LLM wrote badly is counted, what the file has wrong is refused."""

from __future__ import annotations

import json

import pytest

from gfm.errors import InputError
from gfm.kg.readers import OpenIEReport, read_openie
from gfm.types import Extraction


def write(tmp_path, *items):
    path = tmp_path / "openie.jsonl"
    lines = [item if isinstance(item, str) else json.dumps(item, ensure_ascii=False) for item in items]
    path.write_text("\n".join(lines), encoding="utf-8")
    return path


def test_good_extractions_are_kept_as_written(tmp_path):
    item = {"passage": "P\u2028Q", "extracted_entities": [" a ", "NA"], "extracted_triples": [["a", "r", "b"]], "x": 1}
    extractions, report = read_openie(write(tmp_path, item, "", {"passage": "empty"}))
    assert extractions == [Extraction("P\u2028Q", (" a ", "NA"), (("a", "r", "b"),)), Extraction("empty", (), ())]
    assert report == OpenIEReport(2, 1, 0, 0, ())


def test_numbers_become_text(tmp_path):
    item = {"passage": "P", "extracted_entities": [1984], "extracted_triples": [["a", "in", 1984], [1.5, "r", "b"]]}
    (extraction,), report = read_openie(write(tmp_path, item))
    assert extraction.entities == ("1984",)
    assert extraction.triples == (("a", "in", "1984"), ("1.5", "r", "b"))
    assert (report.malformed_triples, report.malformed_entities) == (0, 0)


@pytest.mark.parametrize(
    "triple",
    [["a", "r"], ["a", "r", "b", "c"], ["a", " ", "b"], ["a", "r", ["b"]], ["a", None, "b"], "a r b", [], {"h": "a"},
     ["a", "r", True], ["a", "r", "\ud800"], None],
)  # fmt: skip
def test_a_malformed_triple_is_left_out_counted_and_shown(tmp_path, triple):
    path = write(tmp_path, "", json.dumps({"passage": "P", "extracted_triples": [triple, ["a", "r", "b"]]}))
    (extraction,), report = read_openie(path)
    assert extraction.triples == (("a", "r", "b"),)
    assert (report.triples, report.malformed_triples) == (1, 1)
    assert report.examples == (f"line 2: triple {triple!r}",)


def test_malformed_entities_and_values_that_are_no_list_are_counted(tmp_path):
    items = [
        {"passage": "P", "extracted_entities": ["a", "", None, ["b"]], "extracted_triples": "none found"},
        {"passage": "Q", "extracted_entities": {"PERSON": ["a"]}, "extracted_triples": None},
    ]
    extractions, report = read_openie(write(tmp_path, *items))
    assert [extraction.entities for extraction in extractions] == [("a",), ()]
    assert report == OpenIEReport(2, 0, 1, 4, report.examples)
    assert report.examples[0] == "line 1: entity ''" and len(report.examples) == 5


def test_examples_are_few_and_short(tmp_path):
    path = write(tmp_path, *[{"passage": "P", "extracted_triples": [["x" * 9999]]}] * 9)
    report = read_openie(path)[1]
    assert report.malformed_triples == 9
    assert len(report.examples) == 5 and max(map(len, report.examples)) < 120


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ("{", "line 2: not valid JSON"),
        ("[1]", r"line 2: holds \[1\]"),
        ("{}", "line 2: 'passage' is None"),
        ('{"passage": ""}', "line 2: 'passage' is ''"),
        ('{"passage": 3}', "line 2: 'passage' is 3"),
    ],
)
def test_a_fault_of_the_file_is_refused_with_its_line(tmp_path, bad, message):
    with pytest.raises(InputError, match=message):
        read_openie(write(tmp_path, {"passage": "P"}, bad))


def test_an_empty_file_is_refused(tmp_path):
    with pytest.raises(InputError, match="holds no passage"):
        read_openie(write(tmp_path, "", " "))


def test_the_public_file_has_185_triples_without_three_parts(shared_data):
    extractions, report = read_openie(shared_data / "qa" / "musique100" / "openie_gpt35.jsonl")
    assert report.passages == len(extractions) == 1890
    assert (report.triples, report.malformed_triples, report.malformed_entities) == (17419 - 185, 185, 0)
    assert sum(len(extraction.triples) for extraction in extractions) == report.triples
