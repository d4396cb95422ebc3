"""What the journal knows of source files, and what it learns from the catalog's history."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from lakegate.model.base import Value
from lakegate.model.batch import SourceFile
from lakegate.model.run import KnownFile


class Claim(Value):
    """The answer to a claim: every file that was asked for is in exactly one of these.

    Attributes:
        claimed: Ours now.
        published: Published before in this very version, and by which run.
        busy: Another run that somebody is working on has claimed this version, or another one of the same path.
        changed: The path was published in another version, by this run; :class:`KnownFile` holds that version.
        free: Not claimed, though nothing stands in the way: others of the batch were busy.
    """

    claimed: tuple[SourceFile, ...] = ()
    published: tuple[KnownFile, ...] = ()
    busy: tuple[KnownFile, ...] = ()
    changed: tuple[KnownFile, ...] = ()
    free: tuple[SourceFile, ...] = ()


class HistoryEvent(Value):
    """What one commit says of runs.

    Attributes:
        commit: Its hash.
        run_id: The run that made it.
        tables: Tables it changed, as text.
        files: URI and version of each source file it published, to all of ``tables``.
        reverts: Runs whose rows it took from ``tables``.
        revives: Table, URI, version and run of each source file that it brought back: undone before, published again.
        time: When it was made; only used for runs that the journal has lost.
    """

    commit: str
    run_id: str
    tables: tuple[str, ...]
    files: tuple[tuple[str, str], ...] = ()
    reverts: tuple[str, ...] = ()
    revives: tuple[tuple[str, str, str, str], ...] = ()
    time: datetime | None = None


class Landing(Value):
    """What became of a file that was looked for in a folder, so that it is not taken up again and again.

    It spares reading the file; whether it is published already is what claims are for.

    Attributes:
        stamp: What told its state without reading it (size and time of last change, or an etag).
        outcome: ``done`` when nothing is left to do for it; ``rejected`` by an audit; ``failed`` for any other reason;
            ``parked`` when its run waits to be gone on with.
        tries: How often it was tried in this state.
        run_id: The run that was the last to try; ``None`` when it came to none.
        reason: Why it was not published, in one sentence.
    """

    uri: str
    stamp: str
    outcome: Literal["done", "rejected", "failed", "parked"]
    tries: int = 1
    run_id: str | None = None
    reason: str | None = None
    noted_at: datetime
