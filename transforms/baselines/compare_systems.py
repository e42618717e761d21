"""Several systems side by side on one reading and one grouping of the users, in one graph."""

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

import apache_beam as beam
from apache_beam.transforms.window import GlobalWindows

from dpngram.accounting import ExtractionPlan, ParameterError, UnionPlan
from dpngram.accounting.parameters import check_choice, check_integer
from dpngram.transforms.baselines.count_exactly import CountExactly, Tally
from dpngram.transforms.baselines.named_grams import NamedGrams, digest_table, drop_long_users, gram_digests
from dpngram.transforms.baselines.release_unions import ReleaseUnions, UnionRun
from dpngram.transforms.beam_workarounds import applied_label
from dpngram.transforms.bind_release import BindContent, FingerprintUsers, check_key, choose_key
from dpngram.transforms.blocks.grams import GramTable
from dpngram.transforms.blocks.pieces import Piece
from dpngram.transforms.blocks.users import UserBlock
from dpngram.transforms.context import ReleaseContext, histogram_shards
from dpngram.transforms.decide_release import DecideRelease, make_gate
from dpngram.transforms.decode_grams import DecodeGrams
from dpngram.transforms.document_form import DocumentForm
from dpngram.transforms.extract import chain_levels
from dpngram.transforms.group_users import GroupUsers
from dpngram.transforms.keyed_dofn import KeyedDoFn
from dpngram.transforms.policies import make_rounds
from dpngram.transforms.prepare_posts import PreparePosts, choose_tokenizer
from dpngram.transforms.randomness.noise_key import Randomness, settings_digest
from dpngram.transforms.validity_filter import PRUNINGS
from dpngram.transforms.windowing import check_windowing, window_name

