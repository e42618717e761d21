"""`ExtractNgrams` for Beam YAML, which makes transforms from plain values.

providers:
  - type: python
    config: {}
    transforms:
      ExtractNgrams: dpngram.pipelines.beam_yaml.extract_ngrams
"""

import difflib
import inspect
from typing import Any

from dpngram.accounting import ParameterError, plan_extraction
from dpngram.transforms import ExtractLevels, ExtractNgrams

__all__ = ["extract_ngrams"]


def extract_ngrams(
    *,
    epsilon: float,
    delta: float,
    max_n: int,
    max_contributions: int,
    eta: float = 0.01,
    policy: str = "plus",
    max_bad_fraction: float | None = None,
    **settings: Any,
) -> ExtractNgrams:
    """Rows with a user and a text -> rows (n, tokens, weight). `settings` are those of `ExtractNgrams`.

    Without `max_bad_fraction` it is 1 % in the global window, as on the command line; in others there is no verdict.

    Privacy: that of `ExtractNgrams`; every application in a graph is a separate release.
    """
    _check_names(settings)
    vocabulary = settings.get("vocabulary")
    plan = plan_extraction(
        epsilon=float(epsilon),
        delta=float(delta),
        max_n=max_n,
        max_contributions=max_contributions,
        eta=float(eta),
        policy=policy,
        public_vocabulary=vocabulary is not None,
    )
    return ExtractNgrams(plan, **{**settings, "max_bad_fraction": max_bad_fraction})


def _check_names(settings: dict[str, Any]) -> None:
    """Raises ParameterError for a setting that there is not: the word in the YAML, not one of Python's calls."""
    known = [*inspect.signature(extract_ngrams).parameters, *inspect.signature(ExtractLevels).parameters]
    known = [name for name in known if name not in ("plan", "settings")]
    for name in settings:
        if name not in known:
            close = difflib.get_close_matches(name, known, 1, 0.6)
            hint = f"; did you mean {close[0]}?" if close else f"; it has {', '.join(sorted(set(known)))}."
            raise ParameterError(f"config of ExtractNgrams must have known names, got {name!r:.80}{hint}")
