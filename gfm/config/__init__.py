"""Typed settings: what a YAML may hold, and its defaults. `gfm.config_files` makes them from files and overrides."""

from gfm.config.finetuning import CorpusConfig, FinetuneConfig, SelectorConfig
from gfm.config.indexing import BuildConfig, ExtractionConfig, IndexConfig, LLMConfig, SpacyConfig
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
    "BuildConfig",
    "CorpusConfig",
    "EncoderConfig",
    "ExtractionConfig",
    "FinetuneConfig",
    "GraphConfig",
    "IndexConfig",
    "InferenceConfig",
    "LLMConfig",
    "LinkingConfig",
    "LossConfig",
    "ModelConfig",
    "OptimizerConfig",
    "PretrainConfig",
    "PrototypeConfig",
    "RetrievalConfig",
    "SelectorConfig",
    "SpacyConfig",
    "TrainerConfig",
]
