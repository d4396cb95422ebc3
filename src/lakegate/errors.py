"""Every error that lakegate raises on purpose. Each carries its message, what to type next, and its exit code."""

from __future__ import annotations

import re
from enum import IntEnum
from typing import Any, ClassVar


class ExitCode(IntEnum):
    """How a ``lakegate`` command ends, for scripts and schedulers."""

    OK = 0
    AUDIT_FAILED = 1
    USAGE = 2
    RETRYABLE = 3
    OUTCOME_UNKNOWN = 4
    OUTPUT_LOST = 5
    INTERRUPTED = 130


_OPTION = re.compile(r"(?<![\w-])--([a-z][a-z-]+)")


class LakegateError(Exception):
    """Base class of all lakegate errors.

    Args:
        message: What happened, with the name of the table, branch, file, column or run. Never a value of a row.
        hint: What to do about it, usually the next command to type.
        detail: What the engine or another program said, or which value is wrong. Only the terminal of whoever typed the
            command shows it: it may quote values of rows, so it's never stored, logged or sent.
        **context: Facts for programs (``--output json`` and logs). Never a secret.

    Example:
        >>> error = InputError("No file matches 'x/*.parquet'.", hint="Check the path.", path="x/*.parquet")
        >>> error.code, int(error.exit_code), error.context
        ('input', 2, {'path': 'x/*.parquet'})
    """

    code: ClassVar[str] = "error"
    exit_code: int = ExitCode.USAGE

    def __init__(self, message: str, *, hint: str | None = None, detail: str | None = None, **context: object) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.detail = detail
        self.context = {key: value for key, value in context.items() if value is not None}

    def __str__(self) -> str:
        """Return the message for Python: it names arguments where that of the command line names options."""
        words, command, rest = self.message.partition("lakegate ")
        return _OPTION.sub(lambda option: option[1].replace("-", "_"), words) + command + rest

    def __reduce__(self) -> tuple[Any, ...]:
        """Leave the detail out where the error is pickled, as orchestrators do to store it."""
        return type(self), self.args, {**self.__dict__, "detail": None}

    def to_dict(self) -> dict[str, object]:
        """Return the error as a JSON-safe object: ``code``, ``message``, ``hint`` and ``context``."""
        return {
            "code": self.code,
            "message": self.message,
            "hint": self.hint,
            "context": {key: _json_safe(value) for key, value in self.context.items()},
        }


def internal_error(error: Exception) -> LakegateError:
    """Return an exception that isn't lakegate's as one that may be stored: its own text may quote values or secrets."""
    return LakegateError(f"Internal error: {type(error).__name__}.", detail=repr(error))


class InputError(LakegateError):
    """A path, name or other argument can't be used."""

    code = "input"


class ConfigurationError(InputError):
    """A setting is unknown, malformed, or contradicts another one."""

    code = "configuration"


class NewerFormatError(LakegateError):
    """A newer lakegate wrote a commit or a branch, in a format that this version can't read.

    Reading still works. Until you upgrade it, this version doesn't publish to that target, or doesn't work on that
    branch.
    """

    code = "newer-format"


class IdentifierError(InputError):
    """A table, column, branch or tag name isn't allowed."""

    code = "identifier"


class SourceError(InputError):
    """A source file is missing, damaged, or not what its name says."""

    code = "source"


class SchemaError(InputError):
    """The batch doesn't fit the table, or its files don't fit each other. The message lists every difference."""

    code = "schema"


class CheckError(InputError):
    """A check can't be parsed, or doesn't apply to this table."""

    code = "check"


class AuditTimeoutError(InputError):
    """An audit took longer than ``audit.timeout_s``."""

    code = "audit-timeout"


class QueryError(InputError):
    """Spark rejected a query, or the statement isn't a query."""

    code = "query"


class NotFoundError(InputError):
    """The branch, tag, table, run or commit doesn't exist."""

    code = "not-found"


