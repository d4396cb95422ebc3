"""Every error lakegate raises on purpose, under one root.

A front door needs three things of an error: what to say, what to type next, and how to exit. All three travel
with the exception, so no front door has to know the others' technologies.
"""

from __future__ import annotations

from enum import IntEnum
from typing import ClassVar


class ExitCode(IntEnum):
    """How a ``lakegate`` command ends, for scripts and schedulers."""

    OK = 0
    AUDIT_FAILED = 1
    USAGE = 2
    RETRYABLE = 3
    OUTCOME_UNKNOWN = 4
    INTERRUPTED = 130


class LakegateError(Exception):
    """Root of all lakegate errors.

    Args:
        message: What happened, naming the table, branch, file, column or run concerned.
        hint: What to do about it, usually the next command to type.
        context: Facts for machines (``--output json`` and logs). Never a secret.

    Example:
        >>> error = InputError("No file matches 'x/*.parquet'.", hint="Check the path.", path="x/*.parquet")
        >>> error.code, int(error.exit_code), error.context
        ('input', 2, {'path': 'x/*.parquet'})
    """

    code: ClassVar[str] = "error"
    exit_code: ClassVar[ExitCode] = ExitCode.USAGE

    def __init__(self, message: str, *, hint: str | None = None, **context: object) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.context = {key: value for key, value in context.items() if value is not None}

    def to_dict(self) -> dict[str, object]:
        """Return the error as a JSON-safe object: ``code``, ``message``, ``hint`` and ``context``."""
        return {
            "code": self.code,
            "message": self.message,
            "hint": self.hint,
            "context": {key: _json_safe(value) for key, value in self.context.items()},
        }


class InputError(LakegateError):
    """Something the user gave cannot be used: a path, a name, a file, a check."""

    code = "input"


class ConfigurationError(InputError):
    """A setting is unknown, malformed or contradicts another one."""

    code = "configuration"


class IdentifierError(InputError):
    """A table, column or reference name that is not allowed."""

    code = "identifier"


class SourceError(InputError):
    """A source file that is missing, damaged or not what it says it is."""

    code = "source"


class SchemaError(InputError):
    """The batch does not fit the table, or its files do not fit each other."""

    code = "schema"


class CheckError(InputError):
    """A check that cannot be parsed, or cannot be asked of this table."""

    code = "check"


class QueryError(InputError):
    """A query that the engine refuses: syntax, unknown table or column, not a query."""

    code = "query"


class NotFoundError(InputError):
    """A reference, table, run or commit that does not exist."""

    code = "not-found"


class AlreadyExistsError(InputError):
    """A branch, tag or table that exists already."""

    code = "already-exists"


class NotRevertableError(LakegateError):
    """A publish that cannot be undone, or not alone: others depend on it, or changed what it brought."""

    code = "not-revertable"


class AuditFailedError(LakegateError):
    """Publishing was asked for a run whose audit failed."""

    code = "audit-failed"
    exit_code = ExitCode.AUDIT_FAILED


class RetryableError(LakegateError):
    """Nothing was lost and nothing was published; trying again may succeed."""

    code = "retryable"
    exit_code = ExitCode.RETRYABLE


class ConflictError(RetryableError):
    """``main`` changed on something this commit relies on."""

    code = "conflict"


class AlreadyPublishedError(ConflictError):
    """Source files of this run were published by another run while it was under way."""

    code = "already-published"


class NotReplayableError(ConflictError):
    """``main`` changed on a table in a way that this run's data files cannot simply be added to, or taken from."""

    code = "not-replayable"


class CatalogUnavailableError(RetryableError):
    """The catalog does not answer, or answers that it cannot serve now."""

    code = "catalog-unavailable"


class EngineUnavailableError(RetryableError):
    """The engine does not answer or was lost in the middle of an operation."""

    code = "engine-unavailable"


class EngineError(RetryableError):
    """The engine answered, but could not do the work (out of disk, out of memory, a failing task)."""

    code = "engine"


class StorageUnavailableError(RetryableError):
    """The object store of the source files does not answer, or answers that it cannot serve now."""

    code = "storage-unavailable"


class LocalStackError(RetryableError):
    """The embedded stack cannot be started, found or stopped."""

    code = "local-stack"


class OutcomeUnknownError(LakegateError):
    """A publish was sent and no answer came; only the catalog's history can tell."""

    code = "outcome-unknown"
    exit_code = ExitCode.OUTCOME_UNKNOWN


def _json_safe(value: object) -> object:
    if isinstance(value, (list, tuple, set, frozenset)):
        return [_json_safe(item) for item in value]
    return value if isinstance(value, (str, int, float, bool)) or value is None else str(value)
