"""Knowledge graphs: the in-memory graph, what reads and writes it, and what converts it."""
