"""Points in a lake's history as people type them: the beginning of a commit's hash, a tag, a time, ``10m ago``."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from itertools import islice, takewhile

from lakegate.errors import ConfigurationError, IdentifierError, InputError, NotFoundError
from lakegate.model.figures import moment
from lakegate.model.identifiers import is_commit_hash, validate_ref_name
from lakegate.model.refs import Ref
from lakegate.model.words import did_you_mean, parse_duration
from lakegate.ports import Catalog, CommitIndex

MAIN = "main"
_BEGINNING = re.compile(r"[0-9a-f]{6,63}")
_UNMISTAKABLE = 12
"""From so many digits on, the first commit that begins with them is taken: so many are printed in messages."""
_WHOLE = 64
"""Digits of Nessie's hashes."""
_LOOKED_THROUGH = 20_000
_SHOWN = 10
_AGO = re.compile(
    r"(?P<number>\d+|an?)\s*(?P<unit>s|m|h|d|w)(?:ec(?:ond)?s?|in(?:ute)?s?|(?:ou)?rs?|ays?|eeks?)?(?P<ago>\s+ago)?",
    re.IGNORECASE,
)
_CLOCKS_DIFFER = timedelta(minutes=1)
"""By how much the times of commits, and this machine's, may be out of order."""
_DAYS_BACK = {"now": 0, "yesterday": 1}


def parse_at(at: str | datetime | None, *, now: datetime | None = None) -> str | datetime | None:
    """Return the aware time that ``at`` is, or the text of what must be a commit or a tag.

    Args:
        at: A time in ISO 8601 (UTC unless it has a zone), so long ago (``10m ago``, ``2 hours ago``, ``yesterday``:
            24 hours ago), or something else.
        now: The time to count back from; default: this machine's clock.

    Example:
        >>> noon = datetime(2026, 1, 31, 12, tzinfo=UTC)
        >>> parse_at("2026-01-31T07:00:00Z").isoformat(), parse_at("10m ago", now=noon).isoformat()
        ('2026-01-31T07:00:00+00:00', '2026-01-31T11:50:00+00:00')
        >>> parse_at("january-close"), parse_at("2e1cfa82b035")
        ('january-close', '2e1cfa82b035')
    """
    if at is None:
        return None
    if isinstance(at, str):
        text = at.strip()
        if not text:
            raise _neither(at)
        ago = _ago(text)
        if ago is not None:
            try:
                return (now or datetime.now(UTC)) - ago
            except OverflowError:
                raise _neither(at) from None
        try:
            at = datetime.fromisoformat(text)
        except ValueError:
            return text
    return at if at.tzinfo is not None else at.replace(tzinfo=UTC)


def resolve(catalog: Catalog, ref: str, at: str | datetime | None = None, *, index: CommitIndex | None = None) -> Ref:
    """Return what ``ref`` is, or was at ``at``.

    Args:
        ref: Branch, tag, commit, or the beginning of a commit's hash (6 digits or more).
        at: A time, a tag, a commit or the beginning of its hash; see :func:`parse_at`. Default: now.
        index: All commits of ``main`` up to its head; without it, its history is read.

    Returns:
        The reference at its head; with ``at``, a pinned commit, whose kind is ``detached``.

    Raises:
        NotFoundError: There's no such ref, commit, tag or time.
        InputError: ``at`` is nothing that could be one, is in the future or not in the history of ``ref``, or more than
            one commit begins with what was given.
    """
    when, ref = parse_at(at), completed(catalog, ref, index=index)
    if isinstance(when, datetime):
        _require_past(when)
        made = index.at(ref, when) if index is not None and ref == MAIN else None
        if made is not None:
            return Ref(name=ref, hash=made, kind="detached")
    commit = _commit(catalog, ref, when, index) if isinstance(when, str) else None
    if commit is not None and index is not None and ref == MAIN and index.has(ref, commit):
        return Ref(name=ref, hash=commit, kind="detached")
    try:
        found = catalog.resolve(ref, when if commit is None else commit)
    except NotFoundError:
        if is_commit_hash(ref) or any(one.name == ref for one in catalog.list_refs()):
            raise
        raise unknown_ref(catalog, ref) from None
    if isinstance(when, str) and not _is_in_history(catalog, ref, found.hash, index):
        what = f"Commit {found.hash[:12]}" if found.hash.startswith(when) else f"Tag '{when}'"
        raise InputError(
            f"{what} isn't in the history of '{ref}'.",
            hint=f"To use it nevertheless, give {when} in place of '{ref}'.",
            ref=ref,
            at=when,
        )
    return found


def find(catalog: Catalog, name: str, *, index: CommitIndex | None = None) -> Ref:
    """Return a branch, a tag, or the commit whose hash begins with ``name``. Raises what :func:`resolve` does."""
    try:
        return catalog.get_ref(name)
    except NotFoundError as error:
        commit = _beginning_with(catalog, name, (MAIN,), index) if _BEGINNING.fullmatch(name) else None
        if commit is None:
            if is_commit_hash(name):
                raise
            raise unknown_ref(catalog, name) from error
        return Ref(name=commit, hash=commit, kind="detached")


def is_beginning(text: str) -> bool:
    """Return whether ``text`` may be the beginning of a commit's hash."""
    return _BEGINNING.fullmatch(text) is not None


