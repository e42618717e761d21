"""What a user of policy plus gives and pays, in Python's integers: budgets in units of 2^-64, weights of 2^-32."""

import math

from helpers.plus_tables import WHOLE


def spend(guides, allowed, everything=False):
    """The weight for each gram, by guides in units of 2^-12, and the charge."""
    norm, least = sum(guide**2 for guide in guides.values()), 1 if everything else WHOLE**2
    if not norm:
        return {}, 0
    scale = math.sqrt(float(allowed) / max(norm, least)) * (1 - 2.0**-40)
    weights = {gram: int(scale * guide) for gram, guide in guides.items()}
    weights = {gram: weight if weight >= 2**20 else 0 for gram, weight in weights.items()}
    charge = allowed
    if norm < least:
        charge = min(int(float(allowed) * (norm / least) * (1 + 2.0**-40)) + 1, allowed)
    assert sum(weight**2 for weight in weights.values()) <= charge
    return weights, charge


def vouch(cells, allowed, ratio):
    """How much of each of its cells in the zone a user vouches for, in units of 2^-16, and the charge.

    `ratio` is the noise of the count over that of the level.
    """
    if not cells:
        return 0, 0
    given = math.floor(min(math.sqrt(float(allowed)) * (2.0**-32 * ratio * 2**16 * (1 - 2.0**-30)) / cells, 2**16))
    charge = (int(cells * given * (2.0**32 / (ratio * 2**16)) * (1 + 2.0**-40)) + 1) ** 2
    return (given, charge) if given and charge <= allowed else (0, 0)


def longest(post, k, candidates):
    """The longest run of positions of the post at which a candidate of length k starts."""
    marks = "".join("x" if tuple(post[i : i + k]) in candidates else " " for i in range(len(post) - k + 1))
    return max(map(len, marks.split(" ")))
