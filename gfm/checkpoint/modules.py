"""The modules of a checkpoint from its tensors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict

import torch
from torch import Tensor, nn

from gfm.checkpoint.info import CheckpointInfo
from gfm.nn.gnn import QueryConditionedGNN
from gfm.nn.selector import SubgraphSelector


def modules_from(
    info: CheckpointInfo, with_selector: bool, tensors: Mapping[str, Tensor]
) -> tuple[QueryConditionedGNN, SubgraphSelector | None]:
    """A GNN, and a selector where there is one, with exactly these weights as float32, in evaluation mode.

    The modules are made without memory and compared by shape first, so that a config that asks for a giant is refused
    before it costs anything.

    Args:
        info: the form of the model.
        with_selector: whether the tensors hold a selector.
        tensors: by name, those of the GNN under `gnn.`, those of the selector under `selector.`.

    Raises:
        ValueError: a tensor that is missing, left over, of another shape, no floating-point numbers, or not finite.
    """
    with torch.device("meta"):
        gnn = QueryConditionedGNN(info.text_dim, **asdict(info.model))
        selector = SubgraphSelector(info.text_dim, info.model.hidden_dim) if with_selector else None
    modules: dict[str, nn.Module] = {"gnn": gnn} if selector is None else {"gnn": gnn, "selector": selector}
    _compare({f"{part}.{name}": t for part, m in modules.items() for name, t in m.state_dict().items()}, tensors)
    for part, module in modules.items():
        # Not the given tensors themselves: whoever holds them must not change the model.
        own = {name: tensors[f"{part}.{name}"].to(torch.float32, copy=True) for name in module.state_dict()}
        module.load_state_dict(own, assign=True)
        module.eval()
    return gnn, selector


def _compare(expected: Mapping[str, Tensor], got: Mapping[str, Tensor]) -> None:
    if missing := sorted(expected.keys() - got.keys()):
        raise ValueError(f"{missing[0]} is missing{_others(missing)}")
    if extra := sorted(got.keys() - expected.keys()):
        raise ValueError(f"{extra[0]} belongs to no part of the model{_others(extra)}")
    for name, wanted in expected.items():
        tensor = got[name]
        if tensor.shape != wanted.shape:
            raise ValueError(f"{name} has shape {tuple(tensor.shape)}, not {tuple(wanted.shape)}")
        if not tensor.is_floating_point():
            raise ValueError(f"{name} holds {tensor.dtype}, no floating-point numbers")
        if not tensor.isfinite().all():
            raise ValueError(f"{name} holds NaN or infinite numbers")


def _others(names: list[str]) -> str:
    return f", and {len(names) - 1} more" if len(names) > 1 else ""
