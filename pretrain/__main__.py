"""Wires the pretraining stage: config, graphs, model, trainer, evaluation, export."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path

import lightning as L

from gfm.checkpoint import Checkpoint, CheckpointInfo
from gfm.config import PretrainConfig, save_config
from gfm.errors import InputError
from gfm.evaluation.completion import evaluate_completion
from gfm.nn.gnn import QueryConditionedGNN
from gfm.stage import run_stage
from gfm.text.encoder import TextEncoder
from gfm.training.sampling import completion_batches
from gfm.training.trainer import fit, make_trainer
from pretrain.data import load_graph
from pretrain.module import PretrainModule


def run(cfg: PretrainConfig) -> Path:
    """Pretrains, evaluates and exports; returns the folder of the checkpoint."""
    if not cfg.graphs:
        raise InputError("config key 'graphs' is empty; list at least one {path: folder with train.tsv}")
    out = Path(cfg.out)
    save_config(cfg, out / "config.yaml")
    L.seed_everything(cfg.seed, verbose=False)
    encoder = TextEncoder(cfg.encoder.name, device=cfg.encoder.device, dtype=cfg.encoder.dtype)
    graphs = [load_graph(graph, encoder, "valid", cfg.validate_triples) for graph in cfg.graphs]
    unseen = [load_graph(graph, encoder, "test") for graph in cfg.evaluate]
    gnn = QueryConditionedGNN(encoder.dim, **asdict(cfg.model))
    weights = [graph.weight for graph in cfg.graphs]
    batches = completion_batches(graphs, weights, cfg.batch_size, cfg.graph_temperature, cfg.seed)
    trainer = make_trainer(cfg.trainer, out)
    fit(trainer, PretrainModule(gnn, graphs, cfg), batches)
    training: dict[str, object] = {"graphs": [graph.name for graph in graphs], "steps": trainer.global_step}
    info = CheckpointInfo(encoder.dim, cfg.model, encoder.name, encoder.fingerprint, "pretrain", training=training)
    # Before the evaluation: whatever stops that must not cost the run.
    Checkpoint(gnn, None, info).save(out / "checkpoint")

    metrics = {f"val/{graph.name}": evaluate_completion(gnn, graph) for graph in graphs if len(graph.held_out)}
    metrics |= {f"test/{graph.name}": evaluate_completion(gnn, graph) for graph in unseen if len(graph.held_out)}
    (out / "metrics.json").write_text(json.dumps(metrics, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(metrics, indent=1))
    info = replace(info, training=training | {"metrics": metrics})
    return Checkpoint(gnn, None, info).save(out / "checkpoint")


def main(argv: list[str] | None = None) -> Path:
    """Runs the stage with command-line arguments."""
    return run_stage(PretrainConfig, run, argv)


if __name__ == "__main__":
    main()
