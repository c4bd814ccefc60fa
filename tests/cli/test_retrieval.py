"""`gfm retrieve`, `gfm eval` and the stages: what they print, and one line with exit code 2 for a user's mistake."""

from __future__ import annotations

import importlib
import shutil
from pathlib import Path

import pytest
import torch

from gfm.checkpoint.folder import CONFIG, WEIGHTS
from tests.cli.cases import ENCODER, FACTS, Cli, Result, check_refused, parsed, python

ODD = FACTS[1][0]


def retrieve(cli: Cli, made: Path, *options: object, question: str = "Where is Rome?") -> Result:
    return cli("retrieve", made / "index", question, "--checkpoint", made / "checkpoint", *options)


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


def test_the_command_line_starts_without_the_heavy_modules() -> None:
    code = "import sys, gfm.cli; print(sorted({'torch', 'lancedb', 'transformers'} & sys.modules.keys()))"
    assert python(code) == Result(0, "[]\n", "")


def test_a_process_of_its_own_prints_one_line_and_no_traceback(tmp_path: Path) -> None:
    check_refused(python("from gfm.cli import main; main()", "index", "info", tmp_path), tmp_path, "is not an index")
