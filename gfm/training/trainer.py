"""The engine: an optimizer with its schedule and a Lightning trainer, both from the config."""

from __future__ import annotations

import logging
import math
import sys
import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import lightning as L
import torch
from lightning.fabric.utilities.exceptions import MisconfigurationException
from lightning.pytorch.callbacks import TQDMProgressBar
from lightning.pytorch.loggers import Logger
from lightning.pytorch.strategies import DDPStrategy, DeepSpeedStrategy, FSDPStrategy
from lightning.pytorch.utilities.exceptions import SIGTERMException
from torch import Tensor, nn
from torch.utils.data import DataLoader

from gfm.config import OptimizerConfig, TrainerConfig
from gfm.errors import InputError
from gfm.training.run_state import SafeCheckpointIO, SaveState, StopEarly
from gfm.training.tracking import make_logger

DEEPSPEED = ("deepspeed_stage_2", "deepspeed_stage_3")
_EXPECTED = (
    ".*does not have many workers.*",
    ".*have no `val_dataloader`.*",
    ".*find_unused_parameters=True was specified in DDP.*",  # needed; see `_strategy`
    ".*isinstance\\(treespec, LeafSpec\\).*",
)


class StepBar(TQDMProgressBar):
    """A bar with an end: the stream of batches has none, but the run has."""

    @property
    def total_train_batches(self) -> int:
        """Batches of the whole run."""
        return self.trainer.max_steps * self.trainer.accumulate_grad_batches

    def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """A run that goes on begins where it left: Lightning gives the bar an end only at the start of an epoch."""
        super().on_train_start(trainer, pl_module)
        bar = self.train_progress_bar
        bar.reset(self.total_train_batches)
        bar.n = bar.initial = trainer.fit_loop.total_batch_idx + 1


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


def make_trainer(
    cfg: TrainerConfig,
    out: str | Path,
    name: str = "logs",
    *,
    logger: Logger | None = None,
    callbacks: Sequence[L.Callback] = (),
) -> L.Trainer:
    """A Lightning trainer that stops at `cfg.max_steps` or `cfg.max_minutes`.

    Args:
        cfg: settings.
        out: folder of the run.
        name: CSV logs go to `out/name`.
        logger: instead of the one that `cfg` asks for.
        callbacks: what else happens along the way, such as `run_state_callbacks`.

    Raises:
        InputError: settings that Lightning refuses, or an engine that this machine cannot run.
    """
    # Hardware lists and advertisements; warnings still show.
    logging.getLogger("lightning.pytorch.utilities.rank_zero").setLevel(logging.WARNING)
    try:
        return L.Trainer(
            accelerator=cfg.accelerator,
            devices=cfg.devices,
            num_nodes=cfg.num_nodes,
            strategy=_strategy(cfg),
            plugins=[SafeCheckpointIO()] if states_are_ours(cfg) else None,
            precision=cfg.precision,  # type: ignore[arg-type]
            max_steps=cfg.max_steps,
            max_time=None if cfg.max_minutes is None else timedelta(minutes=cfg.max_minutes),
            gradient_clip_val=cfg.gradient_clip or None,
            accumulate_grad_batches=cfg.accumulate,
            val_check_interval=cfg.validate_every * cfg.accumulate or None,
            check_val_every_n_epoch=None,
            num_sanity_val_steps=0,
            logger=logger or make_logger(cfg, Path(out), name) or False,
            log_every_n_steps=cfg.log_every,
            callbacks=[*([StepBar(refresh_rate=10)] if cfg.progress else []), *callbacks],
            enable_progress_bar=cfg.progress,
            enable_checkpointing=any(isinstance(callback, SaveState) for callback in callbacks),
            enable_model_summary=False,
            use_distributed_sampler=False,
        )
    except InputError:
        raise
    except (ValueError, ImportError, MisconfigurationException) as error:
        raise InputError(f"trainer.accelerator, devices or precision do not fit this machine: {error}") from error


def run_state_callbacks(
    cfg: TrainerConfig, out: str | Path, monitor: str, identity: dict[str, Any]
) -> list[L.Callback]:
    """What writes the run's state to `out/state`, and what stops it after `cfg.patience` validations without a rise.

    Args:
        cfg: settings.
        out: folder of the run.
        monitor: the metric that has to rise.
        identity: of the run, kept in every state.
    """
    callbacks: list[L.Callback] = []
    if cfg.patience:
        callbacks.append(StopEarly(monitor, mode="max", patience=cfg.patience, check_on_train_epoch_end=False))
    if cfg.save_every and states_are_ours(cfg):
        callbacks.append(SaveState(Path(out) / "state", cfg.save_every, identity))
    return callbacks


def states_are_ours(cfg: TrainerConfig) -> bool:
    """Whether runs can be resumed: sharding engines write their own pickled states, which gfm does not load."""
    return cfg.strategy in ("auto", "ddp")


