"""No side input is empty in a window that has data: on Flink such a window would wait for the end of the stream."""

import re

import apache_beam as beam
import pytest
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from apache_beam.transforms.window import FixedWindows, TimestampedValue
from helpers.keys import write_key
from helpers.runs import checkpoints_of, extract, jsonl, keep_checkpoints, small_corpus

from dpngram.accounting import plan_extraction
from dpngram.pipelines.extract import extract_files
from dpngram.pipelines.io.input_formats import InputFormat
from dpngram.pipelines.io.writing import WriteWindows
from dpngram.transforms import ExtractLevels, ExtractNgrams, beam_workarounds
from dpngram.transforms.blocks import pieces
from dpngram.transforms.blocks.parts import NO_PART

BUDGET = {"epsilon": 20, "delta": 0.1, "max_n": 3, "max_contributions": 12, "eta": 0.1}

# What gives at least one element for each element that it is given, and why. Everything else may give none.
ALWAYS = {
    r".*/BindRelease/(Bind|Decide)(/.*)?": "one for one",
    r".*/BindRelease/Fingerprint/OrNobody": "one for one",
    r".*/(AddSpuriousGrams/Complete|NoisyCount/Release)": "an empty level has one piece",
    r".*/(Checkpoint|Load)": "as the round that they stand for",
    r".*/(Parts|Counts)(Keyed|Grouped|Together)(/.*)?": "all of a window together",
    r".*/DecodeGrams/Start": "each level has one first piece",
    r".*Marker": "one for one",
    r".*/(Binding|ForSides|S\d+|Done|(Round\d+|Survey|SecondLook)Found)": "a copy, one for one",
}
# Where data are: a window has users exactly if it has an element of one of these.
SOURCES = (r".*/BindRelease/Fingerprint/Total(/.*)?", r"(?!.*/DecodeGrams/)(.*/)?Start")


class _Walk(beam.pipeline.PipelineVisitor):
    """Every side input of a graph: (the step that reads it, its collection)."""

    def __init__(self):
        self.found = []

    def visit_transform(self, node):
        self.found += [(node.full_label, side.pvalue) for side in node.side_inputs]


def is_sure(collection):
    """Whether it has an element in every window with data."""
    step = collection.producer
    while step.parts and any(collection in part.outputs.values() for part in step.parts):
        step = next(part for part in step.parts if collection in part.outputs.values())
    if any(re.fullmatch(pattern, step.full_label) for pattern in SOURCES):
        return True
    sources = [is_sure(source) for source in step.inputs if isinstance(source, beam.PCollection)]
    if isinstance(step.transform, beam.Flatten):
        return any(sources)
    return any(re.fullmatch(pattern, step.full_label) for pattern in ALWAYS) and all(sources) and bool(sources)


def side_inputs(pipeline):
    walk = _Walk()
    pipeline.visit(walk)
    return walk.found


def batch(tmp_path, policy, kept=()):
    write_key(tmp_path / "noise.key", b"k" * 32)
    plan = plan_extraction(policy=policy, **BUDGET)
    pipeline = beam.Pipeline(runner=FnApiRunner())
    checkpoints = str(tmp_path / "checkpoints")
    levels = ExtractLevels(plan, noise_key=str(tmp_path / "noise.key"), max_bad_fraction=0.1, checkpoints=checkpoints)
    (tmp_path / "in.jsonl").write_text("")
    files = [str(tmp_path / "in.jsonl")]
    extract_files(
        pipeline, files, InputFormat(name="jsonl"), str(tmp_path / "out"), plan, levels, checkpoints=checkpoints
    )
    return pipeline


def windows(tmp_path, policy):
    plan = plan_extraction(policy=policy, **BUDGET)
    pipeline = beam.Pipeline(runner=FnApiRunner())
    documents = pipeline | beam.Create([("u", "a b")]) | beam.WindowInto(FixedWindows(10))
    levels = ExtractLevels(plan)
    tables = documents | "ExtractNgrams" >> levels
    tables | "Write" >> WriteWindows(str(tmp_path), plan, levels.settings())
    return pipeline


@pytest.mark.parametrize("make", [batch, windows])
@pytest.mark.parametrize("policy", ["paper", "plus"])
def test_every_side_input_has_an_element_where_there_are_data(tmp_path, make, policy):
    found = side_inputs(make(tmp_path, policy))
    doubtful = sorted({label for label, collection in found if not is_sure(collection)})
    assert doubtful == []
    labels = {label for label, _ in found}
    for part in ("ClipAndWeight/Weigh", "ValidityFilter/Prune", "AddSpuriousGrams/Complete", "DecodeGrams/Decode"):
        assert any(part in label for label in labels), part
    assert "Write/Files" in labels


