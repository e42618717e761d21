"""The whole algorithm: bytes of users in, private n-grams out."""

import atexit
import dataclasses
import os
import secrets
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from typing import Any

import apache_beam as beam
from apache_beam.options.pipeline_options import TestOptions
from apache_beam.transforms.window import GlobalWindows

from dpngram.accounting import ExtractionPlan, ParameterError
from dpngram.accounting.parameters import check_choice, check_integer
from dpngram.transforms.add_spurious_grams import AddSpuriousGrams, CollectTokens
from dpngram.transforms.bind_release import BindRelease
from dpngram.transforms.blocks.columns import Block
from dpngram.transforms.blocks.grams import GramTable, Ngram
from dpngram.transforms.blocks.levels import Level
from dpngram.transforms.checkpoints import Checkpoints
from dpngram.transforms.clip_and_weight import ClipAndWeight
from dpngram.transforms.decode_grams import DecodeGrams
from dpngram.transforms.group_users import GroupUsers
from dpngram.transforms.limit_windows import LimitWindowsPerUser
from dpngram.transforms.noisy_threshold import NoisyThreshold
from dpngram.transforms.policies import make_policy
from dpngram.transforms.policies.base import Round
from dpngram.transforms.policies.paper import PaperPolicy
from dpngram.transforms.prepare_posts import PreparePosts
from dpngram.transforms.randomness.noise_key import KeyReference, Randomness, settings_digest
from dpngram.transforms.side_inputs import for_sides
from dpngram.transforms.tokenizers import make_tokenizer
from dpngram.transforms.validity_filter import PRUNINGS, ValidityFilter
from dpngram.transforms.windowing import check_windowing, windows_per_document

__all__ = ["ExtractLevel", "ExtractLevels", "ExtractNgrams", "chain_levels", "fresh_key"]

_LOCAL_RUNNERS = ("DirectRunner", "FnApiRunner", "BundleBasedDirectRunner", "SwitchingDirectRunner", "PrismRunner")
# User blocks per histogram shard: blocks hold positions, shards only distinct grams.
_BLOCKS_PER_SHARD = 8


class ExtractLevel(beam.PTransform):
    """One level of Algorithm 1: users and S_{k-1} -> what level k+1 reads of the users, and S_k.

    Privacy: the level's part of the plan's budget; see `ClipAndWeight`, `NoisyThreshold` and `AddSpuriousGrams`. A
    round sees what earlier rounds of the level released, and has noise of its own. Windowing: one release per window.
    """

    def __init__(
        self,
        rounds: Sequence[Round],
        binding: beam.PCollection[bytes],
        previous: beam.PCollection[Level] | None,
        *,
        shards: int,
        checkpoints: Checkpoints | None = None,
    ) -> None:
        super().__init__()
        self._rounds, self._binding, self._previous, self._shards = rounds, binding, previous, shards
        self._checkpoints = checkpoints

    def expand(self, users: beam.PCollection[Block]) -> Any:  # (input of the next level, PCollection[Level])
        previous, binding = self._previous, for_sides(self._binding, "Binding")
        before = so_far = None  # S_{k-1}, and what earlier rounds of this level released, as side inputs
        if previous is not None:
            before = for_sides(previous, "Previous")
            users = users | "ValidityFilter" >> ValidityFilter(before, self._rounds[0].pruning)  # valid k-grams
        released = None
        for round_ in self._rounds:
            step = "" if len(self._rounds) == 1 else f"Round{round_.number + 1}/"
            known = self._checkpoints.load(round_, binding) if self._checkpoints else None
            users, histogram = users | f"{step}ClipAndWeight" >> ClipAndWeight(
                round_, binding, self._shards, so_far, users_only=known is not None
            )  # H_k
            if known is not None:
                released = known
            else:
                parts = histogram | f"{step}NoisyThreshold" >> NoisyThreshold(round_, binding, before, so_far)
                if previous is None:
                    released = parts | f"{step}CollectTokens" >> CollectTokens(round_, self._binding, so_far)  # S_1
                else:
                    complete = AddSpuriousGrams(round_, binding, parts, so_far)
                    released = previous | f"{step}AddSpuriousGrams" >> complete  # S_k
                if self._checkpoints:
                    released | f"{step}Checkpoint" >> self._checkpoints.save(round_, binding)
            if round_ is not self._rounds[-1]:
                so_far = for_sides(released, f"{step}Released")
        return users, released


