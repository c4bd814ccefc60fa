"""Knowledge graph completion by filtered ranking over all entities."""

from __future__ import annotations

import torch
from torch import Tensor

from gfm.errors import InputError
from gfm.evaluation.ranking import hits_at_k, mrr, realistic_ranks
from gfm.nn.gnn import QueryConditionedGNN
from gfm.training.graphs import CompletionGraph, both_directions
from gfm.training.steps import completion_logits

HITS = (1, 3, 10)


@torch.no_grad()
def completion_ranks(
    gnn: QueryConditionedGNN, graph: CompletionGraph, batch_size: int = 16, part: int = 0, parts: int = 1
) -> Tensor:
    """Ranks the held-out triples of a graph in both directions against all its entities, `(2K,)`.

    Filtered: every other known true answer is taken out of the ranking. Ties count half (realistic ranks). The model's
    own precision computes, whatever autocast the training has.

    Args:
        gnn: the model.
        graph: what is completed.
        batch_size: triples at a time.
        part: which of the triples' `parts` to rank: every one of them falls into exactly one part, and none is padded.
        parts: how many there are.
    """
    ranks = [torch.empty(0, dtype=torch.float64)]
    with torch.autocast(graph.train.device.type, enabled=False):  # scores of half width would tie
        relations = gnn.relation_states(graph.relation_embeddings, cache=True)
        for triples in graph.held_out[part::parts].split(batch_size):
            if not len(triples):
                continue
            queries = both_directions(triples, graph.num_relations)
            logits = completion_logits(gnn, graph, queries, graph.edges, relations)
            others = graph.known_answers(queries)
            others[torch.arange(len(others)), queries.answer] = False
            ranks.append(realistic_ranks(logits, queries.answer, others).cpu())
    return torch.cat(ranks)


def rank_totals(ranks: Tensor) -> Tensor:
    """Number of ranks, sum of reciprocals, and how many lie within each of `HITS`: what can be summed over parts."""
    if not len(ranks):
        return torch.zeros(2 + len(HITS), dtype=torch.float64)
    means = [1.0, mrr(ranks), *(hits_at_k(ranks, k) for k in HITS)]
    return len(ranks) * torch.tensor(means, dtype=torch.float64)


def metrics_of(totals: Tensor) -> dict[str, float]:
    """`mrr`, `hits@1`, `hits@3`, `hits@10` in [0, 1] and the number of `queries`, from summed `rank_totals`.

    Raises:
        InputError: there are no ranks.
    """
    count = float(totals[0])
    if not count:
        raise InputError("0 ranks: there are no held-out triples; give a graph with some")
    names = ["mrr", *(f"hits@{k}" for k in HITS)]
    return dict(zip(names, (totals[1:] / count).tolist(), strict=True)) | {"queries": int(count)}


def evaluate_completion(gnn: QueryConditionedGNN, graph: CompletionGraph, batch_size: int = 16) -> dict[str, float]:
    """The metrics of `completion_ranks` over all held-out triples of a graph."""
    return metrics_of(rank_totals(completion_ranks(gnn, graph, batch_size)))
