"""relational_spmm: its backends agree with the plain sum, forward and backward, on every shape of graph.

Triton's kernels are compiled where there is a GPU, and interpreted elsewhere (`TRITON_INTERPRET`).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numba
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from gfm.errors import InputError
from gfm.nn import edges as edges_module
from gfm.nn import relational_spmm as spmm_module
from gfm.nn.cpu_kernels import store, widen
from gfm.nn.edges import RelationalEdges
from gfm.nn.relational_spmm import best_backend, relational_spmm
from tests.nn.graphs import directed, random_triples

ROOT = Path(__file__).resolve().parents[2]
HAS_GPU = torch.cuda.is_available()
needs_triton = pytest.mark.skipif(find_spec("triton") is None, reason="triton is not installed")
FAST = ("chunked", "numba", pytest.param("triton", marks=needs_triton))
HUB = {"chunked": 50_000, "numba": 50_000, "triton": 50_000 if HAS_GPU else 700}  # interpreted programs are slow
ULP = 2.0**-7
"""Distance of neighbouring bfloat16 numbers, relative to the smaller; half of it is lost by rounding to the nearest."""


def num_sources(edges: RelationalEdges) -> int:
    return edges.num_nodes if edges.num_sources is None else edges.num_sources


def inputs(edges: RelationalEdges, batch: int, dim: int, seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    """Entity states, relation states and the gradient that comes back."""
    generator = torch.Generator().manual_seed(seed)
    shapes = [(num_sources(edges), batch, dim), (edges.num_edge_types, dim), (edges.num_nodes, batch, dim)]
    x, rel, upstream = (torch.randn(shape, generator=generator) for shape in shapes)
    return x, rel, upstream


def value_and_gradients(
    x: Tensor, rel: Tensor, upstream: Tensor, edges: RelationalEdges, backend: str
) -> tuple[Tensor, Tensor, Tensor]:
    """`out`, `grad_x` and `grad_rel`, computed where the backend lives and brought back."""
    device = "cuda" if backend == "triton" and HAS_GPU else "cpu"
    x, rel = x.detach().to(device).requires_grad_(), rel.detach().to(device).requires_grad_()
    out = relational_spmm(x, rel, edges.to(device), backend)
    out.backward(upstream.to(device))
    assert x.grad is not None and rel.grad is not None
    return out.detach().cpu(), x.grad.cpu(), rel.grad.cpu()


def assert_near_reference(
    got: tuple[Tensor, ...],
    given: tuple[Tensor, Tensor, Tensor],
    edges: RelationalEdges,
    summing: float = 1e-6,
    rounding: float = 0.0,
) -> None:
    """Compares with the reference in float64; what an element may be off by follows from the sum that it is.

    Adding up in float32 loses a share `summing` of the sum of absolute values; storing loses `rounding` of the sum.
    """
    exact = value_and_gradients(*(t.double() for t in given), edges, "reference")
    sizes = value_and_gradients(*(t.double().abs() for t in given), edges, "reference")
    for name, a, want, size in zip(("out", "grad_x", "grad_rel"), got, exact, sizes, strict=True):
        assert a.dtype == given[0].dtype and a.shape == want.shape, name
        excess = (a.double() - want).abs() - summing * size - rounding * want.abs()
        assert (excess <= 1e-12).all(), f"{name}: off by {excess.max().item():.3g} more than rounding explains"


def assert_agrees(edges: RelationalEdges, backend: str, batch: int = 2, dim: int = 3, seed: int = 0) -> None:
    given = inputs(edges, batch, dim, seed)
    assert_near_reference(value_and_gradients(*given, edges, backend), given, edges)


@pytest.mark.parametrize("backend", ["reference", *FAST])
def test_the_sum_of_modulated_source_states_by_hand(backend: str):
    # Two parallel edges 0 -> 1 of types 0 and 1, a self-loop of type 1 at 1:
    # out[1] = (1, 2)*(10, 1) + (1, 2)*(0, -1) + (3, 4)*(0, -1) = (10, 2) + (0, -2) + (0, -4)
    # With the gradient (1, 1) at node 1: grad_x[0] = rel[0] + rel[1], grad_x[1] = rel[1], grad_rel[0] = x[0],
    # grad_rel[1] = x[0] + x[1].
    edges = directed([(0, 0, 1), (0, 1, 1), (1, 1, 1)], 2, 2)
    x, rel = torch.tensor([[[1.0, 2.0]], [[3.0, 4.0]]]), torch.tensor([[10.0, 1.0], [0.0, -1.0]])
    upstream = torch.tensor([[[5.0, 5.0]], [[1.0, 1.0]]])
    out, grad_x, grad_rel = value_and_gradients(x, rel, upstream, edges, backend)
    assert out.tolist() == [[[0.0, 0.0]], [[10.0, -4.0]]]
    assert grad_x.tolist() == [[[10.0, 0.0]], [[0.0, -1.0]]]
    assert grad_rel.tolist() == [[1.0, 2.0], [4.0, 6.0]]


@st.composite
def masked_graphs(draw: st.DrawFn) -> RelationalEdges:
    nodes, kinds, sources = draw(st.integers(1, 6)), draw(st.integers(1, 4)), draw(st.integers(1, 6))
    edge = st.tuples(st.integers(0, sources - 1), st.integers(0, kinds - 1), st.integers(0, nodes - 1))
    triples = draw(st.lists(edge, max_size=20))
    keep = draw(st.none() | st.lists(st.booleans(), min_size=len(triples), max_size=len(triples)))
    mask = None if keep is None else torch.tensor(keep, dtype=torch.bool)
    return directed(triples, nodes, kinds, mask, sources)


@pytest.mark.parametrize("backend", ["chunked", "numba"])
@settings(max_examples=40)
@given(edges=masked_graphs(), batch=st.integers(1, 4), dim=st.integers(1, 5), seed=st.integers(0, 1000))
def test_backends_agree_on_random_graphs(backend: str, edges: RelationalEdges, batch: int, dim: int, seed: int):
    assert_agrees(edges, backend, batch, dim, seed)


GRAPHS = {
    "no node": directed([], 0, 2),
    "no edge": directed([], 4, 2),
    "no edge, no type": directed([], 1, 0),
    "one node with a self-loop": directed([(0, 0, 0)], 1, 1),
    "self-loops of several types": directed([(0, 0, 0), (0, 1, 0), (2, 1, 2)], 3, 2),
    "parallel edges": directed([(0, 0, 1)] * 5 + [(0, 1, 1)] * 3, 2, 2),
    "all edges masked": directed([(0, 0, 1), (1, 0, 0)], 2, 1, torch.zeros(2, dtype=torch.bool)),
    "one of two duplicates masked": directed([(0, 0, 1), (0, 0, 1)], 2, 1, torch.tensor([True, False])),
    "types that no edge has": directed([(0, 3, 1)], 2, 6),
    "more sources than destinations": directed([(i % 9, i % 2, i % 4) for i in range(30)], 4, 2, num_sources=9),
    "fewer sources than destinations": directed([(i % 3, i % 2, i % 8) for i in range(30)], 8, 2, num_sources=3),
    "no source": directed([], 3, 2, num_sources=0),
}


@pytest.mark.parametrize("backend", FAST)
@pytest.mark.parametrize("name", GRAPHS)
def test_backends_agree_on_special_graphs(name: str, backend: str):
    assert_agrees(GRAPHS[name], backend)


@pytest.mark.parametrize("backend", FAST)
@pytest.mark.parametrize("end", ["destination", "source"])
def test_a_hub_is_summed_in_pieces(end: str, backend: str):
    pairs = [(1 + i % 3, i % 2) for i in range(HUB[backend])]
    edges = directed([(0, r, v) if end == "source" else (v, r, 0) for v, r in pairs], 4, 2)
    assert len(getattr(edges, f"by_{end}").partial_owner) > 1
    edges = edges.masked(torch.arange(len(pairs)) % 7 != 0)
    given = inputs(edges, 2, 4)
    # One running sum of 50k numbers is less exact than a sum of sums.
    summing = 5e-4 if backend == "chunked" else 1e-5
    assert_near_reference(value_and_gradients(*given, edges, backend), given, edges, summing)


@pytest.mark.parametrize("backend", FAST)
@pytest.mark.parametrize("batch", [0, 1, 17])
def test_backends_agree_for_any_number_of_questions(batch: int, backend: str):
    assert_agrees(directed(random_triples(0, 30, 6, 3), 6, 3), backend, batch=batch)


@pytest.mark.parametrize("backend", FAST)
@pytest.mark.parametrize(("batch", "dim"), [(2, 0), (3, 1), (1, 33), (2, 600), (1, 1024)])
def test_backends_agree_for_any_width(batch: int, dim: int, backend: str):
    assert_agrees(directed(random_triples(1, 12, 3, 2), 3, 2), backend, batch, dim)


@pytest.mark.parametrize("backend", FAST)
@pytest.mark.parametrize("block", [1, 3])
def test_block_boundaries_lose_no_edge(monkeypatch: pytest.MonkeyPatch, block: int, backend: str):
    monkeypatch.setattr(edges_module, "BLOCK", block)
    triples = random_triples(4, 20, 5, 3) + [(0, 4, 1)] * 7  # type 3 has no edge
    assert_agrees(directed(triples, 5, 5, torch.arange(27) % 4 != 0), backend)


@pytest.mark.parametrize("elements", [1, 12, 13, 36, 10**6])
def test_chunk_boundaries_lose_no_edge(monkeypatch: pytest.MonkeyPatch, elements: int):
    monkeypatch.setattr(spmm_module, "CHUNK_ELEMENTS", elements)  # 6 numbers an edge: 1, 2, 2, 6 and all edges a chunk
    assert_agrees(directed(random_triples(3, 30, 6, 3), 6, 3), "chunked", batch=2, dim=3)


@pytest.mark.parametrize("backend", ["reference", *FAST])
def test_a_masked_edge_equals_an_absent_one(backend: str):
    triples = random_triples(1, 30, 6, 3)
    keep = torch.arange(30) % 3 != 0
    edges = directed(triples, 6, 3)
    left = directed([t for t, k in zip(triples, keep.tolist(), strict=True) if k], 6, 3)
    given = inputs(left, 2, 4)
    value_and_gradients(*given, edges, backend)  # makes the orders that the masked copy then shares
    masked = value_and_gradients(*given, edges.masked(keep), backend)
    for got, want in zip(masked, value_and_gradients(*given, left, backend), strict=True):
        torch.testing.assert_close(got, want)
    # A strided mask is read correctly too.
    strided = torch.stack([keep, ~keep], dim=1)[:, 0]
    again = value_and_gradients(*given, edges.masked(strided), backend)
    assert not strided.is_contiguous() and all(torch.equal(a, b) for a, b in zip(again, masked, strict=True))


@pytest.mark.parametrize("backend", FAST)
def test_a_masked_edge_does_not_spread_what_is_not_finite(backend: str):
    edges = directed([(0, 0, 1), (2, 1, 1)], 3, 2, torch.tensor([False, True]))
    x, rel, upstream = torch.ones(3, 1, 2), torch.ones(2, 2), torch.ones(3, 1, 2)
    x[0], rel[0] = torch.inf, torch.nan
    assert all(t.isfinite().all() for t in value_and_gradients(x, rel, upstream, edges, backend))


@pytest.mark.parametrize("backend", ["reference", *FAST])
def test_strided_states_and_gradients_are_read_correctly(backend: str):
    edges = directed(random_triples(2, 40, 7, 3), 7, 3)
    x, rel, upstream = inputs(edges, 4, 6)
    strided = [t.transpose(0, 1).contiguous().transpose(0, 1) for t in (x, upstream)]
    rel_strided = rel.T.contiguous().T
    assert not any(t.is_contiguous() for t in (*strided, rel_strided))
    want = value_and_gradients(x, rel, upstream, edges, backend)
    got = value_and_gradients(strided[0], rel_strided, strided[1], edges, backend)
    assert all(torch.equal(a, b) for a, b in zip(got, want, strict=True))
    # The gradient of `sum` is one number expanded without memory of its own.
    expanded = torch.ones(()).expand(x.shape)
    got = value_and_gradients(x, rel, expanded, edges, backend)
    want = value_and_gradients(x, rel, torch.ones_like(x), edges, backend)
    assert all(torch.equal(a, b) for a, b in zip(got, want, strict=True))


@pytest.mark.parametrize("backend", ["chunked", "numba"])
def test_gradients_are_the_derivatives(backend: str):
    triples = [(s, r, v % 3) for s, r, v in random_triples(5, 12, 4, 3)] + [(0, 0, 0), (0, 0, 0)]
    edges = directed(triples, 3, 3, torch.arange(14) != 3, num_sources=4)
    x, rel, _ = (t.double().requires_grad_() for t in inputs(edges, 2, 2))
    assert torch.autograd.gradcheck(lambda x, rel: relational_spmm(x, rel, edges, backend), (x, rel))


@pytest.mark.parametrize("backend", FAST)
def test_bfloat16_loses_no_more_than_its_last_rounding(backend: str):
    edges = directed(random_triples(8, 60, 6, 3), 6, 3, torch.arange(60) % 5 != 0)
    given = tuple(t.bfloat16() for t in inputs(edges, 2, 5))
    # Triton's interpreter cuts the lower half off where a GPU rounds to the nearest.
    rounding = ULP if backend == "triton" and not HAS_GPU else ULP / 2
    assert_near_reference(value_and_gradients(*given, edges, backend), given, edges, rounding=rounding)


@pytest.mark.parametrize("backend", FAST)
def test_bfloat16_is_summed_in_float32(monkeypatch: pytest.MonkeyPatch, backend: str):
    # In bfloat16 a running sum of ones stays at 256, whose next neighbour is 258. Blocks of 4096 keep it one sum.
    monkeypatch.setattr(edges_module, "BLOCK", 4096)
    count = 4096 if backend != "triton" or HAS_GPU else 512
    edges = directed([(0, 0, 0)] * count, 1, 1)
    ones = torch.ones(1, 1, 2, dtype=torch.bfloat16)
    for total in value_and_gradients(ones, ones[0], ones, edges, backend):
        assert total.dtype == torch.bfloat16 and (total == count).all()


def test_chunked_takes_float16_and_sums_it_in_float32():
    edges = directed([(0, 0, 0)] * 4096, 1, 1)
    ones = torch.ones(1, 1, 2, dtype=torch.float16)  # a running sum of ones would stay at 2048
    for total in value_and_gradients(ones, ones[0], ones, edges, "chunked"):
        assert total.dtype == torch.float16 and (total == 4096).all()


@pytest.mark.parametrize("backend", FAST)
def test_relation_states_of_another_type_follow_the_entity_states(backend: str):
    edges = directed(random_triples(6, 20, 5, 2), 5, 2)
    x, rel, upstream = inputs(edges, 2, 3)
    low = value_and_gradients(x.bfloat16(), rel, upstream.bfloat16(), edges, backend)
    want = value_and_gradients(x.bfloat16(), rel.bfloat16(), upstream.bfloat16(), edges, backend)
    assert [t.dtype for t in low] == [torch.bfloat16, torch.bfloat16, torch.float32]
    assert all(torch.equal(a, b.to(a.dtype)) for a, b in zip(low, want, strict=True))


@pytest.mark.parametrize("backend", FAST)
def test_only_the_inputs_are_kept_for_the_backward_pass(backend: str):
    edges = directed(random_triples(6, 200, 5, 2), 5, 2)
    device = "cuda" if backend == "triton" and HAS_GPU else "cpu"
    x, rel = (t.to(device).requires_grad_() for t in inputs(edges, 2, 3)[:2])
    saved: list[int] = []

    def note(tensor: Tensor) -> Tensor:
        saved.append(tensor.data_ptr())
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        relational_spmm(x, rel, edges.to(device), backend)
    assert sorted(saved) == sorted([x.data_ptr(), rel.data_ptr()])


@pytest.mark.parametrize("backend", FAST)
def test_a_gradient_that_nobody_wants_is_not_computed(monkeypatch: pytest.MonkeyPatch, backend: str):
    edges = directed(random_triples(7, 20, 5, 2), 5, 2)
    x, rel, upstream = inputs(edges, 2, 3)
    want = value_and_gradients(x, rel, upstream, edges, backend)
    sums = []
    plain = spmm_module._sum
    monkeypatch.setattr(spmm_module, "_sum", lambda *a: sums.append(a[0]) or plain(*a))
    device = "cuda" if backend == "triton" and HAS_GPU else "cpu"
    edges = edges.to(device)
    for name, expected in (("x", want[1]), ("rel", want[2])):
        leaves = {"x": x.to(device), "rel": rel.to(device)}
        leaf = leaves[name].detach().requires_grad_()
        relational_spmm(**{**leaves, name: leaf}, edges=edges, backend=backend).backward(upstream.to(device))
        torch.testing.assert_close(leaf.grad.cpu(), expected)
    used = [edges.by_destination, edges.by_source, edges.by_destination, edges.by_relation]
    assert [id(group) for group in sums] == [id(group) for group in used]


def test_threads_of_a_server_do_not_disturb_each_other():
    graphs = [directed(random_triples(seed, 3000, 50, 3), 50, 3) for seed in (0, 1)]
    given = [inputs(edges, 2, 16, seed) for seed, edges in enumerate(graphs)]
    want = [value_and_gradients(*t, edges, "numba") for t, edges in zip(given, graphs, strict=True)]

    def serve(which: int) -> bool:
        edges = replace(graphs[which], _groups={})  # orders are made in the thread as well
        runs = [value_and_gradients(*given[which], edges, "numba") for _ in range(15)]
        return all(torch.equal(a, b) for run in runs for a, b in zip(run, want[which], strict=True))

    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(serve, (0, 1))) == [True, True]


@pytest.fixture
def thread_counts() -> Any:
    """One and two threads, with the count of this process restored afterwards."""
    if numba.config.NUMBA_NUM_THREADS < 2:
        pytest.skip("NUMBA_NUM_THREADS allows one thread only; this compares one with two")
    before = numba.get_num_threads()
    yield (1, 2, 2)
    numba.set_num_threads(before)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_number_of_threads_changes_no_bit(thread_counts: tuple[int, ...], dtype: torch.dtype):
    edges = directed(random_triples(9, 4000, 30, 2) + [(0, 0, 0)] * 2000, 30, 2)
    given = tuple(t.to(dtype) for t in inputs(edges, 3, 17))
    runs = []
    for count in thread_counts:
        numba.set_num_threads(count)
        runs.append(value_and_gradients(*given, edges, "numba"))
    assert all(torch.equal(a, b) for run in runs[1:] for a, b in zip(run, runs[0], strict=True))


def test_auto_takes_the_fastest_backend_for_type_and_device(monkeypatch: pytest.MonkeyPatch):
    compiled = (torch.float32, torch.bfloat16)
    for dtype in (*compiled, torch.float64, torch.float16):
        on_gpu: Any = SimpleNamespace(dtype=dtype, device=torch.device("cuda"))
        monkeypatch.setattr(spmm_module, "_has_triton", lambda: True)
        assert best_backend(on_gpu) == ("triton" if dtype in compiled else "chunked")
        monkeypatch.setattr(spmm_module, "_has_triton", lambda: False)
        assert best_backend(on_gpu) == "chunked"
        assert best_backend(torch.zeros(1, dtype=dtype)) == ("chunked" if dtype == torch.float16 else "numba")


def test_auto_runs_what_it_chose(monkeypatch: pytest.MonkeyPatch):
    used: list[str] = []
    plain = spmm_module._sum
    monkeypatch.setattr(spmm_module, "_sum", lambda *a: used.append(a[-1]) or plain(*a))
    edges = directed([(0, 0, 1)], 2, 1)
    x, rel, _ = inputs(edges, 1, 2)
    for dtype in (torch.float32, torch.float64, torch.bfloat16, torch.float16):
        assert relational_spmm(x.to(dtype), rel.to(dtype), edges).dtype == dtype
    assert used == ["numba", "numba", "numba", "chunked"]


def test_a_backend_that_cannot_is_refused():
    edges = directed([(0, 0, 1)], 2, 1)
    x, rel, _ = inputs(edges, 1, 2)
    with pytest.raises(ValueError, match="'cuda2' is unknown; use auto, numba, triton, chunked or reference"):
        relational_spmm(x, rel, edges, "cuda2")
    with pytest.raises(ValueError, match=r"'numba' needs float32, .* got torch.float16 on cpu; use 'chunked'"):
        relational_spmm(x.half(), rel.half(), edges, "numba")


@needs_triton
@pytest.mark.parametrize("dtype", [torch.float64, torch.float16])
def test_triton_refuses_types_that_it_would_round(dtype: torch.dtype):
    edges = directed([(0, 0, 1)], 2, 1)
    x, rel, _ = (t.to(dtype) for t in inputs(edges, 1, 2))
    with pytest.raises(ValueError, match=rf"'triton' needs float32 or bfloat16 on a GPU, got {dtype} on cpu; use "):
        relational_spmm(x, rel, edges, "triton")


COMPILED = """
import json, sys
import gfm, torch
from gfm.nn.relational_spmm import relational_spmm
from tests.nn.graphs import directed