def chain_levels(
    users: beam.PCollection[Block],
    binding: beam.PCollection[bytes],
    policy: PaperPolicy,
    randomness: Randomness,
    pruning: str,
    shards: int,
    checkpoints: Checkpoints | None = None,
) -> dict[int, beam.PCollection[Level]]:
    """The levels of one release, each fed by the one before: {n: S_n}. `shards` counts blocks of users."""
    levels: dict[int, beam.PCollection[Level]] = {}
    for n in range(1, policy.plan.max_n + 1):
        rounds = [Round(policy, n, number, randomness, pruning) for number in range(len(policy.plan.level(n).rounds))]
        users, levels[n] = users | f"Level{n}" >> ExtractLevel(
            rounds, binding, levels.get(n - 1), shards=-(-shards // _BLOCKS_PER_SHARD), checkpoints=checkpoints
        )
    return levels


class ExtractLevels(beam.PTransform):
    """Documents -> {n: PCollection[GramTable]}: the release level by level, one table per window and length.

    Args:
        plan: from `dpngram.accounting.plan_extraction`.
        tokenizer: how text becomes tokens: words, whitespace, regex:PATTERN, huggingface:FILE or module:function.
        sentences: n-grams do not cross the end of a sentence.
        pruning: "both" (V_k = (S_1 x S_{k-1}) n (S_{k-1} x S_1)) or "single" (V_k = S_{k-1} x S_1).
        noise_key: where the key of the noise lies: `file:PATH`, `env:NAME` or `gcp-secret:NAME`. Default: a fresh
            key that lives as long as this process. One key is for one release.
        release: a label that enters the noise; a second release with the same key needs another.
        user_field, text_field: names of the fields, for documents that are rows or mappings.
        user_per_document: documents have no user; each is protected by itself.
        shards: into how many blocks of users the input is cut. Does not change the result.
        checkpoints: a directory that keeps every finished round; a run with the same `noise_key` goes on from there.
        bound_windows: in fixed or sliding windows, leave out what a user says beyond `plan.windows` windows, see
            `LimitWindowsPerUser`. Default: if the plan has more than one.

    Privacy: user-level differential privacy with the plan's parameters for everything that comes out. Input may hold
    one user's posts in any number of elements. Counters and errors carry no text, token or user id. In fixed or sliding
    windows each window is a release by itself. With `bound_windows` the guarantee is for everything that all windows
    together tell of a user; without, it is for one user *and window*, and adds up over the windows a user is in.
    """

    def __init__(
        self,
        plan: ExtractionPlan,
        *,
        tokenizer: str = "words",
        sentences: bool = False,
        pruning: str = "both",
        noise_key: str | None = None,
        release: str = "",
        user_field: str = "user",
        text_field: str = "text",
        user_per_document: bool = False,
        shards: int = 32,
        checkpoints: str | None = None,
        bound_windows: bool | None = None,
    ) -> None:
        super().__init__()
        if not isinstance(plan, ExtractionPlan):
            raise ParameterError(f"plan must come from plan_extraction, got {type(plan).__name__}.")
        self._plan = plan
        self._pruning = check_choice("pruning", pruning, PRUNINGS)
        self._policy = make_policy(plan, self._pruning)
        if sentences and user_per_document:
            raise ParameterError("sentences must be off when every document is a user: a sentence would become one.")
        self._tokenizer = make_tokenizer(tokenizer, sentences)
        self._noise_key = None if noise_key is None else KeyReference.parse(noise_key)
        self._release = release
        self._fields: dict[str, Any] = {
            "user_field": user_field,
            "text_field": text_field,
            "user_per_document": user_per_document,
        }
        self._shards = check_integer("shards", shards, 1, 1 << 20)
        if checkpoints is not None and noise_key is None:
            raise ParameterError("checkpoints need a noise_key: only a run with the same key can resume from them.")
        self._checkpoints = checkpoints
        self._bound_windows = plan.windows > 1 if bound_windows is None else bound_windows

    def expand(self, documents: beam.PCollection[Any]) -> Any:  # {n: PCollection[GramTable]}
        check_windowing(documents)
        randomness = self._randomness(documents.pipeline)
        users = (
            self._bounded(documents, randomness)
            | "PreparePosts" >> PreparePosts(self._tokenizer, randomness, self._shards, **self._fields)  # posts
            | "GroupUsers" >> GroupUsers(randomness, user_per_document=self._fields["user_per_document"])  # users
        )
        binding = users | "BindRelease" >> BindRelease(randomness)

        checkpoints = None
        if self._checkpoints is not None:
            if documents.windowing.windowfn != GlobalWindows():
                raise ParameterError("checkpoints must be left out in windows: they hold one release.")
            checkpoints = Checkpoints(self._checkpoints, randomness.settings, look=not _is_dry_run(documents.pipeline))
        levels = chain_levels(
            users, binding, self._policy, randomness, self._pruning, self._shards, checkpoints
        )  # {n: S_n}
        table, tables = None, {}
        for n, level in levels.items():
            table = level | f"Decode{n}" >> DecodeGrams(table, self._pruning)
            tables[n] = table
        return tables

    def _bounded(self, documents: beam.PCollection[Any], randomness: Randomness) -> beam.PCollection[Any]:
        """Each user in at most `plan.windows` windows, where there are windows and a bound is asked for."""
        windows = documents.windowing.windowfn
        if not self._bound_windows or isinstance(windows, GlobalWindows):
            return documents
        needed = windows_per_document(windows)
        if needed > self._plan.windows:
            raise ParameterError(
                f"windows must be at least {needed} in the plan, got {self._plan.windows}: each document falls into "
                "that many sliding windows."
            )
        if self._fields["user_per_document"]:
            return documents  # each is in `needed` windows
        names = {name: self._fields[name] for name in ("user_field", "text_field")}
        return documents | "LimitWindowsPerUser" >> LimitWindowsPerUser(self._plan.windows, randomness, **names)

    def settings(self) -> dict[str, Any]:
        """Everything that determines the histogram besides the data; enters the key derivation.

        Field names do not: the fingerprint of the content covers what was read from them.
        """
        return {
            "plan": dataclasses.asdict(self._plan),
            "pruning": self._pruning,
            "tokenizer": self._tokenizer.spec,
            "user_per_document": self._fields["user_per_document"],
        }

    def _randomness(self, pipeline: beam.Pipeline) -> Randomness:
        key = self._noise_key or fresh_key(pipeline)
        if not _is_dry_run(pipeline):
            key.create_if_missing()
        application = pipeline._current_transform().full_label
        return Randomness(key, self._release, application, settings_digest(self.settings()))


class ExtractNgrams(ExtractLevels):
    """Documents -> PCollection[Ngram]: all released n-grams of 1 to `plan.max_n` tokens.

        released = documents | ExtractNgrams(plan_extraction(epsilon=4, delta=1e-7, max_n=9, max_contributions=300))

    Arguments, privacy and windowing as for `ExtractLevels`.
    """

    def expand(self, documents: beam.PCollection[Any]) -> beam.PCollection[Ngram]:
        tables = tuple(super().expand(documents).values())
        return tables | "AllLevels" >> beam.Flatten() | "Rows" >> beam.ParDo(_RowsDoFn())


class _RowsDoFn(beam.DoFn):
    def process(self, table: GramTable) -> Iterator[Ngram]:
        yield from table.rows()


def _is_dry_run(pipeline: beam.Pipeline) -> bool:
    """Whether a remote job is only translated: then no file system is asked for anything. Local runners run."""
    remote = type(pipeline.runner).__name__ not in _LOCAL_RUNNERS
    return remote and bool(pipeline._options.view_as(TestOptions).dry_run)


def fresh_key(pipeline: beam.Pipeline) -> KeyReference:
    """A key for this run only, in a directory that goes with the process."""
    runner = type(pipeline.runner).__name__
    if runner not in _LOCAL_RUNNERS:
        raise ParameterError(
            f"noise_key must be given on {runner}: a file that every worker can read (file:gs://... is fine), "
            "env:NAME or gcp-secret:NAME."
        )
    directory = tempfile.mkdtemp(prefix="dpngram-")
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    return KeyReference("file", os.path.join(directory, secrets.token_hex(8) + ".key"))
