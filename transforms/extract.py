"""The whole algorithm as one transform: documents in, differentially private n-grams out.

documents -> posts -> users -> (ValidityFilter -> rounds of ClipAndWeight -> SumCells -> NoisyThreshold ->
AddSpuriousGrams) x T -> tables of n-grams
"""

import copy
import difflib
import inspect
from collections.abc import Iterator, Sequence
from typing import Any, TypedDict

import apache_beam as beam
from apache_beam.transforms.window import GlobalWindows
from typing_extensions import Unpack

from dpngram.accounting import ExtractionPlan, ParameterError, guarantee_in_words
from dpngram.accounting.parameters import check_choice, check_integer
from dpngram.transforms.add_spurious_grams import AddSpuriousGrams
from dpngram.transforms.bind_release import BindRelease, check_key, make_randomness
from dpngram.transforms.blocks.grams import GramTable, Ngram
from dpngram.transforms.blocks.pieces import Piece
from dpngram.transforms.blocks.users import Users
from dpngram.transforms.checkpoints import Checkpoints, MakeRound
from dpngram.transforms.clip_and_weight import ClipAndWeight, pay_late
from dpngram.transforms.context import ReleaseContext
from dpngram.transforms.decide_release import make_gate
from dpngram.transforms.decode_grams import DecodeGrams
from dpngram.transforms.document_form import DocumentForm
from dpngram.transforms.group_users import GroupUsers
from dpngram.transforms.limit_windows import STREAM_STARTS, LimitWindowsPerUser
from dpngram.transforms.noisy_count import NoisyCount
from dpngram.transforms.noisy_threshold import NoisyThreshold
from dpngram.transforms.policies import RoundPolicy, make_rounds
from dpngram.transforms.policies.plus import PlusCount
from dpngram.transforms.prepare_posts import PreparePosts, choose_tokenizer
from dpngram.transforms.randomness.noise_key import Randomness, settings_digest
from dpngram.transforms.sum_cells import SumCells
from dpngram.transforms.validity_filter import PRUNINGS, ValidityFilter
from dpngram.transforms.vocabulary import PublicVocabulary, VocabularyLevel
from dpngram.transforms.windowing import check_delay, check_windowing, windows_per_document

__all__ = ["ExtractLevel", "ExtractLevels", "ExtractNgrams", "ExtractRound", "chain_levels"]


class ExtractRound(beam.PTransform):
    """Users -> (users, Piece): one round of Algorithm 1. Most levels have one round; it releases S_k, in pieces.

    Privacy: the round's part of the plan's budget, see `RoundPolicy`. A round sees what earlier rounds of its level
    released, and its noise is independent of theirs. Windowing: one release per window.

    Args:
        policy: the round, see `make_rounds`.
        context: the key and what was released before, see `ReleaseContext`.
    """

    def __init__(self, policy: RoundPolicy, context: ReleaseContext) -> None:
        super().__init__()
        self._policy, self._context = policy, context

    def expand(self, users: beam.PCollection[Users]) -> Any:  # (PCollection[Users], PCollection[Piece])
        policy, context = self._policy, self._context
        users, cells = users | "ClipAndWeight" >> ClipAndWeight(policy, context)  # (shard, CellBlock) of each block
        histogram = cells | "SumCells" >> SumCells()  # (shard, CellBlock): H_k
        if isinstance(policy, PlusCount):
            level = histogram | "NoisyCount" >> NoisyCount(policy, context)  # Piece: S_k
            return pay_late(users, policy, context), level
        found = (
            histogram
            | "NoisyThreshold" >> NoisyThreshold(policy, context)  # ReleasedPart: what reached the floor
            | "AddSpuriousGrams" >> AddSpuriousGrams(policy, context)  # Piece: S_k; or a survey, for the next round
        )
        return users, found


class ExtractLevel(beam.PTransform):
    """Users -> (users for level k+1, Piece): the valid k-grams, and the rounds that release S_k from them.

    Privacy: the level's part of the plan's budget. Windowing: one release per window.

    Args:
        rounds: of this level, see `make_rounds`.
        context: the key and what levels below k released, see `ReleaseContext`.
        make_round: what computes a round.
    """

    def __init__(
        self, rounds: Sequence[RoundPolicy], context: ReleaseContext, make_round: MakeRound = ExtractRound
    ) -> None:
        super().__init__()
        self._rounds, self._context, self._make_round = rounds, context, make_round

    def expand(self, users: beam.PCollection[Users]) -> Any:  # (PCollection[Users], PCollection[Piece])
        context = self._context
        if self._rounds[0].n > 1:  # at level 1 every token is a candidate
            users = users | "ValidityFilter" >> ValidityFilter(self._rounds[0], context)  # CandidateBlock
        if len(self._rounds) == 1:  # no node for the one round: its steps are the level's
            return self._make_round(self._rounds[0], context).expand(users)
        for policy in self._rounds:
            users, level = users | policy.label >> self._make_round(policy, context)
            if policy is not self._rounds[-1]:
                context = context.after_round(level, policy.label)
        return users, level


