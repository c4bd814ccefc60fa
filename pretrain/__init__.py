"""Stage: pretrains the GNN on knowledge graph completion. Run as `python -m pretrain --config ... key=value`."""
