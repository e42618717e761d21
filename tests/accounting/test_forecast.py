"""What a plan buys."""

import math

from helpers.budgets import PAPER

from dpngram.accounting import plan_extraction, users_needed


def test_users_needed_is_the_smallest_number_that_does_it():
    from scipy.stats import norm

    plan = plan_extraction(**PAPER)
    for n, contributions, probability in [(1, 300, 0.5), (1, 1, 0.99), (5, 17, 0.99)]:
        needed = users_needed(plan, n, contributions, probability)
        rho, sigma = plan.threshold(n, 1, 1000), plan.level(n).sigma
        chance = [norm.sf((rho - users / math.sqrt(contributions)) / sigma) for users in (needed - 1, needed)]
        assert chance[0] < probability <= chance[1]
