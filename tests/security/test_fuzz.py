"""Hostile flags, plans and tokenisers: one line and a status, never a traceback, never a hang.

helpers/fuzz.py says how to look longer.
"""

import json
import math

import hypothesis
import pyarrow as pa
import pytest
from helpers.fuzz import check, command, edited, json_values, look, made_or_refused, mutations, no_hang
from helpers.runs import jsonl, small_corpus
from hypothesis import strategies as st

from dpngram.accounting import ExtractionPlan, ParameterError, plan_extraction
from dpngram.accounting.gaussian import compose_sigmas
from dpngram.accounting.plan import delta_needed
from dpngram.accounting.thresholds import first_level_threshold
from dpngram.transforms.tokenizers import TOKENIZERS, by_text, make_tokenizer

NUMBERS = ["0", "-0", "1", "-1", "2", "0.5", "1e-7", "1e400", "-1e400", "nan", "inf", "-inf", "9" * 5000, "0x10", "1_0"]
NUMBERS += ["1e-320", "64", "65", "1000001", "1e300", "1,2", "1,,2", ",", "1,nan", "٣", "1 ", "1e", "True", "1j"]
# As the operating system hands words over: bytes that are no UTF-8 are lone surrogates, and there is no NUL.
words = st.one_of(
    st.sampled_from(NUMBERS),
    st.text(st.characters(exclude_characters="\0", exclude_categories=()), max_size=20),
    st.sampled_from(["", "-", "--", "=", "%s", "{}", "%(prog)s", "\udc80", "a\nb", "\r", "\x1b[2J", "x" * 3000]),
)
# Names of files and directories: nothing outside of the directory that a test runs in, and no other filesystem.
names = words.filter(lambda word: not word.startswith(("/", "~")) and ".." not in word and ":" not in word)
BUDGET = {"--epsilon": "2", "--delta": "0.1", "--max_n": "1", "--max_contributions": "3"}
BUDGET_FLAGS = [*BUDGET, "--eta", "--decay", "--shares", "--windows", "--policy"]


def argv(program, base, changes):
    flags = {**base, **dict(changes)}
    return [program, *(word for flag, value in flags.items() for word in ((flag,) if value is None else (flag, value)))]


def changes(flags, most=3):
    return st.lists(st.tuples(st.sampled_from(flags), words), max_size=most)


@look(800)
@hypothesis.given(changes(BUDGET_FLAGS), st.booleans(), st.lists(words, max_size=2))
def test_fuzz_plan_flags(changed, as_json, more):
    status, err = command(*argv("plan", BUDGET, changed), *(["--json"] if as_json else []), *more)
    check(status, err)
    assert status != 1


@pytest.fixture
def corpus(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "in.jsonl").write_bytes(jsonl(small_corpus(40)))
    return tmp_path


EXTRACT = ["--input_format", "--user_field", "--text_field", "--tokens_field", "--skip_header_lines"]
EXTRACT += ["--max_bad_fraction", "--output_format", "--pruning", "--release", "--shards", "--tokenizer"]
FILES = ["--input", "--output", "--bad_records", "--noise_key"]


@look(80)
@hypothesis.given(
    data=st.data(),
    changed=changes(EXTRACT + BUDGET_FLAGS, 2),
    files=st.lists(st.tuples(st.sampled_from(FILES), names), max_size=1),
    more=st.lists(words.map(lambda word: f"--{word}"), max_size=1),
)
def test_fuzz_extract_flags(corpus, data, changed, files, more):
    """With a refused flag nothing was read, and nothing is left behind; whatever is released has a manifest."""
    number = len(list(corpus.iterdir()))
    base = {**BUDGET, "--policy": "paper", "--input": "in.jsonl", "--output": f"out{number}", "--quiet": None}
    changed = [(flag, word) for flag, word in changed if flag != "--tokenizer" or word.isascii()]
    status, err = command(*argv("extract", base, [*changed, *files]), *more)
    output = corpus / dict(files).get("--output", f"out{number}")
    check(status, err, None if "--output" in dict(files) else output)
    if status == 0 and "--output" not in dict(files) and "-h" not in more and "--help" not in more:
        assert json.loads((output / "manifest.json").read_bytes())["plan"]["policy"] in ("paper", "plus")


STREAM = ["--window", "--period", "--max_delay", "--poll", "--duration", "--time_field", "--user_field"]


