"""Completion: filtered, realistic ranks of held-out triples, against a count by hand."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from gfm.errors import InputError
from gfm.evaluation.completion import completion_ranks, evaluate_completion, metrics_of, rank_totals
from gfm.nn.edges import RelationalEdges
from gfm.nn.gnn import QueryConditionedGNN
from gfm.nn.states import Seeds
from gfm.training.graphs import CompletionGraph

TEXT, ENTITIES, RELATIONS = 6, 9, 2
TRAIN = [(0, 0, 1), (0, 0, 2), (1, 1, 3), (3, 0, 4), (4, 1, 0), (5, 0, 4), (5, 0, 6), (6, 1, 6)]
HELD_OUT = [(0, 0, 3), (5, 0, 1), (2, 1, 7), (6, 1, 6), (4, 0, 8)]
OTHERS = [(0, 0, 8), (3, 0, 1)]


class Fixed(nn.Module):
    """Gives every query the same logit per entity."""

    def __init__(self, logits: list[float]) -> None:
        super().__init__()
        self.logits = torch.tensor(logits)

    def relation_states(self, relations: Tensor, cache: bool = False) -> Tensor:
        return relations

    def forward(self, question: Tensor, relations: Tensor, seeds: Seeds, edges: RelationalEdges) -> Tensor:
        return self.logits.expand(len(question), -1)


def graph(
    held_out: list[tuple[int, int, int]] = HELD_OUT, known: list[tuple[int, int, int]] = OTHERS
) -> CompletionGraph:
    generator = torch.Generator().manual_seed(3)
    return CompletionGraph(
        name="toy",
        num_entities=ENTITIES,
        num_relations=RELATIONS,
        train=torch.tensor(TRAIN),
        known=torch.tensor([*TRAIN, *held_out, *known]),
        relation_embeddings=torch.randn(2 * RELATIONS, TEXT, generator=generator),
        held_out=torch.tensor(held_out, dtype=torch.int64).reshape(-1, 3),
    )


def model() -> QueryConditionedGNN:
    torch.manual_seed(1)
    return QueryConditionedGNN(TEXT, 4, 2)


def ranks_by_hand(gnn: nn.Module, toy: CompletionGraph) -> list[float]:
    """One query at a time, candidates counted in Python."""
    known = set(map(tuple, toy.known.tolist()))
    ranks = []
    for h, r, t in toy.held_out.tolist():
        for entity, edge_type, answer, triple in (
            (h, r, t, lambda e, h=h, r=r: (h, r, e)),
            (t, r + toy.num_relations, h, lambda e, r=r, t=t: (e, r, t)),
        ):
            seeds = Seeds(torch.tensor([entity]), torch.tensor([0]), torch.ones(1))
            with torch.no_grad():
                score = gnn(toy.relation_embeddings[[edge_type]], toy.relation_embeddings, seeds, toy.edges)[0].tolist()
            rivals = [e for e in range(toy.num_entities) if e != answer and triple(e) not in known]
            better = sum(score[e] > score[answer] for e in rivals)
            tied = sum(score[e] == score[answer] for e in rivals)
            ranks.append(1 + better + tied / 2)
    return ranks


def test_metrics_are_those_of_ranks_counted_by_hand() -> None:
    gnn, toy = model().eval(), graph()
    ranks = ranks_by_hand(gnn, toy)
    found = evaluate_completion(gnn, toy)
    assert found["queries"] == len(ranks) == 2 * len(HELD_OUT)
    assert len(set(ranks)) > 2
    assert found["mrr"] == pytest.approx(sum(1 / rank for rank in ranks) / len(ranks))
    for k in (1, 3, 10):
        assert found[f"hits@{k}"] == pytest.approx(sum(rank <= k for rank in ranks) / len(ranks))


@pytest.mark.parametrize("batch_size", [1, 2, 5, 100])
def test_the_batch_size_changes_nothing(batch_size: int) -> None:
    assert evaluate_completion(model(), graph(), batch_size) == pytest.approx(evaluate_completion(model(), graph(), 3))


def test_other_true_answers_do_not_compete() -> None:
    # Tail of (0, 0, ?): answer 3, rivals by logit 1, 2 (train) and 8 (elsewhere) are true, so only 4 beats it.
    # Head of (?, 0, 3): answer 0 has the lowest logit of all nine.
    logits = [0.0, 9.0, 8.0, 5.0, 6.0, 1.0, 1.0, 1.0, 7.0]
    found = evaluate_completion(Fixed(logits), graph(held_out=[(0, 0, 3)]))  # type: ignore[arg-type]
    assert found["mrr"] == pytest.approx((1 / 2 + 1 / 9) / 2)
    assert (found["hits@1"], found["hits@3"], found["hits@10"]) == (0.0, 0.5, 1.0)


def test_one_score_for_all_ranks_in_the_middle() -> None:
    # Tail: rivals are all but 1, 2, 8 and the answer: 5 ties, rank 3.5. Head: 8 ties, rank 5.
    found = evaluate_completion(Fixed([0.0] * ENTITIES), graph(held_out=[(0, 0, 3)]))  # type: ignore[arg-type]
    assert found["mrr"] == pytest.approx((1 / 3.5 + 1 / 5) / 2)
    assert found["hits@3"] == 0.0


def test_evaluation_neither_trains_nor_drops() -> None:
    gnn = model().train()
    before = {name: tensor.clone() for name, tensor in gnn.state_dict().items()}
    evaluate_completion(gnn, graph())
    assert all(torch.equal(tensor, before[name]) for name, tensor in gnn.state_dict().items())
    assert all(parameter.grad is None for parameter in gnn.parameters())


def test_nothing_held_out_is_refused() -> None:
    with pytest.raises(InputError, match="0 ranks"):
        evaluate_completion(model(), graph(held_out=[]))


@pytest.mark.parametrize("parts", [1, 2, 3, 7])
def test_parts_together_rank_every_triple_once(parts: int) -> None:
    gnn, toy = model().eval(), graph()
    totals = [rank_totals(completion_ranks(gnn, toy, 2, part, parts)) for part in range(parts)]
    assert sum(int(total[0]) for total in totals) == 2 * len(HELD_OUT)
    assert metrics_of(torch.stack(totals).sum(dim=0)) == pytest.approx(evaluate_completion(gnn, toy))


def test_ranks_do_not_depend_on_the_precision_that_training_computes_in():
    gnn, toy = model(), graph()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        half = completion_ranks(gnn, toy)
        assert gnn.question_projection(toy.relation_embeddings).dtype == torch.bfloat16, "nothing is being tested"
    assert torch.equal(half, completion_ranks(gnn, toy))
