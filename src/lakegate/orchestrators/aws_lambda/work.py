"""The work of one call: the files of one bucket, taken in by chunks for as long as there is time."""

from __future__ import annotations

import logging
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, Protocol

from lakegate.config import Settings
from lakegate.errors import (
    ConfigurationError,
    EngineError,
    IdentifierError,
    LakegateError,
    OutcomeUnknownError,
    RetryableError,
)
from lakegate.flow.deadline import Deadline, DeadlineReachedError
from lakegate.intake.rounds import Chunk, Intake, Round, Told
from lakegate.intake.routes import Routes
from lakegate.model.journal import Landing

if TYPE_CHECKING:
    from lakegate.lake import Lake

Outcome = Literal["published", "rejected", "failed", "left out", "not done"]
"""``left out``: no route leads it anywhere, or it is not there any more."""

_LOG = logging.getLogger(__name__)
_NAME = re.compile(r"\{[^{}]*\}")
_TROUBLES = 2
"""After so many in a row it is not the files' fault, and the rest would fare no better."""
_NO_TIME = "There was no time left for it."


class Lakes(Protocol):
    """Who keeps the lake open.

    Attributes:
        settings: The settings.
        is_warm: Whether its connections are of an earlier call.
    """

    settings: Settings
    is_warm: bool

    @property
    def lake(self) -> Lake:
        """The lake."""
        ...

    def reopen(self) -> Lake:
        """Return it with new connections."""
        ...

    def close(self) -> None:
        """Give up the connections."""
        ...


@dataclass(frozen=True, slots=True)
class Fate:
    """What became of a file in this call.

    Attributes:
        outcome: In one word.
        is_done: Whether its message is; else it has to come again.
        reason: Why, where it is not plain.
    """

    outcome: Outcome
    is_done: bool
    reason: str | None = None
    table: str | None = None
    run_id: str | None = None


def take_in(lakes: Lakes, bucket: str, files: Mapping[str, Told | None], deadline: Deadline) -> Mapping[str, Fate]:
    """Take in files of one bucket; return by URI what became of each.

    Args:
        lakes: Who keeps the lake open.
        bucket: The bucket.
        files: URIs of objects, and what is known of how they were told of.
        deadline: When to stop.

    Raises:
        InputError: When the routes are wrong.
    """
    patterns = [_absolute(pattern, bucket) for pattern in lakes.settings.watch.routes or ()]
    tables, fates = _routed(Routes(patterns), files)
    if not tables:
        return fates
    work = _Work(lakes, patterns, {uri: told for uri, told in files.items() if told is not None}, deadline)
    work.run(list(tables))
    return fates | work.fates(tables)


def _absolute(pattern: str, bucket: str) -> str:
    """Return a route of a bucket: one that names no place of its own is of any bucket that events come from."""
    route, arrow, target = pattern.partition("=>")
    place = route if "://" in route else f"s3://{bucket}/{route.strip().lstrip('/')}"
    return f"{place} {arrow} {target}".strip()


def _routed(routes: Routes, files: Mapping[str, object]) -> tuple[dict[str, str], dict[str, Fate]]:
    tables: dict[str, str] = {}
    fates: dict[str, Fate] = {}
    for uri in files:
        try:
            table = routes.table(uri)
        except IdentifierError as error:
            fates[uri] = Fate("left out", is_done=True, reason=error.message)
            continue
        if table is None:
            fates[uri] = Fate("left out", is_done=True, reason="No route leads it to a table.")
        else:
            tables[uri] = table
    return tables, fates


