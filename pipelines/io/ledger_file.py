"""A ledger: what all releases of one data set have spent, in a file that only grows.

A release is entered before it runs, and counts whether or not it succeeds: its noise may have been seen. The file has
one JSON object a line. Each line has a digest of itself and of the line before it, so a line that was changed, moved or
taken out is noticed. How long the file was is remembered in the state directory of this machine as well, so lines that
were cut off its end, or a file that was deleted, are noticed where it was written.

This protects against mistakes. It does not protect against somebody who can write the file and computes the digests
again: the operator's own files are the operator's.

Privacy: a ledger has no figure of the data. It tells which releases were made, when, and where they are, so only its
owner may read it (mode 0600), and it may not be in the output.
"""

import contextlib
import dataclasses
import fcntl
import hashlib
import json
import os
import stat
from collections.abc import Iterator, Sequence
from datetime import datetime, timezone
from typing import Any, NamedTuple

from apache_beam.io.filesystems import FileSystems

from dpngram.accounting import (
    Budget,
    ExtractionPlan,
    ParameterError,
    Spending,
    composed_epsilon,
    fits_budget,
    spending_of,
)
from dpngram.accounting.parameters import check_choice
from dpngram.transforms.randomness.key_records import state_directory

__all__ = ["Entry", "Ledger", "ReleaseName"]

_FORMAT = 1
_UNITS = ("user", "document")
_START = "0" * 64  # what stands for the digest of the line before the first


class ReleaseName(NamedTuple):
    """Which release a run makes.

    Args:
        id: the same for all runs of one release.
        repeats: whether a run with this id that is in the ledger can only be repeated now, since something refuses
            other data. Otherwise this run is another release, whatever its id.
    """

    id: str
    repeats: bool


@dataclasses.dataclass(frozen=True, kw_only=True)
class Entry:
    """One release.

    Args:
        id: names the release: the same for all runs of one release, which are resumed or repeated with its key.
        spending: what it costs.
        time: when it was entered, in UTC, as ISO 8601 writes it.
        unit: what it protects: "user" or "document".
        what: the program, the release label, the output and the policy, for people.
    """

    id: str
    spending: Spending
    time: str
    unit: str
    what: dict[str, str]