class AlreadyExistsError(InputError):
    """A branch, tag, table or file of this name already exists."""

    code = "already-exists"


class NotRevertableError(LakegateError):
    """A run can't be reverted by itself: later runs depend on it, or another writer changed its data."""

    code = "not-revertable"


class AuditFailedError(LakegateError):
    """The audit failed, so nothing was published.

    Attributes:
        run: The rejected run, with its reports; ``None`` if the error isn't about one run.
    """

    run: Any = None
    code = "audit-failed"
    exit_code = ExitCode.AUDIT_FAILED


class NothingWrittenError(LakegateError):
    """Nothing was written through the gate, although its writer is done."""

    code = "nothing-written"
    exit_code = ExitCode.AUDIT_FAILED


class RetryableError(LakegateError):
    """Nothing was published, and trying again may succeed: something is busy, such as the journal."""

    code = "retryable"
    exit_code = ExitCode.RETRYABLE


class LeaseLostError(RetryableError):
    """The run's lease wasn't renewed in time, and another process took over the run.

    ``lakegate runs RUN`` shows how it ended.
    """

    code = "lease-lost"


class ConflictError(RetryableError):
    """A table that this publish depends on changed on ``main`` or on the branch."""

    code = "conflict"


class AlreadyPublishedError(ConflictError):
    """Another run published the same source files meanwhile, perhaps with other content.

    Trying again skips those that didn't change; a branch that is published by name has them anyway (exit code 2).
    """

    code = "already-published"


class NotReplayableError(ConflictError):
    """A table changed on ``main`` in a way that the run can't be rebased onto."""

    code = "not-replayable"


class CatalogUnavailableError(RetryableError):
    """The catalog doesn't respond, or can't serve requests right now."""

    code = "catalog-unavailable"


class EngineUnavailableError(RetryableError):
    """Spark doesn't respond, or was lost in the middle of an operation."""

    code = "engine-unavailable"


class EngineError(RetryableError):
    """Spark couldn't do the work: out of disk or memory, or a task failed."""

    code = "engine"


class StorageUnavailableError(RetryableError):
    """The object store doesn't respond, or is too busy for too long."""

    code = "storage-unavailable"


class ClockError(RetryableError):
    """A machine's clock is so far ahead that other machines couldn't write to a table with its timestamps."""

    code = "clock"


class DownstreamError(LakegateError):
    """A downstream system rejected an event, and would reject it again: wrong permissions, names or settings."""

    code = "downstream"


class DownstreamUnavailableError(RetryableError):
    """A downstream system doesn't respond, or is overloaded. Its events stay queued and are retried.

    Args:
        message: What happened; without secrets.
        after_s: Seconds to wait before the next attempt, if the system says so.
        **rest: As for :class:`LakegateError`.
    """

    code = "downstream-unavailable"

    def __init__(self, message: str, *, after_s: float | None = None, **rest: object) -> None:
        super().__init__(message, **rest)  # type: ignore[arg-type]
        self.after_s = after_s


class LocalStackError(RetryableError):
    """The local stack can't be started, found or stopped."""

    code = "local-stack"


class OutcomeUnknownError(LakegateError):
    """A commit was sent, but no response came. Only the catalog's history shows whether it was applied."""

    code = "outcome-unknown"
    exit_code = ExitCode.OUTCOME_UNKNOWN


def missing_package(need: str, package: str | None, extra: str, **context: Any) -> ConfigurationError:
    """Return the error for a missing package of an extra. ``need`` begins the sentence: ``Files on S3 need``."""
    hint = f"pip install 'lakegate[{extra}]'"
    return ConfigurationError(
        f"{need} the package {package}, which isn't installed.", hint=hint, extra=extra, **context
    )


def _json_safe(value: object) -> object:
    if isinstance(value, (list, tuple, set, frozenset)):
        return [_json_safe(item) for item in value]
    return value if isinstance(value, (str, int, float, bool)) or value is None else str(value)
