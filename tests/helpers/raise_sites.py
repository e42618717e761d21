"""Places in our code that raise an error, each provoked with private content at hand."""

import dataclasses
import json
import math

import apache_beam as beam
import numpy as np
import pyarrow as pa
from apache_beam.io.filesystem import CompressionTypes
from apache_beam.testing.test_stream import TestStream
from apache_beam.transforms.trigger import AccumulationMode, AfterCount, Repeatedly
from apache_beam.transforms.window import FixedWindows, GlobalWindow, Sessions, SlidingWindows, TimestampedValue
from helpers.canaries import CANARIES
from helpers.keys import write_key

from dpngram.accounting import ExtractionPlan, plan_extraction
from dpngram.pipelines.io import bigquery, input_formats, reading, writing
from dpngram.pipelines.io.output_directory import NOTE, Places, prepare_output
from dpngram.pipelines.launch import input_flags
from dpngram.pipelines.launch.beam_flags import beam_options
from dpngram.pipelines.launch.runner import make_pipeline
from dpngram.pipelines.pages import release_page
from dpngram.transforms import ExtractLevels, ExtractNgrams, document_form, group_users, limit_windows, prepare_posts
from dpngram.transforms.add_spurious_grams import complete_level
from dpngram.transforms.baselines.compare_systems import CompareSystems
from dpngram.transforms.blocks import levels
from dpngram.transforms.blocks.candidates import all_tokens
from dpngram.transforms.blocks.columns import Block
from dpngram.transforms.blocks.documents import DocumentBlock
from dpngram.transforms.blocks.grams import empty_table, in_order
from dpngram.transforms.blocks.parts import ReleasedPart
from dpngram.transforms.blocks.pieces import join_pieces
from dpngram.transforms.blocks.surveys import EMPTY_SURVEY
from dpngram.transforms.checkpoints import _LoadDoFn
from dpngram.transforms.decide_release import _DecideDoFn, make_gate
from dpngram.transforms.policies import make_rounds
from dpngram.transforms.randomness import noise_key
from dpngram.transforms.randomness.draws import binomial
from dpngram.transforms.randomness.noise import Noise
from dpngram.transforms.testing import exact_plan, key_source
from dpngram.transforms.tokenizers import by_text, make_tokenizer
from dpngram.transforms.windowing import window_name

C = CANARIES[0]
PLAN = plan_extraction(epsilon=4, delta=1e-6, max_n=2, max_contributions=5)
SOURCE = key_source(b"k" * 32)
BINDING = SOURCE.binding(bytes(16))


def blocks(*texts, user_per_document=False):
    rows = [text if user_per_document else (C, text) for text in texts or (C,)]
    form = document_form.DocumentForm(user_per_document=user_per_document)
    found, _ = document_form.collect_documents(rows, form)
    return [prepare_posts.block_posts(block, make_tokenizer("words"), POSTS)[0] for block in found]


POSTS = prepare_posts.PostDigests.of(SOURCE)


def released_level():
    digests = SOURCE.digest("token").strings(np.array([0, len(C)]), np.frombuffer(C.encode(), np.uint8))
    data = np.frombuffer(C.encode(), np.uint8)
    return levels.Level.first(np.array([0, len(C)]), data, digests, np.array([3]), 0.5, 1.0)


def disagreeing_parts(past=None):
    rounds = make_rounds(PLAN)
    draw = SOURCE.draws(2, 0, b"global", BINDING)
    level = rounds[0][0].finish(released_level(), levels.EMPTY_LEVEL)
    part = ReleasedPart(
        keys=np.zeros(0, np.uint64),
        noisy=np.zeros(0, np.int64),
        token_bytes=np.frombuffer(C.encode(), np.uint8),
        taken=np.zeros(0, np.uint64),
        zero_cells_name=7,
        past=level.name if past is None else past,
    )
    complete_level([part], level, levels.EMPTY_LEVEL, rounds[1][0], draw)


def windowed(*windowing, plan=PLAN, **options):
    pipeline = beam.Pipeline(runner="BundleBasedDirectRunner")
    found = pipeline | beam.Create([TimestampedValue((C, C), 1)])
    for step, one in enumerate(windowing):
        found = found | f"W{step}" >> one
    return found | ExtractNgrams(plan, noise_key="env:NONE", **options)


@dataclasses.dataclass
class _Window:
    name: str


