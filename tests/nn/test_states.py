"""Seeds and entity states in sparse form mean the same as the dense ones."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from gfm.nn.states import EntityStates, SeedStates

B, D = 2, 3


def states_of(entities: list[int], num_entities: int, seed: int = 0) -> EntityStates:
    rows = torch.randn(len(entities), B, D, generator=torch.Generator().manual_seed(seed))
    return EntityStates(rows, torch.tensor(entities, dtype=torch.int64), num_entities)


REACHED = st.integers(1, 8).flatmap(lambda n: st.tuples(st.sets(st.integers(0, n - 1)).map(sorted), st.just(n)))


def head(rows: Tensor) -> Tensor:
    """Not zero at zero, and different for every question."""
    return rows.square().sum(-1) + torch.tensor([3.0, 5.0])


@given(REACHED)
def test_a_dense_state_is_the_row_or_exactly_zero(case: tuple[list[int], int]):
    entities, num_entities = case
    states = states_of(entities, num_entities)
    dense = states.dense()
    assert dense.shape == (num_entities, B, D)
    assert torch.equal(dense[entities], states.rows)
    elsewhere = [entity for entity in range(num_entities) if entity not in entities]
    assert not dense[elsewhere].any()


def test_states_of_all_entities_are_dense_as_they_are():
    rows = torch.randn(4, B, D)
    states = EntityStates(rows, None, 4)
    assert states.dense() is rows
    values = torch.rand(B, 4)
    assert states.select(values) is values


@given(REACHED)
def test_a_head_gives_the_values_it_gives_on_dense_states(case: tuple[list[int], int]):
    entities, num_entities = case
    states = states_of(entities, num_entities)
    want = head(states.dense()).T
    assert torch.equal(states.apply(head), want)
    assert torch.equal(EntityStates(states.dense(), None, num_entities).apply(head), want)


@given(REACHED)
def test_selected_columns_are_those_of_the_rows(case: tuple[list[int], int]):
    entities, num_entities = case
    values = torch.arange(float(B * num_entities)).reshape(B, num_entities)
    assert torch.equal(states_of(entities, num_entities).select(values), values[:, entities])


def test_the_head_runs_on_the_rows_and_on_one_zero_state_however_large_the_graph():
    seen = []

    def counting(rows: Tensor) -> Tensor:
        seen.append(len(rows))
        return head(rows)

    states_of([3, 700_000], 1_000_000).apply(counting)
    assert sorted(seen) == [1, 2]


@pytest.mark.parametrize("spread", [EntityStates.dense, lambda states: states.apply(lambda rows: rows.sum(-1))])
def test_gradients_reach_every_row(spread: Callable[[EntityStates], Tensor]):
    states = states_of([0, 2, 3], 5)
    states.rows.requires_grad_()
    spread(states).sum().backward()
    assert torch.equal(states.rows.grad, torch.ones(3, B, D))


def test_gradients_of_the_shared_value_sum_over_the_entities_that_share_it():
    bias = torch.zeros(B, requires_grad=True)
    states_of([0, 2], 6).apply(lambda rows: rows.sum(-1) + bias).sum().backward()
    assert bias.grad.tolist() == [6.0, 6.0]


def test_without_gradients_the_head_runs_in_chunks_to_the_same_values(monkeypatch: pytest.MonkeyPatch):
    states, seen = states_of([0, 1, 2, 4, 6], 7), []

    def recording(rows: Tensor) -> Tensor:
        seen.append(len(rows))
        return head(rows)

    want = states.apply(head)
    monkeypatch.setattr("gfm.nn.layers.ROW_CHUNK_ELEMENTS", 2 * B * D)
    with torch.no_grad():
        assert torch.equal(states.apply(recording), want)
    assert sorted(seen) == [1, 1, 2, 2]


def test_start_states_are_added_in_place_to_their_own_row_and_question():
    rows = torch.ones(3, B, D)
    start = SeedStates(torch.tensor([2, 0, 2]), torch.tensor([1, 0, 0]), torch.arange(9.0).reshape(3, 3))
    assert start.add_to(rows) is rows
    want = torch.ones(3, B, D)
    want[2, 1] += torch.tensor([0.0, 1.0, 2.0])
    want[0, 0] += torch.tensor([3.0, 4.0, 5.0])
    want[2, 0] += torch.tensor([6.0, 7.0, 8.0])
    assert torch.equal(rows, want)


def test_start_states_take_the_type_of_the_rows():
    rows = torch.zeros(1, 1, D, dtype=torch.bfloat16)
    SeedStates(torch.tensor([0]), torch.tensor([0]), torch.ones(1, D)).add_to(rows)
    assert rows.dtype == torch.bfloat16 and bool((rows == 1).all())
