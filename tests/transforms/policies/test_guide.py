"""The guide of policy plus."""

import math

from dpngram.transforms.policies.guide import GUIDE_UNIT, guide_table


def test_the_guide_table_does_not_depend_on_the_last_bits_of_exp():
    """No entry lies so near a whole number that another processor's `exp` could move it."""
    for place, value in enumerate(guide_table().tolist()):
        m = math.exp((place - 2**13) / 256)
        exact = max(0.35, min(1, m / 0.5)) * min(1, (4 / m) ** 0.6) * GUIDE_UNIT
        assert value == max(math.floor(exact + 2.0**-20), 1)
        fraction = (exact + 2.0**-20) % 1
        assert min(fraction, 1 - fraction) > 1e-9
    assert guide_table().max() == GUIDE_UNIT
