"""--ledger and --budget: a release is entered in the ledger of its data before it runs."""

import argparse
import dataclasses
import hashlib
import json
from collections.abc import Callable
from typing import Any

from dpngram.accounting import ExtractionPlan, ParameterError
from dpngram.pipelines.io.ledger_file import Ledger
from dpngram.pipelines.launch.flags import Flag, Kind
from dpngram.transforms.randomness.noise_key import KeyReference, NoiseKeyError, Randomness, settings_digest

__all__ = ["Account", "ledger_flags", "open_account", "release_id"]


def ledger_flags() -> list[Flag]:
    return [
        Flag(
            "ledger",
            "file that adds up what all releases of this data set spend; a release is entered before it runs, and "
            "`dpngram ledger FILE` shows the sum",
            Kind.PATH,
            metavar="FILE",
        ),
        Flag(
            "budget",
            "EPSILON,DELTA for all releases in the --ledger together; one that would go beyond is refused before "
            "anything is read. The first budget is kept in the ledger",
            Kind.NUMBERS,
            metavar="EPSILON,DELTA",
        ),
    ]


@dataclasses.dataclass(frozen=True)
class Account:
    """The entry of one release in a ledger; without a ledger, nothing is done."""

    plan: ExtractionPlan
    ledger: Ledger | None = None
    release_id: Callable[[], str | None] = lambda: None  # asked each time: building the graph may make the key
    what: dict[str, str] = dataclasses.field(default_factory=dict)

    def check(self) -> None:
        """Raises ParameterError if the release would exceed the budget. Nothing is written."""
        if self.ledger is not None:
            self.ledger.check(self.plan, self.release_id())

    def enter(self) -> None:
        """Enters the release; call it before anything runs."""
        if self.ledger is not None:
            self.ledger.enter(self.plan, self.release_id(), **self.what)

    def show(self) -> None:
        """Prints the sum of the ledger."""
        if self.ledger is not None:
            print(self.ledger.summary())


def open_account(
    program: str,
    flags: argparse.Namespace,
    plan: ExtractionPlan,
    settings: dict[str, Any],
    *,
    local: bool,
    offline: bool = False,
    windows: bool = False,
    again: bool = False,
) -> Account:
    """The account of this run; raises ParameterError for flags that cannot be meant.

    Args:
        program: its name, for people who read the ledger.
        flags: with ledger, budget, noise_key, key_records, release and output.
        plan: of the release.
        settings: of the transform.
        local: whether the run takes place on this machine.
        offline: the job is only translated; no file is looked at, and nothing is entered.
        windows: there is a release for each window.
        again: the same key and label are another release this time.
    """
    if flags.ledger is None:
        if flags.budget is not None:
            raise ParameterError("--budget needs --ledger FILE, where releases are added up.")
        return Account(plan)
    if offline:
        return Account(plan)
    what = {"program": program, "release": flags.release, "output": flags.output}

    def named() -> str | None:
        key = (flags.noise_key, flags.key_records)
        return None if again else release_id(*key, flags.release, settings, remote=not local, windows=windows)

    return Account(plan, Ledger(flags.ledger, flags.budget), named, what)


def release_id(
    noise_key: str | None,
    key_records: str | None,
    release: str,
    settings: dict[str, Any],
    *,
    remote: bool,
    windows: bool = False,
) -> str | None:
    """A name that is the same for all runs of one release; None if two runs could be two releases.

    Args:
        noise_key, key_records, release: as they were given.
        settings: of the transform.
        remote: whether workers are on other machines.
        windows: whether it is a release for each window. The record of a key is for one window, so with the same key
            and label there may be a release of all data *and* one for each window.

    Privacy: with the same key, label and settings a run can only repeat its release, because the record of the key
    refuses other data. A fresh key, a key that nothing remembers, and one that only workers can read have no such
    record here, so every run is entered by itself: too much rather than too little. The name is a digest under a PRF of
    the key, and tells nothing without it.
    """
    if noise_key is None:
        return None
    key = KeyReference.parse(noise_key, key_records, remote=remote)
    if not key.is_remembered or key.scheme == "gcp-secret":
        return None
    try:
        source = Randomness(key, release, "ledger", settings_digest(settings)).open()
    except NoiseKeyError:
        return None  # there is no key yet, so no release either; or whoever runs the job says what is wrong
    parts = [
        "windows" if windows else "batch",
        source.name("ledger", release.encode()).hex(),
        settings_digest(settings),
    ]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:32]
