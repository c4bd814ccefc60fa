"""Wires the pretraining stage: config, graphs, model, trainer, evaluation, export."""

from __future__ import annotations

import json
import sys
import time
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import lightning as L
from lightning.pytorch.loggers import CSVLogger

from gfm.checkpoint import Checkpoint, CheckpointInfo, load_checkpoint
from gfm.config import ModelConfig, PretrainConfig
from gfm.config_files import save_config
from gfm.errors import InputError
from gfm.memory import peak_memory
from gfm.nn.gnn import QueryConditionedGNN
from gfm.stage import alone_in, run_stage
from gfm.text.encoder import TextEncoder
from gfm.training.run_log import continue_log
from gfm.training.tracking import make_logger, track_checkpoint, track_config
from gfm.training.trainer import fit, make_trainer, run_state_callbacks, validate, whole_weights
from pretrain.graphs import graph_name, open_graphs
from pretrain.module import PretrainModule, batches_from
from pretrain.resume import check_data, identity_of, resume_from


def run(cfg: PretrainConfig) -> Path:
    """Pretrains, evaluates and exports; returns the folder of the checkpoint."""
    if not cfg.graphs:
        raise InputError("config key 'graphs' is empty; list at least one {path: folder with train.tsv}")
    out = Path(cfg.out)
    encoder = TextEncoder(cfg.encoder.name, device=cfg.encoder.device, dtype=cfg.encoder.dtype)
    L.seed_everything(cfg.seed, verbose=False)
    gnn, info = _model(cfg, encoder)
    identity = identity_of(cfg, info.parent)
    begin = resume_from(cfg, identity)
    logger = make_logger(cfg.trainer, out, continues=begin is not None)
    callbacks = run_state_callbacks(cfg.trainer, out, "val/mrr", identity)
    trainer = make_trainer(cfg.trainer, out, logger=logger, callbacks=callbacks)
    with alone_in(out):
        graphs = open_graphs(cfg, encoder, gnn.hidden_dim, info.inverse_text)
        identity["data"] = graphs.data_fingerprint
        check_data(cfg, begin, identity)
        if cfg.trainer.patience and not graphs.ranked_in_training:
            raise InputError("config key 'trainer.patience' is set, but no training graph has triples to rank")
        if trainer.is_global_zero:
            save_config(cfg, out / "config.yaml")
            track_config(logger, cfg, out)
            if begin is not None:
                print(f"going on from step {begin.step} of {cfg.out!r}; resume=false starts over", file=sys.stderr)
            if isinstance(logger, CSVLogger):
                continue_log(logger, out / "state" / "metrics.csv", begin, cfg.trainer.log_every)
        module = PretrainModule(gnn, graphs.store, graphs.labels, cfg, graphs.prototypes)
        done = begin.step if begin else 0
        batches = batches_from(graphs.sampler, graphs.store, done * cfg.trainer.accumulate)
        start = time.perf_counter()
        ranked = graphs.ranked_in_training if cfg.trainer.validate_every else []
        fit(trainer, module, batches, ranked, begin and begin.folder)
        facts = _facts(cfg, trainer.global_step, done, time.perf_counter() - start)
        info = replace(info, data_fingerprint=graphs.data_fingerprint, training=facts)
        # Before the evaluation: whatever stops that must not cost the run.
        _export(trainer, module, info, out)

        validate(trainer, module, graphs.ranked)
        if trainer.is_global_zero:
            text = json.dumps(module.metrics, indent=1)
            (out / "metrics.json").write_text(text + "\n", encoding="utf-8")
            print(text)
        folder = _export(trainer, module, replace(info, training=facts | {"metrics": module.metrics}), out)
        if trainer.is_global_zero:
            track_checkpoint(logger, folder)
    return folder


def _model(cfg: PretrainConfig, encoder: TextEncoder) -> tuple[QueryConditionedGNN, CheckpointInfo]:
    """A new model, or that of `cfg.checkpoint`, and what its checkpoint will say of it."""
    phase = "pretrain" if cfg.phase == 1 else "pretrain-2"
    if cfg.checkpoint is None:
        gnn = QueryConditionedGNN(encoder.dim, **asdict(cfg.model))
        return gnn, CheckpointInfo(encoder.dim, cfg.model, encoder.name, encoder.fingerprint, phase)
    checkpoint = load_checkpoint(cfg.checkpoint)
    checkpoint.check_encoder(encoder.name, encoder.fingerprint)
    if cfg.model not in (ModelConfig(), checkpoint.info.model):
        raise InputError(
            f"config key 'model' is {cfg.model} but {cfg.checkpoint!r} holds {checkpoint.info.model}; leave model out"
        )
    cfg.model = checkpoint.info.model
    return checkpoint.gnn.train(), replace(checkpoint.info, phase=phase, parent=checkpoint.sha256)


def _facts(cfg: PretrainConfig, steps: int, before: int, seconds: float) -> dict[str, Any]:
    """What the model card tells of the training that this process did, `before` steps having been done before it."""
    facts: dict[str, Any] = {"graphs": [graph_name(graph) for graph in cfg.graphs], "steps": steps}
    if steps > before:
        rate = (steps - before) / seconds
        queries = 2 * cfg.batch_size * cfg.trainer.accumulate
        facts |= {"steps_per_second": round(rate, 3), "queries_per_second": round(rate * queries, 1)}
        if (peak := peak_memory()) is not None:
            facts["peak_memory_gb"] = round(peak / 1e9, 2)
    else:  # a finished run that is only ranked again
        with suppress(InputError):
            facts = load_checkpoint(Path(cfg.out) / "checkpoint").info.training or facts
            facts.pop("metrics", None)
    return facts


def _export(trainer: L.Trainer, module: PretrainModule, info: CheckpointInfo, out: Path) -> Path:
    weights = whole_weights(trainer, module.gnn)  # on every rank: where they are sharded, all have to give theirs
    if trainer.is_global_zero:
        Checkpoint.of_gnn(weights, info).save(out / "checkpoint")
    return out / "checkpoint"


def main(argv: list[str] | None = None) -> Path:
    """Runs the stage with command-line arguments."""
    return run_stage(PretrainConfig, run, argv)


if __name__ == "__main__":
    main()
