"""The shared pieces: a linear over a concatenation that is never made."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from gfm.nn.layers import apply_to_concat, in_row_chunks, linear_of_concat, two_layer_mlp


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("widths", [(3,), (3, 2), (1, 4, 2)])
def test_linear_of_concat_equals_the_linear_of_the_concatenation(widths: tuple[int, ...], bias: bool):
    torch.manual_seed(0)
    linear = nn.Linear(sum(widths), 5, bias=bias)
    parts = [torch.randn(7, 2, width) for width in widths]
    torch.testing.assert_close(linear_of_concat(linear, *parts), linear(torch.cat(parts, dim=-1)))


def test_a_part_shared_by_all_entities_is_broadcast():
    torch.manual_seed(0)
    linear, mlp = nn.Linear(5, 4), two_layer_mlp(5, 6, 1)
    states, shared = torch.randn(7, 2, 3), torch.randn(2, 2)
    concatenated = torch.cat([states, shared.expand(7, 2, 2)], dim=-1)
    torch.testing.assert_close(linear_of_concat(linear, states, shared), linear(concatenated))
    torch.testing.assert_close(apply_to_concat(mlp, states, shared), mlp(concatenated))


def test_parts_that_do_not_fill_the_input_are_refused():
    with pytest.raises(AssertionError, match=r"parts \[3, 1\] do not fill 5 inputs"):
        linear_of_concat(nn.Linear(5, 4), torch.zeros(2, 3), torch.zeros(2, 1))


@pytest.mark.parametrize("elements", [1, 6, 7, 12, 1000])
def test_row_chunks_give_the_values_of_one_pass_and_stay_within_their_size(
    monkeypatch: pytest.MonkeyPatch, elements: int
):
    rows, seen = torch.randn(7, 2, 3), []

    def recording(chunk: torch.Tensor) -> torch.Tensor:
        seen.append(len(chunk))
        return chunk.sum(-1)

    monkeypatch.setattr("gfm.nn.layers.ROW_CHUNK_ELEMENTS", elements)
    with torch.no_grad():
        assert torch.equal(in_row_chunks(recording, rows), rows.sum(-1))
    assert sum(seen) == 7 and max(seen) <= max(1, elements // 6)
    seen.clear()
    assert torch.equal(in_row_chunks(recording, rows), rows.sum(-1))  # with gradients: one pass
    assert seen == [7]


@pytest.mark.parametrize("shape", [(0, 2, 3), (4, 0, 3)])
def test_row_chunks_of_nothing_are_nothing(shape: tuple[int, ...]):
    with torch.no_grad():
        assert in_row_chunks(lambda rows: rows.sum(-1), torch.zeros(shape)).shape == shape[:2]
