"""Small graphs of every program, for faults: build(pipeline, directory, policy, monkeypatch).

Each reads and writes below its directory only, with the key in key/noise.key, and leaves what it releases in out/.
"""

import argparse
import json

import apache_beam as beam
import pyarrow as pa
from apache_beam.testing import test_stream
from apache_beam.transforms.window import FixedWindows, TimestampedValue
from helpers.runs import jsonl, small_corpus

from dpngram.accounting import plan_extraction
from dpngram.pipelines import audit, frames, stream
from dpngram.pipelines.compare import compare_files
from dpngram.pipelines.extract import extract_files
from dpngram.pipelines.io.encoding import arrow_columns
from dpngram.pipelines.io.polling import _LinesDoFn, _OnlyNewDoFn
from dpngram.pipelines.io.reading import InputFormat
from dpngram.pipelines.io.writing import WriteWindows
from dpngram.pipelines.launch.input_flags import read_documents
from dpngram.pipelines.research.attacks import ATTACKS
from dpngram.pipelines.research.systems import SYSTEMS, plan_comparison
from dpngram.transforms import ExtractLevels, ExtractNgrams
from dpngram.transforms.baselines.compare_systems import CompareSystems

CORPUS = small_corpus(60)


def make_plan(policy, max_n=2, **more):
    return plan_extraction(epsilon=20, delta=0.1, max_n=max_n, max_contributions=12, eta=0.1, policy=policy, **more)


def key_in(directory):
    return str(directory / "key" / "noise.key")


def batch(pipeline, directory, policy, _monkeypatch):
    """Files with some bad records -> a release; a key file with its record, checkpoints, a list of bad records."""
    for part in range(3):
        (directory / f"in{part}.jsonl").write_bytes(jsonl(CORPUS[part::3]) + b"no json\n" * part)
    plan = make_plan(policy)
    rounds = str(directory / "out.checkpoints")
    extract = ExtractLevels(plan, noise_key=key_in(directory), shards=3, checkpoints=rounds, max_bad_fraction=0.1)
    extract_files(
        pipeline,
        [str(directory / "in*.jsonl")],
        InputFormat(name="jsonl"),
        str(directory / "out"),
        plan,
        extract,
        checkpoints=str(directory / "out.checkpoints"),
        bad_records=str(directory / "bad"),
    )


def in_windows(pipeline, directory, policy, _monkeypatch):
    """Documents over three windows, each user in at most two -> a release for each window."""
    posts = [TimestampedValue((row["user"], row["text"]), 7 * i % 30) for i, row in enumerate(CORPUS)]
    plan = make_plan(policy, windows=2)
    extract = ExtractLevels(plan, noise_key=key_in(directory), shards=2)
    tables = pipeline | beam.Create(posts) | beam.WindowInto(FixedWindows(10)) | "ExtractNgrams" >> extract
    tables | "Write" >> WriteWindows(str(directory / "out"), plan, {}, "jsonl")


