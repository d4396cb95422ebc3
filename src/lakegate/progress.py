"""Progress for programs (nothing, or JSON lines), the run that log lines belong to, and removing secrets from text."""

from __future__ import annotations

import logging
import math
import re
import sys
from collections import deque
from collections.abc import Collection, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from contextvars import ContextVar
from decimal import Decimal
from time import monotonic
from typing import TYPE_CHECKING, Any, TextIO

if TYPE_CHECKING:
    from lakegate.model.run import Run
    from lakegate.ports import Step

FIELDS = ("timestamp", "level", "event", "command", "version", "run_id", "table", "branch", "step", "seconds")
"""The fields of every line, in this order; ``null`` if unknown."""
PROGRESS_EVERY_S = 10.0
"""Minimum seconds between two progress lines of a step."""

SHORTEST_SECRET = 4
"""Characters. Hiding shorter ones would make every text unreadable."""
_SECRETS: deque[str] = deque(maxlen=256)  # access tokens come and go
_TOKEN = re.compile(r"(;\s*token=)[^;&]*", re.IGNORECASE)
_USER_INFO = re.compile(r"(?<=://)[^/@\s]+@")
_NAMES = (
    r"(?:token|password|passfile|secret|signature|credential|(?:account|access|api|secret)[._-]?key|\bsig"
    r"|(?:account\.key|client\.secret|fixed\.token)[\w.]{0,120})"
)
"""Names of values that may be secrets in other programs' texts. Hadoop appends an Azure account's address to some."""
_MAYBE_SECRET = re.compile(rf"({_NAMES}=|\bbearer\s+(?=\S{{16}}))[^;&\s'\"]+", re.IGNORECASE)
_PARSER_ERRORS = "".join(
    rf"(?<!\b{word} token)" for word in ("unexpected", "invalid", "illegal", "unknown", "unrecognized", "extraneous")
)
"""Excludes parser errors such as "unexpected token: 'x'", unless the value is as long as a secret."""
_MAYBE_QUOTED = re.compile(
    _NAMES
    + r"(?:(?:\\{0,15}['\"])?\s{0,8}=|(?:\\{0,15}['\"]|"
    + _PARSER_ERRORS
    + r"|(?=\s{0,8}:\s{0,8}['\"][^\s'\"]{16}))\s{0,8}:)"
    + r"\s{0,8}(?P<escapes>\\{0,15})(?P<quote>['\"])(?!env:)",
    re.IGNORECASE,
)
_QUOTE_OR_END = re.compile(r"['\"\n]|\Z")
_ABOUT: ContextVar[Mapping[str, object]] = ContextVar("lakegate_about", default={})  # noqa: B039 - never changed in place

# As usual for libraries: a program that hasn't set up logging sees none of ours.
logging.getLogger("lakegate").addHandler(logging.NullHandler())


@contextmanager
def bound(**facts: object) -> Iterator[None]:
    """Add ``facts``, such as ``run_id``, ``table``, ``branch`` and ``step``, to every log line of the body.

    Other threads add them, too, if they run in a copy of the context (:func:`contextvars.copy_context`).

    Example:
        >>> with bound(run_id="r1"), bound(step="write"):
        ...     dict(about())
        {'run_id': 'r1', 'step': 'write'}
    """
    token = _ABOUT.set({**_ABOUT.get(), **facts})
    try:
        yield
    finally:
        # If the block ends in another thread than it started in, there's nothing to reset.
        with suppress(ValueError):
            _ABOUT.reset(token)


def bound_to(run: Run, **facts: object) -> AbstractContextManager[None]:
    """Add the run's id, tables (comma-separated) and branch, and ``facts``, to every log line of the body."""
    return bound(run_id=run.run_id, table=", ".join(run.tables) or None, branch=run.branch or None, **facts)


def about() -> Mapping[str, object]:
    """Return the facts that apply here, from :func:`bound`."""
    return _ABOUT.get()


