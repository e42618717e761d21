"""The graph of a comparison against sets."""

import collections
import json
import math

import apache_beam as beam
import numpy as np
import pytest
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from helpers.keys import write_key
from helpers.unions import held, literal_union, user_blocks

from dpngram.accounting import (
    ParameterError,
    RoundingCost,
    plan_extraction,
    plan_union_all,
    plan_union_even,
    plan_union_single,
)
from dpngram.transforms.baselines.compare_systems import ComparedRun, CompareSystems, _settings
from dpngram.transforms.randomness.noise_key import KeyReference, Randomness, settings_digest
from dpngram.transforms.testing import exact_plan


def note(tally, path):
    with open(path, "a") as file:
        file.write(json.dumps(tally) + "\n")


def noted(path):
    return {tuple(name): count for name, count in map(json.loads, path.read_text().splitlines())}


def test_a_graph_without_noise_counts_what_sets_count(tmp_path, monkeypatch):
    """The whole graph, all systems, with hardly any noise: sizes and exact counts by brute force."""
    for module in ("plan", "unions"):  # no plan accepts so little noise: its rounding could not be paid for
        monkeypatch.setattr(f"dpngram.accounting.{module}.rounding_cost", lambda *_: RoundingCost(0.0, 0.0))
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
    write_key(tmp_path / "key", b"u" * 32)
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
