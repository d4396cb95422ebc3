"""Points in a lake's history as people type them: a commit hash or a prefix of one, a tag, a time, ``10m ago``."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from itertools import islice

from lakegate.errors import ConfigurationError, IdentifierError, InputError, NotFoundError
from lakegate.model.identifiers import is_commit_hash, validate_ref_name
from lakegate.model.refs import MAIN, Ref
from lakegate.model.words import did_you_mean, moment, parse_duration
from lakegate.ports import Catalog, CommitIndex

_HASH_PREFIX = re.compile(r"[0-9a-f]{6,63}")
_UNIQUE_DIGITS = 12
"""A prefix this long is assumed to be unique. Messages print this many digits."""
_HASH_DIGITS = 64
"""Length of Nessie's hashes."""
_MOST_COMMITS = 20_000
_MOST_MATCHES = 10
_AGO = re.compile(
    r"(?P<number>\d+|an?(?=\s))\s*(?P<unit>s|m|h|d|w)(?:ec(?:ond)?s?|in(?:ute)?s?|(?:ou)?rs?|ays?|eeks?)?(?P<ago>\s+ago)?",
    re.IGNORECASE,
)
_MOST_OLDER = 1_000
"""After this many older commits in a row, a commit isn't looked for any further."""
_CLOCK_SKEW = timedelta(minutes=1)
"""How far the clocks of this machine and of those that commit may be apart."""
_DAYS_BACK = {"now": 0, "yesterday": 1}


def parse_at(at: str | datetime | None, *, now: datetime | None = None) -> str | datetime | None:
    """Return ``at`` as an aware time or, if it isn't a time, the text, which must then name a commit or a tag.

    Args:
        at: A time in ISO 8601 (UTC unless it has a zone), a time ago (``10m ago``, ``2 hours ago``, ``yesterday``: 24
            hours ago), or other text.
        now: The time to count back from. Default: this machine's clock.

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
            raise _not_a_point(at)
        ago = _ago(text)
        if ago is not None:
            try:
                return (now or datetime.now(UTC)) - ago
            except OverflowError:
                raise _not_a_point(at) from None
        try:
            at = datetime.fromisoformat(text)
        except ValueError:
            return text
    when = at if at.tzinfo is not None else at.replace(tzinfo=UTC)
    try:
        when.astimezone(UTC)
    except OverflowError:  # in UTC, it's in the year 0 or 10000
        raise _not_a_point(str(at)) from None
    return when


def resolve(catalog: Catalog, ref: str, at: str | datetime | None = None, *, index: CommitIndex | None = None) -> Ref:
    """Return the commit that ``ref`` points to, or pointed to at ``at``.

    Args:
        ref: Branch, tag, commit, or a prefix of a commit's hash (6 digits or more).
        at: A time, a tag, a commit or a prefix of its hash; see :func:`parse_at`. Default: now.
        index: All commits of ``main`` up to its head. Without it, the history is read.

    Returns:
        The ref at its head. With ``at``, a pinned commit, of the kind ``detached``.

    Raises:
        NotFoundError: There's no such ref, commit, tag or time.
        InputError: ``at`` isn't a time, tag or commit, is in the future, or isn't in the history of ``ref``. Or a
            prefix matches several commits.
    """
    when, ref = parse_at(at), expand_hash(catalog, ref, index=index)
    if isinstance(when, datetime):
        _require_past(when)
        newest = index.at(ref, when) if index is not None and ref == MAIN else None
        if newest is not None:
            return Ref(name=ref, hash=newest, kind="detached")
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
            hint=f"To use it anyway, pass {when} instead of '{ref}'.",
            ref=ref,
            at=when,
        )
    return found


def find(catalog: Catalog, name: str, *, index: CommitIndex | None = None) -> Ref:
    """Return a branch, a tag, or the commit whose hash starts with ``name``. Raises what :func:`resolve` does."""
    try:
        return catalog.get_ref(name)
    except NotFoundError as error:
        commit = _commit_with_prefix(catalog, name, (MAIN,), index) if _HASH_PREFIX.fullmatch(name) else None
        if commit is None:
            if is_commit_hash(name):
                raise
            raise unknown_ref(catalog, name) from error
        return Ref(name=commit, hash=commit, kind="detached")


def is_hash_prefix(text: str) -> bool:
    """Return whether ``text`` may be a prefix of a commit's hash."""
    return _HASH_PREFIX.fullmatch(text) is not None


def expand_hash(catalog: Catalog, ref: str, *, index: CommitIndex | None = None) -> str:
    """Return ``ref`` or, if it's a prefix of a commit's hash, that hash. Raises what :func:`resolve` does."""
    return find(catalog, ref, index=index).name if _HASH_PREFIX.fullmatch(ref) else ref


def unknown_table(catalog: Catalog, table: str, ref: Ref) -> NotFoundError:
    """Return the error for a table that doesn't exist, with a similar name."""
    there = (str(pointer.table) for pointer in catalog.list_tables(ref))
    shown = ref.name if ref.kind != "detached" or ref.name != ref.hash else ref.hash[:_UNIQUE_DIGITS]
    return NotFoundError(
        f"Table {table} doesn't exist on {shown}.",
        hint=f"{did_you_mean(table, there)}To see the tables there: lakegate table list --ref {shown}",
        table=table,
        ref=ref.name,
    )


