"""Wires the fine-tuning stage: config, corpora, GNN step, selector step, export."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import lightning as L

from finetune.data import QuestionCorpus, load_corpus, question_batches
from finetune.module import GNNModule, SelectorModule
from gfm.checkpoint import Checkpoint, CheckpointInfo, load_checkpoint
from gfm.config import FinetuneConfig
from gfm.config_files import save_config
from gfm.errors import InputError
from gfm.files import content_fingerprint
from gfm.nn.selector import SubgraphSelector
from gfm.stage import run_stage
from gfm.text.encoder import TextEncoder
from gfm.training.trainer import fit, make_trainer


def run(cfg: FinetuneConfig) -> Path:
    """Fine-tunes a checkpoint on questions and exports it; returns the folder of the new checkpoint."""
    if not cfg.corpora:
        raise InputError("config key 'corpora' is empty; list at least one {index: FOLDER, questions: FILE}")
    out = Path(cfg.out)
    checkpoint = load_checkpoint(cfg.checkpoint)
    save_config(cfg, out / "config.yaml")
    L.seed_everything(cfg.seed, verbose=False)
    encoder = TextEncoder(cfg.encoder.name, device=cfg.encoder.device, dtype=cfg.encoder.dtype)
    checkpoint.check_encoder(encoder.name, encoder.fingerprint)
    linking = replace(cfg.linking, seed_weighting=cfg.linking.seed_weighting or checkpoint.info.seed_weighting)
    labelled = cfg.unfreeze == "gnn" or cfg.selector.supervised
    corpora = [load_corpus(corpus, encoder, linking, labelled, checkpoint.info.inverse_text) for corpus in cfg.corpora]
    gnn, sizes = checkpoint.gnn.train(), [len(corpus.gold) for corpus in corpora]
    info = replace(
        checkpoint.info,
        seed_weighting=linking.seed_weighting,
        parent=checkpoint.sha256,
        data_fingerprint=content_fingerprint(corpus.fingerprint for corpus in corpora),
        training=_facts(cfg, corpora, checkpoint.info),
    )
    if cfg.unfreeze == "gnn":
        batches = question_batches(sizes, cfg.batch_size, cfg.seed)
        fit(make_trainer(cfg.trainer, out, "gnn"), GNNModule(gnn, corpora, cfg), batches)
        Checkpoint(gnn, None, replace(info, phase="finetune-gnn")).save(out / "gnn-checkpoint")
    selector = SubgraphSelector.from_gnn(gnn)
    trainer = make_trainer(replace(cfg.trainer, max_steps=cfg.selector.max_steps), out, "selector")
    batches = question_batches(sizes, cfg.batch_size, cfg.seed + 1)
    fit(trainer, SelectorModule(gnn, selector, corpora, cfg), batches)
    return Checkpoint(gnn, selector, replace(info, phase="selector", entity_votes="gate")).save(out / "checkpoint")


def _facts(cfg: FinetuneConfig, corpora: list[QuestionCorpus], parent: CheckpointInfo) -> dict[str, object]:
    """Of the parent's facts only its graphs: its steps and metrics are those of other weights."""
    return {
        "graphs": parent.training.get("graphs", []),
        "questions": {corpus.questions: len(loaded.gold) for corpus, loaded in zip(cfg.corpora, corpora, strict=True)},
        "finetune_steps": cfg.trainer.max_steps if cfg.unfreeze == "gnn" else 0,
        "selector_steps": cfg.selector.max_steps,
    }


def main(argv: list[str] | None = None) -> Path:
    """Runs the stage with command-line arguments."""
    return run_stage(FinetuneConfig, run, argv)


if __name__ == "__main__":
    main()