def streamed(pipeline, directory, policy, monkeypatch):
    """The same without an end in sight, from a subscription: the windows that users are in are kept in state."""
    source = test_stream.TestStream().advance_watermark_to(-1)
    for second in range(0, 30, 3):
        messages = [json.dumps({**row, "time": second}).encode() for row in CORPUS[second // 3 :: 10]]
        elements = [TimestampedValue(message, second) for message in [*messages, b"no json"]]
        source.advance_watermark_to(second).add_elements(elements)
    monkeypatch.setattr(beam.io, "ReadFromPubSub", lambda subscription: source.advance_watermark_to_infinity())
    plan = make_plan(policy, windows=2)
    extract = ExtractLevels(plan, noise_key=key_in(directory), shards=2)
    flags = argparse.Namespace(subscription="projects/p/subscriptions/s", kafka_topic=None)
    messages = stream._read(pipeline, flags, None, extract.settings(), None)
    stream.stream_messages(messages, ("user", "text", "time"), FixedWindows(10), str(directory / "out"), plan, extract)


def compared(pipeline, directory, _policy, _monkeypatch):
    """All systems on one reading, exact counts and a limit of users' tokens included."""
    (directory / "in.jsonl").write_bytes(jsonl(CORPUS))
    budget = {"epsilon": 20, "delta": 0.1, "max_n": 2, "max_contributions": 12, "eta": 0.1, "decay": 1.0}
    more = {"systems": ",".join(SYSTEMS), "sweeps": [], "sweep_system": None, "repeats": 1, "as_printed": False}
    comparison = plan_comparison(**budget, **more)
    systems = CompareSystems(
        [run for _, _, run in comparison.runs()],
        noise_key=key_in(directory),
        shards=2,
        max_user_tokens=60,
        max_bad_fraction=0.1,
        anonymity=[5],
        followed=range(len(comparison.systems)),
    )
    documents = read_documents(pipeline, [str(directory / "in.jsonl")], InputFormat(name="jsonl"), None)
    compare_files(documents, str(directory / "out"), comparison, systems, [5])


def of_tables(pipeline, directory, policy, monkeypatch):
    """Rows of BigQuery, one of them bad -> a release, and the same into a table; stand-ins for Beam's transforms."""

    class Read(beam.PTransform):
        class Method:
            DIRECT_READ = "direct"

        def __init__(self, table, method):
            super().__init__()

        def expand(self, pbegin):
            return pbegin | beam.Create([*CORPUS, {"user": None, "text": "x"}])

    class Write(beam.PTransform):
        def __init__(self, table, **more):
            super().__init__()

        def expand(self, rows):
            return note(rows | beam.Map(json.dumps), directory / "out" / "table.jsonl")

    monkeypatch.setattr(beam.io, "ReadFromBigQuery", Read, raising=False)
    monkeypatch.setattr(beam.io, "WriteToBigQuery", Write, raising=False)
    plan = make_plan(policy)
    extract = ExtractLevels(plan, noise_key=key_in(directory), shards=2, max_bad_fraction=0.1)
    extract_files(
        pipeline,
        ["project-x:dataset.posts"],
        InputFormat(name="bigquery"),
        str(directory / "out"),
        plan,
        extract,
        output_bigquery="project-x:dataset.grams",
    )


def audited(pipeline, directory, policy, _monkeypatch):
    """Twenty trials of an attack, as the audit makes them."""
    attack = ATTACKS["gap"].make(policy, 20.0, 1e-3, 10, 0)
    audit._build(pipeline, attack, range(20), str(directory / "out"), key_in(directory))


def in_a_host(pipeline, directory, policy, _monkeypatch):
    """Rows in a graph of somebody else's, which writes them. Users pay between the second and the third level."""
    posts = pipeline | beam.Create([(row["user"], row["text"]) for row in CORPUS])
    rows = posts | ExtractNgrams(make_plan(policy, max_n=3), noise_key=key_in(directory), shards=2)
    note(rows | beam.Map(lambda row: repr(tuple(row))), directory / "out" / "manifest.json")


def of_a_frame(pipeline, directory, policy, monkeypatch):
    """A table of Arrow -> tables in this process; what is kept of them is written beside."""
    table = frames._table(pa.table({name: [row[name] for row in CORPUS] for name in ("user", "text")}), "user", "text")
    extract = ExtractLevels(make_plan(policy), noise_key=key_in(directory), shards=2)
    monkeypatch.setitem(frames._INPUTS, "run", table.to_batches(max_chunksize=20))
    monkeypatch.setitem(frames._OUTPUTS, "run", {})
    kept = frames._build(pipeline, "run", 3, extract)
    note(kept | beam.Map(lambda n: repr((n, encoded_rows(n)))), directory / "out" / "manifest.json")


def encoded_rows(n):
    """The rows that a run has kept."""
    (table,) = frames._OUTPUTS["run"][n].values()
    return arrow_columns(table).to_pylist()


def polled(pipeline, directory, _policy, _monkeypatch):
    """What polls found, files twice among them -> each line once. The polls themselves put off their rest."""
    (directory / "in").mkdir(exist_ok=True)
    for part in range(5):
        (directory / "in" / f"{part}.jsonl").write_bytes(jsonl(CORPUS[part::5]))
    paths = sorted((directory / "in").iterdir())
    found = [(str(path), (path.stat().st_size, 1000 * poll, False)) for poll in range(2) for path in paths]
    lines = (
        pipeline
        | beam.Create(found).with_output_types(tuple[str, tuple[int, int, bool]])
        | "OnlyNew" >> beam.ParDo(_OnlyNewDoFn())
        | "Lines" >> beam.ParDo(_LinesDoFn())
    )
    messages = lines | beam.FlatMap(lambda block: [message.decode() for message in block.messages])
    note(messages, directory / "out" / "manifest.json")


def note(lines, path):
    """Writes them, sorted, into one file."""
    return (
        lines
        | "OneKey" >> beam.Map(lambda line: (0, line))
        | "Together" >> beam.GroupByKey()
        | "Note" >> beam.MapTuple(lambda _, held: path.write_text("\n".join(sorted(held))))
    )
