"""Finished rounds kept beside a run, so that a run that died can continue from them.

Privacy: a checkpoint is what a round has found out: S_k so far, or under `plus` a survey, with the noisy values of
cells that may still be released. Both are functions of noisy values that the plan's budget pays for. If a run
dies and is never finished, its checkpoints must be deleted or published: they were made with this budget. A checkpoint
begins with a MAC over its bytes, the content of the data, the settings, the round and the name of what the round went
on from, under the run's key: a run with another key, on other data or with other parameters stops instead of mixing two
releases, and so does one whose checkpoints do not follow from each other.

A run may also be several jobs one after another, each of which goes on from the checkpoints of those before
(`ExtractLevels.up_to`). Privacy: all jobs together are one run. They have the same binding, so the same verdict of the
gate, and noise under the same names; a round that has a checkpoint is not computed again. So what comes out is what one
job would give, from the same noisy values. Between two jobs, checkpoints are what they are during a job, and for the
same eyes.

A run that is refused (too many bad records) has no release, so it must leave no checkpoint either. It leaves none: a
round is computed, and its checkpoint sealed, with the binding, which exists only if the gate lets the run go on. Which
rounds are done, and how much each of them released, is nobody's business before the release is there: only the owner
can list the directory (0700, if it is made here) or read a file (0600).
"""

import contextlib
import dataclasses
import hmac
import itertools
import os
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import apache_beam as beam
from apache_beam.io.filesystem import BeamIOError
from apache_beam.io.filesystems import FileSystems

from dpngram.transforms.beam_workarounds import with_element_type
from dpngram.transforms.blocks.columns import Block
from dpngram.transforms.blocks.levels import Level
from dpngram.transforms.blocks.pieces import Piece, cut_block
from dpngram.transforms.blocks.surveys import Survey
from dpngram.transforms.blocks.users import Users
from dpngram.transforms.clip_and_weight import PayOnly, pay_late
from dpngram.transforms.context import ReleaseContext
from dpngram.transforms.keyed_dofn import KeyedDoFn, RoundDoFn
from dpngram.transforms.messages import Message
from dpngram.transforms.policies.base import RoundPolicy
from dpngram.transforms.randomness.noise_key import KeySource, NoiseKeyError, Randomness
from dpngram.transforms.whole_files import read_whole, write_whole

__all__ = ["Checkpoints", "EndDoFn", "MakeRound", "drop_checkpoints", "find_checkpoints", "is_checkpoint"]

_MAC_BYTES = 32
_NAME = re.compile(r"checkpoint-[0-9a-f]{16}-\d\d-\d\.block(\.[0-9a-f]{16}\.tmp)?")  # see `Checkpoints._path`
# From a round and its context to the transform that computes it: Users -> (Users, Piece).
MakeRound = Callable[[RoundPolicy, ReleaseContext], beam.PTransform]


class Checkpoints:
    """The checkpoints of one run in a directory.

    Args:
        directory: on any filesystem that Beam knows.
        settings: names everything that determines the release besides the data; runs with others have other files.
        rounds: of the run, level by level.
        look: whether to look, now, which checkpoints are there. If not, all rounds are computed.
    """

    def __init__(
        self, directory: str, settings: str, rounds: Sequence[Sequence[RoundPolicy]], *, look: bool = True
    ) -> None:
        self._directory, self._settings, self._rounds = directory, settings, rounds
        pattern = FileSystems.join(directory, "checkpoint-*.block")
        self._found = {file.path for file in FileSystems.match([pattern])[0].metadata_list} if look else set()

    def levels_done(self) -> int:
        """How many levels need not be computed again."""
        done = len(self._known())
        ends = [sum(len(level) for level in self._rounds[: n + 1]) for n in range(len(self._rounds))]
        return sum(end <= done for end in ends)

    def keeping(self, make_round: MakeRound, context: ReleaseContext) -> MakeRound:
        """The same rounds, each of which leaves a checkpoint; the first ones that have one are not computed again."""
        found: dict[tuple[int, int], beam.PCollection[Piece]] = {}
        before = None
        for n, rounds in itertools.groupby(self._known(), lambda known: known[0].n):
            known = list(rounds)
            found |= _load_level(n, known, before, context)
            before = known[-1][1]

        def make(policy: RoundPolicy, context: ReleaseContext) -> beam.PTransform:
            if (policy.n, policy.number) in found:
                return _ResumedRound(policy, context, found[policy.n, policy.number])
            return make_round(policy, dataclasses.replace(context, checkpoint=self._path(policy)))

        return make

    def _known(self) -> list[tuple[RoundPolicy, str]]:
        """The rounds that have a checkpoint, and so have all before them; with its path."""
        known = []
        for policy in [policy for level in self._rounds for policy in level]:
            path = self._path(policy)
            if path not in self._found:
                break
            known.append((policy, path))
        return known

    def _path(self, policy: RoundPolicy) -> str:
        name = f"checkpoint-{self._settings[:16]}-{policy.n:02d}-{policy.number + 1}.block"
        return str(FileSystems.join(self._directory, name))


def is_checkpoint(name: str) -> bool:
    """Whether a file of this name is a checkpoint, or was to become one."""
    return _NAME.fullmatch(name) is not None


def find_checkpoints(directory: str) -> list[str]:
    """The paths of all checkpoints in a directory, whole or not; none if there is no such directory."""
    matched = FileSystems.match([FileSystems.join(directory, "checkpoint-*")])[0].metadata_list
    return sorted(file.path for file in matched if is_checkpoint(FileSystems.split(file.path)[1]))


