"""The types say what the files of a comparison hold: no field more, no field less."""

from typing import get_type_hints

from dpngram.pipelines.research.comparison_files import Outline, OutlineRow, ResultRow, Results, Sweeps
from dpngram.pipelines.research.results import fill_results, outline
from dpngram.pipelines.research.systems import plan_comparison


def test_fields_of_a_comparison():
    comparison = plan_comparison(
        epsilon=4,
        delta=1e-6,
        max_n=2,
        max_contributions=5,
        eta=0.01,
        decay=None,
        systems="dpne,plus",
        sweeps=["epsilon=1,2"],
        sweep_system="dpne",
        repeats=2,
        as_printed=False,
    )
    begun = outline(comparison, {"tokenizer": "words"})
    assert set(begun) == set(get_type_hints(Outline))
    assert all(set(row) == set(get_type_hints(OutlineRow)) for row in begun["rows"])
    assert all(set(sweep) == set(get_type_hints(Sweeps)) for sweep in begun["sweeps"])
    results = fill_results(begun, comparison, {})
    assert set(results) == set(get_type_hints(Results))
    assert all(set(row) == set(get_type_hints(ResultRow)) for row in results["rows"])