def other_data(tmp):
    reference = noise_key.KeyReference("file", str(tmp / "noise.key"))
    reference.create_if_missing()
    for text in (C, C[::-1]):
        noise_key.Randomness(reference, "", "a", "s").open().bind(b"w", text.encode()[:16].ljust(16))


def checkpoint(tmp):
    (tmp / "block").write_bytes(C.encode() * 9)
    load = _LoadDoFn([(make_rounds(PLAN)[0][0], str(tmp / "block"))], None, SOURCE.randomness)
    load._source = SOURCE
    list(load.process(b"", BINDING))


def second_window(tmp):
    writer = writing._Writer(str(tmp), PLAN, {}, "jsonl")
    (tmp / "manifest.json").write_text(C)
    writer.write("", {f"n{n}": [empty_table(n)] for n in (1, 2)}, {}, once=True)


def finished(tmp, change):
    """A release of somebody's in the output, then `extract` with --resume or --overwrite."""
    manifest = {"dpngram": C, "levels": [], "plan": json.loads(PLAN.to_json()), "settings": {}, "format": "jsonl"}
    change(manifest)
    (tmp / "manifest.json").write_text(json.dumps(manifest))
    (tmp / "ngrams-01.jsonl").write_text(C)
    prepare(str(tmp), resume="resume" in manifest)


def died(tmp):
    (tmp / f"checkpoint-{'0' * 16}-01-1.block").write_text(C)


def prepare(output, notes=None, checkpoints=None, *, resume=False):
    places = Places(output, notes, checkpoints, keeps=checkpoints is not None)
    prepare_output(places, PLAN, {}, "jsonl", overwrite=False, resume=resume)


def changed_tokenizer(tmp):
    from tokenizers import Tokenizer, models

    path = tmp / "tokenizer.json"
    Tokenizer(models.WordLevel({C: 0}, unk_token=C)).save(str(path))
    made = by_text.HuggingFaceTokenizer(str(path))
    path.write_text(path.read_text() + " ")
    by_text._load_hugging_face(str(path), made.digest)


def many_grams(monkeypatch):
    monkeypatch.setattr(levels, "MAX_ROWS", 1)
    released_level().extend(np.arange(3, dtype=np.uint64), np.arange(3), 0.5, 1.0, "single")


def long_shard(monkeypatch):
    piece = blocks(C)[0]
    vast = dataclasses.replace(piece, lengths=np.full(len(piece), (1 << 31) - 1, np.int32))
    monkeypatch.setattr(group_users, "concatenate_posts", lambda pieces: pieces[0])
    group_users.group_users([vast], user_per_document=False, source=SOURCE)


def secret(monkeypatch):
    from google.cloud import secretmanager

    def client():
        raise RuntimeError(C)

    monkeypatch.setattr(secretmanager, "SecretManagerServiceClient", client)
    noise_key._read_secret(f"projects/{id(monkeypatch)}")


def key_file(tmp, content):
    write_key(tmp / "bad.key", content)
    noise_key.KeyReference("file", str(tmp / "bad.key")).load()


def load_key(tmp):
    noise_key.KeyReference("file", str(tmp / "bad.key")).load()


def launch_key(tmp):
    (tmp / "k").chmod(0o666)
    noise_key.KeyReference("file", str(tmp / "k")).create_if_missing()


def opened(tmp, **more):
    reference = noise_key.KeyReference("file", str(tmp / "noise.key"), **more)
    reference.create_if_missing()
    return noise_key.Randomness(reference, "", "a", "s").open()


def unreadable_record(tmp):
    source = opened(tmp)
    source.bind(b"w", C.encode()[:16].ljust(16))
    (record,) = tmp.glob("*.used")
    record.unlink()
    record.mkdir()
    source.bind(b"w", C.encode()[:16].ljust(16))


def no_record(tmp, monkeypatch):
    monkeypatch.setenv("DPNGRAM_STATE", text_file(tmp))
    monkeypatch.setenv("KEY_OF_TESTS", "ab" * 32)
    reference = noise_key.KeyReference("env", "KEY_OF_TESTS")
    noise_key.Randomness(reference, "", "a", "s").open().bind(b"w", C.encode()[:16].ljust(16))


def second_start(tmp):
    for start in (C, C[::-1]):
        opened(tmp).start_stream(start)


def other_shards(tmp):
    for shards in (1, 2):
        opened(tmp).start_stream(C, shards=shards)


def other_settings(tmp):
    for counts in (C, C[::-1]):
        opened(tmp).start_stream(C, counts=counts)


