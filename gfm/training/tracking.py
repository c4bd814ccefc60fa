"""Where a run's numbers go: CSV files, or Weights & Biases, online or off."""

from __future__ import annotations

import os
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from lightning.pytorch.loggers import CSVLogger, Logger

from gfm.config import TrainerConfig
from gfm.errors import InputError

RUN_ID = "wandb-run-id"


def make_logger(cfg: TrainerConfig, out: Path, name: str = "logs", *, continues: bool = False) -> Logger | None:
    """The logger that the settings ask for: CSV under `out/name`, wandb, or none.

    Weights & Biases reads its own variables: `WANDB_MODE=offline` needs no account; `WANDB_PROJECT` is `gfm` if unset.

    Args:
        cfg: settings.
        out: folder of the run.
        name: of the CSV logs' folder.
        continues: whether the run goes on from a state in `out`; wandb then goes on with the same run.

    Raises:
        InputError: wandb is asked for and not installed.
    """
    if cfg.logger == "csv":
        return CSVLogger(out, name=name, version="", flush_logs_every_n_steps=cfg.log_every)
    if cfg.logger == "wandb":
        if find_spec("wandb") is None:
            raise InputError("trainer.logger is 'wandb', which is not installed; pip install 'gfm[wandb]', or use csv")
        from lightning.pytorch.loggers import WandbLogger

        out.mkdir(parents=True, exist_ok=True)
        known = out / "state" / RUN_ID
        run_id = known.read_text(encoding="utf-8") if continues and known.is_file() else None
        return WandbLogger(save_dir=out, project=os.environ.get("WANDB_PROJECT", "gfm"), id=run_id, resume="allow")
    return None


def track_config(logger: Logger | None, cfg: Any, out: Path) -> None:
    """Tells wandb the resolved settings, and the run's folder wandb's name for it; CSV logs have `config.yaml`."""
    if logger is None or isinstance(logger, CSVLogger):
        return
    logger.log_hyperparams(asdict(cfg))
    (out / "state").mkdir(exist_ok=True)
    (out / "state" / RUN_ID).write_text(str(logger.version), encoding="utf-8")


def track_checkpoint(logger: Logger | None, folder: Path) -> None:
    """Gives wandb the checkpoint as an artifact of the run."""
    if logger is None or isinstance(logger, CSVLogger):
        return
    import wandb
    from lightning.pytorch.loggers import WandbLogger

    assert isinstance(logger, WandbLogger)
    artifact = wandb.Artifact(f"checkpoint-{logger.experiment.id}", type="model")
    artifact.add_dir(str(folder))
    logger.experiment.log_artifact(artifact)
