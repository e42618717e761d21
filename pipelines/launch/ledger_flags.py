"""--ledger and --budget: a release is entered in the ledger of its data before it runs."""

import argparse
import dataclasses
import hashlib
import json
from collections.abc import Callable
from typing import Any

from apache_beam.transforms.window import GlobalWindow

from dpngram.accounting import ExtractionPlan, ParameterError
from dpngram.pipelines.io.ledger_file import Ledger, ReleaseName
from dpngram.pipelines.launch.flags import Flag, Kind
from dpngram.transforms.randomness.key_records import RecordUnreadableError
from dpngram.transforms.randomness.noise_key import KeyReference, NoiseKeyError, Randomness, settings_digest
from dpngram.transforms.windowing import window_name

__all__ = ["EXTRACT_LABEL", "Account", "ledger_flags", "name_release", "open_account", "unit_of"]

EXTRACT_LABEL = "ExtractNgrams"  # of the transform, in the graphs of all programs: the record of a key names it


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
    name: Callable[[], ReleaseName | None] = lambda: None  # asked each time: building the graph may make the key
    unit: str = "user"
    what: dict[str, str] = dataclasses.field(default_factory=dict)

    def check(self) -> None:
        """Raises ParameterError if the release would exceed the budget. Nothing is written."""
        if self.ledger is not None:
            self.ledger.check(self.plan, self.name(), unit=self.unit)

    def enter(self) -> None:
        """Enters the release; call it before anything runs."""
        if self.ledger is not None:
            self.ledger.enter(self.plan, self.name(), unit=self.unit, **self.what)

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

    def name() -> ReleaseName | None:
        key = (flags.noise_key, flags.key_records)
        return None if again else name_release(*key, flags.release, settings, remote=not local, windows=windows)

    return Account(plan, Ledger(flags.ledger, flags.budget), name, unit_of(settings), what)


def unit_of(settings: dict[str, Any]) -> str:
    """What is protected: a user, or a document by itself."""
    return "document" if settings["user_per_document"] else "user"


def name_release(
    noise_key: str | None,
    key_records: str | None,
    release: str,
    settings: dict[str, Any],
    *,
    remote: bool,
    windows: bool = False,
) -> ReleaseName | None:
    """A name that is the same for all runs of one release; None if two runs could be two releases.

    Args:
        noise_key, key_records, release: as they were given.
        settings: of the transform.
        remote: whether workers are on other machines.
        windows: whether it is a release for each window. The record of a key is for one window, so with the same key
            and label there may be a release of all data *and* one for each window.

    Privacy: with the same key, label and settings a run can only repeat its release, if a record of the key refuses
    other data. So whether a run may be a repetition is decided by looking for that record now, where its workers will
    look. A container that is new each time may have the key and not the record. A fresh key, a key that nothing
    remembers, and one that only workers can read have no such record here, so every run is entered by itself: too much
    rather than too little. The name is a digest under a PRF of the key, and tells nothing without it.
    """
    if noise_key is None:
        return None
    key = KeyReference.parse(noise_key, key_records, remote=remote)
    if not key.is_remembered or key.scheme == "gcp-secret":
        return None
    try:
        source = Randomness(key, release, EXTRACT_LABEL, settings_digest(settings)).open()
        repeats = source.refuses_others(None if windows else window_name(GlobalWindow()))
    except (NoiseKeyError, RecordUnreadableError):
        return None  # there is no key yet, so no release either; or whoever runs the job says what is wrong
    parts = [
        "windows" if windows else "batch",
        source.name("ledger", release.encode()).hex(),
        settings_digest(settings),
    ]
    return ReleaseName(hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:32], repeats)
