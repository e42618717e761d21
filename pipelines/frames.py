"""`extract_frame`: private n-grams from a data frame of pandas, or a table of Arrow, in this process."""

import contextlib
import itertools
import secrets
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from apache_beam.options.pipeline_options import PipelineOptions

from dpngram.accounting import ParameterError, plan_extraction
from dpngram.pipelines.io.encoding import arrow_columns
from dpngram.pipelines.io.ledger_file import Ledger
from dpngram.pipelines.io.tables import read_columns
from dpngram.pipelines.launch.beam_internals import as_outside_notebooks
from dpngram.pipelines.launch.failures import failure_line
from dpngram.pipelines.launch.ledger_flags import EXTRACT_LABEL, name_release, unit_of
from dpngram.pipelines.launch.progress import show_bar
from dpngram.pipelines.launch.runner import make_pipeline
from dpngram.pipelines.launch.scaling import default_shards
from dpngram.transforms import ExtractLevels, GramTable
from dpngram.transforms.beam_workarounds import with_element_type
from dpngram.transforms.blocks.documents import DocumentBlock
from dpngram.transforms.blocks.grams import EMPTY_TABLE, empty_table, in_order
from dpngram.transforms.tokenizers import Splitter

__all__ = ["extract_frame"]

_BATCH_ROWS = 50_000
_MOST_NAMES = 20
# What the steps of a run take and give back, by the name of the run. A graph holds the name only, so the data are not
# copied into it; all steps are threads of this process.
_INPUTS: dict[str, list[pa.RecordBatch]] = {}
_OUTPUTS: dict[str, dict[int, dict[int, GramTable]]] = {}  # {run: {n: {first row: table}}}


def extract_frame(
    frame: Any,
    *,
    user: str,
    text: str,
    epsilon: float,
    delta: float,
    max_n: int,
    max_contributions: int | Sequence[int],
    eta: float = 0.01,
    policy: str = "plus",
    tokenizer: str | Splitter = "words",
    sentences: bool = False,
    vocabulary: str | Sequence[str] | None = None,
    max_bad_fraction: float = 0.01,
    noise_key: str | None = None,
    release: str = "",
    ledger: str | None = None,
    budget: Sequence[float] | None = None,
    progress: bool = True,
) -> Any:
    """The n-grams of a column of texts, under user-level (epsilon, delta)-differential privacy.

        released = dpngram.extract_frame(posts, user="author", text="body", epsilon=4, delta=1e-6, max_n=3,
                                         max_contributions=50)

    Privacy: that of `ExtractLevels`, for all rows with the same value in the column `user` together. How a row is read
    depends on the two values of that row alone, although pandas chooses the type of a column from all of its values. A
    row whose user or text is missing, or is not a text, is left out; it fails nothing by itself. Nothing of the frame
    is written to disk, and no error shows a value of it.

    Args:
        frame: a `pandas.DataFrame` or a `pyarrow.Table`, with one row for each post.
        user: the column that says whose a row is: texts or whole numbers. 5, 5.0 and "5" are the same user.
        text: the column of the texts, or of lists of tokens.
        epsilon, delta, max_n, max_contributions, eta, policy: of the plan, see `plan_extraction`.
        tokenizer, sentences, vocabulary, max_bad_fraction, noise_key, release: see `ExtractLevels`.
        ledger: a file that adds up what releases of these users spend, see `Ledger`.
        budget: (epsilon, delta) for all releases in the ledger.
        progress: show a bar, if this is a notebook.

    Returns:
        A frame of the same kind, with the columns n, phrase (the tokens, joined by blanks), tokens and weight, sorted
        by n and by tokens.

    Raises:
        ParameterError: if something given cannot be used. Nothing was released.
        RuntimeError: if the run failed. Nothing was released.
    """
    plan = plan_extraction(
        epsilon=epsilon,
        delta=delta,
        max_n=max_n,
        max_contributions=max_contributions,
        eta=eta,
        policy=policy,
        public_vocabulary=vocabulary is not None,
    )
    if ledger is None and budget is not None:
        raise ParameterError("budget must be left out without a ledger, where releases are added up.")
    account = None if ledger is None else Ledger(ledger, budget)
    table = _table(frame, user, text)
    options: dict[str, Any] = {
        "tokenizer": tokenizer,
        "sentences": sentences,
        "vocabulary": vocabulary,
        "max_bad_fraction": max_bad_fraction,
        "noise_key": noise_key,
        "release": release,
    }
    extract = ExtractLevels(plan, **options, shards=default_shards(table.nbytes))

    def enter() -> None:
        if account is not None:
            settings = extract.settings()
            named = name_release(noise_key, None, release, settings, remote=False)
            account.enter(plan, named, unit=unit_of(settings), program="extract_frame", release=release)

    with as_outside_notebooks():
        tables = _run(table, extract, enter, noise_key, plan.max_n if progress else None)
    rows = [
        arrow_columns(part)
        for n in range(1, plan.max_n + 1)
        for part in [empty_table(n), *in_order([EMPTY_TABLE, *tables.get(n, {}).values()])]
    ]
    result = pa.concat_tables(rows)
    return result if isinstance(frame, pa.Table) else result.to_pandas()


