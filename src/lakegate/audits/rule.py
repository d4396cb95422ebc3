"""What a rule is, and the words it shares with the planner."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias, runtime_checkable

from lakegate.model.checks import Check, Scope, Verdict
from lakegate.model.files import AddedFiles
from lakegate.model.identifiers import TableIdentifier
from lakegate.model.schema import Schema


@dataclass(frozen=True, slots=True)
class Finding:
    """The answer to one check.

    Attributes:
        failing_rows: Rows that break the rule; 0 means that the check passes.
        detail: One sentence of explanation where the number alone does not tell.
    """

    failing_rows: int
    detail: str | None = None

    @property
    def verdict(self) -> Verdict:
        """``pass`` when no row fails."""
        return "fail" if self.failing_rows else "pass"


@dataclass(frozen=True, slots=True)
class FailingRows:
    """A question about single rows: those for which ``predicate`` (Spark SQL) is true fail.

    ``by_user`` marks predicates that hold something the user wrote in the engine's own language (SQL, a regular
    expression), which the engine may refuse although lakegate found nothing wrong with it.
    """

    predicate: str
    by_user: bool = False


@dataclass(frozen=True, slots=True)
class DuplicateRows:
    """A question about rows among each other: those that share their ``columns`` (none NULL) with another row fail.

    The other row is one of the batch, or with ``scope="table"`` any of the table as it would be after publishing.
    """

    columns: tuple[str, ...]
    scope: Scope = "batch"


@dataclass(frozen=True, slots=True)
class OrphanRows:
    """A question about rows and another table: those whose ``columns`` (none NULL) no row of it matches fail.

    ``table`` is looked at as it would be after publishing; ``other_columns`` are its columns, in the order of
    ``columns``.
    """

    columns: tuple[str, ...]
    table: TableIdentifier
    other_columns: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RowTotal:
    """A question about the number of rows, which ``judge`` turns into a finding."""

    judge: Callable[[int], Finding]


Question: TypeAlias = FailingRows | DuplicateRows | OrphanRows | RowTotal


@runtime_checkable
class Rule(Protocol):
    """The behaviour behind one kind of check. Stateless; one instance serves all checks of its kind.

    Attributes:
        kind: The word users write, ``not_null``.
        signature: How it is written, for hints: ``not_null(column, …)``.
        example: A complete check, for hints.

    A rule whose checks may be of another scope than ``batch`` says so in an attribute ``scopes``, a tuple of
    :data:`~lakegate.model.checks.Scope` whose first one is taken where none is given.
    """

    kind: str
    signature: str
    example: str

    def build(self, positional: Sequence[Any], keywords: Mapping[str, Any]) -> tuple[Check, ...]:
        """Make checks of the arguments as written, without ``severity``, ``scope`` and ``name``.

        ``build(check.columns, check.arguments)`` must return the check again: it is how a check that comes from
        somewhere else than the parser is looked through.

        Raises:
            CheckError: When arguments are missing, unknown, given twice or of the wrong kind.
        """
        ...

    def validate(self, check: Check, schema: Schema) -> Check:
        """Return ``check`` with its columns spelled as ``schema`` has them.

        Raises:
            CheckError: When a column does not exist, or has a type that the check cannot be asked of.
        """
        ...

    def describe(self, check: Check) -> str:
        """Return what the check claims in one sentence, without a full stop."""
        ...

    def from_manifest(self, check: Check, added: AddedFiles, schema: Schema) -> Finding | None:
        """Answer from file metrics, or return ``None`` (unknown) when they do not *prove* the answer.

        Called only for validated checks and for complete evidence (:attr:`AddedFiles.complete`).
        """
        ...

    def question(self, check: Check, schema: Schema) -> Question:
        """Return what to ask the engine. Called only for validated checks."""
        ...
