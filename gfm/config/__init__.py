"""Typed settings: what a YAML may hold, and its defaults. `gfm.config_files` makes them from files and overrides."""

from gfm.config.finetuning import CorpusConfig, FinetuneConfig, SelectorConfig
from gfm.config.indexing import IndexConfig
from gfm.config.pretraining import GraphConfig, PretrainConfig, PrototypeConfig
from gfm.config.retrieval import InferenceConfig, LinkingConfig, RetrievalConfig
from gfm.config.training import (
    ACCELERATORS,
    MAX_SEED,
    PRECISIONS,
    STRATEGIES,
    EncoderConfig,
    LossConfig,
    ModelConfig,
    OptimizerConfig,
    TrainerConfig,
)

__all__ = [
    "ACCELERATORS",
    "MAX_SEED",
    "PRECISIONS",
    "STRATEGIES",
    "CorpusConfig",
    "EncoderConfig",
    "FinetuneConfig",
    "GraphConfig",
    "IndexConfig",
    "InferenceConfig",
    "LinkingConfig",
    "LossConfig",
    "ModelConfig",
    "OptimizerConfig",
    "PretrainConfig",
    "PrototypeConfig",
    "RetrievalConfig",
    "SelectorConfig",
    "TrainerConfig",
]