def other_stream(tmp):
    for first in (C, C[::-1]):
        opened(tmp).begin_stream(first)


def text_file(tmp):
    (tmp / "file").write_text(C)
    return str(tmp / "file")


def damage(tmp):
    """A failure of the filesystem is passed on, and the runner tries again."""
    extent = reading.ByteRange(str(tmp / "gone.jsonl"), 0, 10, CompressionTypes.UNCOMPRESSED)
    list(input_formats.InputFormat(name="jsonl").read(extent))


def plus_without_survey():
    block = group_users.group_users(blocks(C), user_per_document=False, source=SOURCE)
    make_rounds(PLAN)[1][2].pay(all_tokens(block), EMPTY_SURVEY)


def plus_without_budget():
    block = group_users.group_users(blocks(C), user_per_document=False, source=SOURCE)
    make_rounds(PLAN)[1][0].allow(block)


def stopped():
    gate = _DecideDoFn(SOURCE.randomness, make_gate(PLAN, 0.25))
    gate._source = SOURCE
    list(gate.process(bytes(16) + np.array([10**6, 10**6, 0]).tobytes(), GlobalWindow()))


def unlike(change):
    stored = json.loads(PLAN.to_json())
    change(stored)
    return ExtractionPlan.from_json(json.dumps(stored))