def redact(text: str) -> str:
    """Return an address without its secrets.

    Example:
        >>> redact("sc://user:pw@host:15002/;token=abc;user_id=me")
        'sc://…@host:15002/;token=…;user_id=me'
    """
    return _USER_INFO.sub("…@", _TOKEN.sub(r"\1…", text))


def hide(secret: str) -> None:
    """Keep a secret out of every line from now on, unless it's shorter than four characters."""
    if len(secret) >= SHORTEST_SECRET and secret not in _SECRETS:
        _SECRETS.append(secret)


def without_secrets(text: str, more: Collection[str] = ()) -> str:
    """Return another program's text without known secrets (and ``more``) or anything that looks like one.

    Example:
        >>> without_secrets("GET https://host/a?X-Amz-Signature=0f3a failed")
        'GET https://host/a?X-Amz-Signature=… failed'
    """
    # Longest first: if one is part of another, the rest of the other must not stay.
    for secret in sorted({*_SECRETS, *more}, key=len, reverse=True):
        text = text.replace(secret, "…")
    kept: list[str] = []
    at = 0
    while found := _MAYBE_QUOTED.search(text, at):
        start, at = found.end(), _end_of_quoted(text, found.end(), found["quote"], len(found["escapes"]))
        kept += text[found.pos : start], "…" if at > start else ""
    return _MAYBE_SECRET.sub(r"\1…", redact("".join((*kept, text[at:]))))


def _end_of_quoted(text: str, start: int, quote: str, escapes: int) -> int:
    """Return where a quoted value ends. With ``escapes`` backslashes before its quote, it may be JSON inside JSON.

    A value that is cut off ends with its line.
    """
    at = start
    while (found := _QUOTE_OR_END.search(text, at)) and found.group() not in {"\n", ""}:
        at = found.end()
        if found.group() == quote:
            before = at - 1
            while before > start and text[before - 1] == "\\":
                before -= 1
            slashes = at - 1 - before
            # Fewer end the enclosing text. More are the value's own backslashes, or an escaped quote in it.
            if slashes < escapes or slashes % (2 * escapes + 2) == escapes:
                return at - 1 - min(slashes, escapes)
    return found.start() if found else len(text)


def one_line(value: object) -> str:
    r"""Return ``value`` on one line, with invisible characters escaped: they could control a terminal, or hide text.

    Example:
        >>> print(one_line("a\nb\x1b[31m\u202ec"))
        a\nb\x1b[31m\u202ec
        >>> one_line(Decimal("0.00000000"))
        '0.00000000'
    """
    text = f"{value:f}" if isinstance(value, Decimal) else str(value)  # not 0E-8
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)


class _SilentStep:
    def progress(self, done: int, total: int, unit: str) -> None:
        pass


class SilentNarrator:
    """A :class:`lakegate.ports.Narrator` that shows nothing. The default of the Python API."""

    @contextmanager
    def step(self, text: str) -> Iterator[Step]:  # noqa: ARG002 - that is the point
        """Run the body."""
        yield _SilentStep()

    def note(self, text: str) -> None:
        """Show nothing."""


