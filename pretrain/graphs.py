"""The graphs of a run by number: first those that train, then those that only rank."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import NamedTuple

from gfm.config import GraphConfig, PretrainConfig
from gfm.errors import InputError
from gfm.files import content_fingerprint
from gfm.text.encoder import TextEncoder
from gfm.training.graph_store import GraphStore
from gfm.training.prototypes import DomainPrototypes
from gfm.training.sampling import CompletionSampler
from gfm.types import INVERSE_TEXT
from pretrain.data import domain_means, open_graph, prepare_graph


class RunGraphs(NamedTuple):
    """What a run trains on and ranks.

    Attributes:
        store: all graphs.
        labels: of each, as in metrics and log keys: `val/NAME` or `test/NAME`.
        ranked: numbers of the graphs that have triples to rank.
        sampler: batches of the training graphs.
        prototypes: of their domains, in Phase II.
        data_fingerprint: of the files of the training graphs.
    """

    store: GraphStore
    labels: list[str]
    ranked: list[int]
    sampler: CompletionSampler
    prototypes: DomainPrototypes | None
    data_fingerprint: str

    @property
    def ranked_in_training(self) -> list[int]:
        """The training graphs among `ranked`."""
        return [number for number in self.ranked if number < len(self.sampler.sizes)]


def open_graphs(
    cfg: PretrainConfig, encoder: TextEncoder, hidden_dim: int, inverse_text: str = INVERSE_TEXT
) -> RunGraphs:
    """Prepares all graphs of a run, or finds them prepared, and says how they are used.

    Raises:
        InputError: a graph that is not there, two of one name, or a Phase II with a single domain.
    """
    configs = [*cfg.graphs, *cfg.evaluate]
    splits = ["valid"] * len(cfg.graphs) + ["test"] * len(cfg.evaluate)
    labels = [
        f"{'val' if split == 'valid' else split}/{graph_name(c)}" for split, c in zip(splits, configs, strict=True)
    ]
    if len(set(labels)) < len(labels):
        twice = next(label for label in labels if labels.count(label) > 1)
        raise InputError(f"two graphs are called {twice.partition('/')[2]!r}; give one of them another name")
    # Only training needs the domains of names.
    named = [cfg.phase == 2 and number < len(cfg.graphs) for number in range(len(configs))]
    stored = [
        prepare_graph(graph, encoder, with_names, inverse_text)
        for graph, with_names in zip(configs, named, strict=True)
    ]
    training = stored[: len(cfg.graphs)]
    numbers = prototypes = None
    if cfg.phase == 2:
        domains, means = domain_means(training)
        if len(domains) < 2:
            raise InputError(
                f"Phase II tells domains apart, but all graphs have domain {domains[0]!r}; list others too"
            )
        numbers = {domain: number for number, domain in enumerate(domains)}
        prototypes = DomainPrototypes(domains, means, hidden_dim)
    if not any(graph.weight for graph in cfg.graphs):
        raise InputError("every graph has weight 0, so none is trained on; give one a positive weight")
    limits = [cfg.validate_triples] * len(cfg.graphs) + [None] * len(cfg.evaluate)
    openers = [
        partial(open_graph, one, label, split, limit, numbers if number < len(training) else None)
        for number, (one, label, split, limit) in enumerate(zip(stored, labels, splits, limits, strict=True))
    ]
    ranked = [
        number
        for number, (one, split, limit) in enumerate(zip(stored, splits, limits, strict=True))
        if limit != 0 and one.has(split) and len(one.array(split))
    ]
    sizes = [len(graph.array("train")) for graph in training]
    weights = [graph.weight for graph in cfg.graphs]
    sampler = CompletionSampler(sizes, weights, cfg.batch_size, cfg.graph_temperature, cfg.seed)
    data = content_fingerprint(graph.facts["fingerprint"] for graph in training)
    return RunGraphs(GraphStore(openers, limit=cfg.graphs_in_memory), labels, ranked, sampler, prototypes, data)


def graph_name(graph: GraphConfig) -> str:
    """The name of a graph: as configured, else its folder's."""
    return graph.name or Path(graph.path).name
