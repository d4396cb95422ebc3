"""Spark's exceptions as ours: what is away, what is wrong with the query, what is wrong with the machine."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from lakegate.engine.importing import import_spark
from lakegate.errors import (
    ConfigurationError,
    EngineError,
    EngineUnavailableError,
    LakegateError,
    QueryError,
    SourceError,
    StorageUnavailableError,
)


class _DiskFullError(EngineError):
    """The engine ran out of disk."""


class _CatalogAwayError(EngineUnavailableError):
    """The engine is there, its way to the catalog is not."""


class _DeniedError(ConfigurationError):
    """The engine may not do with files what it was told to."""


class _NoEntryError(ConfigurationError):
    """The engine is not let into the catalog."""


_KINDS: tuple[tuple[tuple[str, ...], type[LakegateError]], ...] = (
    (("StatusCode.UNAUTHENTICATED", "Invalid auth token"), ConfigurationError),
    (("NessieNotAuthorizedException", "NessieForbiddenException", "auth.oauth2.OAuth2Exception"), _NoEntryError),
    (("No space left on device", "Disk quota exceeded"), _DiskFullError),
    (
        (
            "AccessDeniedException",
            "NoAuthWithAWSException",
            "Service: S3, Status Code: 403",
            "Unable to load credentials",
        ),
        _DeniedError,
    ),
    (("CommitStateUnknownException", "HttpClientException", "NessieServiceException"), _CatalogAwayError),
    (
        # Before the words for connections of any kind, which the texts of these hold, too.
        ("AWSClientIOException", "AWSServiceThrottledException", "SdkClientException", "Service: S3, Status Code: 5"),
        StorageUnavailableError,
    ),
    (("java.net.ConnectException",), _CatalogAwayError),
    (
        (
            "StatusCode.UNAVAILABLE",
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
    ),
    (
        ("ConnectionClosedException", "java.net.SocketException", "java.net.SocketTimeoutException"),
        StorageUnavailableError,
    ),
    (
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
    ),
)
_SENTENCES: dict[type[LakegateError], tuple[str, str]] = {
    ConfigurationError: ("Spark refused our token while {doing}.", "Check the setting engine.token."),
    _NoEntryError: (
        "The catalog did not let Spark in while {doing}: {cause}",
        "Check catalog.token or catalog.oauth2_*; a token given to Spark may have expired since.",
    ),
    _DeniedError: (
        "Spark is not allowed to do this with the files while {doing}: {cause}",
        "For files on S3, check that Spark's own credentials and endpoint are those of this program.",
    ),
    _DiskFullError: ("The disk is full: Spark stopped {doing}.", "Free some space and run the command again."),
    _CatalogAwayError: (
        "Spark could not reach the catalog while {doing}: {cause}",
        "`lakegate status` tells whether Nessie runs; then try again.",
    ),
    EngineUnavailableError: (
        "Spark went away while {doing}.",
        "`lakegate status` tells whether it runs; then try again.",
    ),
    StorageUnavailableError: (
        "Spark could not get at the files while {doing}: {cause}",
        "Nothing was published. Check the network between Spark and the files' store, then try again.",
    ),
    SourceError: (
        "Spark could not take a source file's data while {doing}: {cause}",
        "A value does not fit its column, or the file is damaged or changed while it was read.",
    ),
}
_FIRST_SENTENCE_LENGTH = 400


@contextmanager
def translated(doing: str, *, query: bool = False, source: bool = False) -> Iterator[None]:
    """Turn what Spark raises in the body into lakegate's errors.

    Args:
        doing: What the body does, for the message: ``writing nyc.trips on branch x``.
        query: Whether a refused plan is the user's query (exit 2) rather than a failure of the engine.
        source: Whether values that cannot be read or converted are the source files' (exit 2).

    Raises:
        EngineUnavailableError: When the engine or its session is gone.
        QueryError: When ``query`` and Spark refuses the statement or fails on its data.
        SourceError: When a source file cannot be read after all.
        EngineError: For anything else Spark says.
    """
    import_spark()
    from grpc import RpcError  # noqa: PLC0415 - loaded by pyspark's client anyway, and only there
    from pyspark.errors import PySparkException  # noqa: PLC0415

    try:
        yield
    except (PySparkException, RpcError, *_classic_errors()) as error:
        raise _translate(error, doing, query=query, source=source) from error


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
    """Return what a classic session lets through unconverted; there are none with the package ``pyspark-client``."""
    from pyspark.util import is_remote_only  # noqa: PLC0415 - heavy

    if is_remote_only():
        return ()
    from py4j.protocol import Py4JError  # noqa: PLC0415 - comes with the whole of Spark only

    return (Py4JError,)


def _translate(error: Exception, doing: str, *, query: bool, source: bool) -> LakegateError:
    text = str(error)
    words, known = next((one for one in _KINDS if _holds(text, one[0])), ((), None))
    if known is not None and (source or known is not SourceError):
        message, hint = _SENTENCES[known]
        return known(message.format(doing=doing, cause=_cause(text, words)), hint=hint)
    if query:
        cause = first_sentence(text).partition(" Did you mean")[0]
        return QueryError(f"Spark refuses the query: {cause}", hint=_query_hint(text))
    return EngineError(f"Spark failed while {doing}: {first_sentence(text)}", hint="Add --debug to see all of it.")


def _holds(text: str, words: Sequence[str]) -> bool:
    return any(word in text for word in words)


def _cause(text: str, words: Sequence[str]) -> str:
    """Return the sentence that tells most: the first one; or, where that holds none of ``words``, a cause that does."""
    causes = (line for line in text.splitlines() if line.startswith("Caused by: ") and _holds(line, words))
    first = next(iter(text.splitlines()), "")
    line = text if _holds(first, words) else next(causes, text)
    return first_sentence(re.sub(r"^Caused by: [\w.$]+: ", "", line))


def _query_hint(text: str) -> str | None:
    if "TABLE_OR_VIEW_NOT_FOUND" in text or "SCHEMA_NOT_FOUND" in text:
        return "`lakegate table list` shows the tables of main; add --ref for another branch."
    suggestion = re.search(r"Did you mean one of the following\? \[([^\]]*)\]", text)
    return f"Did you mean one of {suggestion.group(1)}?" if suggestion else None
