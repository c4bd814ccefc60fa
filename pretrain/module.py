"""When things happen in pretraining; what happens is in `gfm.training.steps`."""

from __future__ import annotations

from typing import Any

import lightning as L
import torch
from torch import Tensor

from gfm.config import PretrainConfig
from gfm.nn.gnn import QueryConditionedGNN
from gfm.training.sampling import CompletionGraph
from gfm.training.steps import completion_step
from gfm.training.trainer import make_optimizer


class PretrainModule(L.LightningModule):
    """Phase I over one graph a batch."""

    def __init__(self, gnn: QueryConditionedGNN, graphs: list[CompletionGraph], cfg: PretrainConfig) -> None:
        super().__init__()
        self.gnn, self.graphs, self.cfg = gnn, graphs, cfg
        self.generator = torch.Generator().manual_seed(cfg.seed)

    def on_fit_start(self) -> None:
        """Moves the graphs to the device, once."""
        self.graphs = [graph.to(self.device) for graph in self.graphs]

    def training_step(self, batch: tuple[int, Tensor], batch_idx: int) -> Tensor:
        """Loss of one batch `(graph number, triples)`."""
        number, triples = batch
        graph = self.graphs[number]
        loss, metrics = completion_step(self.gnn, graph, triples.to(self.device), self.cfg.loss, self.generator)
        self.log("train/loss", loss, prog_bar=True, batch_size=len(triples))
        self.log_dict({f"train/{k}": v for k, v in metrics.items()}, batch_size=len(triples))
        return loss

    def configure_optimizers(self) -> Any:
        """AdamW over all parameters."""
        return make_optimizer(self.gnn.parameters(), self.cfg.optimizer, self.cfg.trainer.max_steps)
