"""Knowledge graph completion by filtered ranking over all entities."""

from __future__ import annotations

import torch

from gfm.evaluation.ranking import hits_at_k, mrr, realistic_ranks
from gfm.nn.gnn import QueryConditionedGNN
from gfm.training.sampling import CompletionGraph, both_directions
from gfm.training.steps import completion_logits


@torch.no_grad()
def evaluate_completion(gnn: QueryConditionedGNN, graph: CompletionGraph, batch_size: int = 16) -> dict[str, float]:
    """Ranks the held-out triples of a graph in both directions against all its entities.

    Filtered: every other known true answer is taken out of the ranking. Ties count half (realistic ranks).

    Returns:
        `mrr`, `hits@1`, `hits@3`, `hits@10` in [0, 1] and the number of `queries`.
    """
    ranks = []
    relations = gnn.relation_states(graph.relation_embeddings, cache=True)
    for triples in graph.held_out.split(batch_size):
        queries = both_directions(triples, graph.num_relations)
        logits = completion_logits(gnn, graph, queries, graph.edges, relations)
        others = graph.known_answers(queries)
        others[torch.arange(len(others)), queries.answer] = False
        ranks.append(torch.as_tensor(realistic_ranks(logits, queries.answer, others)))
    rank = torch.cat(ranks)
    hits = {f"hits@{k}": float(hits_at_k(rank, k)) for k in (1, 3, 10)}
    return {"mrr": float(mrr(rank)), **hits, "queries": len(rank)}