class LogNarrator:
    """A :class:`lakegate.ports.Narrator` that writes one JSON object per line, with :data:`FIELDS` and more.

    A step writes a line when it starts, one when it ends, and progress at most every :data:`PROGRESS_EVERY_S` seconds.
    Threads may share it: each line has the facts of its own thread (:func:`bound`). Secrets are left out. A stream that
    fails doesn't stop the work.

    Args:
        stream: Where to write. Default: standard error.
        level: The lowest level to write, by its name in :mod:`logging`, such as ``info`` or ``warning``.
        hidden: Secrets that are never written, in addition to those that lakegate reads itself.
        **facts: Fields of every line, such as ``command``.

    Example:
        >>> import io, json
        >>> stream = io.StringIO()
        >>> with bound(run_id="r1"):
        ...     LogNarrator(stream, command="nightly").note("Branch wap/x was kept.")
        >>> line = json.loads(stream.getvalue())
        >>> line["event"], line["run_id"], line["command"], line["table"]
        ('Branch wap/x was kept.', 'r1', 'nightly', None)
    """

    def __init__(
        self, stream: TextIO | None = None, *, level: str = "info", hidden: Collection[str] = (), **facts: object
    ) -> None:
        import structlog

        from lakegate import __version__

        self._facts: dict[str, object] = {"version": __version__, **facts}
        self._hidden = tuple(text for text in hidden if text)
        stream = stream or sys.stderr
        self._log: Any = structlog.wrap_logger(
            # Without standard error, structlog would write to standard output.
            structlog.ReturnLogger() if stream is None else structlog.WriteLogger(stream),
            processors=[
                structlog.processors.add_log_level,
                structlog.processors.TimeStamper(fmt="iso", utc=True),
                self._complete,
                structlog.processors.JSONRenderer(),
            ],
            wrapper_class=structlog.make_filtering_bound_logger(level),
        )

    @contextmanager
    def step(self, text: str) -> Iterator[Step]:
        """Write when ``text`` starts, and when it ends or fails, with its duration."""
        began = monotonic()
        self.line(logging.INFO, text, state="began")
        try:
            yield _LogStep(self, text, began)
        except BaseException as error:
            self.line(logging.WARNING, text, state="failed", seconds=_since(began), error=type(error).__name__)
            raise
        self.line(logging.INFO, text, state="done", seconds=_since(began))

    def note(self, text: str) -> None:
        """Write something that has happened."""
        self.line(logging.INFO, text)

    def line(self, level: int, event: str, **facts: object) -> None:
        """Write one line.

        Args:
            level: A level of :mod:`logging`.
            **facts: Fields to add, which override those of :func:`bound`.
        """
        with suppress(OSError, ValueError):
            self._log.log(_known_level(level), event, **{**self._facts, **about(), **facts})

    def handler(self) -> logging.Handler:
        """Return a handler that writes the records of :mod:`logging` as lines, too.

        lakegate logs how runs end below the logger ``lakegate``, at ``INFO`` and above.
        """
        return _LogHandler(self)

    def _complete(self, _logger: object, _method: str, line: Mapping[str, Any]) -> dict[str, Any]:
        clean = {key: self._clean(value) for key, value in line.items()}
        return {**dict.fromkeys(FIELDS), **clean}

    def _clean(self, value: object) -> object:
        if isinstance(value, Mapping):
            return {str(key): self._clean(item) for key, item in value.items()}
        if isinstance(value, (list, tuple, set, frozenset)):
            return [self._clean(item) for item in value]
        if value is None or isinstance(value, (bool, int)):
            return value
        if isinstance(value, float):
            return value if math.isfinite(value) else None
        return without_secrets(str(value), self._hidden)


class _LogStep:
    def __init__(self, narrator: LogNarrator, text: str, began: float) -> None:
        self._narrator = narrator
        self._text = text
        self._began = began
        self._last = began
        # Another thread, without these facts, may report progress.
        self._about = dict(about())

    def progress(self, done: int, total: int, unit: str) -> None:
        now = monotonic()
        if now - self._last < PROGRESS_EVERY_S:
            return
        self._last = now
        facts = {**self._about, "state": "running", "done": done, "total": total or None, "unit": unit}
        self._narrator.line(logging.INFO, self._text, seconds=round(now - self._began, 3), **facts)


class _LogHandler(logging.Handler):
    def __init__(self, narrator: LogNarrator) -> None:
        super().__init__()
        self._narrator = narrator

    def emit(self, record: logging.LogRecord) -> None:
        try:
            facts = {"logger": record.name, **getattr(record, "facts", {})}
            if record.exc_info:
                facts["exception"] = logging.Formatter().formatException(record.exc_info)
            self._narrator.line(record.levelno, record.getMessage(), **facts)
        except Exception:  # noqa: BLE001 - as in logging's own handlers, a record must never stop the program
            self.handleError(record)


def _known_level(level: int) -> int:
    """Return the standard level at or below ``level``. Some libraries use levels in between."""
    return min(max(level // 10 * 10, logging.DEBUG), logging.CRITICAL)


def _since(began: float) -> float:
    return round(monotonic() - began, 3)
