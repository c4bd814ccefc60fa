"""Metrics that every method is measured with; fractions in [0, 1] throughout."""