def _strategy(cfg: TrainerConfig) -> Any:
    """What Lightning takes as its strategy; an engine that needs CUDA is refused here, at once, without it."""
    if cfg.strategy in ("fsdp", *DEEPSPEED) and not torch.cuda.is_available():
        raise InputError(
            f"trainer.strategy is {cfg.strategy!r}, which needs CUDA, and torch finds none; use trainer.strategy=ddp"
        )
    if cfg.strategy == "ddp" or (cfg.strategy == "auto" and cfg.world_size > 1):
        # A batch whose hidden edges leave a question alone reaches no relation, and those weights get no gradient.
        return DDPStrategy(find_unused_parameters=True)
    if cfg.strategy in DEEPSPEED:
        if find_spec("deepspeed") is None:
            raise InputError(
                f"trainer.strategy is {cfg.strategy!r}; pip install deepspeed, or use trainer.strategy=ddp"
            )
        stage = cfg.strategy.removeprefix("deepspeed_")
        shipped = Path(__file__).parents[2] / "configs" / "deepspeed" / f"{stage}.json"
        return DeepSpeedStrategy(config=cfg.deepspeed_config or str(shipped))
    return cfg.strategy


def whole_weights(trainer: L.Trainer, module: nn.Module) -> dict[str, Tensor]:
    """The module's weights in full on the CPU, also where an engine keeps a part of them on every device.

    Every rank has to call this; with sharding engines only the first is given them.
    """
    strategy = trainer.strategy
    if isinstance(strategy, FSDPStrategy):
        state = strategy.lightning_module_state_dict()  # gathers: `state_dict_type` is "full" unless set
        prefix = next(f"{name}." for name, part in trainer.lightning_module.named_children() if part is module)
        return {name.removeprefix(prefix): tensor.cpu() for name, tensor in state.items() if name.startswith(prefix)}
    if isinstance(strategy, DeepSpeedStrategy) and strategy.zero_stage_3:
        import deepspeed

        with deepspeed.zero.GatheredParameters(list(module.parameters())):
            return {name: tensor.detach().cpu().clone() for name, tensor in module.state_dict().items()}
    return {name: tensor.detach().cpu() for name, tensor in module.state_dict().items()}


def fit(
    trainer: L.Trainer,
    module: L.LightningModule,
    batches: Iterable[Any],
    validation: Sequence[Any] = (),
    state: Path | None = None,
) -> None:
    """Runs the trainer over a stream of ready batches, from a saved state on where one is given.

    Batches are drawn in the main process: they are index arithmetic over tensors already in memory.

    Raises:
        SystemExit: Ctrl-C or SIGTERM arrived; 130 or 143, as of any program that they end, after a line that says from
            where the run can go on.
    """
    with _without_advice():
        try:
            trainer.fit(module, batches, _one_by_one(validation) if validation else None, ckpt_path=state)
        except SystemExit as stop:  # Lightning's own, with a code of success for SIGTERM
            if trainer.is_global_zero:
                print(_where_it_goes_on(trainer), file=sys.stderr)
            raise SystemExit(143 if isinstance(stop, SIGTERMException) else 130) from None
    for callback in _callbacks(trainer):
        if isinstance(callback, StopEarly) and trainer.is_global_zero and callback.is_out_of_patience:
            print(
                f"stopped at step {trainer.global_step}: {callback.patience} validations without a better "
                f"{callback.monitor} than {callback.best_score:.4f}; the last weights are kept",
                file=sys.stderr,
            )


def _callbacks(trainer: L.Trainer) -> list[L.Callback]:
    return trainer.callbacks  # type: ignore[attr-defined]  # set by its connector


def _where_it_goes_on(trainer: L.Trainer) -> str:
    saved = max((part.saved for part in _callbacks(trainer) if isinstance(part, SaveState)), default=0)
    again = f"the same command goes on from step {saved}" if saved else "no state was saved yet (trainer.save_every)"
    return f"\nstopped at step {trainer.global_step}; {again}"


def validate(trainer: L.Trainer, module: L.LightningModule, validation: Sequence[Any]) -> None:
    """Runs the module's validation over `validation` once, on every rank."""
    if validation:
        with _without_advice():
            trainer.validate(module, _one_by_one(validation), verbose=False)


def _one_by_one(items: Sequence[Any]) -> DataLoader[Any]:
    return DataLoader(list(items), batch_size=None)  # type: ignore[arg-type]  # a list is a dataset


@contextmanager
def _without_advice() -> Iterator[None]:
    """Silences what Lightning says of loaders that are meant to be as they are."""
    with warnings.catch_warnings():
        for message in _EXPECTED:
            warnings.filterwarnings("ignore", message=message)
        yield
