"""Arguments of plans that the paper has, for both policies."""

PAPER = {"epsilon": 4, "delta": 1e-7, "max_n": 9, "max_contributions": 300, "policy": "paper"}


PLUS = {**PAPER, "policy": "plus"}
