"""Spark queries of the dashboard, each in its own thread, on a lake that the first query opens.

Nothing else in the dashboard needs Spark. Spark therefore starts with the first query and stops once nobody has queried
for a while. Each query reports what it's waiting for, and stops if its visitor leaves.
"""

from __future__ import annotations

import io
import secrets
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from lakegate.errors import LakegateError, QueryError, RetryableError
from lakegate.model.rows import rows_of, write_csv
from lakegate.progress import one_line, without_secrets

if TYPE_CHECKING:
    import pyarrow as pa

    from lakegate.lake import Lake
    from lakegate.ports import Narrator, Step
    from lakegate.table import Query

State = Literal["running", "done", "failed", "stopped"]
LIMITS = (1_000, 10_000, 100_000)
"""Rows that a query may return, the default first."""
_PARALLEL_QUERIES = 4
_IDLE_S = 600.0
_MAX_BYTES = 256 * 1024**2
"""Largest result, in bytes; further rows are dropped. Results stay in memory while somebody looks at them."""
_MAX_CELL_LENGTH = 300
_ABANDONED_AFTER_S = 150.0
"""Seconds without a sign of the visitor before a query is stopped. Hidden tabs call once a minute."""
Plan: TypeAlias = "Callable[[Lake], Query | None]"
"""Returns the query to run on the lake; ``None`` if there is nothing to read."""


