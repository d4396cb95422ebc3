"""A check as a value: what is asked, of which columns, and how much it matters."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from lakegate.model.base import Value

Severity = Literal["error", "warn"]
Scope = Literal["batch", "table"]
Verdict = Literal["pass", "fail"]
Evidence = Literal["manifest", "scan"]


class Check(Value):
    """One claim about rows, which an audit answers.

    What it does is defined by the function called ``kind`` (``lakegate.checks``); this is only its arguments.

    Attributes:
        kind: Name of the check: ``not_null``, ``in_range`` …
        columns: Columns it is about, in order; empty for checks of the whole batch.
        arguments: Its own arguments by name, JSON values only.
        severity: ``error`` blocks the publish, ``warn`` only reports.
        scope: ``batch``: the rows just written; ``table``: the table as it would be after publishing.
        label: A name chosen by the user; :attr:`name` falls back to one made from kind and columns.

    Example:
        >>> str(Check(kind="in_range", columns=("fare",), arguments={"min": 0, "max": 500}))
        'in_range(fare, min=0, max=500)'
    """

    kind: str
    columns: tuple[str, ...] = ()
    arguments: dict[str, Any] = Field(default_factory=dict)
    severity: Severity = "error"
    scope: Scope = "batch"
    label: str | None = None

    @property
    def name(self) -> str:
        """Name in reports: the user's label, else kind and columns."""
        return self.label or "_".join((self.kind, *self.columns))

    def __str__(self) -> str:
        words = [column if column.isidentifier() else repr(column) for column in self.columns]
        words += [f"{key}={value!r}" for key, value in self.arguments.items()]
        if self.severity != "error":
            words.append(f"severity={self.severity!r}")
        if self.scope != "batch":
            words.append(f"scope={self.scope!r}")
        if self.label:
            words.append(f"name={self.label!r}")
        return f"{self.kind}({', '.join(words)})"


class CheckResult(Value):
    """What one check found.

    Attributes:
        check: The check in its canonical text.
        verdict: ``pass`` or ``fail``. A check that could not run is an exception, not a verdict.
        failing_rows: Rows that break the check. For ``row_count``, which is about no row in particular, 0 on ``pass``
            and the number of rows missing or too many on ``fail``.
        total_rows: Rows that were looked at.
        reads: Tables whose state beside the batch the answer rests on (scope ``table``); it holds only as long as
            they stand as they were read.
        evidence: ``manifest`` when proven from file metrics, ``scan`` when rows were read.
        examples: Up to 10 failing rows, column name to JSON-safe value.
        detail: One sentence of explanation where the numbers alone do not tell.
    """

    name: str
    check: str
    columns: tuple[str, ...]
    severity: Severity
    verdict: Verdict
    failing_rows: int
    total_rows: int
    evidence: Evidence
    examples: tuple[dict[str, Any], ...] = ()
    detail: str | None = None
    reads: tuple[str, ...] = ()


class AuditReport(Value):
    """The outcome of all checks of one run on one table.

    ``metadata_location`` is the table metadata that was audited; only this exact state may be published.
    """

    run_id: str
    table: str
    branch: str
    metadata_location: str
    rows: int
    results: tuple[CheckResult, ...]
    seconds: float
    at: str | None = None
    """Hash of the target's commit at which checks of scope ``table`` read; ``None`` when there were none."""

    @property
    def reads(self) -> tuple[str, ...]:
        """Tables that some result depends on beside the batch itself."""
        return tuple(dict.fromkeys(table for result in self.results for table in result.reads))

    @property
    def passed(self) -> bool:
        """Whether no check of severity ``error`` failed."""
        return not self.failures

    @property
    def failures(self) -> tuple[CheckResult, ...]:
        """Results that block the publish."""
        return tuple(r for r in self.results if r.verdict == "fail" and r.severity == "error")

    @property
    def warnings(self) -> tuple[CheckResult, ...]:
        """Failed results of severity ``warn``."""
        return tuple(r for r in self.results if r.verdict == "fail" and r.severity == "warn")