class Ledger:
    """The releases of one data set, and their sum.

        ledger = dpngram.Ledger("users.ledger", budget=(8, 1e-6))
        ledger.enter(plan, release="2026-11")     # raises ParameterError if the budget would be exceeded
        print(ledger.summary())

    Args:
        path: of the file, on a local filesystem. It is made when the first release is entered.
        budget: (epsilon, delta) for all releases together. It is given with the first release, kept in the file, and
            holds from then on, also where none is given; a later one, or another, is refused.
    """

    def __init__(self, path: str, budget: Sequence[float] | None = None) -> None:
        if not isinstance(path, (str, os.PathLike)) or not os.fspath(path):
            raise ParameterError(f"ledger must be the path of a file, got {path!r:.80}.")
        path = str(os.fspath(path))
        if FileSystems.get_scheme(path) is not None:
            raise ParameterError(f"ledger must be a file on a local filesystem, which can be locked, got {path!r}.")
        self.path = os.path.realpath(path)
        self._budget = None if budget is None else _check_budget(budget)

    def read(self) -> tuple[list[Entry], Budget | None]:
        """All releases in the file, and the budget that it keeps; raises ParameterError if it is not as it was."""
        if not os.path.exists(self.path):
            try:
                self._check_head([_START])
                return [], None
            except ParameterError:
                if not os.path.exists(self.path):  # else another process has just made it
                    raise
        with self._locked(write=False) as file:
            return self._parse(file.read())[:2]

    def check(self, plan: ExtractionPlan, name: ReleaseName | None = None, *, unit: str = "user") -> None:
        """Raises ParameterError if this release would exceed the budget. Nothing is written."""
        self._refuse(*self.read(), plan, name, unit)

    def enter(self, plan: ExtractionPlan, name: ReleaseName | None = None, *, unit: str = "user", **what: str) -> None:
        """Enters a release, before it runs; returns when the entry is on the disk.

        Args:
            plan: of the release.
            name: which release it is. One that is in the ledger, and can only be repeated, is not entered again.
                None: a new one.
            unit: what the release protects: "user", or "document" where each document is protected by itself. The two
                do not add up, so a ledger has one of them.
            what: words for people, such as release="2026-11".

        Raises:
            ParameterError: if the budget would be exceeded, or the file cannot be used. Nothing is written then.
        """
        with self._locked(write=True) as file:
            content = file.read()
            entries, kept, digest, whole = self._parse(content)
            self._refuse(entries, kept, plan, name, unit)
            lines: list[dict[str, Any]] = []
            if self._budget is not None and kept is None:
                lines.append({"kind": "budget", "time": _now(), **dataclasses.asdict(self._budget)})
            if not _is_entered(name, entries):
                is_first = name is not None and name.id not in [entry.id for entry in entries]
                lines.append(
                    {
                        "kind": "release",
                        "id": name.id if name is not None and is_first else os.urandom(16).hex(),
                        "time": _now(),
                        "unit": unit,
                        **dataclasses.asdict(spending_of(plan)),
                        "what": {"policy": plan.policy, **what},
                    }
                )
            written = b""
            count = len(content[:whole].splitlines())
            for fields in lines:
                line, digest = _seal({"line": (count := count + 1), "format": _FORMAT, **fields}, digest)
                written += line
            if written:
                file.truncate(whole)  # of a crash: what was not written whole was never used
                file.seek(whole)
                file.write(written)
                file.flush()
                os.fsync(file.fileno())
                _sync_directory(os.path.dirname(self.path))
            self._keep_head(count, digest)

    def summary(self, delta: float | None = None) -> str:
        """One line: how many releases there are, and what they have spent together.

        Args:
            delta: at which epsilon is stated; default: that of the budget, else the sum of the deltas.
        """
        entries, kept = self.read()
        return summarise(self.path, entries, kept or self._budget, delta)

    def _refuse(
        self, entries: list[Entry], kept: Budget | None, plan: ExtractionPlan, name: ReleaseName | None, unit: str
    ) -> None:
        check_choice("unit", unit, _UNITS)
        if entries and entries[0].unit != unit:
            raise ParameterError(
                f"unit must be {entries[0].unit!r}, which the releases in the ledger {self.path} protect, got "
                f"{unit!r}: epsilon and delta for users and for documents do not add up."
            )
        if self._budget is not None and kept is None and entries:
            raise ParameterError(
                f"budget must be given with the first release of a ledger, and {self.path} has "
                f"{_releases(len(entries))}: a budget that follows results is none."
            )
        if kept is not None and self._budget is not None and kept != self._budget:
            raise ParameterError(
                f"budget must be {kept.epsilon:g},{kept.delta:g}, which the ledger {self.path} keeps, got "
                f"{self._budget.epsilon:g},{self._budget.delta:g}; a budget that follows results is none."
            )
        budget = kept or self._budget
        if budget is None or _is_entered(name, entries):
            return
        spent = [entry.spending for entry in entries]
        if not fits_budget([*spent, spending_of(plan)], budget):
            before = composed_epsilon(spent, budget.delta)
            raise ParameterError(
                f"epsilon and delta must fit the budget ({budget.epsilon:g}, {budget.delta:g}) of the ledger "
                f"{self.path}, got ({plan.epsilon:g}, {plan.delta:g}); {_releases(len(spent))} spent "
                f"({_up(before)}, {budget.delta:g}). Nothing was read."
            )

    @contextlib.contextmanager
    def _locked(self, *, write: bool) -> Iterator[Any]:
        """The open file, which no other process changes meanwhile."""
        flags = os.O_RDWR | os.O_CREAT if write else os.O_RDONLY
        try:
            while True:
                descriptor = os.open(self.path, flags | os.O_CLOEXEC, stat.S_IRUSR | stat.S_IWUSR)
                file = os.fdopen(descriptor, "r+b" if write else "rb")
                fcntl.flock(descriptor, fcntl.LOCK_EX if write else fcntl.LOCK_SH)
                if os.path.exists(self.path) and os.path.samestat(os.fstat(descriptor), os.stat(self.path)):
                    break
                file.close()  # somebody put another file in its place
        except OSError as error:
            raise ParameterError(
                f"ledger must be a file that can be read{' and written' if write else ''}, got {self.path!r} "
                f"({error.strerror})."
            ) from None
        with file:  # closing it gives up the lock
            yield file

    def _parse(self, content: bytes) -> tuple[list[Entry], Budget | None, str, int]:
        """Releases, budget, the digest of the last line, and how many bytes are whole lines."""
        entries: list[Entry] = []
        budget = None
        digest, whole = _START, 0
        digests = [digest]
        for number, line in enumerate(content.splitlines(keepends=True), 1):
            try:
                fields = json.loads(line)
                sealed, next_digest = _seal({name: value for name, value in fields.items() if name != "sha256"}, digest)
                if line.rstrip(b"\n") != sealed.rstrip(b"\n") or fields["line"] != number:
                    raise ValueError
                if fields["kind"] == "budget" and budget is None:
                    budget = Budget(epsilon=fields["epsilon"], delta=fields["delta"])
                elif fields["kind"] == "release" and fields["format"] == _FORMAT:
                    entries.append(_entry(fields))
                else:
                    raise ValueError
            except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
                if whole + len(line) == len(content) and not line.endswith(b"\n"):
                    break  # a process died while it wrote this line, before its release was run
                raise ParameterError(
                    f"ledger {self.path} must be as it was written, but line {number} was changed, or lines before it "
                    "are missing; put the file back as it was."
                ) from None
            whole += len(line)
            digest = next_digest
            digests.append(digest)
            if not line.endswith(b"\n"):
                raise ParameterError(f"ledger {self.path} must end with a line end; its last line was changed.")
        self._check_head(digests)
        return entries, budget, digest, whole

    def _head_path(self) -> str | None:
        state = state_directory()
        name = hashlib.sha256(self.path.encode()).hexdigest()[:32]
        return None if state is None else os.path.join(os.path.dirname(state), "ledgers", name + ".json")

    def _check_head(self, digests: list[str]) -> None:
        """Raises ParameterError if the file was longer, or another, when it was last used on this machine."""
        path = self._head_path()
        if path is None or not os.path.exists(path):
            return
        try:
            with open(path, encoding="utf-8") as file:
                head = json.load(file)
            lines, digest = int(head["lines"]), head["sha256"]
        except (OSError, ValueError, LookupError, TypeError):
            raise ParameterError(f"ledger: the note about {self.path} in {path} cannot be read; delete it.") from None
        if len(digests) <= lines or digests[lines] != digest:
            raise ParameterError(
                f"ledger {self.path} must have the {lines} line(s) that it had before; some are missing or changed, so "
                f"put the file back as it was. To begin a ledger of other data under this name, delete {path}."
            )

    def _keep_head(self, lines: int, digest: str) -> None:
        path = self._head_path()
        if path is None:
            return
        with contextlib.suppress(OSError):  # the file itself is what counts
            os.makedirs(os.path.dirname(path), stat.S_IRWXU, exist_ok=True)
            temporary = f"{path}.{os.urandom(8).hex()}.tmp"
            with open(os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "w", encoding="utf-8") as file:
                json.dump({"ledger": self.path, "lines": lines, "sha256": digest}, file)
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, path)


