"""Spark's exceptions as lakegate's errors, and the one safe way to import its modules."""

from __future__ import annotations

import importlib
import re
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from lakegate.errors import (
    ClockError,
    ConfigurationError,
    EngineError,
    EngineUnavailableError,
    LakegateError,
    NotFoundError,
    QueryError,
    RetryableError,
    SourceError,
    StorageUnavailableError,
)
from lakegate.progress import without_secrets

_LOCK = threading.Lock()


def import_spark(*more: str) -> None:
    """Import ``pyspark.sql`` and ``more`` of its modules, by name, one thread at a time.

    They import each other in circles. When two threads enter such a circle at different places, Python lets one of them
    see an incomplete module rather than deadlock (``importlib._bootstrap._ModuleLock``).
    """
    with _LOCK:
        for name in ("pyspark.sql", *more):
            importlib.import_module(name)


@dataclass(frozen=True)
class _Failure:
    """What it means when a message from Spark contains one of ``words``."""

    words: tuple[str, ...]
    error: type[LakegateError]
    message: str
    hint: str | None = None


_CHANGE_REFUSED = (QueryError, "Spark refused a change while {doing}: {cause}")
_CATALOG_AWAY = (
    EngineUnavailableError,
    "Spark couldn't reach the catalog while {doing}: {cause}",
    "Check with `lakegate status` whether Nessie runs, then try again.",
)
_STORE_AWAY = (
    StorageUnavailableError,
    "Spark couldn't reach the files while {doing}: {cause}",
    "Nothing was published. Check the network between Spark and the files' store, then try again.",
)
MAY_ROUND = "which a double may round"
"""What Spark is told to say about whole numbers that don't go into a double."""
LOSES = "would round"
"""What Spark is told to say about values that another type would change."""
# The first one that fits counts: texts about files and the catalog hold the words for lost connections, too.
_FAILURES = (
    _Failure(
        ("StatusCode.UNAUTHENTICATED", "Invalid auth token"),
        ConfigurationError,
        "Spark rejected the token while {doing}.",
        "Check the setting engine.token.",
    ),
    _Failure(
        ("Unsupported table change: Cannot change column type",),
        *_CHANGE_REFUSED,
        "A column's type can only get wider: int to bigint, float to double, a longer decimal.",
    ),
    _Failure(("Unsupported table change",), *_CHANGE_REFUSED),
    _Failure(
        ("NessieNotAuthorizedException", "NessieForbiddenException", "auth.oauth2.OAuth2Exception"),
        ConfigurationError,
        "The catalog rejected Spark's credentials while {doing}: {cause}",
        "Check catalog.token or catalog.oauth2_*; the token that Spark has may have expired.",
    ),
    _Failure(
        (
            "Expected sorted snapshot log entries",
            "Expected sorted previous metadata log entries",
            "before last snapshot log entry",
            "before the latest metadata log entry",
        ),
        ClockError,
        "Spark can't write to the table while {doing}: by its clock, the table's newest snapshot is from the future.",
        "The clock of Spark or of a machine that published before is wrong: set both by NTP. Spark writes again when "
        "its clock has reached the time of the newest snapshot.",
    ),
    _Failure(
        ("No space left on device", "Disk quota exceeded"),
        EngineError,
        "The disk is full: Spark stopped {doing}.",
        "Free some space and run the command again.",
    ),
    _Failure(
        (
            "AccessDeniedException",
            "NoAuthWithAWSException",
            "Service: S3, Status Code: 403",
            "Unable to load credentials",
        ),
        ConfigurationError,
        "Spark was denied access to the files while {doing}: {cause}",
        "For files on S3, check that Spark uses the same credentials and endpoint as lakegate.",
    ),
    _Failure(("CommitStateUnknownException", "HttpClientException", "NessieServiceException"), *_CATALOG_AWAY),
    _Failure(
        ("AWSClientIOException", "AWSServiceThrottledException", "SdkClientException", "Service: S3, Status Code: 5"),
        *_STORE_AWAY,
    ),
    _Failure(("java.net.ConnectException",), *_CATALOG_AWAY),
    _Failure(
        (
            "StatusCode.UNAVAILABLE",
            "StatusCode.DEADLINE_EXCEEDED",
            "failed to connect",
            "Connection refused",
            "Connection reset",
            "GOAWAY",
            "RETRIES_EXCEEDED",
            "SESSION_CHANGED",
            "SESSION_CLOSED",
            "SESSION_NOT_FOUND",
            "Socket closed",
            "SparkContext was shut down",
            "stopped SparkContext",
        ),
        EngineUnavailableError,
        "Lost the connection to Spark while {doing}.",
        "Check with `lakegate status` whether it runs, then try again.",
    ),
    _Failure(
        ("ConnectionClosedException", "java.net.SocketException", "java.net.SocketTimeoutException"), *_STORE_AWAY
    ),
    _Failure(
        ("NULL value appeared in non-nullable field",),
        SourceError,
        "A row has NULL in a column, or a field of a struct, that can't be NULL in the table, while {doing}.",
        "Correct the file. Or allow NULL: lakegate table evolve TABLE 'ALTER COLUMN name DROP NOT NULL'",
    ),
    _Failure(
        (MAY_ROUND,),
        SourceError,
        "A source file's value doesn't fit its column while {doing}: {cause}",
        "A double holds every whole number up to 9007199254740992. Write greater ones to a column of type long.",
    ),
    _Failure(
        (LOSES,),
        SourceError,
        "A source file's value doesn't fit its column while {doing}: {cause}",
        "Correct the value, or widen the column: lakegate table evolve --help",
    ),
    _Failure(
        (
            "CAST_INVALID_INPUT",
            "CAST_OVERFLOW",
            "CSV header",
            "FAILED_READ_FILE",
            "MALFORMED_CSV_RECORD",
            "MALFORMED_RECORD_IN_PARSING",
            "NUMERIC_VALUE_OUT_OF_RANGE",
            "PATH_NOT_FOUND",
        ),
        SourceError,
        "Spark couldn't read a source file's data while {doing}: {cause}",
        "A value doesn't fit its column, or the file is damaged or was changed meanwhile.",
    ),
)
_REFUSED = ("Unsupported table change", "iceberg.exceptions.ValidationException")
_STACK = re.compile(r"\n\s*at |\nCaused by: |JVM stacktrace:")
_FIRST_SENTENCE_LENGTH = 400
_UNKNOWN_TABLE = re.compile(r"The table or view ((?:`[^`]+`\.?)+) cannot be found")
_QUOTED = re.compile(r"`([^`]+)`")
_SAID_BY_DATABASE = re.compile(
    r"(?:Caused by: )?[\w.$]*(?:SQL\w*|Connect|UnknownHost|SocketTimeout|Analysis)Exception: ([^\n]+)"
)


