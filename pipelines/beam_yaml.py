"""`ExtractNgrams` for Beam YAML, which makes transforms from plain values.

providers:
  - type: python
    config: {}
    transforms:
      ExtractNgrams: dpngram.pipelines.beam_yaml.extract_ngrams
"""

from typing import Any

from dpngram.accounting import plan_extraction
from dpngram.transforms import ExtractNgrams

__all__ = ["extract_ngrams"]


def extract_ngrams(
    *,
    epsilon: float,
    delta: float,
    max_n: int,
    max_contributions: int,
    eta: float = 0.01,
    policy: str = "plus",
    **settings: Any,
) -> ExtractNgrams:
    """Rows with a user and a text -> rows (n, tokens, weight). `settings` are those of `ExtractNgrams`.

    Privacy: that of `ExtractNgrams`; every application in a graph is a separate release.
    """
    plan = plan_extraction(
        epsilon=float(epsilon),
        delta=float(delta),
        max_n=max_n,
        max_contributions=max_contributions,
        eta=float(eta),
        policy=policy,
    )
    return ExtractNgrams(plan, **settings)
