"""The planner: answers each check from the cheapest evidence, and reports which evidence that was.

File metrics come first: they take milliseconds for any number of rows. All remaining questions about single rows share
*one* aggregation over the added rows. Each question about keys (uniqueness, a foreign key) takes a job of its own,
except one integer key, which the shared aggregation can prove unique. Only failing checks fetch examples.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice, tee
from typing import Any, TypeAlias

from lakegate.checks.bitmaps import integer_key, within_bounds
from lakegate.checks.columns import count_nans
from lakegate.checks.definition import refuse
from lakegate.checks.explaining import named_in, read_bytes, reason
from lakegate.checks.history import BatchHistory, PastBatch, joined, judge_band, measure_key
from lakegate.checks.questions import (
    AboutChange,
    AboutColumns,
    Aggregates,
    DuplicateRows,
    FailingRows,
    Filter,
    Finding,
    KeyQuestion,
    OrphanRows,
    QueryRows,
    Question,
    RowTotal,
    TotalBeside,
    filtered_rows,
    is_about_rows,
    parent_rows,
    with_condition,
    within,
)
from lakegate.checks.registry import built_in, find_check
from lakegate.checks.validation import (
    Schemas,
    is_hidden,
    is_masked_in,
    names_masked,
    no_such_table,
    require_runnable,
    validate_checks,
)
from lakegate.errors import CheckError, EngineError, EngineUnavailableError, QueryError
from lakegate.model.checks import (
    HIDDEN,
    AuditReport,
    Check,
    CheckResult,
    Evidence,
    Explanation,
    Method,
    Verdict,
    is_tolerated,
)
from lakegate.model.identifiers import TableIdentifier, plain_names, quote, sql_name
from lakegate.model.schema import Schema
from lakegate.model.tables import OWN_BATCH, AddedFiles, AddedRows, IntegerKey, Rows, ScanResult
from lakegate.model.words import counted
from lakegate.ports import Engine, Narrator
from lakegate.telemetry.metrics import AUDIT_SECONDS, measure

Others: TypeAlias = Callable[[TableIdentifier], tuple[Rows, ...]]
"""Returns where to read a table as it would be after publishing, without the audited rows; ``()`` if there are no other
rows: the table doesn't exist, or all its rows are audited."""

_LOG = logging.getLogger(__name__)
EXAMPLES = 10
"""Failing rows shown for each failing check that doesn't say how many."""

_MOST_FAILING_VALUES = 10
_MOST_WITH_EXAMPLES = 50
"""Failing checks that get examples. Each takes a Spark job and adds rows to the report."""
_MOST_COLUMNS = 100
"""Columns shown of an example row."""
_MOST_RUNS_SEARCHED = 250  # for the last one that passed a check
_NO_RUN = "It compares a run with what came before, and there is no run here."
_NO_BATCH = "Only new rows are compared with earlier batches; this run changed others, or released quarantined ones."
_NO_ROW = "FALSE"  # to count only all rows


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
    explain: bool = False,
    past: BatchHistory | None = None,
    listed: int | None = None,
) -> AuditReport:
    """Run all checks on the rows that a run added.

    Args:
        run_id: The run, for the report.
        rows: The rows to judge.
        schema: The table's columns on the branch.
        added: The manifests' view of the same rows.
        checks: In the order of the report.
        engine: Called at most once, and only when manifests leave something open or a check failed.
        metadata_location: The table metadata that is audited, for the report.
        narrator: Where to report progress.
        others: Returns where to read tables as they would be after publishing; needed by checks of scope ``table``.
        at: Hash of the commit that ``others`` reads at, for the report.
        schemas: Returns the schemas of those tables; the audited one's is ``schema``.
        explain: Whether to say how each check was answered, and why no cheaper way would do.
        past: Earlier batches and the schema before the run. Default: no run is audited, so checks that need either are
            skipped.
        listed: Number of rows in the table's metadata, for a report whose checks read none. Default: that of ``added``.

    Returns:
        The report. A failed check is a result in it, never an exception.

    Raises:
        CheckError: If a check doesn't fit this table, or the engine refuses its SQL or column.
        EngineError: If the audit couldn't run, or the engine didn't see all rows in the manifests.
    """
    started = time.monotonic()
    known = None if schemas is None else lambda table: schema if table == rows.table else schemas(table)
    valid = validate_checks(checks, schema, known, masked=rows.masked)
    if added.complete and not added.rows:  # no scan would find SQL that can't run
        require_runnable(valid, schema, engine)
    rows = rows.model_copy(update={"is_measured": added.complete and not schema.uuids})
    audit = _Audit(rows, schema, added, valid, engine, narrator, others, past, run_id, listed)
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
        explanations=audit.explanations(results) if explain else (),
    )