class _Work:
    def __init__(self, lakes: Lakes, patterns: Sequence[str], told: Mapping[str, Told], deadline: Deadline) -> None:
        watch = lakes.settings.watch
        self._lakes = lakes
        self._deadline = deadline
        self._troubles = 0
        self._unreadable: dict[str, str] = {}
        self._stopped_by: str | None = None
        self._noted: set[str] = set()
        self._intake = Intake(
            lakes.lake,
            [_NAME.sub("*", pattern.partition("=>")[0].strip()) for pattern in patterns],
            Routes(patterns),
            settle_s=0.0,
            max_files=watch.max_files,
            max_bytes=watch.max_bytes,
            max_tries=watch.max_tries,
            told=told,
        )

    def run(self, uris: Sequence[str]) -> None:
        """Take in what there is to take, until all is done or the time is over."""
        try:
            self._run(uris)
        except LakegateError as error:
            self._stopped_by = error.message
            _LOG.warning("Stopped: %s", error.message, extra={"facts": {"code": error.code, "hint": error.hint}})
        if self._troubles:
            self._lakes.close()

    def fates(self, tables: Mapping[str, str]) -> dict[str, Fate]:
        """Return what became of each of the files that ``tables`` leads to a table."""
        by_table = defaultdict[str, list[str]](list)
        for uri, table in tables.items():
            by_table[table].append(uri)
        fates: dict[str, Fate] = {}
        for table, uris in by_table.items():
            try:
                known = self._intake.lake.landings(table, uris)
            except RetryableError as error:
                fates |= {uri: Fate("not done", is_done=False, reason=error.message, table=table) for uri in uris}
            else:
                fates |= {uri: self._fate(table, uri, known.get(uri)) for uri in uris}
        return fates

    def _run(self, uris: Sequence[str]) -> None:
        look_at = uris
        while not self._deadline.is_over:
            found = self._look(look_at)
            if not found.chunks:
                return
            for chunk in found.chunks:
                if not self._deadline.is_over:
                    self._take(chunk)
            look_at = uris if found.more else ()
        self._stopped_by = _NO_TIME

    def _look(self, uris: Sequence[str]) -> Round:
        try:
            return self._intake.look(uris)
        except (RetryableError, ConfigurationError):
            raise
        except LakegateError:
            # One that cannot even be looked at stops no other.
            return self._intake.look([uri for uri in uris if self._is_readable(uri)])

    def _is_readable(self, uri: str) -> bool:
        try:
            list(self._intake.lake.list_files([uri]))
        except (RetryableError, ConfigurationError):
            raise
        except LakegateError as error:
            self._unreadable[uri] = error.message
            return False
        return True

    def _take(self, chunk: Chunk) -> None:
        try:
            self._intake.take(chunk, timeout_s=self._deadline.left_s)
            self._troubles = 0
        except DeadlineReachedError:
            return
        except (RetryableError, OutcomeUnknownError) as error:
            if not self._lakes.is_warm:
                self._meet(error)
                return
            # A function sleeps between its calls, and what it was connected to may have gone meanwhile.
            self._intake.lake = self._lakes.reopen()
            self._take(self._parked(chunk))
        finally:
            self._noted.update(landing.uri for landing in self._intake.noted if landing.outcome != "parked")

    def _parked(self, chunk: Chunk) -> Chunk:
        """Return the chunk as it was just left: with the run that was begun with it."""
        runs = [landing.run_id for landing in self._intake.noted if landing.outcome == "parked"]
        return replace(chunk, run_id=runs[0]) if runs else chunk

    def _meet(self, error: LakegateError) -> None:
        """Go on with others after trouble with some files, unless nobody would fare better."""
        _LOG.warning(error.message, extra={"facts": {"code": error.code, "hint": error.hint}})
        if isinstance(error, EngineError):
            return
        self._troubles += 1
        if self._troubles == _TROUBLES:
            raise error

    def _fate(self, table: str, uri: str, landing: Landing | None) -> Fate:
        if uri in self._unreadable:
            return Fate("failed", is_done=False, reason=self._unreadable[uri], table=table)
        run_id = None if landing is None else landing.run_id
        reason = None if landing is None else landing.reason
        if self._is_put_off(uri):
            if landing is not None and landing.outcome == "failed" and uri in self._noted:
                return Fate("failed", is_done=False, reason=reason, table=table, run_id=run_id)
            why = self._stopped_by or (reason if run_id is not None else None) or "Another run is at it."
            return Fate("not done", is_done=False, reason=why, table=table, run_id=run_id)
        if landing is not None and landing.outcome == "done":
            return Fate("published", is_done=True, reason=reason, table=table, run_id=run_id)
        if landing is None:
            return Fate("left out", is_done=True, reason="It is not there any more.", table=table)
        rejected = landing.outcome == "rejected"
        return Fate("rejected" if rejected else "failed", is_done=rejected, reason=reason, table=table, run_id=run_id)

    def _is_put_off(self, uri: str) -> bool:
        """Tell whether the file is to be tried again, or was not come to, so that what is known of it may be old."""
        return uri in self._intake.pending or (self._stopped_by is not None and uri not in self._noted)