def summarise(path: str, entries: Sequence[Entry], budget: Budget | None, delta: float | None = None) -> str:
    """One line about these releases, see `Ledger.summary`."""
    if not entries:
        return f"Ledger {path}: no release yet."
    spent = [entry.spending for entry in entries]
    if delta is None:
        delta = min(sum(one.delta for one in spent), 0.99) if budget is None else budget.delta
    epsilon = composed_epsilon(spent, delta)
    line = f"Ledger {path}: {_releases(len(spent))}, together ({_up(epsilon)}, {delta:g})-differentially private"
    if epsilon == float("inf"):
        line = f"Ledger {path}: {_releases(len(spent))}, for which no epsilon can be stated at delta {delta:g}"
    if budget:
        return f"{line}; the budget is ({budget.epsilon:g}, {budget.delta:g})."
    return f"{line}." if len(spent) == 1 else f"{line}, if no plan was chosen after looking at results."


def _is_entered(name: ReleaseName | None, entries: Sequence[Entry]) -> bool:
    """Whether this run can only repeat a release that is in the ledger."""
    return name is not None and name.repeats and name.id in [entry.id for entry in entries]


def _up(epsilon: float) -> str:
    """Four digits, rounded up."""
    shown = float(f"{epsilon:.4g}")
    return f"{shown if shown >= epsilon else float(f'{epsilon * 1.0005:.4g}'):.4g}"


def _releases(number: int) -> str:
    return f"{number} release{'' if number == 1 else 's'}"


def _check_budget(budget: Sequence[float]) -> Budget:
    if not isinstance(budget, (list, tuple)) or len(budget) != 2:
        raise ParameterError(f"budget must be two numbers, EPSILON,DELTA, got {budget!r:.60}.")
    return Budget(epsilon=budget[0], delta=budget[1])


def _seal(fields: dict[str, Any], before: str) -> tuple[bytes, str]:
    """The line, and its digest."""
    digest = hashlib.sha256((before + json.dumps(fields)).encode()).hexdigest()
    return (json.dumps({**fields, "sha256": digest}) + "\n").encode(), digest


def _entry(fields: dict[str, Any]) -> Entry:
    spending = Spending(**{field.name: fields[field.name] for field in dataclasses.fields(Spending)})
    what = {str(name): str(value) for name, value in fields["what"].items()}
    unit = check_choice("unit", fields["unit"], _UNITS)
    return Entry(id=str(fields["id"]), spending=spending, time=str(fields["time"]), unit=unit, what=what)


def _now() -> str:
    return datetime.now(timezone.utc).isoformat(timespec="seconds")


def _sync_directory(directory: str) -> None:
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