def recheck(
    report: AuditReport, checks: Sequence[Check], moved: Collection[str], *, schema: Schema, at: str, **audit: Any
) -> AuditReport:
    """Repeat the checks of ``report`` that read a table in ``moved``, and keep the other results.

    Args:
        report: The report on the same rows, from :func:`run_audit` or this function.
        checks: The report's checks, in its order.
        moved: Names of the tables that changed since ``report.at``.
        schema: The table's columns on the branch.
        at: Hash of the commit that other tables are read at now.
        audit: Arguments of :func:`run_audit`, without the run and its metadata.

    Returns:
        A report that holds at ``at``. If it reads none of the tables that moved, no check is repeated.

    Raises:
        LakegateError: As :func:`run_audit`.
        ValueError: When ``checks`` aren't those of the report.
    """
    pairs = enumerate(zip(validate_checks(checks, schema), report.results, strict=True))
    stale = {index: check for index, (check, result) in pairs if set(result.reads) & set(moved)}
    fresh = run_audit(
        run_id=report.run_id,
        checks=tuple(stale.values()),
        metadata_location=report.metadata_location,
        schema=schema,
        at=at,
        **audit,
    )
    results = list(report.results)
    for index, result in zip(stale, fresh.results, strict=True):
        before = results[index]
        earlier = {name: getattr(before, name) for name in ("quarantined", "examples", "files", "more_files", "detail")}
        kept = earlier if before.quarantined and not result.blocks else {}
        results[index] = result.model_copy(update={"name": before.name, **kept})
    return report.model_copy(
        update={
            "results": tuple(results),
            "seconds": report.seconds + fresh.seconds,
            "at": at if report.reads else report.at,
        }
    )


def answer_from_manifest(question: Question, added: AddedFiles) -> Finding | None:
    """Answer a question from file metrics alone; ``None`` if they don't prove the answer."""
    if not added.complete:
        return None
    if isinstance(question, RowTotal):
        return question.judge(added.rows)
    if isinstance(question, Aggregates):
        return _from_metrics(question, added)
    if isinstance(question, TotalBeside) or (isinstance(question, QueryRows) and not question.is_rows):
        return None  # a query may return rows even for an empty batch
    in_batch = isinstance(question, DuplicateRows) and question.scope == "batch"
    if added.rows == 0 or (added.rows == 1 and in_batch):
        return Finding(0)
    failing: object = None
    if isinstance(question, FailingRows) and question.metrics is not None:
        with suppress(Exception):  # a user's function may raise anything; then a scan answers the question
            failing = question.metrics(added)
    return Finding(failing) if type(failing) is int and 0 <= failing <= added.rows else None


def _from_metrics(question: Aggregates, added: AddedFiles) -> Finding | None:
    try:
        values = None if question.metrics is None else question.metrics(added)
        return None if values is None else question.judge(values, added.rows)
    except Exception:  # noqa: BLE001 - a user's function may raise anything; then a scan answers the question
        return None


def _record_time(evidence: str, began: float) -> float:
    """Record the seconds since ``began``, and return the current time."""
    now = time.monotonic()
    measure(AUDIT_SECONDS, now - began, evidence=evidence)
    return now


def distinct_names(names: Sequence[str]) -> tuple[str, ...]:
    """Return ``names`` with duplicates numbered.

    Example:
        >>> distinct_names(["a", "a", "b"])
        ('a', 'a #2', 'b')
    """
    taken: set[str] = set()
    distinct: list[str] = []
    for name in names:
        candidate, number = name, 1
        while candidate in taken or (candidate != name and candidate in names):
            number += 1
            candidate = f"{name} #{number}"
        taken.add(candidate)
        distinct.append(candidate)
    return tuple(distinct)


@dataclass(frozen=True, slots=True)
class _Answer:
    """The answer to one check. ``total`` is the number of rows that it judged, if not all."""

    finding: Finding
    evidence: Evidence
    total: int | None = None
    examples: tuple[dict[str, Any], ...] = ()
    values: tuple[dict[str, Any], ...] = ()
    reads: tuple[str, ...] = ()