STREAM = TestStream().advance_watermark_to_infinity()
EARLY = {"trigger": Repeatedly(AfterCount(1)), "accumulation_mode": AccumulationMode.DISCARDING}
# What is provoked, with private content at hand: (name of the case, f(tmp_path, monkeypatch)).
SITES = {
    "no variable": lambda t, m: noise_key.KeyReference("env", "NOT_SET").load(),
    "no key file": lambda t, m: noise_key.KeyReference("file", str(t / "none")).load(),
    "no place for a key": lambda t, m: noise_key.KeyReference("file", str(t / "no" / "k")).create_if_missing(),
    "a key that is text": lambda t, m: key_file(t, C.encode()),
    "a key in hex": lambda t, m: key_file(t, (C * 9).encode()[:64]),
    "an empty reference": lambda t, m: noise_key.KeyReference.parse("env:"),
    "a key used before": lambda t, m: other_data(t),
    "a key for everybody": lambda t, m: (key_file(t, b"k" * 32), (t / "bad.key").chmod(0o644), load_key(t)),
    "a key for everybody, at launch": lambda t, m: ((t / "k").write_bytes(C.encode()), launch_key(t)),
    "a record for nobody": lambda t, m: unreadable_record(t),
    "no place for a record": lambda t, m: no_record(t, m),
    "a stream started twice": lambda t, m: second_start(t),
    "a stream continued with other shards": lambda t, m: other_shards(t),
    "a stream continued with other settings": lambda t, m: other_settings(t),
    "another stream under the same name": lambda t, m: other_stream(t),
    "a secret": lambda t, m: secret(m),
    "another key": lambda t, m: group_users.group_users(
        blocks(C), user_per_document=False, source=key_source(b"o" * 32)
    ),
    "another checkpoint": lambda t, m: checkpoint(t),
    "no block": lambda t, m: Block.from_bytes(C.encode()),
    "no users": lambda t, m: group_users.group_users(
        blocks(C, user_per_document=True), user_per_document=False, source=SOURCE
    ),
    "a long shard": lambda t, m: long_shard(m),
    "no user": lambda t, m: document_form.DocumentForm().read((None, C)),
    "no text": lambda t, m: document_form.DocumentForm().read((C, {C})),
    "no token": lambda t, m: document_form._token_bytes({C: C}),
    "a custom window": lambda t, m: window_name(_Window(C)),
    "a block with times": lambda t, m: list(
        prepare_posts._BatchDoFn(document_form.DocumentForm()).process(
            dataclasses.replace(DocumentBlock.from_texts(pa.array([C]), pa.array([C])), times=np.zeros(1, np.int64)), 0
        )
    ),
    "a block without users": lambda t, m: limit_windows._NamesUsersDoFn(SOURCE.randomness).digests(
        DocumentBlock.from_texts(None, pa.array([C]))
    ),
    "session windows": lambda t, m: windowed(beam.WindowInto(Sessions(5))),
    "triggers": lambda t, m: windowed(beam.WindowInto(FixedWindows(5), **EARLY)),
    "lateness": lambda t, m: windowed(beam.WindowInto(FixedWindows(5), allowed_lateness=5)),
    "an endless window": lambda t, m: beam.Pipeline() | STREAM | ExtractNgrams(PLAN),
    "too few windows": lambda t, m: windowed(beam.WindowInto(SlidingWindows(9, 3)), bound_windows=True),
    "checkpoints in windows": lambda t, m: windowed(beam.WindowInto(FixedWindows(5)), checkpoints=str(t)),
    "checkpoints without a key": lambda t, m: ExtractLevels(PLAN, checkpoints=str(t)),
    "no plan": lambda t, m: ExtractLevels(C),
    "sentences of users": lambda t, m: ExtractLevels(PLAN, sentences=True, user_per_document=True),
    "no runs": lambda t, m: CompareSystems([]),
    "a lost piece": lambda t, m: join_pieces([]),
    "a lost table": lambda t, m: list(in_order([])),
    "other zero cells": lambda t, m: disagreeing_parts(),
    "other rounds before": lambda t, m: disagreeing_parts(past=5),
    "too many grams": lambda t, m: many_grams(m),
    "no budget": lambda t, m: plus_without_budget(),
    "no survey": lambda t, m: plus_without_survey(),
    "a vast string": lambda t, m: SOURCE.digest("user").strings(
        np.array([0, 1 << 33]), np.frombuffer(C.encode(), "u1")
    ),
    "a vast count": lambda t, m: binomial(
        SOURCE.digest("user").blocks(np.zeros(1, "u8"), 0).repeat(2, axis=1), 1 << 40, 0.5
    ),
    "vast noise": lambda t, m: Noise(math.inf),
    "a tokenizer of text": lambda t, m: by_text.HuggingFaceTokenizer(text_file(t)),
    "a changed tokenizer": lambda t, m: changed_tokenizer(t),
    "no privacy": lambda t, m: writing._Writer(str(t), exact_plan(max_n=1, threshold=1.0), {}, "jsonl"),
    "a window twice": lambda t, m: second_window(t),
    "another manifest": lambda t, m: finished(t, lambda found: found.clear()),
    "files in the output": lambda t, m: finished(t, lambda found: None),
    "another plan": lambda t, m: finished(t, lambda found: found.update(resume=C, plan=C)),
    "a broken release": lambda t, m: finished(
        t, lambda found: found.update(resume=C, levels=[{"file": "ngrams-01.jsonl", "sha256": C}])
    ),
    "the output is a file": lambda t, m: prepare(text_file(t)),
    "notes of others": lambda t, m: prepare(str(t / "out"), text_file(t)),
    "notes of an earlier run": lambda t, m: (
        (t / "notes").write_text(json.dumps({"note": NOTE, "records": C})),
        prepare(str(t / "out"), str(t / "notes")),
    ),
    "notes in a file": lambda t, m: prepare(str(t / "out"), f"{text_file(t)}/notes"),
    "checkpoints in a file": lambda t, m: prepare(str(t / "out"), None, text_file(t)),
    "files among the checkpoints": lambda t, m: (text_file(t), prepare(str(t / "out"), None, str(t))),
    "checkpoints of a run that died": lambda t, m: (died(t), prepare(str(t / "out"), None, str(t))),
    "checkpoints in the output": lambda t, m: (died(t), prepare(str(t), resume=True)),
    "a plan in a manifest": lambda t, m: release_page._plan({"plan": {}}),
    "a plan that is text": lambda t, m: ExtractionPlan.from_json(C),
    "a plan that is a list": lambda t, m: ExtractionPlan.from_json(json.dumps([C])),
    "levels that are none": lambda t, m: unlike(lambda stored: stored.update(levels=C)),
    "levels out of order": lambda t, m: unlike(lambda stored: stored["levels"].reverse()),
    "no files": lambda t, m: input_flags._matched(str(t / "*.none"), True),
    "a directory with files": lambda t, m: (text_file(t), input_flags.new_directory("bad_records", str(t))),
    "a directory that is a file": lambda t, m: input_flags.new_directory("bad_records", text_file(t)),
    "too many bad records": lambda t, m: stopped(),
    "a gate in windows": lambda t, m: windowed(beam.WindowInto(FixedWindows(5)), max_bad_fraction=0.5),
    "a file that is gone": lambda t, m: damage(t),
    "no table": lambda t, m: bigquery.check_table("input", "no table"),
    "no flag": lambda t, m: beam_options(["--no_such_flag"]),
    "a runner that drops": lambda t, m: make_pipeline(beam_options(["--runner=DaskRunner"]), 0),
}