def drop_checkpoints(directory: str) -> None:
    """Deletes the checkpoints in a directory, and the directory if nothing is left in it.

    May run twice, or twice at the same time: what is gone already is no error.
    """
    for path in find_checkpoints(directory):
        try:
            FileSystems.delete([path])
        except BeamIOError:
            if FileSystems.exists(path):
                raise
    if FileSystems.get_scheme(directory) is None:
        with contextlib.suppress(OSError):  # it is gone, or something of somebody else's is in it
            os.rmdir(directory)


class EndDoFn(RoundDoFn):
    """The end of a round: what it has found out goes on in pieces, after its checkpoint is written, if it has one.

    So whatever reads the level, the end of the run among it, comes after its checkpoint. A step after the last file of
    the release can delete all checkpoints, and none appears later.
    """

    def __init__(self, policy: RoundPolicy, context: ReleaseContext) -> None:
        super().__init__(policy, context.randomness)
        self._checkpoint = context.checkpoint

    def hand_on(self, found: Any, binding: bytes, past: int) -> Iterator[Piece]:
        """Args: what was found; the binding; the name of what the round went on from."""
        if self._checkpoint is not None:
            data = found.to_bytes()
            seal = _seal(self._source, self._policy, binding, data, past)
            write_whole(self._checkpoint, seal + data, private=True)
        yield from cut_block(found)


def _seal(source: KeySource, policy: RoundPolicy, binding: bytes, data: bytes, past: int) -> bytes:
    """The MAC also names what the round went on from: a later checkpoint does not fit another earlier one."""
    return source.seal(f"checkpoint {policy.n} {policy.number} {past}", binding, data)


def _load_level(n: int, known: Sequence[tuple[RoundPolicy, str]], before: str | None, context: ReleaseContext) -> Any:
    """{(n, round): PCollection[Piece]}: what these rounds of a level have found out, read by one step.

    The step needs the binding alone. If each round waited for the one before, a graph with many rounds would have more
    paths than Flink's planner can follow. It starts by itself: what one step gives is held in memory on Flink, so not
    all levels come from one step.
    """
    load = beam.ParDo(_LoadDoFn(known, before, context.randomness), **context.sides("binding"))
    main, *others = [policy.label for policy, _ in known]
    loaded = (
        context.start.pipeline
        | f"StartLevel{n}" >> beam.Impulse()
        | f"LoadLevel{n}" >> load.with_outputs(*others, main=main)
    )
    return {(n, policy.number): with_element_type(loaded[policy.label], Piece) for policy, _ in known}


class _ResumedRound(beam.PTransform):
    """A round whose release is known. Users still pay for it, if the policy keeps budgets; the cells are not made."""

    def __init__(self, policy: RoundPolicy, context: ReleaseContext, found: beam.PCollection[Piece]) -> None:
        super().__init__()
        self._policy, self._context, self._found = policy, context, found

    def expand(self, users: beam.PCollection[Users]) -> Any:  # (PCollection[Users], PCollection[Piece])
        if self._policy.changes_users:
            users = users | "PayOnly" >> PayOnly(self._policy, self._context)
        return pay_late(users, self._policy, self._context), self._found


class _LoadDoFn(KeyedDoFn):
    """Privacy: each checkpoint must have a MAC that names the one before. The name is read from the file of that one,
    which has a MAC for the one before it, and so on: all of them are of one run, or the run stops.
    """

    def __init__(self, known: Sequence[tuple[RoundPolicy, str]], before: str | None, randomness: Randomness) -> None:
        super().__init__(randomness)
        self._known, self._before = list(known), before

    def process(self, _start: bytes, binding: bytes = b"") -> Iterator[Any]:
        previous = 0 if self._before is None else _name_in(self._before)
        earlier = 0  # the name of what the level has found out before
        for number, (policy, path) in enumerate(self._known):
            found: Any = self._open(policy, read_whole(path), binding, earlier or previous)
            if _is_read(self._known[number + 1 :]):
                for piece in cut_block(found):
                    yield beam.pvalue.TaggedOutput(policy.label, piece) if number else piece
            earlier = found.name

    def _open(self, policy: RoundPolicy, stored: bytes, binding: bytes, past: int) -> Block:
        mac, data = stored[:_MAC_BYTES], stored[_MAC_BYTES:]
        if not hmac.compare_digest(mac, _seal(self._source, policy, binding, data, past)):
            raise NoiseKeyError(Message.OTHER_CHECKPOINTS.format())
        found = Block.from_bytes(data)
        if not isinstance(found, Level | Survey) or not isinstance(found, type(policy.nothing)):
            raise NoiseKeyError(Message.OTHER_CHECKPOINTS.format())
        return found


def _name_in(path: str) -> int:
    """The name of S_{k-1} in its checkpoint. Another step looks at its MAC; here, a name that is wrong fits no MAC."""
    with contextlib.suppress(ValueError, AttributeError, TypeError):
        found: Any = Block.from_bytes(read_whole(path)[_MAC_BYTES:], ())
        return int(found.name)
    raise NoiseKeyError(Message.OTHER_CHECKPOINTS.format())  # not from the other error: a run says the last message


def _is_read(later: Sequence[tuple[RoundPolicy, str]]) -> bool:
    """Whether anybody reads what a round has found out, if the next rounds of its level are known: users who pay."""
    return not later or later[0][0].changes_users or later[0][0].charges_late