@contextmanager
def translated(doing: str, *, query: bool = False, source: bool = False) -> Iterator[None]:
    """Turn what Spark raises in the body into lakegate's errors.

    Args:
        doing: What the body is doing, for the message: ``writing nyc.trips on branch x``.
        query: Whether a refused plan is the user's query (exit 2) rather than a failure of the engine.
        source: Whether values that can't be read or converted are the source files' (exit 2).

    Raises:
        EngineUnavailableError: When the engine or its session is gone.
        QueryError: When ``query`` and Spark refuses the statement or fails on its data.
        SourceError: When a source file can't be read after all.
        EngineError: For anything else Spark says.
    """
    import_spark()
    from grpc import RpcError
    from pyspark.errors import PySparkException

    try:
        yield
    except (PySparkException, RpcError, *_classic_errors()) as error:
        raise _translate(error, doing, query=query, source=source) from error


@contextmanager
def of_source(name: str) -> Iterator[None]:
    """Name the source ``name`` in what the body raises about a database or another catalog."""
    try:
        yield
    except LakegateError as error:
        found = _source_error(name, str(error.__cause__ or ""))
        if found is None:
            raise
        raise found from error.__cause__


def _source_error(name: str, text: str) -> LakegateError | None:
    missing = ("FAILED_JDBC.TABLE_EXISTS", "does not exist", "TABLE_OR_VIEW_NOT_FOUND", "SCHEMA_NOT_FOUND")
    if not _holds(text, ("JDBC", "SQLException", "java.sql.", "PSQL", "ClassNotFoundException", *missing)):
        return None
    reasons = [reason for reason in _SAID_BY_DATABASE.findall(text) if reason.strip()]
    reason = without_secrets(first_sentence(reasons[-1] if reasons else text)).rstrip(".")
    section = name.partition(".")[0]
    if _holds(text, ("ConnectException", "UnknownHostException", "SocketTimeoutException", "Connection refused")):
        return RetryableError(
            f"The database of source {name} doesn't answer: {reason}.",
            hint=f"Nothing was published. Check sources.{section}.url and the network, then try again.",
        )
    if _holds(text, ("ClassNotFoundException", "No suitable driver")):
        return ConfigurationError(
            f"Spark doesn't have the driver, or the class, of source {name}.",
            hint="A Spark of your own must have it on its class path, such as by spark.jars.packages.",
        )
    if _holds(text, ("authentication", "Access denied", "Login failed")):
        return ConfigurationError(
            f"The database of source {name} refuses to log in: {reason}.",
            hint=f"Check sources.{section}.user and password.",
        )
    if _holds(text, missing):
        return NotFoundError(
            f"Source {name} doesn't exist, or you may not read it: {reason}.",
            hint=f"To see what there is: lakegate inspect --source {section} --rows 1000 --sql 'SHOW TABLES IN schema'",
        )
    return SourceError(
        f"Source {name} can't be read: {reason}.",
        hint="Where a column's type is the reason, make a view without it, or with a cast, in the database.",
    )