@pytest.mark.parametrize("make", [batch, windows])
def test_what_a_round_has_just_made_is_the_main_input_of_its_end(tmp_path, make):
    """On Flink two side inputs that come one after the other hold a window until the next watermark, see `gather`."""
    ends = ("AddSpuriousGrams/Complete", "NoisyCount/Release")
    found = side_inputs(make(tmp_path, "plus"))
    read = [(label, collection.producer.full_label) for label, collection in found if label.endswith(ends)]
    assert len({label for label, _ in read}) == 9  # three rounds of each level
    assert [made for _, made in read if not re.search(r"/(Binding|S\d+|\w+Found)(/|$)", made)] == []


def test_a_side_input_that_may_be_empty_would_be_found():
    pipeline = beam.Pipeline(runner=FnApiRunner())
    start = pipeline | "Start" >> beam.Impulse()
    maybe = start | "Maybe" >> beam.Filter(bool)
    start | "Read" >> beam.Map(lambda _, side: side, side=beam.pvalue.AsIter(maybe))
    assert [is_sure(collection) for _, collection in side_inputs(pipeline)] == [False]


# Windows: enough for all levels; words only (everybody has another order of them); a user alone; nobody's text.
def many_windows():
    rows = [(5, f"u{i}", "see you soon and see you") for i in range(60)]
    words = ["ab", "cd", "ef", "gh"]
    rows += [(15, f"u{i}", words[i % 4]) for i in range(60)]
    return [*rows, (25, "u1", "nobody else says this"), *((35, f"u{i}", "...") for i in range(9))]


@pytest.fixture
def wholes(monkeypatch):
    """How many rows each block has that is put together from pieces."""
    seen = []

    def watched(found, columns):
        block = pieces.join_pieces(found, columns)
        seen.append(len(block))
        return block

    monkeypatch.setattr(beam_workarounds, "join_pieces", watched)
    return seen


@pytest.mark.parametrize("policy", ["paper", "plus"])
def test_empty_levels_leave_no_trace(tmp_path, policy, wholes):
    """Only windows with a release have a directory; steps after an empty level read an empty one, not none."""
    plan = plan_extraction(policy=policy, **BUDGET)
    with beam.Pipeline(runner=FnApiRunner()) as pipeline:
        timed = pipeline | beam.Create([TimestampedValue(row[1:], row[0]) for row in many_windows()])
        tables = timed | beam.WindowInto(FixedWindows(10)) | "ExtractNgrams" >> ExtractLevels(plan, bound_windows=False)
        tables | "Write" >> WriteWindows(str(tmp_path / "out"), plan, {})
    assert 0 in wholes
    assert max(wholes) > 0
    directories = sorted(path.name[:19] for path in (tmp_path / "out").iterdir())
    assert directories == ["1970-01-01T00-00-00", "1970-01-01T00-00-10"]
    for directory in (tmp_path / "out").iterdir():
        assert sorted(path.name for path in directory.iterdir()) == [
            "manifest.json",
            "ngrams-01.jsonl",
            "ngrams-02.jsonl",
            "ngrams-03.jsonl",
        ]


@pytest.mark.parametrize("policy", ["paper", "plus"])
def test_levels_in_many_pieces_give_the_same_release(tmp_path, policy, monkeypatch):
    """Also from checkpoints."""
    (tmp_path / "in.jsonl").write_bytes(jsonl(small_corpus(200)))
    write_key(tmp_path / "noise.key", b"k" * 32)
    flags = ["--input", tmp_path / "in.jsonl", "--noise_key", tmp_path / "noise.key", "--policy", policy]
    keep_checkpoints(monkeypatch)
    assert extract(tmp_path / "out", *flags) == 0
    expected = {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()}
    kept = {path.name: path.read_bytes() for path in checkpoints_of(tmp_path / "out")}
    monkeypatch.setattr(pieces, "PIECE_BYTES", 200)
    assert extract(tmp_path / "out", *flags, "--overwrite") == 0
    assert {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()} == expected
    assert {path.name: path.read_bytes() for path in checkpoints_of(tmp_path / "out")} == kept  # of any size of pieces
    (tmp_path / "out" / "manifest.json").unlink()
    assert extract(tmp_path / "out", *flags, "--resume") == 0
    assert {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()} == expected


def lose(collection, start, _nothing, label):
    return start | f"Lost{label}" >> beam.Map(lambda _: [])


@pytest.mark.parametrize("lost", ["noisy_count.gather", "add_spurious_grams.gather", "beam_workarounds.join_pieces"])
def test_what_the_runner_loses_stops_the_run(monkeypatch, lost):
    """Beam's local runner did so once, see `as_side`: a level would be smaller, or a budget would not be charged."""
    instead = (lambda _, columns: pieces.join_pieces([], columns)) if "join" in lost else lose
    monkeypatch.setattr(f"dpngram.transforms.{lost}", instead)
    plan = plan_extraction(policy="plus", **{**BUDGET, "max_n": 2})
    with pytest.raises(ValueError, match="pieces of a level are missing"), beam.Pipeline(runner=FnApiRunner()) as run:
        run | beam.Create([(f"u{i}", "a b c") for i in range(60)]) | ExtractNgrams(plan)


def test_no_part_is_a_marker():
    assert (NO_PART.marker, len(NO_PART.keys)) == (1, 0)