def _run(
    table: pa.Table, extract: ExtractLevels, enter: Callable[[], None], noise_key: str | None, levels: int | None
) -> dict[int, dict[int, GramTable]]:
    """The tables of each length. `enter` is called when the graph is built, and so the key is there, before it runs.

    `levels` is what a bar shows in a notebook; None: no bar.
    """
    name = secrets.token_hex(16)
    batches = table.to_batches(max_chunksize=_BATCH_ROWS)
    pipeline = make_pipeline(PipelineOptions([]), table.nbytes)
    _build(pipeline, name, len(batches), extract)
    enter()
    _INPUTS[name], _OUTPUTS[name] = batches, {}
    try:
        with contextlib.nullcontext() if levels is None else show_bar(pipeline, levels):
            pipeline.run().wait_until_finish()
        return _OUTPUTS[name]
    except Exception as error:
        line = failure_line(error, pipeline, noise_key)
    finally:
        del _INPUTS[name], _OUTPUTS[name]
    raise RuntimeError(line)  # outside `except`: the error of a worker may quote the data


def _build(pipeline: beam.Pipeline, name: str, batches: int, extract: ExtractLevels) -> beam.PCollection[int]:
    """The graph of a run with this name; the lengths whose tables are kept."""
    taken = pipeline | "Rows" >> beam.Create(range(batches)) | "Take" >> beam.FlatMap(_take, name)
    levels = with_element_type(taken, DocumentBlock) | EXTRACT_LABEL >> extract
    kept = [level | f"Keep{n}" >> beam.Map(_keep, n, name).with_output_types(int) for n, level in levels.items()]
    return kept | "Kept" >> beam.Flatten()


def _take(number: int, name: str) -> Iterator[DocumentBlock]:
    batch = _INPUTS[name][number]
    is_list = pc.is_valid(batch["tokens"])
    for kind, chosen in (("text", pc.invert(is_list)), ("tokens", is_list)):
        rows = batch.filter(chosen)
        yield from read_columns([rows["user"]], [rows[kind]], number * _BATCH_ROWS).all_blocks()


def _keep(table: GramTable, n: int, name: str) -> int:
    _OUTPUTS[name].setdefault(n, {})[int(table.first)] = table
    return n


_USERS, _TEXTS = "texts or whole numbers", "texts or lists of tokens"
_TOKENS = pa.list_(pa.string())
_MOST_EXACT = 2.0**53  # up to here a float that is a whole number is that number


def _table(frame: Any, user: str, text: str) -> pa.Table:
    """The columns user, text and tokens; of the last two a row has one. Raises ParameterError for a wrong column."""
    users = _column(frame, "user", user)
    texts = _column(frame, "text", text)
    if isinstance(frame, pa.Table):
        _check_kind("user", user, users.type, _USERS)
        _check_kind("text", text, texts.type, _TEXTS)
    else:
        users, texts = _from_pandas("user", users), _from_pandas("text", texts)
    if isinstance(texts, list):  # lists and texts, value by value
        tokens = pa.array([value if isinstance(value, list) else None for value in texts], _TOKENS)
        texts = pa.array([value if isinstance(value, str) else None for value in texts], pa.string())
    elif _is_list(texts.type):
        tokens, texts = texts, pa.nulls(len(texts), pa.string())
    else:
        tokens = pa.nulls(len(texts), _TOKENS)
    if isinstance(users, list):
        users = pa.array(users, pa.string())
    return pa.table({"user": users, "text": texts, "tokens": tokens})