@dataclass(frozen=True)
class Result:
    """The result of a query.

    Attributes:
        table: The rows, at most ``limit``. Column names are unique.
        cut: Whether there were more rows.
        seconds: How long it took, without the start of Spark.
    """

    table: pa.Table
    cut: bool
    seconds: float

    def page(self, number: int, size: int) -> list[dict[str, Any]]:
        """Return the rows of a page (counted from 0) as dicts of displayable values."""
        rows = rows_of(self.table.slice(number * size, size))
        return [{name: _shown(value) for name, value in row.items()} for row in rows]

    def to_csv(self) -> bytes:
        """Return all rows as CSV in UTF-8."""
        text = io.StringIO()
        write_csv(self.table, text)
        return text.getvalue().encode(errors="surrogatepass")

    def to_parquet(self) -> bytes:
        """Return all rows as a Parquet file."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        file = io.BytesIO()
        try:
            pq.write_table(self.table, file)
        except pa.ArrowException as error:
            raise QueryError(
                f"Parquet can't hold this result: {one_line(error)}", hint="Cast the column in the query, or use CSV."
            ) from None
        return file.getvalue()


class QueryJob:
    """A query, running or ended. Threads may read its attributes at any time.

    Attributes:
        where: The ref and time that it reads, for people.
        doing: What it's doing or waiting for.
        progress: Tasks done and total tasks, once Spark reports them.
        result: The rows of a query that is ``done``.
    """

    def __init__(self, plan: Plan, limit: int, where: str) -> None:
        self.plan = plan
        self.limit = limit
        self.where = where
        self.state: State = "running"
        self.doing = "Waiting for another query"
        self.progress: tuple[int, int] | None = None
        self.result: Result | None = None
        self.error: LakegateError | None = None
        self._tag = f"lakegate-dashboard-{secrets.token_hex(8)}"
        self._session: Any = None
        self._ended = threading.Event()
        self._ending = threading.Lock()
        self._began = time.monotonic()
        self._seconds: float | None = None
        self._seen = self._began

    def seen(self) -> None:
        """Note that somebody still waits for the result."""
        self._seen = time.monotonic()

    @property
    def seconds(self) -> float:
        """Seconds since the start; once ended, how long it took."""
        return time.monotonic() - self._began if self._seconds is None else self._seconds

    def wait(self, timeout_s: float) -> bool:
        """Wait until it ends; return whether it has ended."""
        return self._ended.wait(timeout_s)

    def stop(self) -> None:
        """Stop it. Its Spark tasks end soon; a Spark start that it waits for continues."""
        session = self._session
        self.end("stopped")
        if session is not None:
            with suppress(Exception):  # nobody waits for the result any more
                session.interruptTag(self._tag)

    def end(self, state: State, *, result: Result | None = None, error: LakegateError | None = None) -> None:
        """Set the final state, unless there is one already."""
        with self._ending:
            if self._ended.is_set():
                return
            self._seconds = self.seconds
            self.result, self.error, self.state = result, error, state
            self._ended.set()

    def fetch(self, query: Query | None) -> Result | None:
        """Read the rows of ``query``; ``None`` if the job was stopped."""
        self.doing = "Reading rows"
        began = time.monotonic()
        if query is None:
            import pyarrow as pa

            return Result(pa.table({}), cut=False, seconds=0.0)
        # One extra row shows whether there are more.
        wanted = query.limit(self.limit + 1)
        with self._reporting_progress(wanted.dataframe):
            if self.state == "stopped":
                return None
            rows = wanted.to_arrow()
        cut = rows.num_rows > self.limit
        rows = rows.slice(0, self.limit)
        if rows.nbytes > _MAX_BYTES:
            rows, cut = rows.slice(0, max(1, int(rows.num_rows * _MAX_BYTES / rows.nbytes))), True
        rows = rows.rename_columns(unique_names(rows.column_names))
        return Result(rows, cut, time.monotonic() - began)

    @contextmanager
    def _reporting_progress(self, frame: Any) -> Iterator[None]:
        from lakegate.spark.sessions import is_connect

        session: Any = getattr(frame, "sparkSession", None)
        if session is None or not is_connect(session):  # classic sessions report no progress
            yield
            return

        def report(stages: Any, **_: object) -> None:
            if time.monotonic() - self._seen > _ABANDONED_AFTER_S:
                self.stop()
            known = list(stages or ())
            if known:
                self.progress = (sum(one.num_completed_tasks for one in known), sum(one.num_tasks for one in known))

        session.addTag(self._tag)
        session.registerProgressHandler(report)
        self._session = session
        try:
            yield
        finally:
            self._session = None
            session.removeProgressHandler(report)
            with suppress(Exception):  # the connection, and with it the tag, may be gone
                session.removeTag(self._tag)


class Queries:
    """Runs the queries of all visitors, a few at a time.

    Args:
        open_lake: Opens a lake that reports progress to a narrator. Called for the first query, and again after the
            lake was closed or lost its engine.
        idle_s: Seconds without a query before the lake is closed. Until then, the local Spark can't be restarted.
    """

    def __init__(self, open_lake: Callable[[Narrator], Lake], *, idle_s: float = _IDLE_S) -> None:
        self._open_lake = open_lake
        self._idle_s = idle_s
        self._lake: Lake | None = None
        self._planning: QueryJob | None = None
        self._running = 0
        # Planning opens sessions, which only one thread may do at a time. Rows are read in parallel.
        self._lock = threading.Lock()
        self._slots = threading.BoundedSemaphore(_PARALLEL_QUERIES)
        self._idle: threading.Timer | None = None

    def start(
        self, sql: str, *, ref: str = "main", at: str | datetime | None = None, limit: int = LIMITS[0]
    ) -> QueryJob:
        """Start a query and return at once.

        Args:
            at: Commit or time on ``ref``. Default: now.
        """
        where = ref if at is None else f"{ref} as of {at}"
        return self.read(lambda lake: lake.query(sql, ref=ref, at=at), where=where, limit=limit)

    def read(self, plan: Plan, *, where: str, limit: int = LIMITS[0]) -> QueryJob:
        """Start to read the query that ``plan`` returns, in a new thread, and return at once."""
        job = QueryJob(plan, max(1, min(limit, max(LIMITS))), where)
        threading.Thread(target=self._run, args=(job,), name="lakegate-query", daemon=True).start()
        return job

    @property
    def is_open(self) -> bool:
        """Whether the lake is open, so that Spark most likely runs."""
        return self._lake is not None

    def close(self) -> None:
        """Close the lake, unless queries are running."""
        with self._lock:
            if self._running == 0:
                self._close()

    def _run(self, job: QueryJob) -> None:
        with self._slots:
            try:
                query = self._plan(job)
                if job.state == "running":
                    job.end("done", result=job.fetch(query))
            except LakegateError as error:
                if isinstance(error, RetryableError):
                    self._replace_lake(job)
                job.end("failed", error=error)
            except Exception as error:  # noqa: BLE001 - the visitor must see why the query failed
                said = without_secrets(one_line(error))[:500]
                failure = LakegateError(f"The query failed: {type(error).__name__}: {said}")
                job.end("failed", error=failure)
            finally:
                self._finish()

    def _plan(self, job: QueryJob) -> Query | None:
        with self._lock:
            self._running += 1
            if self._idle is not None:
                self._idle.cancel()
                self._idle = None
            if job.state != "running":
                return None
            self._planning = job
            job.doing = "Planning the query"
            try:
                if self._lake is None:
                    self._lake = self._open_lake(_PlanningNarrator(self))
                return job.plan(self._lake)
            finally:
                self._planning = None

    def _finish(self) -> None:
        with self._lock:
            self._running -= 1
            if self._running == 0 and self._lake is not None:
                self._idle = threading.Timer(self._idle_s, self.close)
                self._idle.daemon = True
                self._idle.start()

    def _replace_lake(self, job: QueryJob) -> None:
        """Have the next query open another lake, because this one's engine or catalog didn't answer."""
        job.progress = None
        with self._lock:
            if self._running == 1:
                self._close()
            elif self._lake is not None:
                with suppress(LakegateError):
                    self._lake.reconnect()

    def _close(self) -> None:
        lake, self._lake = self._lake, None
        if lake is not None:
            with suppress(Exception):  # an unavailable engine can't be closed
                lake.close()

    def report(self, text: str | None, progress: tuple[int, int] | None = None) -> None:
        """Show what the query being planned waits for; ``None`` once it no longer waits."""
        job = self._planning
        if job is not None:
            job.doing, job.progress = text or "Planning the query", progress


class _PlanningNarrator:
    """Reports that servers are starting to the query that waits for them."""

    def __init__(self, queries: Queries) -> None:
        self._queries = queries

    @contextmanager
    def step(self, text: str) -> Iterator[Step]:
        self._queries.report(text)
        yield _PlanningStep(self._queries, text)
        self._queries.report(None)

    def note(self, text: str) -> None:
        self._queries.report(text)


class _PlanningStep:
    def __init__(self, queries: Queries, text: str) -> None:
        self._queries = queries
        self._text = text

    def progress(self, done: int, total: int, unit: str) -> None:
        del unit
        self._queries.report(self._text, (done, total) if total else None)


def unique_names(names: Sequence[str]) -> list[str]:
    """Return a result's column names, made unique. A query may return several columns of one name.

    Example:
        >>> unique_names(["id", "id", "", "id (2)"])
        ['id', 'id (2)', '(no name)', 'id (2) (2)']
    """
    taken: set[str] = set()
    found = []
    for name in names:
        plain = name or "(no name)"
        unique, number = plain, 1
        while unique in taken:
            number += 1
            unique = f"{plain} ({number})"
        taken.add(unique)
        found.append(unique)
    return found


def _shown(value: Any) -> Any:
    """Return a value as a page shows it. Long values are clipped; the download has all of them."""
    if isinstance(value, bytes):
        value = value[: _MAX_CELL_LENGTH // 2 + 1].hex()
    if isinstance(value, str) and len(value) > _MAX_CELL_LENGTH:
        return value[:_MAX_CELL_LENGTH] + "…"
    return value