def unknown_ref(catalog: Catalog, name: str) -> NotFoundError:
    """Return the error for a branch or tag that doesn't exist, with a similar name."""
    there = (ref.name for ref in catalog.list_refs())
    return NotFoundError(
        f"Branch or tag '{name}' doesn't exist.",
        hint=f"{did_you_mean(name, there)}To see all: lakegate branch, lakegate tag",
        ref=name,
    )


def require_branch(ref: Ref) -> None:
    """Raise an :class:`InputError` if ``ref`` is a tag or a commit."""
    if ref.kind != "branch":
        raise InputError(
            f"'{ref.name}' is a {'tag' if ref.kind == 'tag' else 'commit'}, not a branch.",
            hint="To see the branches: lakegate branch list",
            ref=ref.name,
        )


def _require_past(when: datetime) -> None:
    now = datetime.now(UTC)
    if when - now > _CLOCK_SKEW:
        raise InputError(
            f"{moment(when)} is in the future: it's {moment(now)} now.",
            hint="A time without a zone is UTC. To use another zone, append it: 2026-01-31T07:00:00+01:00.",
            at=when.isoformat(),
        )


def _is_in_history(catalog: Catalog, ref: str, commit: str, index: CommitIndex | None) -> bool:
    """Return whether ``commit`` is in the history of ``ref``. Reads few commits beyond those made around that time."""
    entry = next(iter(catalog.history(commit)), None)
    if entry is None or catalog.get_ref(ref).hash == commit:
        return True  # the root of all histories, or the head
    if index is not None and ref == MAIN:
        return False  # or :func:`resolve` would have found it in the index
    try:
        newest = catalog.resolve(ref, entry.time + _CLOCK_SKEW)
    except NotFoundError:
        return False
    older = 0  # a later commit may have an earlier time: the catalog's clock may go back
    for one in catalog.history(newest.hash):
        if one.hash == commit:
            return True
        older = older + 1 if one.time < entry.time - _CLOCK_SKEW else 0
        if older == _MOST_OLDER:
            return False
    return False


def _ago(text: str) -> timedelta | None:
    if text.lower() in _DAYS_BACK:
        return timedelta(days=_DAYS_BACK[text.lower()])
    found = None if _HASH_PREFIX.fullmatch(text) else _AGO.fullmatch(text)  # 123456d is a commit, not 338 years
    if found is None:
        return None
    number = found["number"] if found["number"].isdecimal() else "1"
    try:
        return parse_duration(f"{number}{found['unit'].lower()}")
    except (ConfigurationError, OverflowError):
        raise _not_a_point(text) from None


def _commit(catalog: Catalog, ref: str, text: str, index: CommitIndex | None) -> str:
    if len(text) == _HASH_DIGITS and is_commit_hash(text):
        return text
    found = _tag(catalog, text)
    if found is None and _HASH_PREFIX.fullmatch(text):
        found = _commit_with_prefix(catalog, text, tuple(dict.fromkeys((ref, MAIN))), index)
    if found is None and not is_commit_hash(text):
        raise _not_a_point(text)
    return found or text


def _tag(catalog: Catalog, name: str) -> str | None:
    try:
        ref = catalog.get_ref(validate_ref_name(name))
    except (IdentifierError, NotFoundError):
        return None
    if ref.kind == "branch":
        raise InputError(
            f"'{name}' is a branch, not a point in time.",
            hint=f"To use its newest state, pass it as the ref: --ref {name}",
            ref=name,
        )
    return ref.hash


def _commit_with_prefix(catalog: Catalog, prefix: str, refs: Sequence[str], index: CommitIndex | None) -> str | None:
    """Return the hash of the recent commit of ``refs`` that starts with ``prefix``; ``None`` if there's none."""
    found = set() if index is None else set(index.with_prefix(MAIN, prefix, limit=_MOST_MATCHES))
    for ref in refs if index is None else [one for one in refs if one != MAIN]:
        for commit in islice(catalog.history(ref), _MOST_COMMITS):
            if index is not None and index.has(MAIN, commit.hash):
                break  # from here on, it's the history of main
            if commit.hash.startswith(prefix):
                if len(prefix) >= _UNIQUE_DIGITS:
                    return commit.hash
                found.add(commit.hash)
    if len(found) > 1 and len(prefix) < _UNIQUE_DIGITS:
        raise InputError(
            f"{len(found)} commits start with '{prefix}'.",
            hint=f"Add digits to say which one: {', '.join(sorted(one[:16] for one in found)[:5])}",
            at=prefix,
        )
    return next(iter(found), None)


def _not_a_point(at: str) -> InputError:
    return InputError(
        f"'{at}' is neither a time, nor a tag, nor a commit.",
        hint="Write a time as 2026-01-31T07:00:00Z, 2026-01-31, '10m ago' or yesterday; `lakegate log` shows commits.",
        at=at,
    )
