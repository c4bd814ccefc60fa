"""The benchmarks of the index from options to tables and JSON, on a few documents, and commands that are killed."""

from __future__ import annotations

import contextlib
import io
import json
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

import gfm.kg.building
import gfm.text.encoder
from benchmarks import commands, indexing, interruptions, linking
from benchmarks.commands import Command
from gfm.cli import main
from gfm.errors import InputError
from gfm.kg import vector_search
from tests.fakes import HashEncoder, WordExtractor

TOWNS = ["Rome", "Oslo", "Bern", "Kyiv", "Lima", "Bonn"]

# As `gfm`, with an encoder and an extractor that need no model.
PROGRAM = """
import gfm.kg.building, gfm.text.encoder
from gfm.cli import main
from tests.fakes import HashEncoder, WordExtractor
gfm.text.encoder.TextEncoder = lambda *_, **__: HashEncoder()
gfm.kg.building.make_extractor = lambda *_, **__: WordExtractor()
main()
"""
needs_proc = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc")


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Six documents; commands whose end matters run in this process, others with an instant encoder."""
    monkeypatch.setattr(gfm.text.encoder, "TextEncoder", lambda *_, **__: HashEncoder())
    monkeypatch.setattr(gfm.kg.building, "make_extractor", lambda *_, **__: WordExtractor())
    monkeypatch.setattr(commands, "PROGRAM", [sys.executable, "-c", PROGRAM])
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)  # typer replaces it

    def run(arguments: list[str], cache: Path) -> dict[str, Any]:
        printed = io.StringIO()
        monkeypatch.setattr(sys, "argv", ["gfm", *arguments, "--json"])
        with contextlib.redirect_stdout(printed), pytest.raises(SystemExit) as caught:
            main()
        assert not caught.value.code
        return {"printed": json.loads(printed.getvalue()), "wall_seconds": 2.0, "peak_gb": 0.5}

    for module in (indexing, interruptions):
        monkeypatch.setattr(module, "run", run)
    texts = {town: f"{town} lies near Lake {town}. Anna Smith was born in {town}." for town in TOWNS}
    (tmp_path / "towns.json").write_text(json.dumps(texts))
    return tmp_path / "towns.json"


def result(module: Any, tmp_path: Path, *options: str) -> dict[str, Any]:
    module.main([*options, "--out", str(tmp_path / "result.json")])
    return json.loads((tmp_path / "result.json").read_text(encoding="utf-8"))


def test_indexing_builds_changes_and_compares(source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (case,) = result(indexing, tmp_path, str(source), "--changed", "2")["cases"]
    assert (case["documents"], case["problems"]) == (6, [])
    assert case["same"] == {"graph": True, "embeddings": 0.0}
    assert [len(case[name]["printed"]["changes"]["added"]) for name in ("build", "add")] == [6, 2]
    assert len(case["update"]["printed"]["changes"]["updated"]) == 2
    assert case["delete"]["printed"]["documents"] == 4
    rows = [line for line in capsys.readouterr().out.splitlines() if line.startswith("| towns.json")]
    assert [row.split()[-2] for row in rows] == ["0.50", "yes"]


@needs_proc
def test_interruptions_kill_verify_and_finish(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).resolve().parents[2]))
    cases = result(interruptions, tmp_path, str(source), "--kills", "1")["cases"]
    assert [case["what"] for case in cases] == ["build", "add"]
    for case in cases:
        (kill,) = case["kills"]
        assert kill["same"] == {"graph": True, "embeddings": 0.0}
        assert kill["problems"] == [] and 0 < kill["moment"] < 2
        assert kill["left"] in ({"none", "after"} if case["what"] == "build" else {"before", "after"})
    assert "1 of 1" in capsys.readouterr().out


def test_linking_compares_the_vector_index_with_all_embeddings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(function: str, arguments: dict[str, Any], label: str = "") -> dict[str, Any]:
        return getattr(import_module("benchmarks.linking"), function.partition(":")[2])(**arguments)

    monkeypatch.setattr(linking, "run_case", run)
    for module in ("gfm.kg.vector_search", "gfm.kg.index", "gfm.kg.commit"):
        monkeypatch.setattr(import_module(module), "EXACT_UP_TO", 500)
    assert vector_search.EXACT_UP_TO == 500
    sizes = ["--entities", "400", "600", "--text-dim", "16", "--repeats", "4"]
    few, many = result(linking, tmp_path, *sizes)["cases"]
    assert few["vector_index_seconds"] == 0 < many["vector_index_seconds"]
    assert few["recall"] == 1 and many["recall"] > 0.5
    for case in (few, many):
        assert case["name_median_ms"] <= case["name_p95_ms"] <= case["name_max_ms"]
    assert "| 400 names | 600 names |" in capsys.readouterr().out


SPAWNING = """
import subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep({seconds})"])
print('{{"n": 1}}')
child.wait()
"""


@needs_proc
def test_a_command_is_measured_with_the_processes_it_starts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commands, "PROGRAM", [sys.executable, "-c", SPAWNING.format(seconds=0.5)])
    command = Command([], tmp_path)
    found = command.finish()
    assert found["printed"] == {"n": 1}
    assert found["wall_seconds"] > 0.5
    assert 0.005 < found["peak_gb"] < 1


@needs_proc
def test_a_process_that_outlives_a_killed_command_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commands, "PROGRAM", [sys.executable, "-c", SPAWNING.format(seconds=3)])
    monkeypatch.setattr(commands, "_PATIENCE", 0.3)
    command = Command([], tmp_path)
    while len(list(command.processes())) < 2:
        with pytest.raises(subprocess.TimeoutExpired):
            command.process.wait(0.01)
    with pytest.raises(InputError, match="outlive"):
        command.kill()


def test_a_command_that_fails_is_told_with_its_last_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commands, "PROGRAM", [sys.executable, "-c", "raise SystemExit('no such thing')"])
    with pytest.raises(InputError, match="gfm index info ended with code 1: no such thing"):
        Command(["index", "info"], tmp_path).finish()


def test_too_few_documents_are_refused(source: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        indexing.main([str(source), "--changed", "3"])
    assert "has 6 documents; changing 3 needs more than twice as many" in capsys.readouterr().err
