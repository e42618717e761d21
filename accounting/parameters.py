"""Checks of what a person may ask for. Each error names the parameter, the value and the valid range."""

import math
import numbers
from collections.abc import Sequence

__all__ = [
    "MAX_CONTRIBUTIONS",
    "MAX_N",
    "MAX_WINDOWS",
    "ParameterError",
    "check_choice",
    "check_delta",
    "check_epsilon",
    "check_integer",
    "check_number",
    "check_sequence",
    "check_sigma",
]

EPSILON_RANGE = (1e-6, 1e4)
DELTA_MIN = 1e-300
MAX_N = 64
MAX_CONTRIBUTIONS = 1_000_000
MAX_WINDOWS = 1_000_000


class ParameterError(ValueError):
    """A parameter outside its valid range. The message is one line and fit to show to a user."""


def check_number(
    name: str, value: object, low: float, high: float, *, low_open: bool = False, high_open: bool = False
) -> float:
    """`value` as a float inside the interval, or a ParameterError."""
    left = "greater than" if low_open else "at least"
    right = "less than" if high_open else "at most"
    valid = f"{name} must be a number {left} {low:g} and {right} {high:g}, got {_shown(value)}."
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise ParameterError(valid)
    try:
        number = float(value)
    except OverflowError:
        raise ParameterError(valid) from None
    too_low = number <= low if low_open else number < low
    too_high = number >= high if high_open else number > high
    if math.isnan(number) or too_low or too_high:
        raise ParameterError(valid)
    return number


def check_integer(name: str, value: object, low: int, high: int) -> int:
    """`value` as an int inside [low, high], or a ParameterError."""
    whole = isinstance(value, numbers.Integral) and not isinstance(value, bool)
    if not whole or not low <= value <= high:  # type: ignore[operator]
        raise ParameterError(f"{name} must be a whole number from {low} to {high}, got {_shown(value)}.")
    return int(value)  # type: ignore[call-overload,no-any-return]


def check_sequence(name: str, value: object, length: int, what: str) -> list[object]:
    """`value` as a list of exactly `length` items, or a ParameterError."""
    is_list = isinstance(value, Sequence) and not isinstance(value, (str, bytes))
    if not is_list or len(value) != length:  # type: ignore[arg-type]
        raise ParameterError(f"{name} must be {length} {what}, one per level, got {_shown(value)}.")
    return list(value)  # type: ignore[call-overload,no-any-return]


def check_choice(name: str, value: object, choices: Sequence[str]) -> str:
    """`value` if it is one of the choices, or a ParameterError."""
    if not isinstance(value, str) or value not in choices:
        raise ParameterError(f"{name} must be one of {', '.join(choices)}, got {_shown(value)}.")
    return value


def check_epsilon(value: object) -> float:
    return check_number("epsilon", value, *EPSILON_RANGE)


def check_delta(value: object) -> float:
    return check_number("delta", value, DELTA_MIN, 1.0, high_open=True)


def check_sigma(value: object) -> float:
    return check_number("sigma", value, 1e-100, 1e100)


def _shown(value: object) -> str:
    text = repr(value) if not isinstance(value, numbers.Real) else str(value)
    text = "".join(c if c.isprintable() else "?" for c in text)
    return text if len(text) <= 80 else text[:77] + "..."
