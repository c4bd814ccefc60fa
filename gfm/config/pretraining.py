"""Settings of pretraining: graphs, prototypes, the two phases."""

from __future__ import annotations

from dataclasses import dataclass, field

from gfm.config.checks import within
from gfm.config.training import MAX_SEED, EncoderConfig, LossConfig, ModelConfig, OptimizerConfig, TrainerConfig
from gfm.errors import InputError


@dataclass
class GraphConfig:
    """A training graph: a folder with train.tsv (and valid.tsv, test.tsv), its domain and sampling weight."""

    path: str = "???"
    name: str = ""
    domain: str = ""
    weight: float = 1.0

    def __post_init__(self) -> None:
        within("graphs.weight", self.weight, 0, 1e9)


@dataclass
class PrototypeConfig:
    """What Phase II adds: weights α₂ of `L_proto` and α₃ of `L_IGC`, and the temperature τ of their cosines."""

    alpha_proto: float = 0.1
    alpha_igc: float = 0.01
    temperature: float = 0.2

    def __post_init__(self) -> None:
        within("prototypes.alpha_proto", self.alpha_proto, 0)
        within("prototypes.alpha_igc", self.alpha_igc, 0)
        within("prototypes.temperature", self.temperature, 0.01)  # bounds L_IGC from below


@dataclass
class PretrainConfig:
    """Knowledge graph completion (`phase` 1), and its continuation over several domains with prototypes (2).

    Training starts from the weights of `checkpoint` where one is given; Phase II needs one. `resume` goes on from the
    state that an interrupted run left in `out`. `graphs_in_memory` bounds how many graphs are held at once, the next
    one being read while this one trains; 0 holds all.
    """

    out: str = "outputs/pretrain"
    seed: int = 0
    phase: int = 1
    checkpoint: str | None = None
    resume: bool = True
    graphs: list[GraphConfig] = field(default_factory=list)
    evaluate: list[GraphConfig] = field(default_factory=list)
    encoder: EncoderConfig = field(default_factory=EncoderConfig)
    model: ModelConfig = field(default_factory=ModelConfig)
    loss: LossConfig = field(default_factory=LossConfig)
    prototypes: PrototypeConfig = field(default_factory=PrototypeConfig)
    optimizer: OptimizerConfig = field(default_factory=OptimizerConfig)
    trainer: TrainerConfig = field(default_factory=TrainerConfig)
    batch_size: int = 8  # triples a batch over all devices; each gives a tail and a head query
    graph_temperature: float = 1.0
    graphs_in_memory: int = 0
    validate_triples: int = 200  # of each graph's valid.tsv

    def __post_init__(self) -> None:
        within("seed", self.seed, 0, MAX_SEED)
        within("phase", self.phase, 1, 2)
        if self.phase == 2 and self.checkpoint is None:
            raise InputError("config key 'phase' is 2 without a checkpoint; name Phase I's with checkpoint=FOLDER")
        within("batch_size", self.batch_size, 1)
        if self.batch_size % self.trainer.world_size:
            raise InputError(
                f"config key 'batch_size' is {self.batch_size} for {self.trainer.world_size} devices; it counts "
                "triples over all of them, so give a multiple"
            )
        within("graph_temperature", self.graph_temperature, 0.01)
        within("graphs_in_memory", self.graphs_in_memory, 0)
        within("validate_triples", self.validate_triples, 0)
