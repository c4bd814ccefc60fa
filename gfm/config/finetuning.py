"""Settings of question fine-tuning: corpora, selector, the two steps."""

from __future__ import annotations

from dataclasses import dataclass, field

from gfm.config.checks import one_of, within
from gfm.config.retrieval import LinkingConfig
from gfm.config.training import MAX_SEED, EncoderConfig, LossConfig, OptimizerConfig, TrainerConfig
from gfm.errors import InputError


@dataclass
class SelectorConfig:
    """Losses of the selector: β₁, β₂, τ_n, the annealing of τ, and whether labels are used."""

    beta_size: float = 0.005
    beta_connectivity: float = 0.005
    nce_temperature: float = 0.1
    temperature_start: float = 1.0
    temperature_end: float = 0.3
    supervised: bool = True
    expected_size: float = 30.0
    max_steps: int = 200
    lr: float = 3e-4

    def __post_init__(self) -> None:
        for name in ("beta_size", "beta_connectivity", "lr"):
            within(f"selector.{name}", getattr(self, name), 0)
        for name in ("nce_temperature", "temperature_start", "temperature_end"):
            within(f"selector.{name}", getattr(self, name), 1e-3)
        within("selector.expected_size", self.expected_size, 1)
        within("selector.max_steps", self.max_steps, 1)


@dataclass
class CorpusConfig:
    """A built index and the questions asked of it."""

    index: str = "???"
    questions: str = "???"


@dataclass
class FinetuneConfig:
    """Question fine-tuning: first the GNN (`unfreeze: gnn`), then the selector on the frozen GNN.

    It takes minutes and writes no state to go on from: `trainer.save_every` is for pretraining.
    """

    checkpoint: str = "???"
    out: str = "outputs/finetune"
    seed: int = 0
    corpora: list[CorpusConfig] = field(default_factory=list)
    unfreeze: str = "gnn"  # gnn | none
    batch_size: int = 4
    loss: LossConfig = field(default_factory=LossConfig)
    optimizer: OptimizerConfig = field(default_factory=lambda: OptimizerConfig(lr=5e-4, warmup_steps=10))
    selector: SelectorConfig = field(default_factory=SelectorConfig)
    linking: LinkingConfig = field(default_factory=LinkingConfig)
    encoder: EncoderConfig = field(default_factory=EncoderConfig)
    trainer: TrainerConfig = field(default_factory=lambda: TrainerConfig(max_steps=120))

    def __post_init__(self) -> None:
        within("seed", self.seed, 0, MAX_SEED - 1)  # the selector's batches have the next
        one_of("unfreeze", self.unfreeze, "gnn", "none")
        within("batch_size", self.batch_size, 1)
        for name in ("validate_every", "patience"):
            if getattr(self.trainer, name):
                raise InputError(f"config key 'trainer.{name}' is for pretraining; fine-tuning has no validation")
        if self.trainer.world_size > 1 or self.trainer.strategy != "auto":
            raise InputError("fine-tuning runs on one device; leave trainer.devices, num_nodes and strategy out")
