"""A third policy fits into the graph without any other change: a spec, a class, an entry in each registry."""

import dataclasses

import apache_beam as beam
import pytest
from apache_beam.testing.util import assert_that, equal_to

from dpngram.accounting import POLICIES, ParameterError, PolicySpec, plan_extraction
from dpngram.transforms import ExtractNgrams
from dpngram.transforms.policies import ROUND_POLICIES, RoundPolicy, make_rounds
from dpngram.transforms.policies.clipping import equal_weights
from dpngram.transforms.policies.cutoffs import Cutoffs
from dpngram.transforms.policies.strata import Strata
from dpngram.transforms.randomness.noise import UNIT, Noise

SPEC = PolicySpec(
    name="one_gram",
    summary="every user gives one gram at each level, with all the weight",
    individual_budgets=False,
    eta_is_bound=True,
    token_share=0.5,
    decay=1.0,
)


class OneGram(RoundPolicy):
    """A user gives the gram with the smallest keyed draw, weight 1: norm 1 at each level."""

    def weigh(self, users, candidates, clip):
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
    with beam.Pipeline(runner="FnApiRunner") as pipeline:
        released = pipeline | beam.Create(documents) | ExtractNgrams(plan)
        by_length = released | beam.Map(lambda gram: (gram.n, gram.weight)) | beam.CombinePerKey(sum)
        total = by_length | beam.MapTuple(lambda n, weight: (n, round(weight / 50)))
        assert_that(total, equal_to([(1, 12), (2, 6), (3, 6)]))


def test_rounds_of_a_plan(plan):
    assert [[(policy.n, policy.number) for policy in level] for level in make_rounds(plan)] == [
        [(1, 0)],
        [(2, 0)],
        [(3, 0)],
    ]
    plus = make_rounds(dataclasses.replace(plan_extraction(epsilon=1, delta=1e-6, max_n=3, max_contributions=5)))
    assert [[policy.label for policy in level] for level in plus][:2] == [
        ["Round1", "Round2", "Round3"],
        ["Round1", "Round2"],
    ]
    assert all(policy.changes_users for level in plus for policy in level)


def test_an_abstract_policy_cannot_be_used(plan):
    with pytest.raises(TypeError, match="abstract"):
        RoundPolicy(plan, 1)


def test_noise_beyond_exact_sums_is_refused_before_anything_runs(plan):
    wide = dataclasses.replace(plan.level(2), sigma=float(UNIT))
    with pytest.raises(ParameterError, match="sigma must be below"):
        OneGram(dataclasses.replace(plan, levels=(plan.level(1), wide, plan.level(3))), 2)
