"""The engine: schedule, loggers, limits and a run that can be repeated."""

from __future__ import annotations

from pathlib import Path

import lightning as L
import pytest
import torch
from torch import nn

from gfm.config import OptimizerConfig, PretrainConfig, TrainerConfig
from gfm.errors import InputError
from gfm.nn.gnn import QueryConditionedGNN
from gfm.training.graph_store import GraphStore
from gfm.training.sampling import CompletionSampler
from gfm.training.trainer import fit, make_optimizer, make_trainer
from pretrain.module import PretrainModule
from tests.training.graphs import TEXT, completion_graph


def rates(warmup_steps: int, max_steps: int, count: int) -> list[float]:
    parameter = nn.Parameter(torch.zeros(1))
    made = make_optimizer([parameter], OptimizerConfig(lr=2.0, warmup_steps=warmup_steps), max_steps)
    optimizer, schedule = made["optimizer"], made["lr_scheduler"]["scheduler"]
    assert made["lr_scheduler"]["interval"] == "step"
    seen = []
    for _ in range(count):
        seen.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        schedule.step()
    return seen


def test_learning_rate_warms_up_and_falls_as_a_cosine():
    # Four warm-up steps to the full rate 2, then (1 + cos(π k / 4)) for k = 0..4, and zero from there on.
    want = [0.5, 1.0, 1.5, 2.0, 2.0, 1 + 0.5**0.5, 1.0, 1 - 0.5**0.5, 0.0, 0.0]
    assert rates(4, 8, 10) == pytest.approx(want, abs=1e-9)


def test_learning_rate_without_warm_up_starts_in_full():
    assert rates(0, 2, 3) == pytest.approx([2.0, 1.0, 0.0], abs=1e-9)


def test_a_warm_up_longer_than_the_run_never_reaches_the_full_rate():
    assert rates(10, 4, 4) == pytest.approx([0.2, 0.4, 0.6, 0.8])


def test_an_unknown_logger_is_refused(tmp_path: Path):
    with pytest.raises(InputError, match=r"trainer\.logger' is 'tensorboard'; use csv or wandb or none"):
        make_trainer(TrainerConfig(logger="tensorboard"), tmp_path)


def tiny_run(out: Path, logger: str = "none", **limits: object) -> tuple[QueryConditionedGNN, L.Trainer]:
    cfg = PretrainConfig(trainer=TrainerConfig(logger=logger, progress=False, log_every=1, **limits))
    cfg.optimizer.warmup_steps = 1
    graph = completion_graph([(i, 0, i + 1) for i in range(6)], 7, 1)
    torch.manual_seed(0)
    gnn = QueryConditionedGNN(TEXT, 8, 2)
    trainer = make_trainer(cfg.trainer, out)
    module = PretrainModule(gnn, GraphStore([lambda: graph]), ["val/tiny"], cfg)
    fit(trainer, module, CompletionSampler([6], [1.0], 2, 1.0, seed=0).batches())
    return gnn, trainer


def test_a_run_stops_at_its_last_step_changes_the_weights_and_repeats_exactly(tmp_path: Path):
    (first, trainer), (second, _) = (tiny_run(tmp_path, max_steps=3) for _ in range(2))
    assert trainer.global_step == 3
    torch.manual_seed(0)
    start = QueryConditionedGNN(TEXT, 8, 2).state_dict()
    assert any(not torch.equal(start[name], tensor) for name, tensor in first.state_dict().items())
    assert all(torch.equal(tensor, second.state_dict()[name]) for name, tensor in first.state_dict().items())
    assert list(tmp_path.iterdir()) == []


def test_a_run_stops_when_its_minutes_are_over(tmp_path: Path):
    _, trainer = tiny_run(tmp_path, max_steps=10_000, max_minutes=0.002)
    assert trainer.global_step < 10_000


def test_the_csv_logger_writes_the_losses_of_every_step(tmp_path: Path):
    tiny_run(tmp_path, logger="csv", max_steps=2)
    header, *rows = (tmp_path / "logs" / "metrics.csv").read_text(encoding="utf-8").splitlines()
    assert {"train/loss", "train/bce", "train/rank", "step"} <= set(header.split(","))
    assert len(rows) == 2
