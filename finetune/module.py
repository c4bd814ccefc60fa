"""When things happen in fine-tuning; what happens is in `gfm.training.steps`."""

from __future__ import annotations

from typing import Any

import lightning as L
import torch
from torch import Tensor

from finetune.data import QuestionCorpus
from gfm.config import FinetuneConfig, OptimizerConfig
from gfm.nn.gnn import QueryConditionedGNN
from gfm.nn.selector import SubgraphSelector
from gfm.training.steps import question_step, selector_step
from gfm.training.trainer import make_optimizer

Batch = tuple[int, Tensor]


class GNNModule(L.LightningModule):
    """First step: the whole GNN learns question → entities of the gold documents."""

    def __init__(self, gnn: QueryConditionedGNN, corpora: list[QuestionCorpus], cfg: FinetuneConfig) -> None:
        super().__init__()
        self.gnn, self.corpora, self.cfg = gnn, corpora, cfg

    def on_fit_start(self) -> None:
        """Moves the graphs to the device, once."""
        self.corpora = [corpus.to(self.device) for corpus in self.corpora]

    def training_step(self, batch: Batch, batch_idx: int) -> Tensor:
        """Loss of one batch `(corpus number, question ids)`."""
        corpus, ids = self.corpora[batch[0]], batch[1]
        questions = corpus.batch(ids).to(self.device)
        loss, metrics = question_step(self.gnn, corpus.relations, corpus.edges, questions, self.cfg.loss)
        self.log("train/loss", loss, prog_bar=True, batch_size=len(ids))
        self.log_dict({f"train/{k}": v for k, v in metrics.items()}, batch_size=len(ids))
        return loss

    def configure_optimizers(self) -> Any:
        """AdamW over all parameters."""
        return make_optimizer(self.gnn.parameters(), self.cfg.optimizer, self.cfg.trainer.max_steps)


class SelectorModule(L.LightningModule):
    """Second step: the GNN is frozen, only the selector learns."""

    def __init__(
        self,
        gnn: QueryConditionedGNN,
        selector: SubgraphSelector,
        corpora: list[QuestionCorpus],
        cfg: FinetuneConfig,
    ) -> None:
        super().__init__()
        self.gnn, self.selector = gnn.requires_grad_(False), selector
        self.corpora, self.cfg = corpora, cfg
        self.generator = torch.Generator().manual_seed(cfg.seed)

    @property
    def temperature(self) -> float:
        """τ of the gates: falls geometrically from start to end over the run."""
        cfg = self.cfg.selector
        progress = min(1.0, self.global_step / max(1, cfg.max_steps - 1))
        return float(cfg.temperature_start * (cfg.temperature_end / cfg.temperature_start) ** progress)

    def on_fit_start(self) -> None:
        """Moves the graphs to the device, once."""
        self.corpora = [corpus.to(self.device) for corpus in self.corpora]
        # The GNN is frozen: its relation states stay what they are.
        self.relations = [self.gnn.relation_states(corpus.relations, cache=True) for corpus in self.corpora]

    def training_step(self, batch: Batch, batch_idx: int) -> Tensor:
        """Loss of one batch `(corpus number, question ids)`."""
        corpus, ids = self.corpora[batch[0]], batch[1]
        questions, cfg, relations = corpus.batch(ids).to(self.device), self.cfg, self.relations[batch[0]]
        with torch.no_grad():
            states = self.gnn.propagate(questions.question, relations, questions.seeds, corpus.edges)
        loss, metrics = selector_step(
            self.selector, states, corpus.pairs, questions, cfg.selector, cfg.loss, self.temperature, self.generator
        )
        self.log("train/loss", loss, prog_bar=True, batch_size=len(ids))
        self.log_dict({f"train/{k}": v for k, v in metrics.items()}, batch_size=len(ids))
        return loss

    def configure_optimizers(self) -> Any:
        """AdamW over the selector's parameters."""
        optimizer = OptimizerConfig(
            self.cfg.selector.lr, self.cfg.optimizer.weight_decay, self.cfg.optimizer.warmup_steps
        )
        return make_optimizer(self.selector.parameters(), optimizer, self.cfg.selector.max_steps)
