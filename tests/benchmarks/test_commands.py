"""Every benchmark from its options to its tables and JSON, on tiny graphs; cases run here instead of in children."""

from __future__ import annotations

import importlib.util
import json
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import torch

from benchmarks import propagation, quality, retrieval, scaling, training
from gfm.checkpoint import Checkpoint, CheckpointInfo
from gfm.config import ModelConfig
from gfm.kg.index import KGIndex
from gfm.nn.gnn import QueryConditionedGNN
from gfm.types import Document, Extraction
from tests.fakes import HashEncoder

GRAPH = ["--entities", "300", "--layers", "3", "--text-dim", "16", "--repeats", "2"]
needs_matplotlib = pytest.mark.skipif(importlib.util.find_spec("matplotlib") is None, reason="matplotlib is missing")


@pytest.fixture(autouse=True)
def _cases_run_here(monkeypatch: pytest.MonkeyPatch) -> None:
    def run(function: str, arguments: dict[str, Any], label: str = "") -> dict[str, Any]:
        module, _, name = function.partition(":")
        if name == "bandwidth":
            arguments = arguments | {"megabytes": 4}
        result = getattr(import_module(module), name)(**json.loads(json.dumps(arguments)))
        return json.loads(json.dumps(result))

    for module in (propagation, retrieval, scaling, training):
        monkeypatch.setattr(module, "run_case", run)


def run(module: Any, tmp_path: Path, *options: str) -> dict[str, Any]:
    out = tmp_path / "new" / "result.json"
    module.main([*options, "--out", str(out)])
    return json.loads(out.read_text(encoding="utf-8"))


def test_propagation_compares_all_backends_on_both_graphs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sizes = ["--entities", "300", "--edges", "1e3", "--edge-types", "20", "--hidden-dim", "8", "--batch", "2"]
    data = run(propagation, tmp_path, *sizes, "--repeats", "2")
    assert [(case["backend"], case["dtype"]) for case in data["cases"]] == 2 * [
        ("reference", "float32"),
        ("chunked", "float32"),
        ("numba", "float32"),
        ("numba", "bfloat16"),
    ]
    for case in data["cases"]:
        for name in ("forward", "backward"):
            assert 0 < case[f"{name}_seconds"]["min"] <= case[f"{name}_seconds"]["median"]
            assert case[f"{name}_bound_seconds"] > 0
            assert case[f"{name}_ratio"] > 0
        assert case["peak_gb"] >= 0
    assert data["bandwidth"]["gb_per_s"] > 0
    assert {"cpu", "cores", "ram_gb", "torch", "numba"} <= data["machine"].keys()
    printed = capsys.readouterr().out
    assert sum(line.startswith("| ours (numba)") for line in printed.splitlines()) == 4
    assert f"torch {data['machine']['torch']}" in printed
    assert "THP_MEM_ALLOC_ENABLE=1" in printed