@look(400)
@hypothesis.given(changes([*STREAM, "--output_format", "--pruning", "--shards", *BUDGET_FLAGS]), words)
def test_fuzz_stream_flags(corpus, changed, wrong):
    """The key is left out, so every command line is refused, whatever else is wrong with it."""
    base = {**BUDGET, "--input": "in*", "--output": "out", "--window": "10", "--duration": "0"}
    status, err = command(*argv("stream", base, changed), wrong)
    check(status, err, corpus / "out")
    assert status == 2 or "-h" in wrong


COMPARE = ["--systems", "--repeats", "--sweep", "--anonymity", "--max_user_tokens", "--pruning", "--shards"]


@look(300)
@hypothesis.given(changes([*COMPARE, "--input_format", "--tokenizer", *BUDGET_FLAGS]))
def test_fuzz_compare_flags(corpus, changed):
    """An input that is not there: every command line is refused."""
    base = {**BUDGET, "--input": "nowhere", "--output": "out"}
    changed = [(flag, word) for flag, word in changed if flag != "--tokenizer" or word.isascii()]
    status, err = command(*argv("compare", base, changed))
    check(status, err, corpus / "out")
    assert status == 2


SYNTH = ["--tokens_per_user", "--spread", "--vocabulary", "--zipf", "--phrases", "--phrase_users", "--seed"]


@look(100)
@hypothesis.given(changes(SYNTH, 2), st.sampled_from(["out.jsonl", "out.jsonl.gz", "out.seq", "out.parquet", "no/out"]))
def test_fuzz_synth_flags(corpus, changed, output):
    """Sizes that are allowed may be large: what is asked for is kept small, everything else is as it comes."""
    large = {"--vocabulary", "--phrases", "--tokens_per_user"}
    changed = [(flag, word) for flag, word in changed if flag not in large or word not in ("1000001", "1e300", "65")]
    status, err = command(*argv("synth", {"--users": "3", "--output": output}, changed))
    check(status, err)


PLANS = {
    policy: json.loads(
        plan_extraction(epsilon=2, delta=1e-5, max_n=3, max_contributions=5, windows=windows, policy=policy).to_json()
    )
    for policy, windows in (("paper", 1), ("plus", 4))
}
numbers = st.one_of(
    st.floats(), st.integers(-5, 70), st.sampled_from([0.999999, 1.000001, 1e-300, 1e300, True, None, "1", [], {}])
)


@pytest.mark.parametrize("policy", PLANS)
def test_fuzz_plan_json(policy):
    """A plan with edited numbers is refused, or is one whose guarantee holds: computed here again from its numbers."""
    kept = 0

    @look(700)
    @hypothesis.given(edited(PLANS[policy], st.one_of(numbers, json_values())))
    def edit(document):
        nonlocal kept
        plan = made_or_refused(lambda: ExtractionPlan.from_json(json.dumps(document)))
        if plan is None:
            return
        kept += 1
        sigmas = [level.sigma for level in plan.levels]
        one = min(sigmas) if plan.policy == "plus" else compose_sigmas(sigmas)
        spent = plan.windows * plan.threshold_delta
        assert delta_needed(plan.epsilon, one / math.sqrt(plan.windows), spent) <= plan.delta * (1 + 1e-15)
        first = plan.levels[0]
        assert first.max_contributions is not None
        for level in plan.levels:
            assert sum(part.share for part in level.rounds) <= 1 + 1e-15
        for part in first.rounds:
            weight = math.sqrt(part.share) if part.share < 1 else 1.0
            needed = first_level_threshold(
                first.sigma, first.max_contributions, plan.threshold_delta * part.share, weight=weight
            )
            assert part.rho >= needed * (1 - 1e-9)
        assert ExtractionPlan.from_json(plan.to_json()) == plan

    edit()
    assert kept > 0  # the test sees both kinds


@look(300)
@hypothesis.given(mutations(json.dumps(PLANS["plus"]).encode()))
def test_fuzz_plan_bytes(data):
    plan = made_or_refused(lambda: ExtractionPlan.from_json(data.decode(errors="surrogateescape")))
    assert plan is None or ExtractionPlan.from_json(plan.to_json()) == plan


texts = st.lists(st.one_of(st.text(max_size=30), st.sampled_from(["'", "a'b", "ß" * 9, "\0", "ﷺ", "e\u0301", "İ"])))


