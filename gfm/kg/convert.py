"""The graph as PyG `Data`, PyG `HeteroData` or networkx `MultiDiGraph`, and back, without loss."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from gfm.errors import InputError
from gfm.kg.graph import KnowledgeGraph

if TYPE_CHECKING:  # both are slow to import and only the function that needs one should pay
    import networkx
    from torch_geometric.data import Data, HeteroData


def to_data(graph: KnowledgeGraph) -> Data:
    """The graph as PyG `Data`; ids and order stay as they are.

    Direct triples only, as everywhere: call `graph.with_inverses()` for what propagation runs on.

    Returns:
        `edge_index (2, E)`, `edge_type (E,)`, `num_nodes`, `entity_names`, `relation_names` and, where the
        graph has them, `entity_types` (lists of str).
    """
    from torch_geometric.data import Data

    data = Data(edge_index=graph.edge_index, edge_type=graph.edge_type, num_nodes=graph.num_entities)
    data.entity_names = list(graph.entity_names)
    data.relation_names = list(graph.relation_names)
    if graph.entity_types is not None:
        data.entity_types = list(graph.entity_types)
    return data


def from_data(data: Data) -> KnowledgeGraph:
    """The graph of a PyG `Data` that has the fields `to_data` gives it.

    Raises:
        InputError: a field is missing, or does not fit the others.
    """
    for name in ("edge_index", "edge_type", "entity_names", "relation_names"):
        if data.get(name) is None:
            raise InputError(f"this Data has no {name!r}, only {sorted(data.keys())}; set it")
    types = data.get("entity_types")
    graph = KnowledgeGraph(
        entity_names=list(data.entity_names),
        relation_names=list(data.relation_names),
        edge_index=data.edge_index.to(torch.int64),
        edge_type=data.edge_type.to(torch.int64),
        entity_types=None if types is None else list(types),
    )
    if data.num_nodes != graph.num_entities:
        raise InputError(f"this Data has {data.num_nodes} nodes but {graph.num_entities} entity_names; name each one")
    return _checked(graph)


def to_hetero(graph: KnowledgeGraph) -> HeteroData:
    """The graph as PyG `HeteroData`, for models with parameters per type.

    A node type is an entity type, an edge type `(type of head, relation name, type of tail)`. Names are
    keys, not identifiers: read them with `data.get_node_store(type)` and `data.get_edge_store(*edge_type)`.
    Entities keep their order within a type, triples theirs within an edge type.

    Returns:
        Per node type `num_nodes` and `names` (list of str), per edge type `edge_index (2, E_t)`, and
        `relation_names` for all, since a relation without a triple has no edge type.
    """
    from torch_geometric.data import HeteroData

    kinds = [graph.type_of(i) for i in range(graph.num_entities)]
    type_ids = {kind: i for i, kind in enumerate(dict.fromkeys(kinds))}
    type_of = torch.tensor([type_ids[kind] for kind in kinds], dtype=torch.int64)
    local = torch.zeros_like(type_of)
    data = HeteroData()
    data.relation_names = list(graph.relation_names)
    with warnings.catch_warnings():
        # A "__" in a name only matters to those who join type names with it.
        warnings.filterwarnings("ignore", message="There exist type names", category=UserWarning)
        for kind, i in type_ids.items():
            members = (type_of == i).nonzero().reshape(-1)
            local[members] = torch.arange(members.numel())
            store = data.get_node_store(kind)
            store.num_nodes = members.numel()
            store.names = [graph.entity_names[e] for e in members.tolist()]
        names = list(type_ids)
        for source, relation, target, edges in _edge_groups(graph, type_of, len(names)):
            edge_store = data.get_edge_store(names[source], graph.relation_names[relation], names[target])
            edge_store.edge_index = local[graph.edge_index[:, edges]]
    return data


def _edge_groups(graph: KnowledgeGraph, type_of: Tensor, num_types: int) -> list[tuple[int, int, int, Tensor]]:
    """Edge ids by `(head type, relation, tail type)`, each group in stored order."""
    heads, tails = type_of[graph.edge_index]
    key = (heads * graph.num_relations + graph.edge_type) * num_types + tails
    order = torch.argsort(key, stable=True)
    keys, counts = torch.unique_consecutive(key[order], return_counts=True)
    groups = []
    for value, edges in zip(keys.tolist(), torch.split(order, counts.tolist()), strict=True):
        rest, target = divmod(value, num_types)
        source, relation = divmod(rest, graph.num_relations)
        groups.append((source, relation, target, edges))
    return groups


def from_hetero(data: HeteroData) -> KnowledgeGraph:
    """The graph of a PyG `HeteroData` whose node types have `names`.

    Entities are numbered type by type, triples edge type by edge type; `relation_names`, where present,
    come first in their order.

    Raises:
        InputError: names are missing, do not fit the node count, or occur twice.
    """
    names: list[str] = []
    kinds: list[str] = []
    offsets: dict[str, int] = {}
    sizes: dict[str, int] = {}
    for kind, store in data.node_items():
        own = store.get("names")
        if own is None or len(own) != store.num_nodes:
            found = "none" if own is None else len(own)
            raise InputError(f"node type {kind!r} has {store.num_nodes} nodes and {found} 'names'; name each one")
        offsets[kind], sizes[kind] = len(names), len(own)
        names += own
        kinds += [kind] * len(own)
    relation_ids = {name: i for i, name in enumerate(getattr(data, "relation_names", []))}
    edges = [torch.empty((2, 0), dtype=torch.int64)]
    edge_types = [torch.empty(0, dtype=torch.int64)]
    for (source, relation, target), store in data.edge_items():
        index = store.get("edge_index")
        if index is None or source not in offsets or target not in offsets:
            raise InputError(f"edge type {(source, relation, target)!r} needs an edge_index and both its node types")
        _check_range((source, relation, target), index, (sizes[source], sizes[target]))
        edges.append(index.to(torch.int64).cpu() + torch.tensor([[offsets[source]], [offsets[target]]]))
        number = relation_ids.setdefault(relation, len(relation_ids))
        edge_types.append(torch.full((index.size(1),), number, dtype=torch.int64))
    return _checked(KnowledgeGraph(names, list(relation_ids), torch.cat(edges, dim=1), torch.cat(edge_types), kinds))


def _check_range(edge_type: tuple[str, str, str], index: Tensor, sizes: tuple[int, int]) -> None:
    # Past its own type an id would silently land on an entity of the next one.
    for row, size, end in zip(index, sizes, ("head", "tail"), strict=True):
        if row.numel() and not 0 <= int(row.min()) <= int(row.max()) < size:
            raise InputError(f"edge type {edge_type!r}: {end} ids reach {int(row.max())} of {size} nodes; fix the ids")


def to_networkx(graph: KnowledgeGraph) -> networkx.MultiDiGraph[str]:
    """The graph as a networkx `MultiDiGraph`: nodes keyed by name, edges with the attribute `relation`.

    Edge keys are networkx's own numbers, so that a triple that occurs twice stays two edges. Every relation
    name, used or not, is in `result.graph["relation_names"]`; a node has `type` where the graph has types.
    """
    import networkx

    result: networkx.MultiDiGraph[str] = networkx.MultiDiGraph(relation_names=list(graph.relation_names))
    known = graph.entity_ids  # raises on a repeated name, which would merge two nodes
    if graph.entity_types is None:
        result.add_nodes_from(known)
    else:
        result.add_nodes_from((name, {"type": graph.type_of(i)}) for name, i in known.items())
    result.add_edges_from((head, tail, {"relation": relation}) for head, relation, tail in graph.triples())
    return result


def from_networkx(source: networkx.DiGraph[Any]) -> KnowledgeGraph:
    """The graph of a networkx `DiGraph` or `MultiDiGraph`.

    Entities keep networkx's order, triples are listed node by node. An edge's relation is its attribute
    `relation`, or else its key where that is a string. A node without `type` has the type `entity`.

    Raises:
        InputError: the graph is undirected, a name or type is not a string, or an edge has no relation.
    """
    if not source.is_directed():
        raise InputError("this networkx graph is undirected, a triple has a head and a tail; use a MultiDiGraph")
    types: dict[str, str] = {}
    typed = False
    for name, attributes in source.nodes(data=True):
        types[name] = attributes.get("type", "entity")
        typed = typed or "type" in attributes
        if not isinstance(name, str) or not isinstance(types[name], str):
            raise InputError(f"node {name!r} of type {types[name]!r}: both must be strings; relabel the nodes")
    triples = []
    edges = source.edges(keys=True, data=True) if source.is_multigraph() else _keyless(source)
    for head, tail, key, attributes in edges:
        relation = attributes.get("relation", key)
        if not isinstance(relation, str):
            raise InputError(f"edge {head!r} -> {tail!r} has the relation {relation!r}; give it a string 'relation'")
        triples.append((head, relation, tail))
    relations: Sequence[str] = source.graph.get("relation_names", ())
    return KnowledgeGraph.from_triples(triples, types, relations, types if typed else None)


def _keyless(source: networkx.DiGraph[Any]) -> list[tuple[Any, Any, None, dict[str, Any]]]:
    return [(head, tail, None, attributes) for head, tail, attributes in source.edges(data=True)]


def _checked(graph: KnowledgeGraph) -> KnowledgeGraph:
    """The graph, after its lazy checks for names that occur twice."""
    _ = graph.entity_ids, graph.relation_ids
    return graph
