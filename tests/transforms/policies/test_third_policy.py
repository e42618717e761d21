"""A third policy fits into the graph without any other change: a spec, a class, an entry in each registry."""

import apache_beam as beam
import pytest
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from apache_beam.testing.util import assert_that, equal_to

from dpngram.accounting import POLICIES, PolicySpec, plan_extraction
from dpngram.transforms import ExtractNgrams
from dpngram.transforms.policies import ROUND_POLICIES, RoundPolicy
from dpngram.transforms.policies.clipping import equal_weights
from dpngram.transforms.policies.cutoffs import Cutoffs
from dpngram.transforms.policies.strata import Strata
from dpngram.transforms.randomness.noise import Noise

SPEC = PolicySpec(
    name="one_gram",
    summary="every user gives one gram at each level, with all the weight",
    individual_budgets=False,
    eta_is_bound=True,
    both_sides_only=False,
    token_share=0.5,
    decay=1.0,
)


class OneGram(RoundPolicy):
    """A user gives the gram with the smallest keyed draw, weight 1: norm 1 at each level."""

    def weigh(self, users, candidates, clip, earlier):
        return equal_weights(candidates, 1, clip), None

    def cutoffs(self, previous, earlier):
        rho = self.plan.threshold(self.n, len(previous), previous.valid(self.pruning))
        return Cutoffs.fixed(Noise(self.level.sigma), Strata(previous, self.pruning), rho)


@pytest.fixture
def plan(monkeypatch):
    monkeypatch.setitem(POLICIES, SPEC.name, SPEC)
    monkeypatch.setitem(ROUND_POLICIES, SPEC.name, OneGram)
    return plan_extraction(epsilon=20, delta=0.01, max_n=3, max_contributions=5, policy=SPEC.name)


def test_a_third_policy(plan):
    """300 users say one word in a post; the other 300 say three words, and give one gram of each length."""
    documents = [(f"a{i}", "hello") for i in range(300)] + [(f"b{i}", "see you tomorrow") for i in range(300)]
    with beam.Pipeline(runner=FnApiRunner()) as pipeline:
        released = pipeline | beam.Create(documents) | ExtractNgrams(plan)
        by_length = released | beam.Map(lambda gram: (gram.n, gram.weight)) | beam.CombinePerKey(sum)
        total = by_length | beam.MapTuple(lambda n, weight: (n, round(weight / 50)))
        assert_that(total, equal_to([(1, 12), (2, 6), (3, 6)]))
