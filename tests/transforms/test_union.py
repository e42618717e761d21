"""Set unions and exact counts against dicts and sets read literally, with the same keyed draws."""

import collections
import functools
import json
import math
from fractions import Fraction

import apache_beam as beam
import numpy as np
import pytest
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from helpers.reference import UNIT, grams, random_corpus, to_blocks, words_of
from scipy import special, stats

from dpngram.accounting import ParameterError, plan_extraction, plan_union_all, plan_union_even, plan_union_single
from dpngram.transforms.baselines.compare_systems import ComparedRun, CompareSystems, _settings
from dpngram.transforms.baselines.count_exactly import count_users, tally_cells, tally_sequences, tally_users
from dpngram.transforms.baselines.named_grams import digest_table, drop_long_users, gram_digests, name_grams
from dpngram.transforms.baselines.release_unions import (
    Ceilings,
    add_ceilings,
    bucket_weights,
    union_cells,
    union_cutoffs,
)
from dpngram.transforms.blocks.cells import CellBlock, merge_cells, weighted_cells
from dpngram.transforms.blocks.posts import split_posts
from dpngram.transforms.group_users import group_users
from dpngram.transforms.noisy_threshold import threshold_cells
from dpngram.transforms.prepare_posts import PostDigests, block_posts
from dpngram.transforms.randomness.draws import standard_normal
from dpngram.transforms.randomness.noise_key import KeyReference, Randomness, settings_digest
from dpngram.transforms.testing import exact_plan, extract_in_memory, key_source
from dpngram.transforms.tokenizers import make_tokenizer

MAX_N = 4


def user_blocks(posts, source, shards):
    pieces = collections.defaultdict(list)
    for block in to_blocks(posts):
        made, _ = block_posts(block, make_tokenizer("words"), PostDigests.of(source))
        if made is not None:
            for shard, piece in split_posts(made, shards):
                pieces[shard].append(piece)
    return [group_users(piece, user_per_document=False, source=source) for piece in pieces.values()]


@functools.lru_cache(maxsize=4096)
def name(gram, source):
    """The digest of a gram, one token at a time."""
    digest = None
    for place, token in enumerate(gram):
        data = token.encode()
        word = source.digest("token").strings(np.array([0, len(data)]), np.frombuffer(data, np.uint8))
        digest = word if place == 0 else gram_digests(source, MAX_N)[place - 1].pairs(digest, word)
    return tuple(map(int, digest[0]))


def held(posts, lengths):
    return {
        user: set().union(*(grams(list(map(str, post)), n) for post in mine for n in lengths))
        for user, mine in posts.items()
    }


