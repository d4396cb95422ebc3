"""Translate Spark's exceptions into lakegate's errors, and import its modules safely."""

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
    QueryError,
    RetryableError,
    SourceError,
    StorageUnavailableError,
)

_LOCK = threading.Lock()


def import_spark(*more: str) -> None:
    """Import ``pyspark.sql`` and ``more`` modules, by name, one thread at a time.

    PySpark's modules have circular imports. When two threads enter such a circle at different modules, Python lets one
    of them see an incomplete module to avoid a deadlock (``importlib._bootstrap._ModuleLock``).
    """
    with _LOCK:
        for name in ("pyspark.sql", *more):
            importlib.import_module(name)


@dataclass(frozen=True)
class _KnownFailure:
    """The error for a message from Spark that contains one of ``words``.

    Its own message has no text of Spark's, except the error condition, because that text may quote values.
    """

    words: tuple[str, ...]
    error: type[LakegateError]
    message: str
    hint: str | None = None


_CHANGE_REFUSED = (QueryError, "Spark refused a change while {doing}: {condition}.")
_CATALOG_AWAY = (
    EngineUnavailableError,
    "Spark couldn't reach the catalog while {doing}: {condition}.",
    "Check that the catalog is running (a local Nessie: `lakegate status`), then try again.",
)
_STORE_AWAY = (
    StorageUnavailableError,
    "Spark couldn't reach the files while {doing}: {condition}.",
    "Nothing was published. Check the network between Spark and the object store, then try again.",
)
MAY_ROUND = "which a double may round"
"""Part of our ``raise_error`` message for integers that a double can't hold exactly."""
LOSES = "would round"
"""Part of our ``raise_error`` message for values that a cast would change."""
SKIPPED_TIME = "a time that clocks skip in"
"""Part of our ``raise_error`` message for times that a zone doesn't have."""
# The first match counts: messages about files and the catalog also contain the words for lost connections.
_FAILURES = (
    _KnownFailure(
        ("StatusCode.UNAUTHENTICATED", "Invalid auth token"),
        ConfigurationError,
        "Spark rejected the token while {doing}.",
        "Check the setting engine.token.",
    ),
    _KnownFailure(
        ("Unsupported table change: Cannot change column type", "NOT_SUPPORTED_CHANGE_COLUMN"),
        *_CHANGE_REFUSED,
        "You can only widen a column's type: int to bigint, float to double, or a decimal to a higher precision.",
    ),
    _KnownFailure(("Unsupported table change",), *_CHANGE_REFUSED),
    _KnownFailure(
        (
            "NessieNotAuthorizedException",
            "NessieForbiddenException",
            "exceptions.NotAuthorizedException",
            "auth.oauth2.OAuth2Exception",
        ),
        ConfigurationError,
        "The catalog rejected Spark's credentials while {doing}: {condition}.",
        "Check catalog.token or catalog.oauth2_*. Spark's token may have expired. The server at "
        "engine.gate must use the same journal.",
    ),
    _KnownFailure(
        (
            "Expected sorted snapshot log entries",
            "Expected sorted previous metadata log entries",
            "before last snapshot log entry",
            "before last snapshot timestamp",
            "before the latest metadata log entry",
        ),
        ClockError,
        "Spark can't write to the table while {doing}: by its clock, the table's newest snapshot is from the future.",
        "The clock of Spark, or of a machine that published before, is wrong. Synchronize both with NTP. Spark can "
        "write again once its clock has reached the time of the newest snapshot.",
    ),
    _KnownFailure(
        ("No space left on device", "Disk quota exceeded"),
        EngineError,
        "The disk is full: Spark stopped {doing}.",
        "Free some space and run the command again.",
    ),
    _KnownFailure(
        (
            "AccessDeniedException",
            "NoAuthWithAWSException",
            "Service: S3, Status Code: 403",
            "Unable to load credentials",
        ),
        ConfigurationError,
        "Spark was denied access to the files while {doing}: {condition}.",
        "For files on S3, check that Spark uses the same credentials and endpoint as lakegate.",
    ),
    _KnownFailure(
        (
            "CommitStateUnknownException",
            "HttpClientException",
            "NessieServiceException",
            "exceptions.ServiceUnavailableException",
            "exceptions.ServiceFailureException",
        ),
        *_CATALOG_AWAY,
    ),
    _KnownFailure(
        ("AWSClientIOException", "AWSServiceThrottledException", "SdkClientException", "Service: S3, Status Code: 5"),
        *_STORE_AWAY,
    ),
    _KnownFailure(("java.net.ConnectException",), *_CATALOG_AWAY),
    _KnownFailure(
        (
            "StatusCode.UNAVAILABLE",
            "StatusCode.DEADLINE_EXCEEDED",
            "failed to connect",
            "Connection refused",
            "Connection reset",
            "GOAWAY",
            "OPERATION_ABANDONED",
            "OPERATION_NOT_FOUND",
            "RESPONSE_ALREADY_RECEIVED",
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
        "Check that it's running (a local Spark: `lakegate status`), then try again.",
    ),
    _KnownFailure(
        ("ConnectionClosedException", "java.net.SocketException", "java.net.SocketTimeoutException"), *_STORE_AWAY
    ),
    _KnownFailure(
        ("NULL value appeared in non-nullable field",),
        SourceError,
        "A row has NULL in a required column, or in a struct's required field, while {doing}.",
        "Correct the file, or allow NULL: lakegate table evolve TABLE 'ALTER COLUMN name DROP NOT NULL'",
    ),
    _KnownFailure(
        (MAY_ROUND,),
        SourceError,
        "A source file's value doesn't fit its column{column} while {doing}.",
        "A double holds all integers up to 9007199254740992. For greater ones, use a column of type long.",
    ),
    _KnownFailure(
        (SKIPPED_TIME,),
        SourceError,
        "A source file's value doesn't fit its column{column} while {doing}.",
        "Correct the time, or pass the zone that it is in with --timezone.",
    ),
    _KnownFailure(
        (LOSES,),
        SourceError,
        "A source file's value doesn't fit its column{column} while {doing}.",
        "Correct the value, or widen the column: lakegate table evolve --help",
    ),
    _KnownFailure(
        ("CRC checksum verification failed",),
        SourceError,
        "The source file{file} is damaged: the checksum of one of its pages is wrong.",
        "Copy or write it again.",
    ),
    _KnownFailure(
        (
            "CAST_INVALID_INPUT",
            "CAST_OVERFLOW",
            "FAILED_READ_FILE",
            "NUMERIC_VALUE_OUT_OF_RANGE",
            "PATH_NOT_FOUND",
        ),
        SourceError,
        "Spark couldn't read a source file's data{file} while {doing}: {condition}.",
        "A value doesn't fit its column, the file is damaged, or it changed meanwhile.",
    ),
)
_ABOUT_VALUES = ("CAST_", "USER_RAISED_EXCEPTION")
_REFUSED = ("Unsupported table change", "iceberg.exceptions.ValidationException")
_FILE_MISSING = "iceberg.exceptions.NotFoundException"
_READING_TABLES = ("org.apache.iceberg.spark.source.BaseReader", _FILE_MISSING)
_HINT_MISSING = (
    "If nothing has needed it for gc.keep, `lakegate admin gc` deleted it. Otherwise, it was moved or deleted outside "
    "lakegate, or "
    "Spark can't reach it. To see which of the lake's tables lack files, and what to do: lakegate admin verify"
)
_HINT_DAMAGED = (
    "It may be damaged. To see which of the lake's tables have damaged files, and what to do: "
    "lakegate admin verify --deep"
)
_TASK_FAILED = re.compile(r"Job aborted .*? \(TID \d+\) \([^)]*\): (?:[\w.$]+: )?")
_STACK = re.compile(r"\n\s*at |\nCaused by: |JVM stacktrace:")
_FIRST_SENTENCE_LENGTH = 400
_COLUMN = re.compile(r"Column '(.+?)' holds ")  # in our ``raise_error`` messages
_READ_FILE = re.compile(r"while reading file (\S+?)\.(?=\s|$)")
_GRPC_DETAILS = re.compile(r'^\s*details = "(.*)"$', re.MULTILINE)
_UNKNOWN_TABLE = re.compile(r"The table or view ((?:`[^`]+`\.?)+) cannot be found")
_QUOTED = re.compile(r"`([^`]+)`")


@contextmanager
def spark_errors(doing: str, *, query: bool = False, source: bool = False) -> Iterator[None]:
    """Translate Spark's exceptions in the body into lakegate's errors.

    Args:
        doing: What the body does, for the message, such as ``writing nyc.trips on branch x``.
        query: Whether the body runs a user's query, whose failures are the user's to fix (exit code 2).
        source: Whether the body reads source files, whose unreadable values are the user's to fix (exit code 2).

    Raises:
        EngineUnavailableError: When the engine or its session is gone.
        QueryError: With ``query``, when Spark refuses the statement or fails on its data.
        SourceError: With ``source``, when a file or value can't be read.
        EngineError: For any other exception of Spark.
    """
    import_spark()
    from grpc import RpcError
    from pyspark.errors import PySparkException

    try:
        yield
    except (PySparkException, RpcError, *_classic_errors()) as error:
        raise _translate(error, doing, query=query, source=source) from error


def is_iceberg_refusal(error: Exception) -> bool:
    """Return whether Iceberg refused a statement, for which PySpark has no exception class."""
    # Without the stack trace, which may name such an exception, too.
    return _holds(_STACK.split(str(error), maxsplit=1)[0], _REFUSED)


def first_sentence(text: str) -> str:
    r"""Return the readable part of a JVM message, without stack trace, SQLSTATE and plan.

    Example:
        >>> first_sentence("[TABLE_NOT_FOUND] The table `t` cannot be found. SQLSTATE: 42P01; line 1\nJVM stacktrace:")
        'The table `t` cannot be found.'
    """
    text = text.partition("JVM stacktrace:")[0].partition("SQLSTATE:")[0].strip()
    line = next((line for line in text.splitlines() if line.strip()), text)
    line = re.sub(r"^\[[A-Z0-9_.]+\]\s*", "", re.sub(r"^\([\w.$]+\)\s*", "", line)).strip()
    return line if len(line) <= _FIRST_SENTENCE_LENGTH else line[:_FIRST_SENTENCE_LENGTH] + "…"


def _classic_errors() -> tuple[type[Exception], ...]:
    """Return the exceptions that classic sessions don't convert. ``pyspark-client`` has no classic sessions."""
    from pyspark.util import is_remote_only

    if is_remote_only():
        return ()
    from py4j.protocol import Py4JError

    return (Py4JError,)


def _translate(error: Exception, doing: str, *, query: bool, source: bool) -> LakegateError:
    text, condition = str(error), condition_of(error)
    failures: Sequence[_KnownFailure] = _FAILURES
    if _is_refusal(error):
        failures = [failure for failure in _FAILURES if not issubclass(failure.error, RetryableError)]
    known = next((failure for failure in failures if _holds(text, failure.words)), None)
    if known is not None and (source or known.error is not SourceError):
        column, file = _COLUMN.search(text), _READ_FILE.search(text)
        message = known.message.format(
            doing=doing,
            condition=condition,
            column="" if column is None else f" '{column[1]}'",
            file="" if file is None else f" '{file[1]}'",
        )
        return known.error(message, hint=known.hint, detail=cause_of(text, known.words), condition=condition)
    if _holds(text, _READING_TABLES) and "OutOfMemoryError" not in text:
        failed = QueryError if query else EngineError
        return failed(
            f"Spark couldn't read a table's file while {doing}: {condition}.",
            hint=_HINT_MISSING if _FILE_MISSING in text else _HINT_DAMAGED,
            detail=f"{first_sentence(_TASK_FAILED.sub('', text, count=1)).rstrip('.')}.",
            condition=condition,
        )
    if query:
        cause = first_sentence(text).partition(" Did you mean")[0].partition(" If necessary set ")[0]
        # The query runs inside our parentheses.
        cause = cause.replace("at or near ')'.", "at or near ')', or at the end.")
        message = f"Spark rejected the query{_line(text)}: {condition}."
        return QueryError(message, hint=_query_hint(text), detail=cause, condition=condition)
    return EngineError(
        f"Spark failed while {doing}: {condition}.",
        hint="Run it again with --debug to see the full error.",
        detail=first_sentence(text),
        condition=condition,
    )


def _is_refusal(error: Exception) -> bool:
    """Return whether Spark refused a statement or a value.

    The message quotes it, so its words say nothing about Spark: ``The value 'Connection refused' … cannot be cast``.
    """
    condition = condition_of(error)
    if condition.startswith("FAILED_JDBC"):  # quotes the database's error, which may be that it's away
        return False
    return isinstance(error, refusals()) or condition.startswith(_ABOUT_VALUES)


def refusals() -> tuple[type[Exception], ...]:
    """Return the exceptions that Spark raises for invalid statements and values, which a retry can't fix."""
    from pyspark import errors

    return (
        errors.AnalysisException,
        errors.ArithmeticException,
        errors.ArrayIndexOutOfBoundsException,
        errors.DateTimeException,
        errors.NumberFormatException,
    )


def condition_of(error: Exception) -> str:
    """Return Spark's error condition, which, unlike the message, never contains values."""
    named = re.match(r"(?:\([\w.$]+\)\s*)?\[([A-Z][A-Z0-9_.]*)\]", str(error))
    return named[1] if named else type(error).__name__


def _holds(text: str, words: Sequence[str]) -> bool:
    return any(word in text for word in words)


def cause_of(text: str, words: Sequence[str]) -> str:
    r"""Return the first sentence if it has one of ``words``, or else that of the first cause that has one.

    Example:
        >>> cause_of('<_InactiveRpcError of RPC …:\n\tdetails = "DNS resolution failed for spark"\n', ())
        'DNS resolution failed for spark'
    """
    causes = (line for line in text.splitlines() if line.startswith("Caused by: ") and _holds(line, words))
    said = _GRPC_DETAILS.search(text)
    if said is not None:
        return first_sentence(said[1])
    first = next(iter(text.splitlines()), "")
    line = text if _holds(first, words) else next(causes, text)
    return first_sentence(re.sub(r"^Caused by: [\w.$]+: ", "", line))


def _line(text: str) -> str:
    """Return the line of a syntax error. Its column would be wrong, because comments were removed."""
    found = re.search(r"\(line (\d+), pos \d+\)|; line (\d+) pos \d+", text)
    return f" (line {found.group(1) or found.group(2)})" if found else ""


def unknown_table(error: QueryError) -> str | None:
    """Return the table or view that Spark couldn't find, if that's the error.

    Example:
        >>> said = "The table or view `nyc`.`trps` cannot be found."
        >>> unknown_table(QueryError("Spark rejected the query: TABLE_OR_VIEW_NOT_FOUND.", detail=said))
        'nyc.trps'
    """
    found = _UNKNOWN_TABLE.search(error.detail or "")
    return None if found is None else ".".join(_QUOTED.findall(found[1]))


def _query_hint(text: str) -> str | None:
    if "TABLE_OR_VIEW_NOT_FOUND" in text or "SCHEMA_NOT_FOUND" in text:
        return "List the tables of main with `lakegate table list`; add --ref for another branch."
    suggestion = re.search(r"Did you mean one of the following\? \[([^\]]*)\]", text)
    if suggestion is None:
        return None
    names = suggestion.group(1)
    return f"Did you mean one of {names}?" if "`, `" in names else f"Did you mean {names}?"