__all__ = ["CompareSystems", "ComparedRun"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class ComparedRun:
    """One release of the comparison: a plan, and a label that no other run has, which names its noise."""

    label: str
    plan: ExtractionPlan | UnionPlan
    pruning: str = "both"


class CompareSystems(beam.PTransform):
    """Documents -> (sizes of the releases, exact counts or None), both as tallies.

    Args:
        runs: what to release. Each has its own noise; none affects another.
        anonymity: with a sequence of K, also counts exactly: NOT private. None: the graph has no such step.
        followed: the runs whose grams are looked for among the exact ones.
        max_user_tokens: users with more tokens than this are left out whole.
        max_bad_fraction: as for `ExtractLevels`; one verdict for all runs.
        tokenizer, sentences, noise_key, key_records, release, user_per_document, shards: as for `ExtractLevels`.

    Privacy: each run is private by its plan, as if it were alone: users, clipping draws and noise of a run are named by
    a key derived from its label. All of them together cost the *sum* of their budgets (basic composition). The
    tally ("released", run, n, 0) is the size of S_n, a function of the release. The verdict of the gate is part of the
    first run, whose plan pays for it.
    """

    def __init__(
        self,
        runs: Sequence[ComparedRun],
        *,
        tokenizer: str = "words",
        sentences: bool = False,
        noise_key: str | None = None,
        key_records: str | None = None,
        release: str = "",
        user_per_document: bool = False,
        shards: int = 32,
        max_user_tokens: int | None = None,
        max_bad_fraction: float = 1.0,
        anonymity: Sequence[int] | None = None,
        followed: Sequence[int] = (),
    ) -> None:
        super().__init__()
        if not runs or len({run.label for run in runs}) != len(runs):
            raise ParameterError("runs must be at least one, each with a different label.")
        self._runs = list(runs)
        for run in self._runs:
            check_choice("pruning", run.pruning, PRUNINGS)
            if isinstance(run.plan, ExtractionPlan):
                make_rounds(run.plan, run.pruning)
        self._gate = make_gate(self._runs[0].plan, max_bad_fraction)
        self._form = DocumentForm(user_per_document=user_per_document)
        self._tokenizer = choose_tokenizer(tokenizer, sentences, self._form)
        check_key(noise_key, key_records)  # an error here rather than when the graph is built
        self._noise_key, self._key_records, self._release = noise_key, key_records, release
        self._shards = check_integer("shards", shards, 1, 1 << 20)
        self._max_user_tokens = max_user_tokens
        if max_user_tokens is not None:
            check_integer("max_user_tokens", max_user_tokens, 1, 1 << 31)
        self._anonymity = None if anonymity is None else [check_integer("anonymity", k, 1, 1 << 31) for k in anonymity]
        self._followed = set(followed)

    def settings(self) -> dict[str, Any]:
        """What determines the users' text besides the data."""
        return {
            "tokenizer": self._tokenizer.spec,
            "user_per_document": self._form.user_per_document,
            "max_user_tokens": self._max_user_tokens,
            "max_bad_fraction": 1.0 if self._gate is None else self._gate.max_bad_fraction,
        }

    def expand(self, documents: beam.PCollection[Any]) -> Any:  # (PCollection[Tally], PCollection[Tally] | None)
        check_windowing(documents)
        if documents.windowing.windowfn != GlobalWindows():
            raise ParameterError("windows must be global in a comparison: it is one set of tables.")
        key = choose_key(documents.pipeline, self._noise_key, self._key_records)
        application = applied_label(documents.pipeline)
        naming = Randomness(key, self._release, application, settings_digest(self.settings()))
        users = (
            documents
            | "PreparePosts"
            >> PreparePosts(self._tokenizer, naming, form=self._form, shards=self._shards)  # (shard, PostBlock)
            | "GroupUsers" >> GroupUsers(naming, user_per_document=self._form.user_per_document)  # UserBlock
        )
        everybody = users
        if self._max_user_tokens is not None:
            users = users | "LimitUsers" >> beam.FlatMap(_limit_users, self._max_user_tokens)
        randomness = [
            Randomness(
                key, f"{self._release}/{run.label}", application, settings_digest([self.settings(), *_settings(run)])
            )
            for run in self._runs
        ]
        content = everybody | "Fingerprint" >> FingerprintUsers()  # fingerprint and counts
        if self._gate is not None:
            content = content | "Decide" >> DecideRelease(randomness[0], self._gate)  # the same, or the run fails

        sizes, released = [], []  # tallies of each release; ((run, n), grams) of those that are followed
        unions = {
            number: UnionRun(run.plan, randomness[number])
            for number, run in enumerate(self._runs)
            if isinstance(run.plan, UnionPlan)
        }
        if unions:
            grams = users | "Unions" >> _ReleaseUnionRuns(unions, content, naming, histogram_shards(self._shards))
            sizes.append(grams | "UnionSizes" >> beam.Map(_gram_size))
            released.append(grams | "FollowedUnions" >> beam.Filter(_is_followed, self._followed))
        for number, run in enumerate(self._runs):
            if number not in unions:
                levels = users | f"Run{number + 1}" >> _ExtractRun(run, content, randomness[number], self._shards)
                sizes += [
                    level | f"Size{number + 1}Of{n}" >> beam.FlatMap(_level_size, number, n)
                    for n, level in levels.items()
                ]
                if self._anonymity is not None and number in self._followed:
                    released.append(levels | f"Name{number + 1}" >> _NameReleased(number, run.pruning, naming))
        summed = sizes | "AllSizes" >> beam.Flatten() | "AddSizes" >> beam.CombinePerKey(sum)
        if self._anonymity is None:
            return summed, None
        followed = released | "AllReleased" >> beam.Flatten()
        max_n = max(_longest(run.plan) for run in self._runs)
        shards = histogram_shards(self._shards)
        exact = users | "CountExactly" >> CountExactly(naming, max_n, self._anonymity, followed, shards, everybody)
        return summed, exact


class _ExtractRun(beam.PTransform):
    """UserBlock -> {n: S_n in pieces} of one extraction."""

    def __init__(self, run: ComparedRun, content: beam.PCollection[bytes], randomness: Randomness, shards: int) -> None:
        super().__init__()
        self._run, self._content, self._randomness, self._shards = run, content, randomness, shards

    def expand(self, users: beam.PCollection[UserBlock]) -> Any:  # {n: PCollection[Piece]}
        if not isinstance(self._run.plan, ExtractionPlan):
            raise TypeError(f"plan must be one of an extraction, got {type(self._run.plan).__name__}.")
        binding = self._content | "Bind" >> BindContent(self._randomness)
        context = ReleaseContext.begin(binding, self._randomness, blocks=self._shards)
        return chain_levels(users, make_rounds(self._run.plan, self._run.pruning), context)


class _ReleaseUnionRuns(beam.PTransform):
    """UserBlock -> ((run, n), NamedGrams) of all set unions, with the numbers that the runs have in the comparison."""

    def __init__(
        self,
        runs: dict[int, UnionRun],
        content: beam.PCollection[bytes],
        naming: Randomness,
        shards: int,
    ) -> None:
        super().__init__()
        self._runs, self._content, self._naming, self._shards = runs, content, naming, shards

    def expand(self, users: beam.PCollection[UserBlock]) -> beam.PCollection[tuple[tuple[int, int], NamedGrams]]:
        keys = {place: run.randomness for place, run in enumerate(self._runs.values())}
        bindings = self._content | "Bind" >> beam.ParDo(_BindDoFn(keys))  # (place, binding)
        release = ReleaseUnions(list(self._runs.values()), self._naming, bindings, self._shards)
        return users | "ReleaseUnions" >> release | "Number" >> beam.Map(_renumber, list(self._runs))


class _NameReleased(beam.PTransform):
    """{n: S_n in pieces} -> ((run, n), NamedGrams): the released grams under the names of the exact ones."""

    def __init__(self, run: int, pruning: str, naming: Randomness) -> None:
        super().__init__()
        self._run, self._pruning, self._naming = run, pruning, naming

    def expand(
        self, levels: dict[int, beam.PCollection[Piece]]
    ) -> beam.PCollection[tuple[tuple[int, int], NamedGrams]]:
        tables = levels | "DecodeGrams" >> DecodeGrams(self._pruning)
        every = tuple(tables.values()) | "AllLevels" >> beam.Flatten()
        return every | "Digest" >> beam.ParDo(_DigestDoFn(self._run, self._naming))


class _DigestDoFn(KeyedDoFn):
    def __init__(self, run: int, naming: Randomness) -> None:
        super().__init__(naming)
        self._run = run

    def process(self, table: GramTable) -> Iterator[tuple[tuple[int, int], NamedGrams]]:
        grams = digest_table(table, self._source.digest("token"), gram_digests(self._source, table.n))
        yield (self._run, table.n), grams


class _BindDoFn(beam.DoFn):
    """The content -> (place, binding) for each of the runs; see `BindRelease`."""

    def __init__(self, runs: dict[int, Randomness]) -> None:
        self._runs = runs

    def setup(self) -> None:
        self._sources = {place: randomness.open() for place, randomness in self._runs.items()}

    def process(self, content: bytes, window: Any = beam.DoFn.WindowParam) -> Iterator[tuple[int, bytes]]:
        for place, source in self._sources.items():
            yield place, source.bind(window_name(window), content[:16])


def _limit_users(block: UserBlock, most: int) -> Iterator[UserBlock]:
    kept = drop_long_users(block, most)
    if kept is not None:
        yield kept


def _gram_size(named: tuple[tuple[int, int], NamedGrams]) -> Tally:
    (run, n), grams = named
    return ("released", run, n, 0), len(grams)


def _level_size(piece: Piece, run: int, n: int) -> Iterator[Tally]:
    if piece.is_first and piece.rows:
        yield ("released", run, n, 0), piece.rows


def _is_followed(named: tuple[tuple[int, int], NamedGrams], followed: set[int]) -> bool:
    return named[0][0] in followed


def _renumber(named: tuple[tuple[int, int], NamedGrams], numbers: list[int]) -> tuple[tuple[int, int], NamedGrams]:
    (place, n), grams = named
    return (numbers[place], n), grams


def _settings(run: ComparedRun) -> list[Any]:
    settings = run.plan.settings() if isinstance(run.plan, ExtractionPlan) else dataclasses.asdict(run.plan)
    return [type(run.plan).__name__, settings, run.pruning]


def _longest(plan: ExtractionPlan | UnionPlan) -> int:
    if isinstance(plan, ExtractionPlan):
        return plan.max_n
    return max(n for query in plan.queries for n in query.lengths)