def _column(frame: Any, parameter: str, name: str) -> Any:
    """One column of the frame; raises ParameterError if there is none of this name, or several."""
    if isinstance(frame, pa.Table):
        names = frame.column_names
    elif type(frame).__module__.partition(".")[0] == "pandas" and hasattr(frame, "columns"):
        names = list(map(str, frame.columns))
    else:
        kind = type(frame).__name__
        raise ParameterError(f"frame must be a pandas.DataFrame or a pyarrow.Table, got {kind}.")
    if names.count(name) != 1:
        shown = ", ".join(names[:_MOST_NAMES]) + (", ..." if len(names) > _MOST_NAMES else "")
        raise ParameterError(f"{parameter} must be the name of one column, got {name!r}; the frame has {shown}.")
    return frame.column(name) if isinstance(frame, pa.Table) else frame.iloc[:, names.index(name)]


def _from_pandas(parameter: str, series: Any) -> Any:
    """A column of pandas as an Arrow array, or as a list of the values that can be used, with None for the others.

    pandas chooses the type of a column from all of its values: one user without an id makes floats of everybody's
    whole numbers, and one text makes objects of them. And Arrow converts all values of a column, or none. So Arrow is
    asked only where it reads each value as `_as_user` and `_as_text` do. Everywhere else these two look at each value.

    Privacy: what becomes of a value is then a function of this value alone, so a user changes no row of another user. A
    column of another type than texts, numbers, lists and objects is refused for its type (SECURITY.md, known
    exceptions).
    """
    wanted, as_value = (_USERS, _as_user) if parameter == "user" else (_TEXTS, _as_text)
    values = series.dtype.categories if hasattr(series.dtype, "categories") else series
    by_value = values.dtype.kind == "O" or (parameter == "user" and values.dtype.kind == "f")
    if values.dtype == object and not _is_plain(values):
        return [as_value(value) for value in series]
    try:
        with warnings.catch_warnings():  # older versions of Arrow try arrays as numbers, which numpy warns of
            warnings.simplefilter("ignore", DeprecationWarning)
            found = pa.chunked_array([pa.array(series, from_pandas=True)])
        kind = found.type.value_type if pa.types.is_dictionary(found.type) else found.type
    except (pa.ArrowException, TypeError, ValueError, ArithmeticError):
        return [as_value(value) for value in series]
    if by_value and not (_is_text(kind) or (parameter == "text" and _is_list(kind) and _is_text(kind.value_type))):
        return [as_value(value) for value in series]
    _check_kind(parameter, str(series.name), kind, wanted)
    return found


def _is_plain(values: Any) -> bool:
    """Whether there are only texts, lists of texts, numbers and gaps. Arrow takes sets for lists, too, and bytes for
    texts, if nothing else in the column is in the way.
    """
    kinds = set(map(type, values))
    if np.ndarray in kinds and any(value.ndim != 1 for value in values if type(value) is np.ndarray):
        return False
    lists = (value for value in values if type(value) in _LISTS) if kinds & _LISTS else ()
    kinds = (kinds - _LISTS - {int}) | set(map(type, itertools.chain.from_iterable(lists)))
    others = kinds - {str, np.str_, float, type(None)}
    return all(kind.__module__.startswith("pandas._libs.") for kind in others)  # NA and NaT


_LISTS = {list, tuple, np.ndarray}


def _check_kind(parameter: str, name: str, kind: pa.DataType, wanted: str) -> None:
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    if not _may_be(kind, wanted):
        hint = "; cast the numbers to whole ones" if pa.types.is_floating(kind) and wanted == _USERS else ""
        raise ParameterError(f"{parameter} must be a column of {wanted}, got {name!r} of type {kind}{hint}.")


def _may_be(kind: pa.DataType, wanted: str) -> bool:
    if pa.types.is_null(kind) or _is_text(kind):
        return True
    if wanted == _USERS:
        return bool(pa.types.is_integer(kind))
    return _is_list(kind) and _may_be(kind.value_type, "texts")


def _is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind))


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _as_user(value: Any) -> str | None:
    """The name of a user: a text, or a whole number."""
    if isinstance(value, (bool, np.bool_)):
        return None
    if isinstance(value, (float, np.floating)):
        return str(int(value)) if abs(value) <= _MOST_EXACT and value == int(value) else None
    if isinstance(value, (int, np.integer)):
        return str(int(value))
    return _as_string(value)


def _as_text(value: Any) -> str | list[str] | None:
    if isinstance(value, (list, tuple)) or (isinstance(value, np.ndarray) and value.ndim):
        tokens = [_as_string(token) for token in value]
        return None if None in tokens else [token for token in tokens if token is not None]
    return _as_string(value)


def _as_string(value: Any) -> str | None:
    try:
        return str(value).encode().decode() if isinstance(value, str) else None
    except UnicodeError:  # half of a surrogate pair
        return None