def literal_union(posts, query, source, draw):
    """Algorithm 3 with sets: {digest: length} of what is released, and the exact weights."""
    weight = collections.Counter()
    level = query.lengths[0] if len(query.lengths) == 1 else 0
    for user, mine in held(posts, query.lengths).items():
        data = user.encode()
        user_name = int(source.digest("user").strings(np.array([0, len(data)]), np.frombuffer(data, np.uint8))[0, 0])
        kept = sorted(mine, key=lambda g: int(words_of(draw("clip", level), user_name, name(g, source)[0])[0, 0]))
        kept = kept[: query.max_contributions]
        for gram in kept:
            weight[gram] += math.isqrt(2**64 // len(kept))
    released = {}
    step = max(1, int(Fraction(query.sigma) * UNIT / 2**14))
    for gram, exact in weight.items():
        z = float(standard_normal(words_of(draw("noise", len(gram)), *name(gram, source)))[0])
        if (exact + math.floor(z * (query.sigma * UNIT))) // step * step >= Fraction(query.rho) * UNIT:
            released[name(gram, source)] = len(gram)
    return released, weight


def array_union(blocks, query, source, draw, *, ceilings=None):
    """The same by the library's functions: {digest: length}, and how many cells met."""
    prfs = gram_digests(source, max(query.lengths))
    named = [list(name_grams(block, prfs)) for block in blocks]
    bounds = [
        ceilings or add_ceilings(bucket_weights(mine[n - 1], query.max_contributions) for mine in named)
        for n in query.lengths
    ]
    level = query.lengths[0] if len(query.lengths) == 1 else 0
    cells = collections.defaultdict(list)
    for mine in named:
        chosen = [mine[n - 1] for n in query.lengths]
        noises = [draw("noise", n) for n in query.lengths]
        for n, part in zip(query.lengths, union_cells(chosen, bounds, query, draw("clip", level), noises), strict=True):
            if len(part):
                cells[n].append(part)
    released, met = {}, 0
    for n, parts in cells.items():
        merged = merge_cells(parts)
        met += len(merged)
        part = threshold_cells(merged, union_cutoffs(query), lambda purpose, n=n: draw(purpose, n))
        released |= {tuple(map(int, digest)): n for digest in part.digests}
    return released, met


UNBOUNDED = Ceilings(totals=np.full(1 << 20, 2**60))


@pytest.mark.parametrize("batch", range(3))
def test_unions_are_identical_to_sets(batch):
    random = np.random.default_rng(batch)
    seen = clipped = dropped = 0
    for number in range(25):
        posts = random_corpus(random)
        budget = {"epsilon": float(random.choice([8.0, 40.0])), "delta": 0.3}
        caps = {"max_n": MAX_N, "max_contributions": int(random.integers(1, 7))}
        plans = [
            plan_union_all(**budget, **caps),
            plan_union_even(**budget, **caps),
            plan_union_single(**budget, n=int(random.integers(1, 5)), max_contributions=caps["max_contributions"]),
        ]
        source = key_source(bytes([number, batch] * 16), number)
        blocks = user_blocks(posts, source, int(random.integers(1, 4)))
        binding = source.binding(bytes(16))

        def draw(purpose, n, source=source, binding=binding):
            return source.prf(purpose, n, 0, b"global", binding)

        for plan in plans:
            for query in plan.queries:
                expected, weight = literal_union(posts, query, source, draw)
                released, met = array_union(blocks, query, source, draw) if blocks else ({}, 0)
                assert released == expected
                everything, all_met = (
                    array_union(blocks, query, source, draw, ceilings=UNBOUNDED) if blocks else ({}, 0)
                )
                assert everything == expected  # the bound leaves out nothing that is released
                assert all_met == len(weight)
                seen += len(released)
                dropped += all_met - met
                clipped += any(len(mine) > query.max_contributions for mine in held(posts, query.lengths).values())
    # The corpora must exercise what they are meant to.
    assert seen > 300
    assert dropped > 300
    assert clipped > 60


def test_clipping_bounds_every_user_over_all_lengths():
    """One user with many grams: as many as the cap get floor(2^32/sqrt(cap)), and their squares sum to at most 1."""
    posts = {"u": [[f"w{i}" for i in range(60)]]}
    source = key_source(b"k" * 32)
    (block,) = user_blocks(posts, source, 1)
    (query,) = plan_union_all(epsilon=1, delta=0.1, max_n=3, max_contributions=5).queries
    parts = list(name_grams(block, gram_digests(source, 3)))

    def draw(purpose):
        return source.prf(purpose, 0, 0, b"global", source.binding(bytes(16)))

    cells = list(union_cells(parts, [UNBOUNDED] * 3, query, draw("clip"), [draw("noise")] * 3))
    weights = np.concatenate([part.weight for part in cells])
    assert weights.tolist() == [math.isqrt(2**64 // 15)] * 15
    assert sum(int(weight) ** 2 for weight in weights) <= 2**64
    assert sum(len(part) > 0 for part in cells) > 1  # a choice among all lengths, not the first


def test_law_of_the_noise():
    """Cells of equal weight are released with probability Phi((h - rho)/sigma), each by itself.

    20,000 cells at three weights; two-sided binomial test, flake rate 1e-9 each.
    """
    (query,) = plan_union_single(epsilon=1, delta=0.2, n=3, max_contributions=4).queries
    source = key_source(b"n" * 32)
    count = 20_000
    for place, height in enumerate((query.rho - query.sigma, query.rho, query.rho + 0.5 * query.sigma)):
        digests = source.digest(f"cells {place}").blocks(np.arange(count, dtype=np.uint64), 0)
        digests = digests[np.argsort(digests[:, 0])]
        cells = CellBlock(
            keys=digests[:, 0],
            weight=np.full(count, int(height * UNIT)),
            digests=digests,
            token_offsets=np.zeros(1, np.int64),
            token_bytes=np.zeros(0, np.uint8),
        )
        part = threshold_cells(
            cells, union_cutoffs(query), lambda purpose: source.prf(purpose, 3, 0, b"global", source.binding(bytes(16)))
        )
        chance = special.ndtr((height - query.rho) / query.sigma)
        assert stats.binomtest(len(part.noisy), count, chance).pvalue > 1e-9


def test_grams_are_named_by_their_tokens_and_stay_within_posts():
    posts = {"a": [["x", "y", "z"], ["z", "x"]], "b": [["y", "z", "x"], ["x", "y", "z"]], "c": [["z"]]}
    source = key_source(b"g" * 32)
    for shards in (1, 3):
        found = collections.Counter()
        for block in user_blocks(posts, source, shards):
            for n, named in enumerate(name_grams(block, gram_digests(source, MAX_N)), 1):
                users = count_users(named)
                assert not len(named.grams) or named.digests[:, 0].tolist() == named.grams.tolist()
                for digest, count in zip(named.digests, users, strict=True):
                    found[n, tuple(map(int, digest))] += int(count)
        expected = collections.Counter()
        for n in range(1, MAX_N + 1):
            for mine in held(posts, [n]).values():
                for gram in mine:
                    expected[n, name(gram, source)] += 1
        assert found == expected
        assert ("z", "z") not in {gram for mine in held(posts, [2]).values() for gram in mine}


def test_released_grams_are_found_among_the_users():
    """The names of a release are those of the text: every gram that is not spurious is there, by hand and by digest."""
    random = np.random.default_rng(3)
    posts = {f"u{i}": [list(random.choice(list("abcdef"), 8))] for i in range(60)}
    source = key_source(b"r" * 32)
    plan = plan_extraction(epsilon=20, delta=0.1, max_n=3, max_contributions=12, eta=0.3, policy="paper")
    tables = extract_in_memory(to_blocks(posts), plan, source, make_tokenizer("words"))
    blocks = user_blocks(posts, source, 1)
    spurious = 0
    for n, named in enumerate(name_grams(blocks[0], gram_digests(source, 3)), 1):
        grams_of = digest_table(tables[n], source.digest("token"), gram_digests(source, 3))
        cells = weighted_cells(named, count_users(named))
        counts = dict(tally_cells(n, cells, [(7, grams_of)], [1, 10]))
        exact = collections.Counter(gram for mine in held(posts, [n]).values() for gram in mine)
        released = [tuple(row.tokens) for row in tables[n].rows()]
        assert counts["unique", -1, n, 0] == len(exact)
        assert counts["held", -1, n, 10] == sum(count >= 10 for count in exact.values())
        assert counts["present", 7, n, 0] == counts["recovered", 7, n, 1] == sum(gram in exact for gram in released)
        assert counts["recovered", 7, n, 10] == sum(exact[gram] >= 10 for gram in released)
        assert tally_sequences(n, named)[1] == sum(max(0, len(p) - n + 1) for mine in posts.values() for p in mine)
        spurious += len(released) - counts["present", 7, n, 0]
    assert spurious > 0
    assert dict(tally_users(blocks[0]))["users", -1, 0, 0] == 60


def test_long_users_leave_without_a_trace():
    random = np.random.default_rng(1)
    posts = {
        f"u{i}": [list(random.choice([f"w{j}" for j in range(40)], random.integers(1, 9))) for _ in range(3)]
        for i in range(30)
    }
    kept = {user: mine for user, mine in posts.items() if sum(map(len, mine)) <= 13}
    assert 0 < len(kept) < 30
    source = key_source(b"l" * 32)
    (block,) = user_blocks(posts, source, 1)
    limited = drop_long_users(block, 13)
    (expected,) = user_blocks(kept, source, 1)
    assert sorted(limited.user) == sorted(expected.user)
    assert len(limited.digests) == len(expected.digests)

    def counts(users):
        return {
            tuple(map(int, digest)): int(size)
            for named in name_grams(users, gram_digests(source, 3))
            for digest, size in zip(named.digests, np.diff(named.gram_start), strict=True)
        }

    assert counts(limited) == counts(expected)
    assert drop_long_users(block, 0) is None
    assert drop_long_users(block, 10**6) is block


def note(tally, path):
    with open(path, "a") as file:
        file.write(json.dumps(tally) + "\n")


def noted(path):
    return {tuple(name): count for name, count in map(json.loads, path.read_text().splitlines())}


def test_a_graph_without_noise_counts_what_sets_count(tmp_path):
    """The whole graph, all systems, with hardly any noise: sizes and exact counts by brute force."""
    random = np.random.default_rng(5)
    posts = {
        f"u{i}": [list(random.choice(list("abcdefgh"), random.integers(1, 7))) for _ in range(2)] for i in range(40)
    }
    caps = {"max_n": 3, "max_contributions": 1000}
    loud = {"epsilon": 1e4, "delta": 0.5}
    runs = [
        ComparedRun(label="dpne", plan=exact_plan(max_n=3, threshold=1.1)),
        ComparedRun(label="dpne one side", plan=exact_plan(max_n=3, threshold=1.1), pruning="single"),
        ComparedRun(label="all", plan=plan_union_all(**loud, **caps)),
        ComparedRun(label="even", plan=plan_union_even(**loud, **caps)),
        ComparedRun(label="single", plan=plan_union_single(**loud, n=2, max_contributions=1000)),
    ]
    with beam.Pipeline(runner=FnApiRunner()) as pipeline:
        documents = pipeline | beam.Create([(user, " ".join(post)) for user, mine in posts.items() for post in mine])
        systems = CompareSystems(runs, shards=3, anonymity=[2, 5], followed=range(5))
        sizes, counts = documents | "Compare" >> systems
        sizes | "Sizes" >> beam.Map(note, str(tmp_path / "sizes"))
        counts | "Counts" >> beam.Map(note, str(tmp_path / "exact"))
    sizes, exact = noted(tmp_path / "sizes"), noted(tmp_path / "exact")

    def weights(lengths, allowed=None):
        total = collections.Counter()
        for mine in held(posts, lengths).values():
            mine = {gram for gram in mine if allowed is None or allowed(gram)}
            for gram in mine:
                total[gram] += 1 / math.sqrt(len(mine))
        return total

    certain = open_cells = 0
    for run, plan in ((2, runs[2].plan), (3, runs[3].plan), (4, runs[4].plan)):
        for query in plan.queries:
            total = weights(query.lengths)
            for n in query.lengths:
                heights = [weight for gram, weight in total.items() if len(gram) == n]
                # What lies seven deviations of the noise above or below the threshold is certain.
                least, most = (sum(h > query.rho + side * 7 * query.sigma for h in heights) for side in (1, -1))
                assert least <= sizes.get(("released", run, n, 0), 0) <= most
                certain += least + len(heights) - most
                open_cells += most - least
    assert certain > 10 * open_cells > 0
    for run, both in ((0, True), (1, False)):
        released = {0: {()}}
        for n in (1, 2, 3):
            allowed = None
            if n > 1:
                last = released[n - 1]

                def allowed(gram, last=last, first=released[1], both=both):
                    return gram[:-1] in last and gram[-1:] in first and (not both or gram[1:] in last)

            released[n] = {gram for gram, weight in weights([n], allowed).items() if weight >= 1.1}
            real = exact.get(("present", run, n, 0), 0)
            assert real == len(released[n])
            assert real == sizes.get(("released", run, n, 0), 0)
    holders = {n: collections.Counter(g for mine in held(posts, [n]).values() for g in mine) for n in (1, 2, 3)}
    for n, counted in holders.items():
        assert exact["unique", -1, n, 0] == len(counted)
        for k in (2, 5):
            assert exact["held", -1, n, k] == sum(count >= k for count in counted.values())
    assert exact["users", -1, 0, 0] == exact["counted", -1, 0, 0] == 40
    assert exact["posts", -1, 0, 0] == 80


def test_the_graph_releases_what_sets_release(tmp_path):
    """Real noise and small caps, through the whole graph: the sizes are those of the literal unions, run by run.

    Two runs have the same plan, and others larger caps: noise is each run's own, and the bound that leaves cells out of
    the shuffle is sound for all of them.
    """
    random = np.random.default_rng(8)
    posts = {
        f"u{i}": [list(random.choice(list("abcdefghijkl"), random.integers(1, 9))) for _ in range(3)] for i in range(80)
    }
    budget = {"epsilon": 20.0, "delta": 0.3}
    plans = [
        *(plan_union_all(**budget, max_n=3, max_contributions=cap) for cap in (1, 6)),
        *(plan_union_even(**budget, max_n=3, max_contributions=cap) for cap in (2, 2)),
        plan_union_single(**budget, n=2, max_contributions=4),
    ]
    runs = [ComparedRun(label=f"run {number}", plan=plan) for number, plan in enumerate(plans)]
    (tmp_path / "key").write_bytes(b"u" * 32)
    systems = CompareSystems(runs, shards=3, noise_key=str(tmp_path / "key"))
    with beam.Pipeline(runner=FnApiRunner()) as pipeline:
        documents = pipeline | beam.Create([(user, " ".join(post)) for user, mine in posts.items() for post in mine])
        sizes, _ = documents | "Compare" >> systems
        sizes | "Sizes" >> beam.Map(note, str(tmp_path / "sizes"))
    found = {(run, n): count for (_, run, n, _), count in noted(tmp_path / "sizes").items()}

    def opened(label, *settings):
        return Randomness(KeyReference("file", str(tmp_path / "key")), label, "Compare", *settings).open()

    naming = opened("", settings_digest(systems.settings()))
    total = sum(int.from_bytes(block.fingerprint.tobytes(), "little") for block in user_blocks(posts, naming, 2))
    expected, sets = collections.Counter(), []
    for number, run in enumerate(runs):
        source = opened(f"/{run.label}", settings_digest([systems.settings(), *_settings(run)]))
        binding = source.binding((total % (1 << 128)).to_bytes(16, "little"))

        def draw(purpose, n, source=source, binding=binding):
            return source.prf(purpose, n, 0, b"global", binding)

        sets.append(set())
        for query in run.plan.queries:
            released, _ = literal_union(posts, query, naming, draw)
            sets[-1] |= set(released)
            for n in released.values():
                expected[number, n] += 1
    assert found == expected
    assert sets[2] != sets[3]  # one plan, two runs
    assert 0 < len(sets[0]) < len(sets[1])


def test_bad_comparisons_are_refused():
    run = ComparedRun(label="a", plan=exact_plan(max_n=1, threshold=1.0))
    with pytest.raises(ParameterError, match="runs must be at least one"):
        CompareSystems([run, run])
    with pytest.raises(ParameterError, match="runs must be at least one"):
        CompareSystems([])
    with pytest.raises(ParameterError, match="sentences must be off"):
        CompareSystems([run], sentences=True, user_per_document=True)
    with pytest.raises(ParameterError, match="max_user_tokens must be"):
        CompareSystems([run], max_user_tokens=0)
    documents = beam.Pipeline(runner=FnApiRunner()) | beam.Create([("u", "a b")])
    windowed = documents | beam.WindowInto(beam.window.FixedWindows(10))
    with pytest.raises(ParameterError, match="windows must be global"):
        windowed | "Compare" >> CompareSystems([run])
    plus = plan_extraction(epsilon=1, delta=1e-3, max_n=2, max_contributions=3, policy="plus")
    with pytest.raises(ParameterError, match="pruning must be both"):
        CompareSystems([ComparedRun(label="p", plan=plus, pruning="single")])
