"""The planner: answers every check where that is cheapest, and reports which evidence each answer rests on.

File metrics first (milliseconds at any number of rows). Whatever they leave open about single rows goes into *one*
aggregation over the added rows; each question about keys (uniqueness, a foreign key) is a job of its own. Only failing
checks fetch examples.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import Any

from lakegate.audits.lookups import KeyQuestion, Lookups, Others, counts, judge
from lakegate.audits.references import Schemas
from lakegate.audits.registry import find_rule
from lakegate.audits.rule import DuplicateRows, FailingRows, Finding, OrphanRows, Question, RowTotal
from lakegate.audits.validation import validate_checks
from lakegate.errors import CheckError, EngineError, EngineUnavailableError, QueryError
from lakegate.model.checks import AuditReport, Check, CheckResult, Evidence
from lakegate.model.files import AddedFiles
from lakegate.model.schema import Schema
from lakegate.model.tables import AddedRows, ScanResult
from lakegate.protocols import Engine, Narrator

EXAMPLES = 10
"""Failing rows shown for each failing check."""

_NO_ROW = "FALSE"  # for when only the number of rows is asked for


def run_audit(
    *,
    run_id: str,
    rows: AddedRows,
    schema: Schema,
    added: AddedFiles,
    checks: Sequence[Check],
    engine: Callable[[], Engine],
    metadata_location: str,
    narrator: Narrator | None = None,
    others: Others | None = None,
    at: str | None = None,
    schemas: Schemas | None = None,
) -> AuditReport:
    """Run all checks on the rows that a run added.

    Args:
        run_id: The run, for the report.
        rows: What the engine is to look at.
        schema: The table's columns on the branch.
        added: The manifests' view of the same rows.
        checks: In the order of the report.
        engine: Called at most once, and only when manifests leave something open or a check failed.
        metadata_location: The table metadata that is audited, for the report.
        narrator: Where to tell of it.
        others: Gives where to read tables as they would be after publishing; needed by checks of scope ``table``.
        at: Hash of the commit that ``others`` reads at, for the report.
        schemas: Gives the schemas of those tables; the audited one's is ``schema``.

    Returns:
        The report. A failed check is a result in it, never an exception.

    Raises:
        CheckError: When checks cannot be asked of this table, or the engine refuses what the user wrote in one.
        EngineError: When the audit could not run, or the engine did not see the rows that the manifests hold.
        EngineUnavailableError: When the engine is away.
    """
    started = time.monotonic()
    known = None if schemas is None else lambda table: schema if table == rows.table else schemas(table)
    audit = _Audit(rows, schema, added, validate_checks(checks, schema, known), engine, narrator, Lookups(rows, others))
    results = audit.results()
    return AuditReport(
        run_id=run_id,
        table=str(rows.table),
        branch=rows.ref,
        metadata_location=metadata_location,
        rows=audit.total,
        results=results,
        seconds=time.monotonic() - started,
        at=at if any(result.reads for result in results) else None,
    )


def answer_from_manifest(check: Check, added: AddedFiles, schema: Schema) -> Finding | None:
    """Answer a validated check from file metrics alone, or return ``None`` when they do not prove the answer."""
    if not added.complete:
        return None
    rule = find_rule(check.kind)
    found = rule.from_manifest(check, added, schema)
    if found is None and added.rows == 0 and not isinstance(rule.question(check, schema), RowTotal):
        return Finding(0)
    return found


def distinct_names(names: Sequence[str]) -> tuple[str, ...]:
    """Return ``names`` with repeated ones told apart by a number.

    Example:
        >>> distinct_names(["a", "a", "a_2"])
        ('a', 'a_3', 'a_2')
    """
    taken: set[str] = set()
    distinct: list[str] = []
    for name in names:
        candidate, number = name, 1
        while candidate in taken or (candidate != name and candidate in names):
            number += 1
            candidate = f"{name}_{number}"
        taken.add(candidate)
        distinct.append(candidate)
    return tuple(distinct)


@dataclass(frozen=True, slots=True)
class _Answer:
    finding: Finding
    evidence: Evidence
    examples: tuple[dict[str, Any], ...] = ()
    reads: tuple[str, ...] = ()


class _Audit:
    """One audit under way."""

    def __init__(
        self,
        rows: AddedRows,
        schema: Schema,
        added: AddedFiles,
        checks: Sequence[Check],
        engine: Callable[[], Engine],
        narrator: Narrator | None,
        lookups: Lookups,
    ) -> None:
        self._rows = rows
        self._schema = schema
        self._added = added
        self._checks = checks
        self._connect = engine
        self._connected: Engine | None = None
        self._narrator = narrator
        self._lookups = lookups
        self._total = added.rows if added.complete else None

    @property
    def total(self) -> int:
        """Rows that were looked at."""
        return self._added.rows if self._total is None else self._total

    def results(self) -> tuple[CheckResult, ...]:
        """Answer all checks."""
        found = [answer_from_manifest(check, self._added, self._schema) for check in self._checks]
        answers = [None if finding is None else _Answer(finding, "manifest") for finding in found]
        open_checks = [index for index, answer in enumerate(answers) if answer is None]
        questions = {index: self._question(self._checks[index]) for index in open_checks}
        for index, question in questions.items():
            self._lookups.locate(self._checks[index], question)
        for index, finding in (*self._scan(questions), *self._look_up(questions)):
            answers[index] = _Answer(finding, "scan", reads=self._lookups.reads(questions[index]))
        complete = self._with_examples([answer for answer in answers if answer is not None])
        names = distinct_names([check.name for check in self._checks])
        return tuple(
            self._result(check, name, answer) for check, name, answer in zip(self._checks, names, complete, strict=True)
        )

    @property
    def _engine(self) -> Engine:
        if self._connected is None:
            self._connected = self._connect()
        return self._connected

    def _question(self, check: Check) -> Question:
        return find_rule(check.kind).question(check, self._schema)

    def _step(self, text: str) -> AbstractContextManager[object]:
        return nullcontext() if self._narrator is None else self._narrator.step(text)

    def _scan(self, questions: dict[int, Question]) -> Iterator[tuple[int, Finding]]:
        """Answer all questions about single rows, and about their number, in one pass."""
        about_rows = {i: q for i, q in questions.items() if isinstance(q, FailingRows)}
        about_total = {i: q for i, q in questions.items() if isinstance(q, RowTotal)}
        if not about_rows and not about_total:
            return
        predicates = {q.predicate: q for q in about_rows.values()}
        with self._step(f"scan {self._rows.table} for {_checks(len(about_rows) + len(about_total))}"):
            counted = self._count(predicates or {_NO_ROW: FailingRows(_NO_ROW)})
        failing = dict(zip(predicates, counted.failing, strict=False))
        yield from ((index, Finding(failing[question.predicate])) for index, question in about_rows.items())
        yield from ((index, question.judge(counted.total)) for index, question in about_total.items())

    def _look_up(self, questions: dict[int, Question]) -> Iterator[tuple[int, Finding]]:
        """Answer each question about keys by a job of its own."""
        known: dict[KeyQuestion, Finding] = {}
        for index, question in questions.items():
            if not isinstance(question, (DuplicateRows, OrphanRows)):
                continue
            if question not in known:
                with self._step(self._lookups.doing(question)):
                    counted = self._lookups.ask(self._engine, question)
                known[question] = judge(question, self._verified(counted, counts(question)))
            yield index, known[question]

    def _count(self, predicates: dict[str, FailingRows]) -> ScanResult:
        try:
            counted = self._engine.count_failing(self._rows, tuple(predicates))
        except (EngineError, QueryError) as error:
            self._blame(predicates, error)
            raise
        return self._verified(counted, len(predicates))

    def _verified(self, counted: ScanResult, questions: int) -> ScanResult:
        """Believe a count only if it saw the rows that are there (DESIGN: never disagree with the manifests)."""
        if self._total is None:
            self._total = counted.total
        if counted.total != self._total or len(counted.failing) != questions:
            raise EngineError(
                f"The audit of {self._rows.table} on {self._rows.ref} could not run: the engine looked at "
                f"{counted.total:,} rows where {self._total:,} were added.",
                hint="Run it again; if it stays, the branch was written to by someone else: discard it.",
                table=str(self._rows.table),
                branch=self._rows.ref,
            )
        return counted

    def _blame(self, predicates: dict[str, FailingRows], error: EngineError | QueryError) -> None:
        """Find out whether what a user wrote broke the scan; then it is their check to repair, not a run to retry."""
        by_user = [predicate for predicate, question in predicates.items() if question.by_user]
        ours = [predicate for predicate in predicates if predicate not in by_user] or [_NO_ROW]
        if not by_user or self._refusal(*ours) is not None:
            return
        refusals = {predicate: self._refusal(predicate) for predicate in by_user}
        culprits = [
            f"\n- {check}: {refusal.message}"
            for check in self._checks
            if isinstance(question := self._question(check), FailingRows)
            and (refusal := refusals.get(question.predicate)) is not None
        ]
        if culprits:
            raise CheckError(
                f"The engine cannot evaluate {_checks(len(culprits))} on {self._rows.table}:{''.join(culprits)}",
                hint="Correct the expression; in Spark SQL, try_divide(…) and try_cast(… AS …) give NULL, not errors.",
                table=str(self._rows.table),
                branch=self._rows.ref,
            ) from error

    def _refusal(self, *predicates: str) -> EngineError | QueryError | None:
        try:
            self._engine.count_failing(self._rows, predicates)
        except (EngineError, QueryError) as error:
            return error
        return None

    def _with_examples(self, answers: Sequence[_Answer]) -> list[_Answer]:
        failed = [index for index, answer in enumerate(answers) if answer.finding.failing_rows]
        questions = {index: self._question(self._checks[index]) for index in failed}
        questions = {index: question for index, question in questions.items() if not isinstance(question, RowTotal)}
        complete = list(answers)
        if not questions:
            return complete
        with self._step(f"fetch examples for {_checks(len(questions))}"):
            for index, examples in self._examples(questions):
                complete[index] = replace(answers[index], examples=examples)
        return complete

    def _examples(self, questions: dict[int, Question]) -> Iterator[tuple[int, tuple[dict[str, Any], ...]]]:
        """Fetch examples as long as the engine gives any: a verdict that is known must not be lost for want of them."""
        known: dict[Question, tuple[dict[str, Any], ...]] = {}
        try:
            for index, question in questions.items():
                if question not in known:
                    known[question] = self._fetch(question)
                yield index, known[question]
        except (EngineError, EngineUnavailableError, QueryError) as error:
            if self._narrator is not None:
                self._narrator.note(f"no examples: {error.message}")

    def _fetch(self, question: Question) -> tuple[dict[str, Any], ...]:
        if isinstance(question, (DuplicateRows, OrphanRows)):
            return tuple(self._lookups.examples(self._engine, question, EXAMPLES))
        if isinstance(question, FailingRows):
            return tuple(self._engine.examples(self._rows, question.predicate, EXAMPLES))
        return ()

    def _result(self, check: Check, name: str, answer: _Answer) -> CheckResult:
        return CheckResult(
            name=name,
            check=str(check),
            columns=check.columns,
            severity=check.severity,
            verdict=answer.finding.verdict,
            failing_rows=answer.finding.failing_rows,
            total_rows=self.total,
            evidence=answer.evidence,
            examples=answer.examples,
            detail=answer.finding.detail,
            reads=answer.reads,
        )


def _checks(count: int) -> str:
    return f"{count} check{'' if count == 1 else 's'}"
