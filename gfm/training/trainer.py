"""The engine: an optimizer with its schedule and a Lightning trainer, both from the config."""

from __future__ import annotations

import logging
import math
import warnings
from collections.abc import Iterable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import lightning as L
import torch
from lightning.fabric.utilities.exceptions import MisconfigurationException
from lightning.pytorch.callbacks import TQDMProgressBar
from lightning.pytorch.loggers import CSVLogger, Logger
from torch import nn
from torch.utils.data import DataLoader, IterableDataset

from gfm.config import OptimizerConfig, TrainerConfig
from gfm.errors import InputError


class Stream(IterableDataset[Any]):
    """Batches from an iterator, as they come: what Lightning wants to see of an endless stream."""

    def __init__(self, batches: Iterable[Any]) -> None:
        self.batches = batches

    def __iter__(self) -> Iterator[Any]:
        return iter(self.batches)


def make_optimizer(parameters: Iterable[nn.Parameter], cfg: OptimizerConfig, max_steps: int) -> dict[str, Any]:
    """AdamW with linear warm-up and a cosine to zero at `max_steps`, in the form Lightning takes."""
    optimizer = torch.optim.AdamW(parameters, lr=cfg.lr, weight_decay=cfg.weight_decay)

    def factor(step: int) -> float:
        if step < cfg.warmup_steps:
            return (step + 1) / cfg.warmup_steps
        progress = (step - cfg.warmup_steps) / max(1, max_steps - cfg.warmup_steps)
        return 0.5 * (1 + math.cos(math.pi * min(1.0, progress)))

    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, factor)
    return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}


def make_trainer(cfg: TrainerConfig, out: str | Path, name: str = "logs") -> L.Trainer:
    """A Lightning trainer that stops at `cfg.max_steps` or `cfg.max_minutes` and logs under `out/name`.

    Raises:
        InputError: settings that Lightning refuses.
    """
    # Hardware lists and advertisements; warnings still show.
    logging.getLogger("lightning.pytorch.utilities.rank_zero").setLevel(logging.WARNING)
    logger: Logger | bool = CSVLogger(out, name=name, version="") if cfg.logger == "csv" else False
    try:
        return L.Trainer(
            accelerator=cfg.accelerator,
            devices=cfg.devices,
            precision=cfg.precision,  # type: ignore[arg-type]
            max_steps=cfg.max_steps,
            max_time=None if cfg.max_minutes is None else timedelta(minutes=cfg.max_minutes),
            gradient_clip_val=cfg.gradient_clip or None,
            logger=logger,
            log_every_n_steps=cfg.log_every,
            callbacks=[TQDMProgressBar(refresh_rate=10)] if cfg.progress else [],
            enable_progress_bar=cfg.progress,
            enable_checkpointing=False,
            enable_model_summary=False,
            use_distributed_sampler=False,
        )
    except (ValueError, MisconfigurationException) as error:
        raise InputError(f"trainer settings: {error}") from error


def fit(trainer: L.Trainer, module: L.LightningModule, batches: Iterable[Any]) -> None:
    """Runs the trainer over a stream of ready batches.

    Batches are drawn in the main process: they are index arithmetic over tensors already in memory, which worker
    processes would only copy. Lightning's advice to add workers is therefore silenced, for this call alone.
    """
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*does not have many workers.*")
        warnings.filterwarnings("ignore", message=".*`IterableDataset` has `__len__` defined.*")
        warnings.filterwarnings("ignore", message=".*isinstance\\(treespec, LeafSpec\\).*", category=FutureWarning)
        trainer.fit(module, DataLoader(Stream(batches), batch_size=None, num_workers=0))
