"""Finished rounds kept beside a run, so that a run that died can continue from them.

Privacy: a checkpoint is what a round has found out: S_k so far, or under `plus` a survey, with the noisy values of
cells that may still be released. Both are functions of noisy values that the plan's budget pays for. If a run
dies and is never finished, its checkpoints must be deleted or published: they were made with this budget. A checkpoint
begins with a MAC over its bytes, the content of the data, the settings and the round, under the run's key: a run with
another key, on other data or with other parameters stops instead of mixing two releases.

A run that is refused (too many bad records) has no release, so it must leave no checkpoint either. It leaves none: a
round is computed, and its checkpoint sealed, with the binding, which exists only if the gate lets the run go on. Which
rounds are done, and how much each of them released, is nobody's business before the release is there: only the owner
can list the directory (0700, if it is made here) or read a file (0600).
"""

import contextlib
import hmac
import os
import re
from collections.abc import Callable, Iterator
from typing import Any

import apache_beam as beam
from apache_beam.io.filesystem import BeamIOError
from apache_beam.io.filesystems import FileSystems

from dpngram.transforms.beam_workarounds import as_whole
from dpngram.transforms.blocks.columns import Block
from dpngram.transforms.blocks.levels import EMPTY_LEVEL, Level
from dpngram.transforms.blocks.pieces import Piece, cut_block
from dpngram.transforms.blocks.surveys import Survey
from dpngram.transforms.blocks.users import Users
from dpngram.transforms.clip_and_weight import ClipAndWeight, pay_late
from dpngram.transforms.context import ReleaseContext
from dpngram.transforms.keyed_dofn import RoundDoFn
from dpngram.transforms.messages import Message
from dpngram.transforms.policies.base import RoundPolicy
from dpngram.transforms.randomness.noise_key import NoiseKeyError, Randomness
from dpngram.transforms.whole_files import read_whole, write_whole

__all__ = ["Checkpoints", "MakeRound", "drop_checkpoints", "find_checkpoints", "is_checkpoint"]

_MAC_BYTES = 32
_NAME = re.compile(r"checkpoint-[0-9a-f]{16}-\d\d-\d\.block(\.[0-9a-f]{16}\.tmp)?")  # see `Checkpoints._path`
# From a round and its context to the transform that computes it: Users -> (Users, Piece).
MakeRound = Callable[[RoundPolicy, ReleaseContext], beam.PTransform]


class Checkpoints:
    """The checkpoints of one run in a directory.

    Args:
        directory: on any filesystem that Beam knows.
        settings: names everything that determines the release besides the data; runs with others have other files.
        look: whether to look, now, which checkpoints are there. If not, all rounds are computed.
    """

    def __init__(self, directory: str, settings: str, *, look: bool = True) -> None:
        self._directory, self._settings = directory, settings
        pattern = FileSystems.join(directory, "checkpoint-*.block")
        self._found = {file.path for file in FileSystems.match([pattern])[0].metadata_list} if look else set()

    def keeping(self, make_round: MakeRound) -> MakeRound:
        """The same rounds, each of which leaves a checkpoint; those that have one already are not computed again."""

        def make(policy: RoundPolicy, context: ReleaseContext) -> beam.PTransform:
            path = self._path(policy)
            if path in self._found:
                return _ResumedRound(policy, context, path)
            return _KeptRound(make_round(policy, context), policy, context, path)

        return make

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


class _KeptRound(beam.PTransform):
    """A round that writes down what it released.

    The level goes through the step that writes: what reads the level, the end of the run among them, comes after its
    checkpoint. So a step after the last file of the release can delete all checkpoints, and none appears later.
    """

    def __init__(self, round_: beam.PTransform, policy: RoundPolicy, context: ReleaseContext, path: str) -> None:
        super().__init__()
        self._round, self._policy, self._context, self._path = round_, policy, context, path

    def expand(self, users: beam.PCollection[Users]) -> Any:  # (PCollection[Users], PCollection[Piece])
        users, level = self._round.expand(users)
        save = _SaveDoFn(self._policy, self._context.randomness, self._path)
        sides = self._context.sides("binding", "previous", "earlier")
        keep = beam.ParDo(save, found=as_whole(level, "Done"), **sides).with_output_types(Piece)
        return users, self._context.start | "Checkpoint" >> keep


class _ResumedRound(beam.PTransform):
    """A round whose release is known. Users still pay for it, if the policy keeps budgets; the cells are not read."""

    def __init__(self, policy: RoundPolicy, context: ReleaseContext, path: str) -> None:
        super().__init__()
        self._policy, self._context, self._path = policy, context, path

    def expand(self, users: beam.PCollection[Users]) -> Any:  # (PCollection[Users], PCollection[Piece])
        if self._policy.changes_users:
            users, _ = users | "ClipAndWeight" >> ClipAndWeight(self._policy, self._context)
        users = pay_late(users, self._policy, self._context)
        load = _LoadDoFn(self._policy, self._context.randomness, self._path)
        sides = self._context.sides("binding", "previous", "earlier")
        found = (
            users.pipeline | "Start" >> beam.Impulse() | "Load" >> beam.ParDo(load, **sides).with_output_types(Piece)
        )
        return users, found


class _CheckpointDoFn(RoundDoFn):
    def __init__(self, policy: RoundPolicy, randomness: Randomness, path: str) -> None:
        super().__init__(policy, randomness)
        self._path = path

    def seal(self, binding: bytes, data: bytes, past: int) -> bytes:
        """The MAC also names what the round went on from: a later checkpoint does not fit another earlier one."""
        return self._source.seal(f"checkpoint {self._policy.n} {self._policy.number} {past}", binding, data)


class _LoadDoFn(_CheckpointDoFn):
    def process(
        self, _start: bytes, binding: bytes = b"", previous: Level = EMPTY_LEVEL, earlier: Any = EMPTY_LEVEL
    ) -> Iterator[Piece]:
        stored = read_whole(self._path)
        mac, data = stored[:_MAC_BYTES], stored[_MAC_BYTES:]
        if not hmac.compare_digest(mac, self.seal(binding, data, earlier.name or previous.name)):
            raise NoiseKeyError(Message.OTHER_CHECKPOINTS.format())
        found = Block.from_bytes(data)
        if not isinstance(found, Level | Survey) or not isinstance(found, type(self._policy.nothing)):
            raise NoiseKeyError(Message.OTHER_CHECKPOINTS.format())
        yield from cut_block(found)


class _SaveDoFn(_CheckpointDoFn):
    def process(
        self,
        _start: bytes,
        found: Any = EMPTY_LEVEL,
        binding: bytes = b"",
        previous: Level = EMPTY_LEVEL,
        earlier: Any = EMPTY_LEVEL,
    ) -> Iterator[Piece]:
        data = found.to_bytes()
        write_whole(self._path, self.seal(binding, data, earlier.name or previous.name) + data, private=True)
        yield from cut_block(found)
