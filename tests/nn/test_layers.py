"""The shared pieces: a linear over a concatenation that is never made."""

from __future__ import annotations

import pytest
import torch

from gfm.nn.layers import apply_to_concat, in_row_chunks, two_layer_mlp


def test_what_all_entities_share_gives_the_mlp_of_the_concatenation():
    torch.manual_seed(0)
    mlp = two_layer_mlp(5, 6, 1)
    rows, shared = torch.randn(7, 2, 3), torch.randn(2, 2)
    concatenated = torch.cat([rows, shared.expand(7, 2, 2)], dim=-1)
    torch.testing.assert_close(apply_to_concat(mlp, rows, shared), mlp(concatenated))


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