def completed(catalog: Catalog, ref: str, *, index: CommitIndex | None = None) -> str:
    """Return ``ref``, or the whole hash of the commit that begins with it. Raises what :func:`resolve` does."""
    return find(catalog, ref, index=index).name if _BEGINNING.fullmatch(ref) else ref


def unknown_table(catalog: Catalog, table: str, ref: Ref) -> NotFoundError:
    """Return the error for a table that isn't there, with the name that was probably meant."""
    there = (str(pointer.table) for pointer in catalog.list_tables(ref))
    shown = ref.name if ref.kind != "detached" or ref.name != ref.hash else ref.hash[:_UNMISTAKABLE]
    return NotFoundError(
        f"Table {table} doesn't exist on {shown}.",
        hint=f"{did_you_mean(table, there)}To see the tables there: lakegate table list --ref {shown}",
        table=table,
        ref=ref.name,
    )


def unknown_ref(catalog: Catalog, name: str) -> NotFoundError:
    """Return the error for a branch or tag that doesn't exist, with the name that was probably meant."""
    there = (ref.name for ref in catalog.list_refs())
    return NotFoundError(
        f"Branch or tag '{name}' doesn't exist.",
        hint=f"{did_you_mean(name, there)}To see all: lakegate branch, lakegate tag",
        ref=name,
    )


def _require_past(when: datetime) -> None:
    now = datetime.now(UTC)
    if when - now > _CLOCKS_DIFFER:
        raise InputError(
            f"{moment(when)} is in the future: it's {moment(now)} now.",
            hint="A time without a zone is UTC; to give another one, append it: 2026-01-31T07:00:00+01:00.",
            at=when.isoformat(),
        )


def _is_in_history(catalog: Catalog, ref: str, commit: str, index: CommitIndex | None) -> bool:
    """Return whether ``commit`` is in the history of ``ref``, of which only what was made about then is read."""
    made = next(iter(catalog.history(commit)), None)
    if made is None or catalog.get_ref(ref).hash == commit:
        return True  # the beginning of all histories, or the head
    if index is not None and ref == MAIN:
        return False  # it isn't one of them, or :func:`resolve` had found it
    try:
        newest = catalog.resolve(ref, made.time + _CLOCKS_DIFFER)
    except NotFoundError:
        return False
    about_then = takewhile(lambda one: one.time >= made.time - _CLOCKS_DIFFER, catalog.history(newest.hash))
    return any(one.hash == commit for one in about_then)


def _ago(text: str) -> timedelta | None:
    if text.lower() in _DAYS_BACK:
        return timedelta(days=_DAYS_BACK[text.lower()])
    found = None if _BEGINNING.fullmatch(text) else _AGO.fullmatch(text)  # 123456d is a commit, not 338 years
    if found is None:
        return None
    number = found["number"] if found["number"].isdecimal() else "1"
    try:
        return parse_duration(f"{number}{found['unit'].lower()}")
    except (ConfigurationError, OverflowError):
        raise _neither(text) from None


def _commit(catalog: Catalog, ref: str, text: str, index: CommitIndex | None) -> str:
    if len(text) == _WHOLE and is_commit_hash(text):
        return text
    found = _tag(catalog, text)
    if found is None and _BEGINNING.fullmatch(text):
        found = _beginning_with(catalog, text, tuple(dict.fromkeys((ref, MAIN))), index)
    if found is None and not is_commit_hash(text):
        raise _neither(text)
    return found or text


def _tag(catalog: Catalog, name: str) -> str | None:
    try:
        ref = catalog.get_ref(validate_ref_name(name))
    except (IdentifierError, NotFoundError):
        return None
    if ref.kind == "branch":
        raise InputError(
            f"'{name}' is a branch, not a point in time.",
            hint=f"To use its newest state, name it instead of the other branch: --ref {name}",
            ref=name,
        )
    return ref.hash


def _beginning_with(catalog: Catalog, beginning: str, refs: Sequence[str], index: CommitIndex | None) -> str | None:
    """Return the hash of the commit in the newest history of ``refs`` that begins so."""
    found = set() if index is None else set(index.beginning(MAIN, beginning, limit=_SHOWN))
    for ref in refs if index is None else [one for one in refs if one != MAIN]:
        for commit in islice(catalog.history(ref), _LOOKED_THROUGH):
            if index is not None and index.has(MAIN, commit.hash):
                break  # from here on, it's the history of main
            if commit.hash.startswith(beginning):
                if len(beginning) >= _UNMISTAKABLE:
                    return commit.hash
                found.add(commit.hash)
    if len(found) > 1 and len(beginning) < _UNMISTAKABLE:
        raise InputError(
            f"{len(found)} commits begin with '{beginning}'.",
            hint=f"Write one more digit of the one that you mean: {', '.join(sorted(one[:16] for one in found)[:5])}",
            at=beginning,
        )
    return next(iter(found), None)


def _neither(at: str) -> InputError:
    return InputError(
        f"'{at}' is neither a time, nor a tag, nor a commit.",
        hint="Write a time as 2026-01-31T07:00:00Z, 2026-01-31, '10m ago' or yesterday; `lakegate log` shows commits.",
        at=at,
    )
