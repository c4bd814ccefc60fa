"""The model: relational propagation, the query-conditioned GNN and the subgraph selector."""
