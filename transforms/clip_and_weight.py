"""ClipAndWeight: which distinct grams each user gives, and how much weight to each."""

from collections.abc import Iterator
from typing import Any

import apache_beam as beam

from dpngram.accounting import ParameterError
from dpngram.transforms.beam_workarounds import with_element_type
from dpngram.transforms.blocks.cells import CellBlock, split_cells, weighted_cells
from dpngram.transforms.blocks.levels import EMPTY_LEVEL
from dpngram.transforms.blocks.users import Users
from dpngram.transforms.context import ReleaseContext
from dpngram.transforms.keyed_dofn import RoundDoFn
from dpngram.transforms.messages import Message
from dpngram.transforms.policies.base import RoundPolicy
from dpngram.transforms.randomness.noise_key import Randomness
from dpngram.transforms.randomness.prf import Prf

__all__ = ["ClipAndWeight", "PayOnly", "pay_late", "weigh_users"]

_CELLS, _USERS = "cells", "users"


class ClipAndWeight(beam.PTransform):
    """Users -> (users, (shard, CellBlock)): the weighted grams of each block of users; `SumCells` adds them up.

    Level 1 takes UserBlocks, later levels the CandidateBlocks of `ValidityFilter`. The users that come out are those
    that went in, with what this round took from their budgets, if the policy keeps budgets; rounds that charge late are
    paid for by `pay_late`.

    Privacy: a user is in one block, and the policy bounds what a user gives, see `RoundPolicy`, promises 1 and 2. Under
    `paper` a user gives t <= Delta_k grams floor(2^32/sqrt(t)) each, so the user's vector has L2 norm at most 1,
    exactly. Under `plus` a user pays for every weight from one budget (policies/budgets.py), so all vectors of a user
    together have norm at most 1. Nothing is released here. Windowing: kept.

    Args:
        policy: the round.
        context: the key, and what earlier rounds of this level have released.
    """

    def __init__(self, policy: RoundPolicy, context: ReleaseContext) -> None:
        super().__init__()
        if policy.changes_users and context.public_vocabulary:
            raise ParameterError(
                f"policy {policy.plan.policy} cannot be used with a public vocabulary: its users bring what is left of "
                "their budgets from level 1. Policy paper can."
            )
        self._policy, self._context = policy, context

    def expand(self, users: beam.PCollection[Users]) -> Any:  # (PCollection[Users], PCollection[(int, CellBlock)])
        weighed = users | "Weigh" >> beam.ParDo(
            _WeighDoFn(self._policy, self._context.randomness, self._context.shards),
            **self._context.sides("binding", "earlier"),
        ).with_outputs(_USERS, main=_CELLS)
        cells = with_element_type(weighed[_CELLS], beam.typehints.Tuple[int, CellBlock])
        after = with_element_type(weighed[_USERS], Users)
        return after if self._policy.changes_users else users, cells


class PayOnly(beam.PTransform):
    """Users -> users: those of `ClipAndWeight`, where the cells are not wanted: what the round has found is known.

    Privacy: users pay what they paid when the round was computed. The step is a function of the same users, the same
    key and what earlier rounds have found.

    Args:
        policy: a round that changes its users.
        context: as for `ClipAndWeight`.
    """

    def __init__(self, policy: RoundPolicy, context: ReleaseContext) -> None:
        super().__init__()
        self._policy, self._context = policy, context

    def expand(self, users: beam.PCollection[Users]) -> beam.PCollection[Users]:
        pay = _PayDoFn(self._policy, self._context.randomness)
        sides = self._context.sides("binding", "earlier")
        return users | beam.ParDo(pay, **sides).with_output_types(Users)


def weigh_users(users: Users, earlier: Any, policy: RoundPolicy, clip: Prf) -> tuple[CellBlock, Users]:
    """The cells of one block of users, and the users after they paid for them.

    Args:
        users: one block.
        earlier: what earlier rounds of this level have found out.
        policy: the round.
        clip: the keyed function for choosing among a user's grams.
    """
    allowed = policy.allow(users) if policy.number == 0 else users
    candidates = policy.candidates(allowed, earlier)
    weight, paid = policy.weigh(allowed, candidates, clip, earlier)
    if paid is not None and not policy.changes_users:
        raise ValueError(Message.USERS_NOT_HANDED_ON.format())
    return weighted_cells(candidates, weight), allowed if paid is None else paid


def pay_late(users: beam.PCollection[Users], policy: RoundPolicy, context: ReleaseContext) -> beam.PCollection[Users]:
    """The users after a round that charges them when the level is over, see `RoundPolicy.pay`.

    Privacy: whoever has the users of the next level must have them from here. A block without a survey is an error:
    nobody passes without paying. The last level of the graph has no next one, and nothing to pay for.
    """
    if not policy.charges_late or policy.n == (context.last or policy.plan.max_n):
        return users
    return users | "Pay" >> beam.Map(_pay, policy=policy, **context.sides("earlier")).with_output_types(Users)


def _pay(users: Users, policy: RoundPolicy, earlier: Any) -> Users:
    return policy.pay(users, earlier)


class _PayDoFn(RoundDoFn):
    def process(
        self, users: Users, window: Any = beam.DoFn.WindowParam, binding: bytes = b"", earlier: Any = EMPTY_LEVEL
    ) -> Iterator[Users]:
        yield weigh_users(users, earlier, self._policy, self.draws(window, binding)("clip"))[1]


class _WeighDoFn(RoundDoFn):
    def __init__(self, policy: RoundPolicy, randomness: Randomness, shards: int) -> None:
        super().__init__(policy, randomness)
        self._shards = shards

    def process(
        self, users: Users, window: Any = beam.DoFn.WindowParam, binding: bytes = b"", earlier: Any = EMPTY_LEVEL
    ) -> Iterator[Any]:
        cells, after = weigh_users(users, earlier, self._policy, self.draws(window, binding)("clip"))
        if len(cells):
            yield from split_cells(cells, self._shards)
        if self._policy.changes_users:
            yield beam.pvalue.TaggedOutput(_USERS, after)
