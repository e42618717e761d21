"""Whole graphs in tests."""

import apache_beam as beam
import numpy as np
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from helpers.keys import write_key

from dpngram.accounting import plan_extraction
from dpngram.transforms import ExtractNgrams

BUDGET = {"epsilon": 20, "delta": 0.1, "max_n": 3, "max_contributions": 12, "eta": 0.1}
PLANS = {policy: plan_extraction(policy=policy, **BUDGET) for policy in ("paper", "plus")}


def corpus(users=200, seed=0):
    random = np.random.default_rng(seed)
    words = [f"w{i}" for i in range(12)]
    chances = 1 / np.arange(1, 13)
    return [
        (f"user{user}", " ".join(random.choice(words, random.integers(1, 12), p=chances / chances.sum())))
        for user in range(users)
        for _ in range(random.integers(1, 4))
    ]


class Collect:
    """Runs a graph and hands back what came out."""

    def __init__(self, tmp_path, policy):
        self.plan = PLANS[policy]
        self.path = tmp_path / "rows"
        self.key = tmp_path / "noise.key"
        write_key(self.key, b"0123456789abcdef" * 2)

    def __call__(self, documents, options=(), transform=None, **arguments):
        self.path.unlink(missing_ok=True)
        arguments = {"noise_key": str(self.key), **arguments}
        path = self.path  # not `self`: workers of their own cannot import this module
        with beam.Pipeline(runner=FnApiRunner(), options=PipelineOptions(list(options))) as pipeline:
            rows = (
                pipeline
                | beam.Create(documents, reshuffle=False)
                | "ExtractNgrams" >> (transform or ExtractNgrams)(self.plan, **arguments)
            )
            (
                rows
                | beam.Map(lambda row: (0, repr(tuple(row))))
                | beam.GroupByKey()
                | beam.MapTuple(lambda _, lines: path.write_text("\n".join(sorted(lines))))
            )
        return self.path.read_text().splitlines() if self.path.exists() else []
