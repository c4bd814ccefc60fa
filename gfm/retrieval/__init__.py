"""From a question to its evidence: seed entities, subgraph, paths and documents."""