@dataclass(eq=False)
class _Audit:
    """One audit in progress. Each other table is located once, so that all questions see the same state of it."""

    rows: AddedRows
    schema: Schema
    added: AddedFiles
    checks: Sequence[Check]
    connect: Callable[[], Engine]
    narrator: Narrator | None
    others: Others | None
    past: BatchHistory | None
    run_id: str
    listed: int | None

    def __post_init__(self) -> None:
        self._past_batches = iter(() if self.past is None else self.past.batches())
        self._questions = [find_check(check.kind).ask(check, self.schema) for check in self.checks]
        self._filters = [find_check(check.kind).filter(check, self.schema) for check in self.checks]
        self._filter_counts: dict[Filter, int] = {}  # number of matching rows
        self._filtered_questions: dict[int, FailingRows] = {}
        self._is_unique: dict[DuplicateRows, bool] = {}  # whether the scan proved it
        self._jobs: dict[tuple[KeyQuestion, Filter | None], list[Method]] = {}  # jobs for just this question
        self._located: dict[TableIdentifier, tuple[Rows, ...]] = {}
        self._nan_counts: dict[int, int] = {}  # of questions that pass NaN
        self._total = self.added.rows if self.added.complete else None

    @property
    def total(self) -> int:
        """Number of rows that were judged; if none had to be read, the number that the table's metadata lists."""
        if self._total is not None:
            return self._total
        return self.added.rows if self.listed is None else self.listed

    def results(self) -> tuple[CheckResult, ...]:
        """Answer all checks."""
        answers: dict[int, _Answer] = {}
        unanswered: dict[int, Question] = {}
        began = time.monotonic()
        for index, question in enumerate(self._questions):
            where = self._filters[index]
            if where is not None and self._total == 0:
                self._filter_counts[where] = 0
            elif where is not None:
                unanswered[index] = question  # metrics don't say how many rows a filter selects
                continue
            finding = self._answer_without_rows(index, question)
            if finding is None:
                unanswered[index] = question
            else:
                answers[index] = _Answer(finding, "manifest", total=self._judged_rows(index))
        began = _record_time("manifest", began)
        for index, question in unanswered.items():
            self._locate(self.checks[index], question)
        findings = dict(self._scan(unanswered))
        left = {index: question for index, question in unanswered.items() if index not in findings}
        for answer_all in (self._run_aggregates, self._run_queries, self._answer_key_questions):
            findings |= answer_all(left)
        for index, finding in findings.items():
            reads = tuple(map(str, self._other_tables(unanswered[index])))
            answers[index] = _Answer(finding, "scan", total=self._judged_rows(index), reads=reads)
        self._compare_with_history(answers)
        if unanswered:
            began = _record_time("scan", began)
        if any(self._verdict(index, answer) == "fail" for index, answer in answers.items()):
            self._add_examples(answers)
            _record_time("examples", began)
        names = distinct_names([check.name for check in self.checks])
        return tuple(
            self._result(index, name, answers[index], self._verdict(index, answers[index]))
            for index, name in enumerate(names)
        )

    def explanations(self, results: Sequence[CheckResult]) -> tuple[Explanation, ...]:
        """Explain how each result was obtained."""
        return tuple(self._explanation(index, result) for index, result in enumerate(results))

    def _explanation(self, index: int, result: CheckResult) -> Explanation:
        question, where = self._questions[index], self._filters[index]
        fetched = bool(result.examples)
        is_query = isinstance(question, QueryRows) and question.by_user
        size = None if is_query else read_bytes((*result.columns, *named_in(where, self.schema)), self.added)
        if result.evidence != "scan":
            size = size if fetched else 0
            return Explanation(check=result.check, method="manifest", reason=None, jobs=fetched, bytes=size)
        why: str | None = reason(self.checks[index], question, where, self.schema, self.added)
        method: Method = "scan"
        jobs = 1
        if is_query:
            jobs += bool(result.failing_rows)  # a second job computes the failing rows' values
        if isinstance(question, (DuplicateRows, OrphanRows)):
            own = self._jobs.get((question, where), [])
            in_scan = where is None and question in self._is_unique
            if own or in_scan:  # otherwise, its filter matches no row
                method, jobs = own[-1] if own else "bitmaps in the scan", len(own) + in_scan
            if method == "grouping" and (in_scan or len(own) > 1):
                why = "Bitmaps didn't prove its key unique, so the rows that share a key were counted."
        return Explanation(check=result.check, method=method, reason=why, jobs=jobs + fetched, bytes=size)

    def _judged_rows(self, index: int) -> int | None:
        """Return the number of rows that a check's filter selects; ``None`` without a filter."""
        where = self._filters[index]
        return None if where is None else self._filter_counts[where]

    def _verdict(self, index: int, answer: _Answer) -> Verdict:
        # A check of the number of rows also judges 0 rows.
        if answer.finding.skipped or (answer.total == 0 and not isinstance(self._questions[index], RowTotal)):
            return "skipped"
        if answer.finding.failed:
            return "fail"
        total = self.total if answer.total is None else answer.total
        tolerated = is_tolerated(self.checks[index].tolerance, answer.finding.failing_rows, total)
        return "pass" if tolerated else "fail"

    @cached_property
    def _engine(self) -> Engine:
        return self.connect()

    def _step(self, text: str) -> AbstractContextManager[object]:
        return nullcontext() if self.narrator is None else self.narrator.step(text)

    # Single rows ---------------------------------------------------------------------------------------------------

    def _scan(self, questions: Mapping[int, Question]) -> Iterator[tuple[int, Finding]]:
        """Answer all questions about single rows and their number in one pass, which also counts each filter's rows.

        If a filter selects no rows, this answers its other questions, too: nothing can fail. The same pass can prove
        one key unique, if the rows are in its order. Every other key takes a job of its own.
        """
        about_rows = {i: self._filtered(i) for i, q in questions.items() if isinstance(q, FailingRows)}
        about_total = {i: q for i, q in questions.items() if isinstance(q, RowTotal)}
        filters = list(dict.fromkeys(where for i in questions if (where := self._filters[i]) is not None))
        if not about_rows and not about_total and not filters:
            return
        nans = {i: predicate for i in about_rows if (predicate := self._nans(i)) is not None}
        asked = {question.predicate: question for question in about_rows.values()}
        asked |= {predicate: FailingRows(predicate, by_user=True) for predicate in nans.values()}
        distinct = [*asked.values()]
        distinct += [FailingRows(where.sql, by_user=True) for where in filters]
        answered = [i for i in questions if i in about_rows or i in about_total or self._filters[i] is not None]
        duplicates = [q for i, q in questions.items() if isinstance(q, DuplicateRows) and self._filters[i] is None]
        candidates = ((question, self._integer_key(question)) for question in duplicates)
        keys = ((question, key) for question, key in candidates if key is not None and key.is_ordered)
        proven, key = next(iter(keys), (None, None))
        also = f", and duplicates of {', '.join(key.columns)}" if key else ""
        with self._step(f"Scanning {self.rows.table} for {counted(len(answered), 'check')}{also}"):
            result = self._count(distinct or [FailingRows(_NO_ROW)], key)
        if proven is not None:
            self._is_unique[proven] = bool(result.is_unique)
        self._filter_counts |= dict(zip(filters, result.failing[len(distinct) - len(filters) :], strict=False))
        failing = dict(zip((question.predicate for question in distinct), result.failing, strict=False))
        self._nan_counts |= {index: failing[predicate] for index, predicate in nans.items()}
        yield from ((index, Finding(failing[question.predicate])) for index, question in about_rows.items())
        for index, total in about_total.items():
            judged = self._judged_rows(index)
            yield index, self._judge(index, total.judge, result.total if judged is None else judged)
        rest = (index for index in questions if index not in about_rows and index not in about_total)
        yield from ((index, Finding(0)) for index in rest if self._judged_rows(index) == 0)

    def _filtered(self, index: int) -> FailingRows:
        """Return a question about single rows, limited to the rows that its check's filter selects."""
        question, where = self._questions[index], self._filters[index]
        assert isinstance(question, FailingRows)  # noqa: S101 - callers check that
        if where is None:
            return question
        if index not in self._filtered_questions:
            self._filtered_questions[index] = replace(
                question, predicate=within(question.predicate, where), metrics=None, by_user=True
            )
        return self._filtered_questions[index]

    def _nans(self, index: int) -> str | None:
        """Return the predicate of rows whose NaN a check passes; ``None`` if it needn't say so."""
        question, where = self._questions[index], self._filters[index]
        if not isinstance(question, FailingRows) or question.nans_of is None:
            return None
        predicate = f"isnan({question.nans_of})"
        return predicate if where is None else within(predicate, where)

    def _count(self, questions: Sequence[FailingRows], key: IntegerKey | None) -> ScanResult:
        try:
            result = self._engine.count_failing(self.rows, [one.predicate for one in questions], key=key)
        except (EngineError, QueryError) as error:
            self._raise_user_errors(questions, error)
            raise
        return self._verified(result, len(questions))

    def _verified(self, result: ScanResult, questions: int, where: Filter | None = None) -> ScanResult:
        """Return ``result`` if it covers all rows that the manifests, or the filter's count, say there are."""
        if self._total is None and where is None:
            self._total = result.total
        expected = self._total if where is None else self._filter_counts[where]
        if result.total != expected or len(result.failing) != questions:
            raise EngineError(
                f"The audit of {self.rows.table} on {self.rows.ref} couldn't run: the engine read "
                f"{result.total:,} rows, but {expected:,} were added.",
                hint="Run it again. If that doesn't help, someone else wrote to the branch: discard it.",
                table=str(self.rows.table),
                branch=self.rows.ref,
            )
        return result

    def _raise_user_errors(self, questions: Sequence[FailingRows], error: EngineError | QueryError) -> None:
        """Raise a :class:`CheckError` if what users wrote broke the scan: they must correct it, not retry the run."""
        by_user = [question for question in questions if question.by_user]
        ours = [question.predicate for question in questions if not question.by_user] or [_NO_ROW]
        if not by_user or self._error_of(*ours) is not None:
            return
        refusals = {question.predicate: self._error_of(question.predicate) for question in by_user}
        culprits = [
            (check, refusal)
            for index, check in enumerate(self.checks)
            if (refusal := next(filter(None, map(refusals.get, self._scanned(index))), None)) is not None
        ]
        if culprits:
            raise CheckError(
                f"The engine can't evaluate {counted(len(culprits), 'check')} on {self.rows.table}:"
                + "".join(f"\n- {check}: {refusal.message}" for check, refusal in culprits),
                hint="Correct the expression; in Spark SQL, try_divide(…) and try_cast(… AS …) give NULL, not errors.",
                detail="\n".join(refusal.detail for _, refusal in culprits if refusal.detail) or None,
                table=str(self.rows.table),
                branch=self.rows.ref,
            ) from error

    def _scanned(self, index: int) -> Iterator[str]:
        """Yield a check's predicates in the scan: its filter's, then its own."""
        where = self._filters[index]
        if where is not None:
            yield where.sql
        if isinstance(self._questions[index], FailingRows):
            yield self._filtered(index).predicate

    def _error_of(self, *predicates: str) -> EngineError | QueryError | None:
        try:
            self._engine.count_failing(self.rows, predicates)
        except (EngineError, QueryError) as error:
            return error
        return None

    # The batch as a whole ------------------------------------------------------------------------------------------

    def _answer_without_rows(self, index: int, question: Question) -> Finding | None:
        """Return a finding that the schema or file metrics prove; ``None`` if they prove none."""
        if isinstance(question, AboutColumns):
            return self._judge(index, question.judge, self.schema)
        if isinstance(question, AboutChange):
            if self.past is None:
                return Finding(0, _NO_RUN, skipped=True)
            return self._judge(index, question.judge, self.past.before(), self.schema)
        if isinstance(question, RowTotal) and self.added.complete:
            return self._judge(index, question.judge, self.added.rows)
        if isinstance(question, FailingRows) and question.nans_of is not None and self.added.complete:
            nans = count_nans(self.added, question.nans_of)
            if nans is None:
                return None
            self._nan_counts[index] = nans
        return answer_from_manifest(question, self.added)

    def _run_aggregates(self, questions: Mapping[int, Question]) -> Iterator[tuple[int, Finding]]:
        """Answer all questions about whole columns in one aggregation for each filter."""
        about = {index: question for index, question in questions.items() if isinstance(question, Aggregates)}
        for where in dict.fromkeys(self._filters[index] for index in about):
            group = {index: question for index, question in about.items() if self._filters[index] == where}
            expressions = list(dict.fromkeys(text for question in group.values() for text in question.expressions))
            with self._step(f"Aggregating {self.rows.table} for {counted(len(group), 'check')}"):
                total, values = self._engine.aggregate(filtered_rows(self.rows, where), expressions)
            self._verified(ScanResult(total=total, failing=()), 0, where)
            by_expression = dict(zip(expressions, values, strict=True))
            for index, question in group.items():
                own = [by_expression[text] for text in question.expressions]
                yield index, self._judge(index, question.judge, own, total)

    def _judge(self, index: int, judge: Callable[..., Finding], *values: Any) -> Finding:
        """Call a check's ``judge`` with ``values``."""
        check = self.checks[index]
        try:
            finding: object = judge(*values)
        except Exception as error:
            if isinstance(error, ValueError) and check.kind in built_in():
                hides = is_hidden(check, self.schema, self.rows.masked)
                raise refuse(check, HIDDEN if hides else str(error), "Select fewer rows with where=.") from None
            raise self._unusable(check, f"raised {type(error).__name__}", detail=repr(error)) from error
        if not isinstance(finding, Finding):
            raise self._unusable(check, f"returned {type(finding).__name__}, not a Finding")
        return finding

    def _unusable(self, check: Check, why: str, *, detail: str | None = None) -> CheckError:
        run = f", run {self.run_id}" if self.run_id else ""
        return CheckError(
            f"{check}: its function {why} ({self.rows.table}{run}).",
            hint="Correct the function.",
            detail=detail,
            check=str(check),
            table=str(self.rows.table),
            branch=self.rows.ref,
            run_id=self.run_id or None,
        )

    def _run_queries(self, questions: Mapping[int, Question]) -> Iterator[tuple[int, Finding]]:
        for index, question in questions.items():
            if not isinstance(question, QueryRows):
                continue
            check, where = self.checks[index], self._filters[index]
            with self._step(f"Querying {self.rows.table} for {check.kind}"):
                try:
                    # Only in users' queries can computing a value fail.
                    options = {"computed": True} if question.by_user else {}
                    result = self._engine.count_query(filtered_rows(self.rows, where), question.sql, **options)
                except (EngineError, QueryError) as error:
                    if question.by_user and self._error_of(_NO_ROW) is None:
                        problem = f"the engine can't run it: {error.message}"
                        raise refuse(check, problem, "Correct the query.", detail=error.detail) from error
                    raise
            yield index, Finding(self._verified(result, 1, where).failing[0])

    def _compare_with_history(self, answers: dict[int, _Answer]) -> None:
        """Compare what was measured with earlier batches."""
        banded = {i: band for i, one in enumerate(self._questions) if (band := getattr(one, "band", None)) is not None}
        if not banded:
            return
        own = None if self.past is None else self.past.own()
        for index, band in banded.items():
            answer, check = answers[index], self.checks[index]
            if own is None or not own.is_batch:
                why = _NO_RUN if self.past is None else _NO_BATCH
                detail = joined(answer.finding.detail, why)
                finding = replace(answer.finding, detail=detail, skipped=answer.finding.verdict == "pass")
                answers[index] = replace(answer, finding=finding)
                continue
            is_total = isinstance(self._questions[index], RowTotal) and check.where is None
            key = None if is_total else self._measure_key(check)
            finding = judge_band(answer.finding, band, key, self._batches(), own.at)
            evidence: Evidence = "journal" if answer.evidence == "manifest" else "scan"
            answers[index] = replace(answer, finding=finding, evidence=evidence)

    # Keys ----------------------------------------------------------------------------------------------------------

    def _answer_key_questions(self, questions: Mapping[int, Question]) -> Iterator[tuple[int, Finding]]:
        """Answer each question about keys in a job of its own. If bitmaps prove nothing, a second job counts keys."""
        findings: dict[tuple[KeyQuestion, Filter | None], Finding] = {}
        for index, question in questions.items():
            if isinstance(question, TotalBeside):
                yield index, self._compare_totals(index, question)
            if not isinstance(question, (DuplicateRows, OrphanRows)):
                continue
            where = self._filters[index]
            if (question, where) not in findings:
                is_unique = isinstance(question, DuplicateRows) and self._prove_unique(question, where)
                findings[question, where] = Finding(0) if is_unique else self._count_keys(question, where)
            yield index, findings[question, where]

    def _prove_unique(self, question: DuplicateRows, where: Filter | None) -> bool:
        """Return whether bitmaps prove that no key occurs twice. If they don't, keys may still be unique."""
        if where is None and question in self._is_unique:
            return self._is_unique[question]
        key = self._integer_key(question, where)
        if key is None:
            return False
        rows = filtered_rows(self.rows, where)
        self._jobs.setdefault((question, where), []).append("bitmaps")
        with self._step(f"Looking for duplicates of {', '.join(key.columns)} in {rows.table}"):
            return bool(self._verified(self._engine.count_failing(rows, (), key=key), 0, where).is_unique)

    def _integer_key(self, question: DuplicateRows, where: Filter | None = None) -> IntegerKey | None:
        key = integer_key(question.columns, self.schema, self.added)
        if key is None or question.scope == "batch":
            return key
        within = within_bounds(question.columns, self.schema, self.added)
        return key.model_copy(update={"others": self._other_rows(where), "within": within})

    def _count_keys(self, question: KeyQuestion, where: Filter | None) -> Finding:
        columns, rows = question.columns, filtered_rows(self.rows, where)
        is_alone = isinstance(question, DuplicateRows) and question.scope == "batch"
        self._jobs.setdefault((question, where), []).extend(("grouping",) if is_alone else ("join", "join"))
        if isinstance(question, OrphanRows):
            with self._step(f"Looking up {', '.join(columns)} in {question.table}"):
                result = self._engine.count_orphans(rows, columns, self._parents(question), question.other_columns)
            return Finding(self._verified(result, 1, where).failing[0])
        if question.scope == "batch":
            with self._step(f"Looking for duplicates of {', '.join(columns)} in {rows.table}"):
                return Finding(self._verified(self._engine.count_duplicates(rows, columns), 1, where).failing[0])
        with self._step(f"Looking for duplicates of {', '.join(columns)} in all of {rows.table}"):
            result = self._engine.count_known(rows, columns, self._other_rows(where))
        failing, in_table = self._verified(result, 2, where).failing
        if not failing:
            return Finding(0)
        if not in_table:
            return Finding(failing, "The table holds none of these keys; they repeat within the batch.")
        number = "all" if in_table == failing else f"{in_table:,}"
        return Finding(failing, f"The table already holds the keys of {number} of them.")

    def _compare_totals(self, index: int, question: TotalBeside) -> Finding:
        ours = self._count_beside(self.rows.table)
        if self._total is None:
            self._verified(self._engine.count_failing(self.rows, (_NO_ROW,)), 1)
        ours += self.total
        theirs = ours if question.table == self.rows.table else self._count_beside(question.table)
        return self._judge(index, question.judge, ours, theirs)

    def _count_beside(self, table: TableIdentifier) -> int:
        with self._step(f"Counting the rows of {table}"):
            return sum(self._engine.aggregate(rows, ())[0] for rows in self._located[table])

    def _other_rows(self, where: Filter | None) -> tuple[Rows, ...]:
        """Return the audited table's other rows. A check's filter applies to them, too."""
        return with_condition(self._located[self.rows.table], None if where is None else where.sql)

    def _locate(self, check: Check, question: Question) -> None:
        """Locate the other tables that ``question`` reads, so that all questions see the same state of them."""
        for table in self._other_tables(question):
            if table in self._located:
                continue
            if self.others is None:
                raise refuse(check, "this audit only sees the rows of the batch.", "Use scope='batch'.")
            rows = self.others(table)
            if not rows and table != self.rows.table:
                raise no_such_table(check, table)
            self._located[table] = rows

    def _other_tables(self, question: Question) -> tuple[TableIdentifier, ...]:
        """Return the tables that an answer depends on besides the batch."""
        if isinstance(question, OrphanRows):
            return (question.table,)
        if isinstance(question, TotalBeside):
            return tuple(dict.fromkeys((self.rows.table, question.table)))
        return (self.rows.table,) if isinstance(question, DuplicateRows) and question.scope == "table" else ()

    def _parents(self, question: OrphanRows) -> tuple[Rows, ...]:
        return parent_rows(question, self.rows, self._located[question.table])

    # Examples ------------------------------------------------------------------------------------------------------

    def _add_examples(self, answers: dict[int, _Answer]) -> None:
        """Fetch examples for each failed check separately, so that an error while fetching loses no verdict."""
        failed = [i for i in range(len(self._questions)) if self._verdict(i, answers[i]) == "fail"]
        failed = [i for i in failed if self._has_examples(self._questions[i]) and self._example_limit(i)]
        failed.sort(key=lambda index: self.checks[index].severity == "warn")
        for index in failed[_MOST_WITH_EXAMPLES:]:
            answers[index] = self._with_examples(
                self.checks[index],
                answers[index],
                f"only {_MOST_WITH_EXAMPLES} failing checks get examples.",
                quiet=True,
            )
        failed = sorted(failed[:_MOST_WITH_EXAMPLES])
        if not failed:
            return
        fetched: dict[object, tuple[dict[str, Any], ...] | str] = {}
        unavailable: str | None = None
        with self._step(f"Fetching examples for {counted(len(failed), 'check')}"):
            for index in failed:
                question: object = self._questions[index]
                query = self._filtered(index).predicate if isinstance(question, FailingRows) else question
                key = (query, self._filters[index], self._example_limit(index))
                shown = fetched.get(key, unavailable)
                if shown is None:
                    try:
                        shown = fetched[key] = self._fetch_examples(index)
                    except EngineUnavailableError as error:
                        shown = unavailable = error.message
                    except Exception as error:  # noqa: BLE001 - whatever fails, the verdict counts
                        kind = getattr(error, "context", {}).get("condition") or type(error).__name__
                        _LOG.debug("no examples: %s", kind)
                        shown = fetched[key] = f"fetching them failed ({kind})."
                answers[index] = self._with_examples(self.checks[index], answers[index], shown)
                if not isinstance(shown, str):
                    answers[index] = replace(answers[index], values=self._failing_values(index, answers[index]))

    @staticmethod
    def _has_examples(question: Question) -> bool:
        return isinstance(question, QueryRows) or is_about_rows(question)

    def _example_limit(self, index: int) -> int:
        number = self.checks[index].examples
        return EXAMPLES if number is None else number

    def _with_examples(
        self, check: Check, answer: _Answer, shown: tuple[dict[str, Any], ...] | str, *, quiet: bool = False
    ) -> _Answer:
        if not isinstance(shown, str):
            return replace(answer, examples=shown)
        if self.narrator is not None and not quiet:
            self.narrator.note(f"No examples for {check.name}: {shown}")
        detail = joined(answer.finding.detail, f"No examples can be shown: {shown}")
        return replace(answer, finding=replace(answer.finding, detail=detail))

    def _failing_values(self, index: int, answer: _Answer) -> tuple[dict[str, Any], ...]:
        """Return a check's most frequent failing values, each with its number of rows."""
        question = self._questions[index]
        is_shown = not is_masked_in(self.checks[index], self.schema, self.rows.masked)
        if not isinstance(question, FailingRows) or question.values_of is None or not is_shown or answer.values:
            return answer.values
        predicate = self._filtered(index).predicate
        sql = (
            f"SELECT {question.values_of} AS value, count(*) AS rows FROM {OWN_BATCH} WHERE {predicate} "  # noqa: S608 - quoted names
            f"GROUP BY 1 ORDER BY 2 DESC, 1 LIMIT {_MOST_FAILING_VALUES}"
        )
        try:
            return tuple(self._engine.query_examples(self.rows, sql, _MOST_FAILING_VALUES))
        except Exception:  # noqa: BLE001 - without them, the report still has the examples
            return ()

    def _fetch_examples(self, index: int) -> tuple[dict[str, Any], ...]:
        question, where, limit = self._questions[index], self._filters[index], self._example_limit(index)
        shown = {"shown": self._columns_shown(self.checks[index])}
        rows, engine = filtered_rows(self.rows, where).model_copy(update=shown), self._engine
        if isinstance(question, FailingRows):
            unfiltered = self.rows.model_copy(update=shown)
            return tuple(engine.examples(unfiltered, self._filtered(index).predicate, limit))
        if isinstance(question, QueryRows):
            if question.by_user and names_masked(question.sql, self.schema, rows.masked):
                rows = rows.model_copy(update={"masked": ("*",)})
            return tuple(engine.query_examples(rows, question.sql, limit))
        if isinstance(question, OrphanRows):
            others = self._parents(question)
            return tuple(engine.orphan_examples(rows, question.columns, others, question.other_columns, limit))
        if isinstance(question, DuplicateRows):
            others = self._other_rows(where) if question.scope == "table" else ()
            return tuple(engine.known_examples(rows, question.columns, others, limit))
        return ()

    def _columns_shown(self, check: Check) -> tuple[str, ...]:
        """Return which columns of a wide table to show: the check's own, then the first ones; ``()`` for all."""
        names = self.schema.names
        if len(names) <= _MOST_COLUMNS:
            return ()
        paths = (self.schema.resolve(column) for column in check.columns)
        own = [column.name for one in paths if one and (column := self.schema.find(one[0][0]))]
        return tuple(dict.fromkeys((*own, *names)))[:_MOST_COLUMNS]

    def _result(self, index: int, name: str, answer: _Answer, verdict: Verdict) -> CheckResult:
        check = self.checks[index]
        failing, detail = answer.finding.failing_rows, answer.finding.detail
        if verdict == "skipped" and detail is None:
            detail = f"No row of the batch matches {check.where}, so there was nothing to check."
        elif verdict == "pass" and failing:
            detail = f"{counted(failing, 'failing row')} tolerated (at most {check.tolerance})."
        nans = _nan_sentence(check, name, self._nan_counts.get(index, 0))
        hides = is_hidden(check, self.schema, self.rows.masked)
        if detail is not None and hides:
            detail = HIDDEN
        judged = self.total if answer.total is None else answer.total
        passed = self._last_pass(check) if verdict == "fail" else None
        breaking = failing if self._has_examples(self._questions[index]) else 0  # rows that break it by themselves
        return CheckResult(
            name=name,
            check=str(check),
            columns=check.columns,
            severity=check.severity,
            verdict=verdict,
            failing_rows=failing,
            total_rows=judged,
            evidence=answer.evidence,
            examples=answer.examples,
            detail=detail,
            reads=answer.reads,
            tolerance=check.tolerance,
            description=check.description,
            owner=check.owner,
            tags=check.tags,
            value=None if hides else answer.finding.value,
            sentence=joined(_failure_sentence(check, name, breaking, judged), nans) if verdict == "fail" else nans,
            condition=self._condition(index) if verdict == "fail" else None,
            values=answer.values,
            passed_run_id=None if passed is None else passed.run_id,
            passed_at=None if passed is None else passed.at,
            measure=None if answer.finding.value is None else self._measure_key(check),
        )

    def _condition(self, index: int) -> str | None:
        question, where = self._questions[index], self._filters[index]
        if isinstance(question, FailingRows):
            return plain_names(self._filtered(index).predicate)
        if not isinstance(question, (DuplicateRows, OrphanRows)):
            return None
        own = [quote(one) if self.schema.find(one) and "." in one else sql_name(one) for one in question.columns]
        keys = ", ".join(own) if len(own) == 1 else f"({', '.join(own)})"
        if isinstance(question, DuplicateRows):
            judged = f"{sql_name(str(self.rows.table))}{f' WHERE {where.sql}' if where else ''}"
            listed = f"SELECT {', '.join(own)} FROM {judged} GROUP BY {', '.join(own)} HAVING count(*) > 1"  # noqa: S608
            found = f"{keys} IN ({listed})"
        else:
            others = list(map(sql_name, question.other_columns))
            known = [*(f"{other} IS NOT NULL" for other in others), *filter(None, [question.condition])]
            listed = f"SELECT {', '.join(others)} FROM {sql_name(str(question.table))} WHERE {' AND '.join(known)}"  # noqa: S608
            found = f"{keys} NOT IN ({listed})"
        return found if where is None else f"{where.sql} AND {found}"

    def _last_pass(self, check: Check) -> PastBatch | None:
        text = str(check)
        return next((batch for batch in islice(self._batches(), _MOST_RUNS_SEARCHED) if text in batch.passed), None)

    def _batches(self) -> Iterator[PastBatch]:
        """Return earlier batches, newest first. Each is read once, when it's first needed."""
        self._past_batches, batches = tee(self._past_batches)
        return batches

    @staticmethod
    def _measure_key(check: Check) -> str:
        options = {"min", "max", "deviations", "percent", "last", "weekday"}
        arguments = {name: value for name, value in check.arguments.items() if name not in options}
        return measure_key(check.kind, check.columns, arguments, check.where)


def _failure_sentence(check: Check, name: str, failing: int, total: int) -> str:
    claim = find_check(check.kind).describe(check).removeprefix(f"{check}: ")
    if not failing or failing > total:
        return f"{name} fails: it isn't true that {claim}."
    return f"{failing:,} of {counted(total, 'row')} {'violates' if failing == 1 else 'violate'} {name}: {claim}."


def _nan_sentence(check: Check, name: str, nans: int) -> str | None:
    """Return what to say about NaN that passes."""
    if not nans:
        return None
    has, them = ("has", "it") if nans == 1 else ("have", "them")
    column = ", ".join(check.columns)
    return f"{counted(nans, 'row')} {has} NaN in {column}. NaN isn't NULL, so {name} passes {them}."
