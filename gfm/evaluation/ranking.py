"""Ranks of known answers among all entities, and their summaries, for knowledge graph completion."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from gfm.errors import InputError


class Ranks(NamedTuple):
    """Filtered, 1-based ranks `(Q,)` float64 under three readings of ties."""

    optimistic: Tensor
    pessimistic: Tensor
    realistic: Tensor


def filtered_ranks(scores: Tensor, target: Tensor, filter_mask: Tensor | None = None) -> Ranks:
    """Ranks each target among the entities that are not other true answers.

    The optimistic rank puts the target before everything that ties with it, the pessimistic one behind;
    the realistic rank is their mean, the expected rank if ties were broken at random. It alone cannot be
    raised by a model that gives all entities one score.

    Args:
        scores: `(Q, V)`, higher is better.
        target: `(Q,)` entity ids of the answers.
        filter_mask: `(Q, V)` bool, True at other true answers, which then do not compete. The target
            itself always competes, even where the mask names it.

    Raises:
        InputError: shapes do not fit, a target is out of range, or a score is NaN.
    """
    _check(scores, target, filter_mask)
    rows = torch.arange(len(target), device=scores.device)
    target = target.to(scores.device)
    target_score = scores[rows, target].unsqueeze(1)
    better, tied = scores > target_score, scores == target_score
    if filter_mask is not None:
        competes = ~filter_mask.to(scores.device)
        better, tied = better & competes, tied & competes
    tied[rows, target] = True
    # +1: with nobody ahead of it the target is first, not zeroth.
    optimistic = better.sum(dim=1).double() + 1
    # No +1 here: the target is one of its own ties, and stands last among them.
    pessimistic = better.sum(dim=1).double() + tied.sum(dim=1)
    return Ranks(optimistic, pessimistic, (optimistic + pessimistic) / 2)


def realistic_ranks(scores: Tensor, target: Tensor, filter_mask: Tensor | None = None) -> Tensor:
    """Mean of optimistic and pessimistic rank `(Q,)` float64; see `filtered_ranks`."""
    return filtered_ranks(scores, target, filter_mask).realistic


def mrr(ranks: Tensor) -> float:
    """Mean reciprocal rank, in (0, 1].

    Raises:
        InputError: there are no ranks, or one is below 1.
    """
    return float((1.0 / _checked(ranks)).mean())


def hits_at_k(ranks: Tensor, k: int) -> float:
    """Share of ranks that are at most `k`, in [0, 1]; a realistic rank of 1.5 is no hit at 1.

    Raises:
        InputError: there are no ranks, one is below 1, or `k` is.
    """
    if k < 1:
        raise InputError(f"k is {k}; give a whole number of at least 1")
    return float((_checked(ranks) <= k).double().mean())


def _checked(ranks: Tensor) -> Tensor:
    if ranks.numel() == 0:
        raise InputError("there are 0 ranks; a mean needs at least one query")
    if not bool((ranks >= 1).all()):
        raise InputError(f"a rank is {float(ranks.min())}; ranks start at 1")
    return ranks.double()


def _check(scores: Tensor, target: Tensor, filter_mask: Tensor | None) -> None:
    if scores.dim() != 2 or target.shape != scores.shape[:1]:
        raise InputError(
            f"scores have shape {tuple(scores.shape)} and target {tuple(target.shape)}; give (Q, V) and (Q,)"
        )
    if filter_mask is not None and (filter_mask.shape != scores.shape or filter_mask.dtype != torch.bool):
        raise InputError(
            f"filter_mask is {filter_mask.dtype} of shape {tuple(filter_mask.shape)}; "
            f"give bool of shape {tuple(scores.shape)}"
        )
    if target.numel() and not (0 <= int(target.min()) and int(target.max()) < scores.size(1)):
        raise InputError(
            f"targets run from {int(target.min())} to {int(target.max())} for {scores.size(1)} entities; "
            "a target is an entity id"
        )
    nan = torch.isnan(scores)
    if bool(nan.any()):
        query, entity = torch.nonzero(nan)[0].tolist()
        raise InputError(
            f"{int(nan.sum())} of {nan.numel()} scores are NaN, the first at query {query}, entity {entity}; "
            "a NaN has no rank, so mend the model or its input"
        )
