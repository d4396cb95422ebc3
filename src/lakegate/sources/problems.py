"""What is wrong with source files, collected so that all of it can be told at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lakegate.errors import InputError, SourceError
from lakegate.storage.errors import ReplacedError

MAX_LISTED = 10
"""Problems spelled out in one error; the rest are counted."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong.

    Attributes:
        message: A sentence that names the file.
        hint: What to do about it.
        path: The file or pattern concerned.
        error: The error to raise when this is the only problem.
    """

    message: str
    hint: str | None = None
    path: str | None = None
    error: type[InputError] = SourceError


class ProblemError(Exception):
    """Carries a :class:`Problem` out of the inspection of one file. Never leaves this room."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem.message)
        self.problem = problem


def unreadable(path: str, error: OSError) -> Problem:
    """Return what to say of a file that was found and cannot be read."""
    if isinstance(error, FileNotFoundError):
        return Problem(f"'{path}' is gone: it was there a moment ago.", "Run the command again.", path)
    if isinstance(error, ReplacedError):
        return Problem(f"'{path}' was replaced while it was read.", "Run the command again.", path)
    return Problem(f"'{path}' cannot be read: {error.strerror or error}.", "Check its permissions.", path)


def combine(problems: Sequence[Problem]) -> InputError:
    """Return one error that tells all ``problems`` (at least one), up to :data:`MAX_LISTED` of them in words.

    Example:
        >>> error = combine([Problem("a is empty.", hint="Drop it.", path="a"), Problem("b is missing.", path="b")])
        >>> print(error.message)
        2 problems with the source files:
          - a is empty. Drop it.
          - b is missing.
    """
    if len(problems) == 1:
        (only,) = problems
        return only.error(only.message, hint=only.hint, path=only.path)
    errors = {problem.error for problem in problems}
    hints = {problem.hint for problem in problems}
    shared_hint = hints.pop() if len(hints) == 1 else None
    lines = [f"  - {_in_full(problem, shared_hint)}" for problem in problems[:MAX_LISTED]]
    if len(problems) > MAX_LISTED:
        lines.append(f"  - and {len(problems) - MAX_LISTED} more.")
    return (errors.pop() if len(errors) == 1 else SourceError)(
        "\n".join([f"{len(problems)} problems with the source files:", *lines]),
        hint=shared_hint or "Repair these files or leave them out, then run the command again.",
        paths=[problem.path for problem in problems if problem.path is not None],
    )


def _in_full(problem: Problem, shared_hint: str | None) -> str:
    return problem.message if problem.hint in {None, shared_hint} else f"{problem.message} {problem.hint}"
