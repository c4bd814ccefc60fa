"""When things happen in pretraining; what happens is in `gfm.training.steps`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

import lightning as L
import torch
from lightning.pytorch.strategies import FSDPStrategy
from torch import Tensor

from gfm.config import PretrainConfig
from gfm.errors import InputError
from gfm.evaluation.completion import completion_ranks, metrics_of, rank_totals
from gfm.nn.gnn import QueryConditionedGNN
from gfm.training.graph_store import GraphStore
from gfm.training.prototypes import DomainPrototypes
from gfm.training.sampling import Batch, CompletionSampler, query_generators
from gfm.training.steps import completion_step
from gfm.training.trainer import make_optimizer, states_are_ours


class PretrainModule(L.LightningModule):
    """Phase I, or Phase II where there are prototypes, over one graph a batch."""

    def __init__(
        self,
        gnn: QueryConditionedGNN,
        graphs: GraphStore,
        labels: list[str],
        cfg: PretrainConfig,
        prototypes: DomainPrototypes | None = None,
    ) -> None:
        super().__init__()
        self.gnn, self.prototypes, self.cfg = gnn, prototypes, cfg
        self.graphs, self.labels = graphs, labels
        self.metrics: dict[str, dict[str, float]] = {}

    def on_fit_start(self) -> None:
        """Graphs that are opened from now on go to the device; ranks that were given other settings are refused."""
        self.graphs.device = self.device
        if self.trainer.strategy.broadcast(asdict(self.cfg)) != asdict(self.cfg):
            raise InputError(f"rank {self.global_rank} was started with other settings than rank 0; start all alike")

    def training_step(self, batch: Batch, batch_idx: int) -> Tensor:
        """Loss of this rank's share of one batch."""
        graph = self.graphs[batch.graph]
        triples = graph.train[batch.chosen.to(graph.train.device)]
        share = len(triples) // self.trainer.world_size
        own = slice(self.global_rank * share, (self.global_rank + 1) * share)
        generators = query_generators(self.cfg.seed, batch.step, range(own.start, own.stop))
        phase_two = None if self.prototypes is None else (self.prototypes, self.cfg.prototypes)
        loss, metrics = completion_step(
            self.gnn, graph, triples, self.cfg.loss, generators, own=own, phase_two=phase_two
        )
        shared = {"batch_size": share, "sync_dist": self.trainer.world_size > 1}
        self.log("train/loss", loss, prog_bar=True, **shared)
        self.log_dict({f"train/{name}": value for name, value in metrics.items()}, **shared)
        return loss

    def on_before_optimizer_step(self, optimizer: torch.optim.Optimizer) -> None:
        """Logs the gradient's norm, before it is clipped; sharding engines hold only parts of it."""
        gradients = [p.grad for p in self.parameters() if p.grad is not None]
        if states_are_ours(self.cfg.trainer):
            self.log("train/grad_norm", torch.nn.utils.get_total_norm(gradients))

    def configure_gradient_clipping(
        self,
        optimizer: torch.optim.Optimizer,
        gradient_clip_val: float | None = None,
        gradient_clip_algorithm: str | None = None,
    ) -> None:
        """Clips by norm; fully sharded gradients only by their engine, which knows all parts."""
        if isinstance(self.trainer.strategy, FSDPStrategy):
            if gradient_clip_val:
                self.trainer.strategy.model.clip_grad_norm_(gradient_clip_val)
        else:
            self.clip_gradients(optimizer, gradient_clip_val, gradient_clip_algorithm)

    def validation_step(self, number: int, batch_idx: int) -> None:
        """Ranks this rank's part of one graph's held-out triples."""
        parts = self.trainer.world_size
        ranks = completion_ranks(self.gnn, self.graphs[number], part=self.global_rank, parts=parts)
        totals = self.trainer.strategy.reduce(rank_totals(ranks).to(self.device), reduce_op="sum")
        self.metrics[self.labels[number]] = metrics_of(torch.as_tensor(totals).cpu())

    def on_validation_epoch_end(self) -> None:
        """Logs every graph, and the mean over those that train, by which a run may stop early."""
        values = {f"{label}/{key}": m[key] for label, m in self.metrics.items() for key in ("mrr", "hits@10")}
        own = [m["mrr"] for label, m in self.metrics.items() if label.startswith("val/")]
        if own:
            values["val/mrr"] = sum(own) / len(own)
        if self.trainer.state.fn == "fit":
            self.log_dict(values, batch_size=1, sync_dist=self.trainer.world_size > 1)  # equal on all ranks as it is
        else:  # the last ranking, also of a run that had nothing left to train: always under the same step
            for logger in self.trainer.loggers:
                logger.log_metrics(values, step=self.trainer.global_step)
                logger.save()

    def configure_optimizers(self) -> Any:
        """AdamW over all parameters."""
        return make_optimizer(self.parameters(), self.cfg.optimizer, self.cfg.trainer.max_steps)


def batches_from(sampler: CompletionSampler, graphs: GraphStore, start: int) -> Iterator[Batch]:
    """The sampler's batches from one on; the graph of the next is read while this one trains."""
    upcoming = sampler.batches(start)
    batch = next(upcoming)
    for following in upcoming:
        graphs.read_ahead(batch.graph)
        graphs.read_ahead(following.graph)
        yield batch
        batch = following
