"""Speed and memory, measured: each module with a `main` is a command, `python -m benchmarks.NAME`, run from a checkout.

`propagation` measures the operation, `retrieval` a question, `training` a step, `scaling` growth with the graph. Every
case runs in a process of its own, so that neither its memory nor what it compiled helps or harms the next one.
"""