def test_retrieval_times_exact_and_budgeted_questions(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sizes = ["--triples", "900", "--relations", "20", "--hidden-dim", "16", "--small-dim", "8", "--bfloat16"]
    data = run(retrieval, tmp_path, *GRAPH, *sizes)
    reference, layernorm, exact, *budgeted, bfloat16, small = data["cases"]
    assert [case["budget"] for case in budgeted] == [90, 30, 9, 3]
    assert [case["entities"]["max"] for case in budgeted] == [90, 30, 9, 3]
    assert reference["ratio"] == 1 and layernorm["form"] == "layernorm" and bfloat16["dtype"] == "bfloat16"
    assert small["hidden_dim"] == 8 and small["ratio"] is None, "another size of model is no ratio"
    for case in data["cases"]:
        assert case["seconds"]["median"] > 0 and case["first_seconds"] > 0
    assert exact["entities"]["max"] > 90
    assert "K=10% of V (30)" in capsys.readouterr().out


def test_training_compares_time_and_memory(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = run(training, tmp_path, *GRAPH, "--edges", "900", "--edge-types", "20", "--hidden-dim", "16", "--json")
    assert json.loads(capsys.readouterr().out) == data
    assert [case["form"] for case in data["cases"]] == ["reference", "layernorm", "ours"]
    for case in data["cases"]:
        assert case["seconds"]["median"] > 0 and case["backward_seconds"]["median"] > 0 and case["ratio"] > 0


@needs_matplotlib
def test_scaling_draws_the_sweep_and_asks_a_large_index(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sweep = ["--max-edges", "10_000", "--budgets", "50", "--hidden-dim", "8", "--text-dim", "8", "--layers", "2"]
    large = ["--large-entities", "500", "--large-triples", "900", "--large-documents", "40", "--large-dim", "8"]
    folder = ["--index-folder", str(tmp_path / "index"), "--large-budget", "100", "--repeats", "2"]
    data = run(scaling, tmp_path, *sweep, *large, *folder)
    assert [(point["edges"], point["mode"]) for point in data["points"]] == [(10_000, "exact"), (10_000, "K=50")]
    assert data["points"][1]["entities"]["max"] == 50
    assert Path(data["picture"]).read_bytes().startswith(b"\x89PNG")
    assert KGIndex.open(tmp_path / "index").info()["triples"] == 900
    for name in ("open_seconds", "retriever_seconds", "first_seconds", "question_seconds", "peak_process_gb"):
        assert data["index"][name] > 0
    assert data["training"]["seconds"]["median"] > 0
    assert capsys.readouterr().out.count("| what ") == 1


@needs_matplotlib
def test_a_case_that_dies_is_a_cell_of_the_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(training, "run_case", lambda function, arguments, label: {"failed": "out of memory"})
        patch.setattr(scaling, "run_case", lambda function, arguments, label: {"failed": "exit code 3"})
        data = run(training, tmp_path)
        run(scaling, tmp_path, "--max-edges", "10_000")
    assert data["cases"][0] == {"form": "reference", "failed": "out of memory", "ratio": None, "peak_share": None}
    printed = capsys.readouterr().out
    assert printed.count("out of memory") == 3
    assert "exit code 3" in printed


@pytest.fixture
def corpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    encoder = HashEncoder()
    monkeypatch.setattr(quality, "TextEncoder", lambda name: encoder)
    rivers = {"Thames": "London", "Seine": "Paris", "Tiber": "Rome", "Nile": "Cairo"}
    documents = [Document(river, f"{river} flows through {city}.") for river, city in rivers.items()]
    extractions = [Extraction(r, (r, city), ((r, "flows through", city),)) for r, city in rivers.items()]
    KGIndex.build(tmp_path / "index", encoder, documents=documents, extractions=extractions)
    torch.manual_seed(0)
    info = CheckpointInfo(encoder.dim, ModelConfig(8, 2), encoder.name, encoder.fingerprint, "pretrain")
    Checkpoint(QueryConditionedGNN(encoder.dim, 8, 2), None, info).save(tmp_path / "checkpoint")
    questions = [
        {"id": r, "question": f"Which city does the {r} cross?", "answer": c, "supporting_documents": [r]}
        for r, c in rivers.items()
    ]
    (tmp_path / "questions.json").write_text(json.dumps(questions), encoding="utf-8")
    files = {"--index": "index", "--questions": "questions.json", "--checkpoint": "checkpoint"}
    return [text for option, name in files.items() for text in (option, str(tmp_path / name))]


def test_retrieval_on_an_index_adds_a_table_of_quality(
    tmp_path: Path, corpus: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    sizes = ["--triples", "300", "--relations", "20", "--hidden-dim", "8", "--small-dim", "8"]
    data = run(retrieval, tmp_path, *GRAPH, *sizes, *corpus)["quality"]
    exact, *budgeted = data["cases"]
    assert data["questions"] == 4
    assert exact["share"] is None and exact["overlap@5"] == 1
    assert [case["share"] for case in budgeted] == [0.3, 0.1, 0.03, 0.01]
    assert [case["budget"] for case in budgeted] == [
        max(1, round(s * data["entities"])) for s in (0.3, 0.1, 0.03, 0.01)
    ]
    for case in data["cases"]:
        assert case["gate_seconds"] > 0
        assert all(0 <= case[key] <= 1 for key in ("recall@2", "recall@5", "graph_recall@2", "graph_recall@5"))
    assert exact["recall@5"] == 1, "five documents of four are all"
    assert "4 questions of questions.json" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("module", "options", "message"),
    [
        (propagation, ["--entities", "some"], "argument --entities: 'some' is no whole number of at least 1"),
        (propagation, ["--edges", "301"], "--edges 301"),
        (training, ["--repeats", "0"], "'0' is no whole number"),
        (training, ["--hurry"], "unrecognized arguments: --hurry"),
        (retrieval, ["--index", "somewhere"], "together"),
        (retrieval, ["--index", "a", "--questions", "b", "--checkpoint", "c"], "'a' does not exist"),
        (scaling, ["--max-edges", "9"], "--max-edges 9 leaves no case"),
    ],
)
def test_a_bad_value_is_one_line_and_exit_code_2(
    module: Any, options: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    if module is scaling:
        pytest.importorskip("matplotlib")
    with pytest.raises(SystemExit) as caught:
        module.main(options)
    assert caught.value.code == 2
    error = capsys.readouterr().err
    assert error.startswith("error: ") and message in error
    assert error.count("\n") == 1
