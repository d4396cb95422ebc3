"""Source files that a run left out, and whose they are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from lakegate.cli.render.console import safe, say
from lakegate.cli.render.text import counted
from lakegate.errors import LakegateError, NotFoundError

if TYPE_CHECKING:
    from lakegate.lake import Lake
    from lakegate.model.run import KnownFile, Run

Statuses = Mapping[str, str | None]
"""How runs stand, by their id; ``None`` when that cannot be told. Ones that are missing here are published."""
NO_STATUSES: Statuses = {}
_ON_MAIN = ("published", "reverted")
_SHOWN = 5


def skipped_payload(files: Sequence[KnownFile]) -> list[dict[str, Any]]:
    """Return files of other runs for machines."""
    return [{"file": known.file.uri, "run_id": known.run_id} for known in files]


def statuses_of(lake: Lake, files: Sequence[KnownFile]) -> Statuses:
    """Ask the journal how the runs stand that have these files."""
    return {run_id: _status(lake, run_id) for run_id in _owners(files)}


def _status(lake: Lake, run_id: str) -> str | None:
    try:
        return lake.run(run_id).status
    except NotFoundError:
        # A journal that was lost knows files from main's history, whose runs were published.
        return "published"
    except LakegateError:
        # This comes after the fact: it must not make a failure of an ingest that went well.
        return None


def told_skipped(run: Run, statuses: Statuses) -> str:
    """Return why nothing was left for the run to do."""
    owners = list(_owners(run.skipped_files))
    if len(owners) == 1:
        return f"already {_whose(owners[0], statuses)}"
    return f"nothing left to do: {len(run.skipped_files):,} files are with {len(owners)} other runs"


def show_skipped(run: Run, statuses: Statuses) -> None:
    """Print how many of the run's files were left out, by the run that has them."""
    if not run.skipped_files:
        return
    uris = {known.file.uri for known in run.skipped_files}
    given = uris | set(run.request.batch.uris if run.request else ())
    owners = _owners(run.skipped_files)
    for run_id, number in owners.most_common(_SHOWN):
        say(f"  [yellow]{number:,} of {counted(len(given), 'file')} skipped[/]: {safe(_whose(run_id, statuses))}")
    if len(owners) > _SHOWN:
        say(f"  [dim]… {counted(len(uris), 'file')} of {len(owners)} runs in all; --output json lists them[/]")


def _owners(files: Sequence[KnownFile]) -> Counter[str]:
    return Counter(known.run_id for known in files)


def _whose(run_id: str, statuses: Statuses) -> str:
    status = statuses.get(run_id, "published")
    if status is None:
        return f"with run {run_id}"
    return f"published by run {run_id}" if status in _ON_MAIN else f"left to run {run_id}, which is {status}"