edges = directed([(0, 0, 1)], 2, 1)
x, rel = torch.ones(2, 1, 2, requires_grad=True), torch.ones(1, 2, requires_grad=True)
relational_spmm(x, rel, edges).sum().backward()
found = {"imported": "triton" in sys.modules, "refused": "", "compiled": []}
try:
    relational_spmm(x, rel, edges, "triton")
except ValueError as error:
    found["refused"] = str(error)

from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource, compile
from gfm.nn import gpu_kernels

for kernel in (gpu_kernels.sum_messages, gpu_kernels.sum_products):
    for number, mask in (("*fp32", "*u8"), ("*bf16", "constexpr")):
        types = [*["*i32"] * 5, mask, *[number] * 3, "*fp32", *["i32"] * 3, "constexpr", "constexpr"]
        constants = {"EDGES": 8, "COLUMNS": 128, **({} if mask == "*u8" else {"keep": None})}
        source = ASTSource(kernel, dict(zip(kernel.arg_names, types, strict=True)), constants)
        binary = compile(source, GPUTarget("cuda", 90, 32), {"enable_fp_fusion": True})
        found["compiled"].append(len(binary.asm["cubin"]) > 0)
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What a process finds whose triton compiles, as outside of tests; no GPU is needed to compile for one."""
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    environment["TRITON_CACHE_DIR"] = str(tmp_path_factory.mktemp("triton"))
    command = [sys.executable, "-c", COMPILED]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT, env=environment)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@needs_triton
def test_the_other_backends_do_not_import_triton(compiled: dict[str, Any]):
    assert compiled["imported"] is False


@needs_triton
def test_triton_refuses_the_cpu(compiled: dict[str, Any]):
    want = "backend 'triton' needs float32 or bfloat16 on a GPU, got torch.float32 on cpu; use 'auto' or 'chunked'"
    assert compiled["refused"] == want


@needs_triton
def test_the_kernels_compile_for_a_gpu(compiled: dict[str, Any]):
    assert compiled["compiled"] == [True] * 4


def test_numba_told_not_to_compile_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(numba.config, "DISABLE_JIT", 1)
    edges = RelationalEdges(torch.tensor([[0], [1]]), torch.tensor([0]), 2, 1)
    with pytest.raises(InputError, match="NUMBA_DISABLE_JIT"):
        relational_spmm(torch.ones(2, 1, 3), torch.ones(1, 3), edges, backend="numba")


def test_bfloat16_bits_widen_and_round_alike_in_python_compiled_and_torch() -> None:
    @numba.njit
    def compiled(bits: np.ndarray, numbers: np.ndarray, wide: np.ndarray, rounded: np.ndarray) -> None:
        for i in range(len(bits)):
            wide[i] = widen(bits[i])
            store(rounded, i, numbers[i])

    tie = 1 + 2.0**-8  # half way between two bfloat16 numbers, and its neighbour that rounds to even the other way
    numbers = torch.tensor([0.0, -0.0, 1.0, tie, tie + 2.0**-7, -3.14159, 1e-40, 3e38, float("inf"), -float("inf")])
    want = numbers.bfloat16()
    bits = want.view(torch.uint16).numpy()
    wide, rounded, slow = (
        np.empty(len(bits), np.float32),
        np.empty(len(bits), np.uint16),
        np.empty(len(bits), np.uint16),
    )
    compiled(bits, numbers.numpy(), wide, rounded)
    for i, number in enumerate(numbers.numpy()):
        store(slow, i, number)
        assert widen(bits[i]) == want[i].float().item()
    assert rounded.tolist() == slow.tolist() == bits.tolist()
    assert wide.tolist() == want.float().tolist()
    plain = np.zeros(1, np.float32)
    store(plain, 0, np.float32(0.1))
    assert plain[0] == np.float32(0.1) == widen(np.float32(0.1))
