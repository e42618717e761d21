"""The forecast: its constants are those of the measurements, and so is the error that it admits."""

import numpy as np
import pytest
from helpers.outlook import FITTED, HELD_OUT, fit, read_table, word_needs

from dpngram.accounting import ParameterError, outlook
from dpngram.accounting.outlook import forecast_released

ROWS = read_table()


def test_the_constants_are_fitted_without_the_corpora_that_are_held_out():
    constants, _ = fit(ROWS)
    assert constants == pytest.approx([outlook.CONSTANT, outlook.BY_USERS, outlook.BY_TOKENS], abs=6e-4)
    assert constants == pytest.approx(fit([row for row in ROWS if row["corpus"] in FITTED])[0])
    assert {row["corpus"] for row in ROWS} == {*FITTED, *HELD_OUT}


def test_the_error_is_that_of_the_corpora_that_are_held_out():
    found = [
        row["released"]
        / forecast_released(
            row["users"], row["tokens_per_user"], word_needs(row["users"], row["tokens_per_user"], row["epsilon"])
        ).released
        for row in ROWS
    ]
    assert found == pytest.approx(fit(ROWS)[1], rel=0.01)
    held = [factor for factor, row in zip(found, ROWS, strict=True) if row["corpus"] in HELD_OUT]
    assert len(held) == 28 + 4
    assert min(held) == pytest.approx(outlook.LEAST, rel=0.02)
    assert max(held) == pytest.approx(outlook.MOST, rel=0.02)
    assert np.median(held) == pytest.approx(outlook.MIDDLE, abs=0.05)


def test_more_of_anything_releases_more():
    some = forecast_released(10_000, 50, 300)
    assert some.tried
    assert some.low < some.released < some.high
    assert forecast_released(20_000, 50, 300).released > some.released
    assert forecast_released(10_000, 100, 300).released > some.released
    assert forecast_released(10_000, 50, 200).released > some.released
    assert not forecast_released(1_000_000, 50, 300).tried
    assert not forecast_released(10_000, 5_000, 300).tried


@pytest.mark.parametrize("wrong", [(0, 5, 5), (5, 0, 5), (5, 5, 0), (1.5, 5, 5)])
def test_what_is_not_a_size_is_refused(wrong):
    with pytest.raises(ParameterError, match="must be"):
        forecast_released(*wrong)
