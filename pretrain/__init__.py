"""Stage: pretrains the GNN on knowledge graph completion. Run as `python -m pretrain --config ... key=value`."""

from gfm.environment import ask_for_huge_pages

ask_for_huge_pages()  # a stage is a program, and its __main__ imports torch
