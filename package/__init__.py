"""Release n-grams from private text under user-level differential privacy, on Apache Beam.

    plan = dpngram.plan_extraction(epsilon=4, delta=1e-6, max_n=3, max_contributions=50)
    released = documents | dpngram.ExtractNgrams(plan)

- `plan_extraction` turns a privacy budget into an `ExtractionPlan`; `explain_plan` says in words what the plan buys.
  A budget that cannot be had is a `ParameterError`. None of these needs Beam.
- `ExtractNgrams` is a PTransform from documents to rows (`Ngram`). `ExtractLevels` gives one table (`GramTable`) for
  each length instead. A noise key that cannot be used is a `NoiseKeyError`.
- `extract_frame` does all of it for a data frame of pandas or a table of Arrow.
- `read_release` reads what the command `dpngram extract` has written, and checks it.
- `Ledger` adds up what several releases of the same users spend.

`dpngram.accounting` and `dpngram.transforms` have the parts. The command `dpngram` is in `dpngram.pipelines`.

A name is imported when it is first used, so `import dpngram` alone costs nothing: it loads neither Beam nor numpy.
"""

import importlib

TYPE_CHECKING = False  # as in `typing`, whose import would cost more than this whole module

__version__ = "0.1.0"

__all__ = [
    "ExtractLevels",
    "ExtractNgrams",
    "ExtractionPlan",
    "GramTable",
    "Ledger",
    "Ngram",
    "NoiseKeyError",
    "ParameterError",
    "__version__",
    "accounting",
    "explain_plan",
    "extract_frame",
    "pipelines",
    "plan_extraction",
    "read_release",
    "transforms",
]

if TYPE_CHECKING:  # mypy and editors see plain imports, and so find a name that is spelt wrong
    from dpngram import accounting, pipelines, transforms
    from dpngram.accounting import ExtractionPlan, ParameterError, explain_plan, plan_extraction
    from dpngram.pipelines.frames import extract_frame
    from dpngram.pipelines.io.ledger_file import Ledger
    from dpngram.pipelines.io.load_release import read_release
    from dpngram.transforms import ExtractLevels, ExtractNgrams, GramTable, Ngram, NoiseKeyError
else:
    _NAMES = {
        "accounting": ("ExtractionPlan", "ParameterError", "explain_plan", "plan_extraction"),
        "transforms": ("ExtractLevels", "ExtractNgrams", "GramTable", "Ngram", "NoiseKeyError"),
        "pipelines": (),
        "pipelines.frames": ("extract_frame",),
        "pipelines.io.ledger_file": ("Ledger",),
        "pipelines.io.load_release": ("read_release",),
    }

    def __getattr__(name):
        """Imports a name of `__all__` when it is first used (PEP 562)."""
        for room, names in _NAMES.items():
            if name == room or name in names:
                if room.startswith("pipelines."):
                    importlib.import_module(f"{__name__}.transforms")  # the first import of Beam, which is quiet
                module = importlib.import_module(f"{__name__}.{room}")
                globals()[name] = value = module if name == room else getattr(module, name)
                return value
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

    def __dir__():
        return sorted({*globals(), *__all__})
