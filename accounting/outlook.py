"""About how many n-grams a proposed plan will release, by a formula that was fitted on public corpora.

Nothing here reads data: the formula knows about how many users there are, and about how many words each wrote. What is
released depends on how much users have in common, which no formula knows. `LEAST` and `MOST` say how far off it was on
corpora that played no part in the fit.
"""

import dataclasses
import math

from dpngram.accounting.parameters import check_integer, check_number

__all__ = ["LEAST", "MIDDLE", "MOST", "TRIED_TOKENS", "TRIED_USERS", "Outlook", "forecast_released"]

# ln(n-grams) = constant + first * ln(users / users that a word needs) + second * ln(words of a user). Least squares on
# the rows of tests/benchmarks/forecast.csv that are not held out; tests/benchmarks/forecast.py makes them again.
CONSTANT, BY_USERS, BY_TOKENS = -3.651, 1.423, 1.230
# On the corpora that were held out, between so many and so many times the forecast were released, and their median.
LEAST, MOST, MIDDLE = 0.66, 7.1, 2.5
TRIED_USERS, TRIED_TOKENS = (500, 100_000), (5, 600)


@dataclasses.dataclass(frozen=True)
class Outlook:
    """A forecast.

    Args:
        released: about how many n-grams, of all lengths together.
        low, high: the forecast times `LEAST` and `MOST`.
        tried: whether corpora of such a size were among those that the formula was fitted or tried on.
    """

    released: float
    low: float
    high: float
    tried: bool


def forecast_released(users: int, tokens_per_user: int, word: int) -> Outlook:
    """About how many n-grams will be released.

    Args:
        users: about how many there are.
        tokens_per_user: about how many words one of them wrote.
        word: how many users a word needs at even odds, if each gives as many words as the plan's cap allows.
    """
    check_integer("users", users, 1, 1 << 40)
    check_integer("tokens_per_user", tokens_per_user, 1, 1 << 40)
    check_number("word", word, 1, 1e300)
    released = math.exp(CONSTANT + BY_USERS * math.log(users / word) + BY_TOKENS * math.log(tokens_per_user))
    tried = all(low <= value <= high for value, (low, high) in ((users, TRIED_USERS), (tokens_per_user, TRIED_TOKENS)))
    return Outlook(released, released * LEAST, released * MOST, tried)