def chain_levels(
    users: beam.PCollection[Users],
    rounds: Sequence[Sequence[RoundPolicy]],
    context: ReleaseContext,
    make_round: MakeRound = ExtractRound,
) -> dict[int, beam.PCollection[Piece]]:
    """The levels of one release, each fed by the one before: {n: S_n in pieces}."""
    levels: dict[int, beam.PCollection[Piece]] = {}
    for n, of_level in enumerate(rounds, 1):
        users, levels[n] = users | f"Level{n}" >> ExtractLevel(of_level, context, make_round)
        if n < len(rounds):
            context = context.after_level(levels[n])
    return levels


class ExtractLevels(beam.PTransform):
    """Documents -> {n: PCollection[GramTable]}: the release level by level, as columns.

    A table has at most `TABLE_ROWS` grams: each window and length has one table, or several where more is released, or
    none where nothing is. A table says which rows of S_n it has; `in_order` puts the tables of one length in order.

    Args:
        plan: from `dpngram.accounting.plan_extraction`.
        tokenizer: how text becomes tokens, a name from `dpngram.transforms.tokenizers.TOKENIZERS`: words, whitespace,
            regex:PATTERN, huggingface:FILE or module:function.
        sentences: n-grams do not cross the end of a sentence.
        pruning: "both" (V_k = (S_1 x S_{k-1}) n (S_{k-1} x S_1)) or "single" (V_k = S_{k-1} x S_1).
        noise_key: where the key of the noise is: `file:PATH`, `env:NAME` or `gcp-secret:NAME`. Default: a fresh
            key that lives as long as this process. One key is for one release.
        key_records: a directory, on any Beam filesystem, that remembers what keys were used for. Always remembered:
            in the state directory of this machine ($DPNGRAM_STATE), and beside a key file.
        release: a label that enters the noise; a second release with the same key needs another.
        user_field, text_field: names of the fields, for documents that are rows or mappings.
        user_per_document: documents have no user; each is protected by itself.
        shards: into how many blocks of users the input is cut. Does not change the result.
        vocabulary: a list of tokens that is public, a file of words, or "tokenizer" for all tokens of a tokenizer that
            has a list: S_1, see `PublicVocabulary`. The plan must be one with `public_vocabulary`. These words are not
            released again: the table of length 1 is empty. In windows it is refused.
        max_bad_fraction: the largest share of users with a document that cannot be used; if there are clearly more, the
            run fails, and nothing is released. The verdict is a noisy query, see `Gate`. 1: there is no verdict.
            Default: 0.01 in the global window, and no verdict in others, where no other value than 1 may be given.
        checkpoints: a directory that keeps every finished round; a run with the same `noise_key` continues from there.
            Whoever builds the graph deletes them when the release is written (`checkpoints.drop_checkpoints`).
        bound_windows: in fixed or sliding windows, leave out what a user says beyond `plan.windows` windows, see
            `LimitWindowsPerUser`. False: the guarantee is for one user and window only, see below and `guarantee`.
        window_delay: seconds by which the windows of the input are shifted, so that they wait for late documents; what
            they are named by, for the noise, is without it. `dpngram stream` says what it is good for.
        stream_start: for unbounded input with `bound_windows`, see `LimitWindowsPerUser`: "new"; "continued" by an
            engine that restores the job's state; "again" without that state, which is another release.
        offline: building the graph looks at no file: no key is created, and no checkpoint is looked for. For jobs that
            are only translated.

    Privacy: user-level differential privacy with the plan's parameters for everything that comes out, and for whether
    anything comes out. Input may hold one user's posts in any number of elements. Counters and errors carry no text,
    token or user id. In fixed or sliding windows each window is a release by itself. With `bound_windows`, the default,
    the guarantee is for everything that all windows together reveal about a user. Without it, the guarantee is for one
    user *and window*, and adds up over the windows that a user is in.
    """

    def __init__(
        self,
        plan: ExtractionPlan,
        *,
        tokenizer: str = "words",
        sentences: bool = False,
        pruning: str = "both",
        noise_key: str | None = None,
        key_records: str | None = None,
        release: str = "",
        user_field: str = "user",
        text_field: str = "text",
        user_per_document: bool = False,
        shards: int = 32,
        vocabulary: str | Sequence[str] | PublicVocabulary | None = None,
        max_bad_fraction: float | None = None,
        checkpoints: str | None = None,
        bound_windows: bool = True,
        window_delay: float = 0.0,
        stream_start: str = "new",
        offline: bool = False,
    ) -> None:
        super().__init__()
        if not isinstance(plan, ExtractionPlan):
            raise ParameterError(f"plan must come from plan_extraction, got {type(plan).__name__}.")
        if checkpoints is not None and noise_key is None:
            raise ParameterError("checkpoints need a noise_key: only a run with the same key can resume from them.")
        check_key(noise_key, key_records)  # an error here rather than when the graph is built
        self._plan = plan
        self._pruning = check_choice("pruning", pruning, PRUNINGS)
        self._rounds = make_rounds(plan, self._pruning)
        self._noise_key, self._key_records, self._release = noise_key, key_records, release
        self._stream_start = check_choice("stream_start", stream_start, STREAM_STARTS)
        self._form = DocumentForm(user_field=user_field, text_field=text_field, user_per_document=user_per_document)
        self._tokenizer = choose_tokenizer(tokenizer, sentences, self._form)
        self._shards = check_integer("shards", shards, 1, 1 << 20)
        if plan.public_vocabulary != (vocabulary is not None):
            raise ParameterError("vocabulary must be given with a plan that has public_vocabulary, and with no other.")
        self._vocabulary = None if vocabulary is None else PublicVocabulary.of(vocabulary, self._tokenizer)
        self._gate = make_gate(plan, max_bad_fraction)
        self._checkpoints, self._offline = checkpoints, offline
        self._bound_windows = bound_windows
        self._window_delay = check_delay(window_delay)
        self._last: int | None = None

    def expand(self, documents: beam.PCollection[Any]) -> Any:  # {n: PCollection[GramTable]}
        if not isinstance(documents, beam.PCollection):
            raise ParameterError(
                f"documents must be a PCollection, got {type(documents).__name__}: the transform comes after the one "
                "that reads them."
            )
        check_windowing(documents)
        randomness = self._randomness(documents.pipeline)
        users = (
            self._limit_windows(documents, randomness)
            | "PreparePosts"
            >> PreparePosts(self._tokenizer, randomness, form=self._form, shards=self._shards)  # (shard, PostBlock)
            | "GroupUsers" >> GroupUsers(randomness, user_per_document=self._form.user_per_document)  # UserBlock
        )
        # bytes: what the noise is bound to. If the gate stops the run there is none, so nothing below is drawn or kept.
        binding = users | "BindRelease" >> BindRelease(randomness, self._gate)
        context = ReleaseContext.begin(binding, randomness, blocks=self._shards, last=self._last)
        if self._vocabulary is not None:
            words = binding | "Vocabulary" >> VocabularyLevel(self._vocabulary.words, randomness)
            context = context.with_vocabulary(words)
        rounds = self._rounds[: self._last]
        levels = chain_levels(users, rounds, context, self._make_round(documents, context))  # {n: S_n}
        if self._last is not None:
            return levels
        decode = DecodeGrams(self._pruning, public_vocabulary=self._vocabulary is not None)
        return levels | "DecodeGrams" >> decode

    def up_to(self, n: int) -> "ExtractLevels":
        """The same, but only up to level n: it leaves checkpoints, and gives {1: S_1, ..., n: S_n} in pieces.

        For engines that cannot take all levels as one job. With the same label in the graph, the next job goes on from
        these checkpoints (`levels_done`), to the release of one job for all, byte for byte.
        """
        if self._checkpoints is None:
            raise ParameterError("checkpoints are needed: what a part of the levels finds out goes nowhere else.")
        part = copy.copy(self)
        part._last = check_integer("n", n, 1, self._plan.max_n)
        return part

    def levels_done(self) -> int:
        """How many levels have checkpoints, now, and are not computed again."""
        return 0 if self._checkpoints is None else self._open_checkpoints(self._checkpoints).levels_done()

    def guarantee(self) -> str:
        """One sentence: what is promised, to whom, over which windows."""
        return guarantee_in_words(self._plan, bound_windows=self._bound_windows)

    def settings(self) -> dict[str, Any]:
        """Everything that determines the histogram besides the data; enters the key derivation.

        Field names do not: the fingerprint of the content covers what was read from them.
        """
        listed = {} if self._vocabulary is None else {"vocabulary": self._vocabulary.settings()}
        return {
            "plan": self._plan.settings(),
            "pruning": self._pruning,
            "tokenizer": self._tokenizer.spec,
            "user_per_document": self._form.user_per_document,
            "max_bad_fraction": 1.0 if self._gate is None else self._gate.max_bad_fraction,
            **listed,
        }

    def _randomness(self, pipeline: beam.Pipeline) -> Randomness:
        return make_randomness(
            pipeline,
            self._plan,
            self.settings(),
            self._noise_key,
            release=self._release,
            key_records=self._key_records,
            offline=self._offline,
            window_delay=self._window_delay,
        )

    def _limit_windows(self, documents: beam.PCollection[Any], randomness: Randomness) -> beam.PCollection[Any]:
        """Each user in at most `plan.windows` windows, where there are windows, unless the caller wants no bound."""
        windows = documents.windowing.windowfn
        if not self._bound_windows or isinstance(windows, GlobalWindows):
            return documents
        needed = windows_per_document(windows)
        if needed > self._plan.windows:
            raise ParameterError(
                f"windows must be at least {needed} in the plan, got {self._plan.windows}: each document falls into "
                "that many sliding windows."
            )
        if self._form.user_per_document:
            return documents  # each is in `needed` windows
        return documents | "LimitWindows" >> LimitWindowsPerUser(
            self._plan.windows,
            randomness,
            self._form,
            shards=self._shards,
            start=self._stream_start,
            offline=self._offline,
        )

    def _make_round(self, documents: beam.PCollection[Any], context: ReleaseContext) -> MakeRound:
        """What computes a round: with `checkpoints`, one that continues from what was done, and keeps what it does."""
        if self._checkpoints is None:
            return ExtractRound
        if documents.windowing.windowfn != GlobalWindows():
            raise ParameterError("checkpoints are not supported in windows: they hold one release.")
        return self._open_checkpoints(self._checkpoints).keeping(ExtractRound, context)

    def _open_checkpoints(self, directory: str) -> Checkpoints:
        return Checkpoints(directory, settings_digest(self.settings()), self._rounds, look=not self._offline)


