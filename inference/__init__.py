"""Stage: retrieves evidence for a file of questions. Run as `python -m inference --config ... key=value`."""

from gfm.environment import ask_for_huge_pages

ask_for_huge_pages()  # a stage is a program, and its __main__ imports torch