def is_refusal(error: Exception) -> bool:
    """Return whether Iceberg refused a statement with an error that has no kind of its own."""
    # A server's stack trace may name such an exception, too.
    return _holds(_STACK.split(str(error), maxsplit=1)[0], _REFUSED)


def first_sentence(text: str) -> str:
    r"""Return the part of a JVM message that a person can use: no stack trace, no SQLSTATE, no plan.

    Example:
        >>> first_sentence("[TABLE_NOT_FOUND] The table `t` cannot be found. SQLSTATE: 42P01; line 1\nJVM stacktrace:")
        'The table `t` cannot be found.'
    """
    text = text.partition("JVM stacktrace:")[0].partition("SQLSTATE:")[0].strip()
    line = next((line for line in text.splitlines() if line.strip()), text)
    line = re.sub(r"^\[[A-Z0-9_.]+\]\s*", "", re.sub(r"^\([\w.$]+\)\s*", "", line)).strip()
    return line if len(line) <= _FIRST_SENTENCE_LENGTH else line[:_FIRST_SENTENCE_LENGTH] + "…"


def _classic_errors() -> tuple[type[Exception], ...]:
    """Return the errors that a classic session doesn't convert; with ``pyspark-client`` there are none."""
    from pyspark.util import is_remote_only

    if is_remote_only():
        return ()
    from py4j.protocol import Py4JError

    return (Py4JError,)


def _translate(error: Exception, doing: str, *, query: bool, source: bool) -> LakegateError:
    text = str(error)
    known = next((failure for failure in _FAILURES if _holds(text, failure.words)), None)
    if known is not None and (source or known.error is not SourceError):
        # What is wrong with the files' values may quote them: the condition is for who mustn't show any.
        named = {"condition": condition_of(error)} if known.error is SourceError else {}
        message = known.message.format(doing=doing, cause=cause_of(text, known.words))
        return known.error(message, hint=known.hint, **named)
    if query:
        cause = first_sentence(text).partition(" Did you mean")[0].partition(" If necessary set ")[0]
        # A query runs in parentheses of ours.
        cause = cause.replace("at or near ')'.", "at or near ')', or at the end.")
        return QueryError(
            f"Spark rejected the query: {cause}{_line(text)}", hint=_query_hint(text), condition=condition_of(error)
        )
    return EngineError(
        f"Spark failed while {doing}: {first_sentence(text)}",
        hint="Run it again with --debug to see the whole error.",
        condition=condition_of(error),
    )


def condition_of(error: Exception) -> str:
    """Return Spark's name of what went wrong: unlike its message, it quotes no values."""
    named = re.match(r"(?:\([\w.$]+\)\s*)?\[([A-Z][A-Z0-9_.]*)\]", str(error))
    return named[1] if named else type(error).__name__


def _holds(text: str, words: Sequence[str]) -> bool:
    return any(word in text for word in words)


def cause_of(text: str, words: Sequence[str]) -> str:
    """Return the most useful sentence: the first one, or, where it has none of ``words``, the first cause that has."""
    causes = (line for line in text.splitlines() if line.startswith("Caused by: ") and _holds(line, words))
    first = next(iter(text.splitlines()), "")
    line = text if _holds(first, words) else next(causes, text)
    return first_sentence(re.sub(r"^Caused by: [\w.$]+: ", "", line))


def _line(text: str) -> str:
    """Return the line that a refused statement is wrong in; its columns moved when comments were left out."""
    found = re.search(r"\(line (\d+), pos \d+\)|; line (\d+) pos \d+", text)
    return f" (line {found.group(1) or found.group(2)})" if found else ""


def unknown_in(error: QueryError) -> str | None:
    """Return the table or view that Spark doesn't find.

    Example:
        >>> unknown_in(QueryError("Spark rejected the query: The table or view `nyc`.`trps` cannot be found. Verify …"))
        'nyc.trps'
    """
    found = _UNKNOWN_TABLE.search(error.message)
    return None if found is None else ".".join(_QUOTED.findall(found[1]))


def _query_hint(text: str) -> str | None:
    if "TABLE_OR_VIEW_NOT_FOUND" in text or "SCHEMA_NOT_FOUND" in text:
        return "`lakegate table list` shows the tables of main; add --ref for another branch."
    suggestion = re.search(r"Did you mean one of the following\? \[([^\]]*)\]", text)
    return f"Did you mean one of {suggestion.group(1)}?" if suggestion else None