def _rows(table: GramTable) -> Iterator[Ngram]:
    return table.rows()


class ExtractOptions(TypedDict, total=False):
    """The arguments of `ExtractLevels` besides the plan."""

    tokenizer: str
    sentences: bool
    pruning: str
    noise_key: str | None
    release: str
    user_field: str
    text_field: str
    user_per_document: bool
    shards: int
    vocabulary: str | Sequence[str] | PublicVocabulary | None
    max_bad_fraction: float | None
    checkpoints: str | None
    bound_windows: bool
    window_delay: float
    offline: bool


class ExtractNgrams(beam.PTransform):
    """Documents -> PCollection[Ngram]: all released n-grams of 1 to `plan.max_n` tokens.

        released = documents | ExtractNgrams(plan_extraction(epsilon=4, delta=1e-7, max_n=9, max_contributions=300))

    Args:
        plan: from `dpngram.accounting.plan_extraction`.
        options: those of `ExtractLevels`: tokenizer, noise_key, user_field, ...

    Privacy and windowing as for `ExtractLevels`.
    """

    def __init__(self, plan: ExtractionPlan, **options: Unpack[ExtractOptions]) -> None:
        super().__init__()
        known = inspect.signature(ExtractLevels).parameters
        for name in options:
            if name not in known:
                close = difflib.get_close_matches(name, known, 1, 0.7)
                hint = f"; did you mean {close[0]}?" if close else "."
                raise ParameterError(f"ExtractNgrams has no argument {name!r:.80}{hint}")
        self._levels = ExtractLevels(plan, **options)

    def expand(self, documents: beam.PCollection[Any]) -> beam.PCollection[Ngram]:
        tables = tuple(self._levels.expand(documents).values())
        return tables | "AllLevels" >> beam.Flatten() | "Rows" >> beam.FlatMap(_rows)

    def guarantee(self) -> str:
        """As `ExtractLevels.guarantee`."""
        return self._levels.guarantee()

    def settings(self) -> dict[str, Any]:
        """As `ExtractLevels.settings`."""
        return self._levels.settings()