@pytest.mark.parametrize("sentences", [False, True])
@pytest.mark.parametrize("name", [name for name, kind in TOKENIZERS.items() if kind.argument is None])
def test_fuzz_built_in_tokenizers(name, sentences):
    """A record's tokens depend on it alone, and are never empty; the same column by column and record by record."""
    tokenizer = make_tokenizer(name, sentences)

    def runs(column):
        found = [[] for _ in range(int(column.record.max(initial=-1)) + 1)]
        vocabulary = column.vocabulary.to_pylist()
        for number, record in enumerate(column.record.tolist()):
            ids = column.ids[column.bounds[number] : column.bounds[number + 1]].tolist()
            found[record].append([vocabulary[place] for place in ids])
        return found

    @look(200)
    @hypothesis.given(texts)
    def tokens(column):
        together = runs(tokenizer.tokenize(pa.array(column, pa.large_string())))
        together += [[]] * (len(column) - len(together))
        for text, found in zip(column, together, strict=True):
            alone = runs(tokenizer.tokenize(pa.array([text], pa.large_string())))
            assert (alone[0] if alone else []) == found
            assert all(token for run in found for token in run)
            assert all(token.decode() for run in found for token in run)

    tokens()


pieces = st.sampled_from(
    ["a", ".", "\\w", "+", "*", "?", "(", ")", "[", "]", "[[", "|", "{2,3}", "{99999999999}", "^", "$"]
)
patterns = st.one_of(
    st.lists(st.one_of(pieces, st.sampled_from(["(?P<a>", "(?i)", "(?<=", "\\1", "\\", "&&", "--"])), max_size=7).map(
        "".join
    ),
    words,
)


@look(400)
@hypothesis.given(patterns)
def test_fuzz_patterns(pattern):
    """Any pattern is a tokenizer or an error in one line; none warns."""
    tokenizer = made_or_refused(lambda: make_tokenizer(f"regex:{pattern}"))
    if tokenizer is None:
        return
    column = tokenizer.tokenize(pa.array(["a b", "", "ab.ba [x]", "\ud7ff"], pa.large_string()))
    assert all(token for token in column.vocabulary.to_pylist())


@look(200)
@hypothesis.given(st.lists(st.sampled_from(["a", ".", "..", ":", "os", "json", "dumps", "", " ", "é", "\udc80", "1"])))
def test_fuzz_names_of_functions(parts):
    with no_hang():
        made_or_refused(lambda: make_tokenizer("".join(parts)))


@pytest.fixture(scope="module")
def hugging_face():
    """A small tokenizer.json."""
    tokenizers = pytest.importorskip("tokenizers", reason="needs the package tokenizers")
    model = tokenizers.models.BPE({"a": 0, "b": 1, "ab": 2, "[UNK]": 3}, [("a", "b")], unk_token="[UNK]")
    made = tokenizers.Tokenizer(model)
    made.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    made.normalizer = tokenizers.normalizers.Lowercase()
    return json.loads(made.to_str())


def test_fuzz_hugging_face_files(hugging_face, tmp_path):
    """A tokenizer.json with other values in it is refused in one line, or tokenises, or leaves records out."""
    column = pa.array(["ab ba", "", "x" * 100], pa.large_string())
    number = 0

    @look(400)
    @hypothesis.given(
        st.one_of(
            edited(hugging_face, json_values()).map(lambda value: json.dumps(value).encode()),
            mutations(json.dumps(hugging_face).encode()),
        )
    )
    def load(data):
        nonlocal number
        number += 1
        path = tmp_path / f"{number}.json"
        path.write_bytes(data)
        with no_hang():
            tokenizer = made_or_refused(lambda: make_tokenizer(f"huggingface:{path}"))
            if tokenizer is not None:
                tokenizer.tokenize(column)

    load()


class PanicException(BaseException):
    """As a library in Rust raises it: not an Exception."""


def test_a_tokenizer_that_panics_is_a_failed_record(hugging_face, tmp_path, monkeypatch):
    """A panic of the library, on a file or on somebody's text, ends nothing but that."""
    path = tmp_path / "t.json"
    path.write_text(json.dumps(hugging_face))
    tokenizer = make_tokenizer(f"huggingface:{path}")

    class Broken:
        def encode(self, text, add_special_tokens):
            if "x" in text:
                raise PanicException("here the text would be quoted")
            return type("Encoded", (), {"tokens": ["a"]})

    with monkeypatch.context() as patch:
        patch.setattr(by_text, "_load_hugging_face", lambda *_: Broken())
        column = tokenizer.tokenize(pa.array(["a", "x", "b"], pa.large_string()))
    assert (column.failed, len(column.record)) == (1, 2)

    def panic(*_):
        raise PanicException

    monkeypatch.setattr("tokenizers.Tokenizer", type("Panicking", (), {"from_str": staticmethod(panic)}))
    other = tmp_path / "u.json"
    other.write_text(json.dumps(hugging_face))
    with pytest.raises(ParameterError, match="must be a readable"):
        make_tokenizer(f"huggingface:{other}")
