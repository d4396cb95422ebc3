"""One table: its publishes, columns, checks, schema, snapshots, files, and rows as of any commit."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Any

import streamlit as st
from markupsafe import Markup

from lakegate.dashboard.model import ReadModel
from lakegate.dashboard.tables import (
    CheckHistory,
    ColumnHistory,
    ColumnPoint,
    SchemaLine,
    SnapshotLine,
    TableDetail,
    check_history,
    column_history,
    get_table,
    list_data_files,
    list_partitions,
    list_snapshots,
    schema_changes,
)
from lakegate.dashboard.ui import charts, markup, parts
from lakegate.dashboard.ui.checks import show_quarantine
from lakegate.dashboard.ui.markup import TableColumn
from lakegate.dashboard.ui.pages import Page
from lakegate.dashboard.ui.pages.home import lateness
from lakegate.dashboard.ui.session import shared
from lakegate.errors import InputError, NotFoundError
from lakegate.model.identifiers import rows_query
from lakegate.model.refs import MAIN
from lakegate.model.rows import rows_of
from lakegate.model.schema import ColumnChange, is_masked
from lakegate.model.words import count, counted, share, size

_PAGE_SIZE = 50
_PUBLISHES = 60
_COLUMNS_PER_PAGE = 25
_POINTS = 30
_CHECK_RUNS = 40
_PREVIEW_ROWS = 50
_PREVIEW_COLUMNS = 40


def show() -> None:
    """Draw the page."""
    name = parts.param("table")
    if name is None:
        parts.heading("Table")
        parts.show_empty("No table was chosen", markup.link("See all tables", ""))
        return
    model = shared().model
    head = st.container()
    ref, at = _choose_state(name)
    try:
        detail = get_table(model, name, ref=ref, at=at)
    except (InputError, NotFoundError) as error:
        with head:
            parts.heading(name)
        parts.show_alert(error.message, error.hint, tone="off")
        if ref != MAIN or at is not None:
            parts.html(markup.link("See it on main now", "table", table=name))
        return
    with head:
        _show_header(detail, at)
    views: Mapping[str, Callable[[], None]] = {
        "Publishes": partial(_publishes, model, detail, at),
        "Columns": partial(_columns, model, detail, at),
        "Checks": partial(_checks, model, name),
        **({"Quarantine": partial(show_quarantine, name)} if detail.overview and detail.overview.quarantines else {}),
        "Schema": partial(_schema, model, detail, at),
        "Files": partial(_files, model, detail, at),
        "Preview": partial(_preview, detail, at),
        "Properties": partial(_properties, detail),
    }
    chosen = st.segmented_control(
        "View",
        list(views),
        default="Publishes",
        required=True,
        key="view",
        bind="query-params",
        label_visibility="collapsed",
        on_change=_forget_cursors,
    )
    with parts.boundary(f"the table's {chosen.lower()}"):
        views[chosen]()


def _number(value: int | None) -> str:
    return count(value) or "–"


def _forget_cursors() -> None:
    for name in ("after", "partitions"):
        if name in st.query_params:
            del st.query_params[name]


def _show_header(detail: TableDetail, at: str | None) -> None:
    about = [markup.joined("on ", markup.code(detail.ref), f" as of {at}" if at else "")]
    about.append(markup.joined("commit ", markup.code(detail.commit[:12])))
    if detail.partition_by:
        about.append(markup.joined("partitioned by ", markup.code(", ".join(detail.partition_by))))
    parts.heading(detail.table, markup.joined(*about, by=" · "))
    parts.problems(detail.problems)
    facts, over = detail.facts, detail.overview
    hidden = facts.rows is None and facts.rows_at_most is not None
    rows = f"≤ {facts.rows_at_most:,}" if hidden else _number(facts.rows)
    figures: list[tuple[object, str]] = [
        (rows, "rows"),
        (size(facts.size_bytes) or "–", "in data files"),
        (_number(facts.data_files), "data files"),
        (f"{len(detail.columns):,}", "columns"),
    ]
    if over is not None and over.last_publish is not None:
        figures.append((markup.ago(over.last_publish.at), "last publish"))
    parts.html(markup.figures(*figures))
    if over is None:
        return
    if over.late_s is not None:
        parts.show_alert(f"Late{' ' if over.late_s else ': '}{lateness(over)}.", "Home lists all tables that are late.")
    if over.waiting:
        runs = markup.joined(*(markup.run_link(run_id) for run_id in over.waiting_runs), by=", ")
        waiting = counted(over.waiting, "rejected batch", "rejected batches")
        verb = "waits" if over.waiting == 1 else "wait"
        parts.html(Markup('<div class="todo">{} {} for a decision: {}</div>').format(waiting, verb, runs))
    if over.quarantined:
        waiting = counted(over.quarantined, "quarantined row")
        verb = "waits" if over.quarantined == 1 else "wait"
        link = markup.link("see them", "table", table=over.table, view="Quarantine")
        parts.html(
            Markup('<div class="todo warn">{} {} to be released, fixed or dropped: {}</div>').format(
                waiting, verb, link
            )
        )


def _choose_state(name: str) -> tuple[str, str | None]:
    """Let the visitor choose another ref or time."""
    asked = parts.param("ref") not in (None, MAIN) or parts.param("at") is not None
    with (
        st.expander("Look at another branch, tag or time", expanded=asked, key=f"when-{name}"),
        st.container(horizontal=True),
    ):
        ref = parts.ref_box(_forget_cursors)
        at = st.text_input(
            "As of (time in UTC, or commit)",
            key="at",
            bind="query-params",
            placeholder="now, or 2026-01-31T07:00:00Z",
            max_chars=100,
            on_change=_forget_cursors,
        )
    return ref, at.strip() or None


# Publishes


def _publishes(model: ReadModel, detail: TableDetail, at: str | None) -> None:
    cursor = parts.param("after")
    page = list_snapshots(model, detail.table, ref=detail.ref, at=at, limit=_PUBLISHES, cursor=cursor)
    if not page.items:
        parts.show_empty("Nothing has been written to this table yet")
        return
    charts.bars(
        [bar for line in reversed(page.items) for bar in _bars(line)],
        kinds=("added", "removed"),
        description=f"Rows that each of the last {len(page.items)} snapshots added and removed",
    )
    parts.html(markup.table(_SNAPSHOT_COLUMNS, map(_snapshot_row, page.items), caption="Snapshots, newest first"))
    parts.show_pagination(page, "snapshot")
    runs = markup.link("Runs", "runs", table=detail.table)
    parts.note("Metadata keeps the newest snapshots; ", runs, " has every run.")


def _bars(line: SnapshotLine) -> list[charts.ChartBar]:
    about = line.run_id or f"snapshot {line.snapshot_id}"
    found = []
    if line.rows_added or not line.rows_removed:
        found.append(charts.ChartBar(line.at, line.rows_added or 0, "added", about))
    if line.rows_removed:
        found.append(charts.ChartBar(line.at, -line.rows_removed, "removed", about))
    return found


_SNAPSHOT_COLUMNS = (
    TableColumn("When", "fit"),
    "Run",
    TableColumn("Operation", "fit"),
    TableColumn("Rows added", "num"),
    TableColumn("Removed", "num"),
    TableColumn("Rows after", "num"),
    TableColumn("Files added", "num"),
    TableColumn("Size after", "num"),
    TableColumn("Snapshot", "fit"),
)


def _snapshot_row(line: SnapshotLine) -> Sequence[object]:
    foreign = markup.badge("another writer", tone="warn", sign="!")
    return (
        markup.ago(line.at),
        markup.run_link(line.run_id) if line.run_id else foreign,
        line.operation or "–",
        _number(line.rows_added),
        _number(line.rows_removed),
        _number(line.rows),
        _number(line.files_added),
        size(line.size_bytes) or "–",
        markup.joined(markup.code(line.snapshot_id), " (current)" if line.is_current else ""),
    )


# Columns


def _columns(model: ReadModel, detail: TableDetail, at: str | None) -> None:
    if detail.ref != MAIN or at is not None:
        _plain_columns(detail)
        return
    search = parts.search_box("Search columns", key="column").lower()
    names = [one.name for one in detail.columns if search in one.name.lower()]
    if not names:
        parts.show_empty("No column name contains that")
        return
    start = parts.start_param("after", len(names))
    shown = names[start : start + _COLUMNS_PER_PAGE]
    histories = {one.column: one for one in column_history(model, detail.table, columns=shown, limit=_POINTS)}
    known = [histories[name] for name in shown if name in histories]
    _null_chart(known)
    columns = (
        "Column",
        "Type",
        TableColumn("NULLs in the last publish", "fit"),
        "NULL rate over time",
        "Lowest",
        "Highest",
    )
    parts.html(markup.table(columns, map(_column_row, known), caption="Columns, with what the newest publish added"))
    _paginate_columns(start, len(shown), len(names))
    parts.note(
        f"From the metrics of the data files that each of the last {_POINTS} publishes added. ",
        "Bounds of text may be cut short.",
    )
    _bounds_chart(detail.table, known)


def _paginate_columns(start: int, shown: int, total: int) -> None:
    following = str(start + shown) if start + shown < total else None
    parts.show_page_buttons("column", shown=shown, following=following, total=total)


def _plain_columns(detail: TableDetail) -> None:
    start = parts.start_param("after", len(detail.columns))
    shown = detail.columns[start : start + _PAGE_SIZE]
    rows = ((one.name, markup.code(one.type), "required" if one.required else "") for one in shown)
    parts.html(markup.table(("Column", "Type", ""), rows, caption="Columns"))
    _paginate_columns(start, len(shown), len(detail.columns))
    link = markup.link("on main", "table", table=detail.table, view="Columns")
    parts.note("NULL rates and bounds are shown ", link, ".")


def _column_row(one: ColumnHistory) -> Sequence[object]:
    newest = one.points[-1] if one.points else None
    shares = [point.null_share for point in one.points]
    label = f"NULL rate of each of the last {len(shares)} publishes"
    over_time: object = markup.muted("unknown")
    if any(shares):
        over_time = markup.sparkline(shares, label=label, tone="bad")
    elif any(one is not None for one in shares):
        over_time = markup.muted("none")
    return (
        markup.text(one.column, longest=80),
        markup.code(one.type),
        _null_cell(newest),
        over_time,
        _bound(one.column, None if newest is None else newest.lower),
        _bound(one.column, None if newest is None else newest.upper),
    )


def _null_cell(point: ColumnPoint | None) -> object:
    if point is None or point.nulls is None:
        return markup.muted("unknown")
    if point.nulls == 0:
        return "0"
    bar = markup.bar(point.nulls, point.rows, tone="warn")
    return markup.joined(bar, f" {point.nulls:,} ({share(point.nulls, point.rows)})")


def _bound(column: str, value: object) -> Markup:
    if value is not None and _is_hidden(column):
        return markup.muted("hidden")
    return markup.muted("unknown") if value is None else markup.text(value, longest=40)


def _is_hidden(column: str) -> bool:
    """Return whether the settings hide a column's bounds, which are two of its values."""
    settings = shared().access.settings
    return settings.examples == 0 or is_masked(settings.masked, column)


def _null_chart(known: Sequence[ColumnHistory]) -> None:
    most = 6
    with_nulls = [one for one in known if any(point.null_share for point in one.points)]
    with_nulls.sort(key=lambda one: -max(point.null_share or 0 for point in one.points))
    chosen = {one.column: [(point.at, point.null_share) for point in one.points] for one in with_nulls[:most]}
    if any(len(points) > 1 for points in chosen.values()):
        charts.lines(chosen, title="NULL rate", description="NULL rate of each column per publish")


def _bounds_chart(table: str, known: Sequence[ColumnHistory]) -> None:
    charted = {one.column: points for one in known if not _is_hidden(one.column) and len(points := _bounds(one)) > 1}
    if not charted:
        return
    column = st.selectbox("Bounds over time", list(charted), key=f"bounds-{table}", format_func=charts.short)
    if column in charted:
        charts.ranges(
            charted[column],
            title=charts.short(column),
            description="Lowest and highest value that each publish added to a column",
        )


def _bounds(one: ColumnHistory) -> list[tuple[datetime, Any, Any]]:
    numbers = [
        (point.at, point.lower, point.upper)
        for point in one.points
        if all(isinstance(bound, (int, float)) and not isinstance(bound, bool) for bound in (point.lower, point.upper))
    ]
    if numbers or not one.type.startswith(("date", "timestamp")):
        return numbers
    return [(point.at, point.lower, point.upper) for point in one.points if point.lower and point.upper]


# Checks


def _checks(model: ReadModel, table: str) -> None:
    found = check_history(model, table, limit=_CHECK_RUNS)
    if not found:
        parts.show_empty(
            "No checks have run on this table",
            Markup("Add checks to {}:").format(markup.code("lakegate.toml")),
            markup.commands(f'[tables."{table}"]', 'checks = ["row_count(min=1)"]'),
        )
        return
    failing = sum(one.failing_since is not None for one in found)
    words = f"{failing} of {len(found)} fail" if failing else f"All {len(found)} passed the last time"
    parts.note(f"{words}, over the newest {_CHECK_RUNS} runs.")
    columns = (
        "Check",
        TableColumn("Now", "fit"),
        "Failing rows, run by run",
        "Failing since",
        TableColumn("Last pass", "fit"),
    )
    parts.html(markup.table(columns, map(_check_row, found), caption="Checks, failing ones first"))


def _check_row(one: CheckHistory) -> Sequence[object]:
    failing = [point.failing_rows if point.verdict == "fail" else 0 for point in one.points]
    newest = one.points[-1] if one.points else None
    status = markup.badge("fail" if one.failing_since else "pass")
    if one.failing_since and one.severity == "warn":
        status = markup.badge("warn")
    since: object = markup.muted("–")
    if one.failing_since is not None:
        runs = counted(one.failing_runs, "run")
        since = markup.joined(
            "at least " if one.earlier else "",
            markup.ago(one.failing_since.at),
            f", for {runs}, from ",
            markup.run_link(one.failing_since.run_id),
        )
    label = f"Failing rows in each of the last {len(failing)} runs; {failing[-1] if failing else 0:,} in the newest"
    of_all = ""
    if newest is not None and newest.verdict == "fail":
        of_all = f" {newest.failing_rows:,} of {newest.total_rows:,}"
    return (
        markup.joined(markup.code(one.check), "" if one.severity == "error" else f" ({one.severity})"),
        status,
        markup.joined(markup.sparkline(failing, label=label, tone="bad"), of_all),
        since,
        markup.ago(one.last_pass.at) if one.last_pass else markup.muted("none seen"),
    )


# Schema


def _schema(model: ReadModel, detail: TableDetail, at: str | None) -> None:
    changes = schema_changes(model, detail.table, ref=detail.ref, at=at)
    for one in reversed(changes):
        first = one is changes[0]
        parts.html(Markup("<h2>{}</h2>").format(_schema_title(one, first=first)), _schema_about(one))
        if first:
            _first_columns(one)
        else:
            rows = ((_CHANGES[change.change], change.column, *_before_after(change)) for change in one.changes)
            parts.html(markup.table(("Change", "Column", "Before", "After"), rows, caption="Changes of columns"))


_CHANGES = {
    "added": markup.badge("added", tone="ok", sign="+"),
    "dropped": markup.badge("dropped", tone="bad", sign="-"),
    "renamed": markup.badge("renamed", tone="live", sign="→"),
    "retyped": markup.badge("retyped", tone="warn", sign="→"),
    "required": markup.badge("no longer nullable", tone="live", sign="!"),
    "optional": markup.badge("now nullable", tone="live", sign="?"),
}


def _schema_title(one: SchemaLine, *, first: bool) -> str:
    if first:
        return f"Schema {one.schema_id}: created with {counted(one.columns, 'column')}"
    return f"Schema {one.schema_id}: {counted(len(one.changes), 'change')}, {one.columns:,} columns"


def _schema_about(one: SchemaLine) -> Markup:
    if one.since is None:
        return markup.note("None of the remaining snapshots was written with it.")
    run = markup.joined(" by run ", markup.run_link(one.run_id)) if one.run_id else ""
    return markup.note("First written ", markup.ago(one.since), run)


def _first_columns(one: SchemaLine) -> None:
    rows = [(change.column, markup.code(change.after or "")) for change in one.changes if change.change == "added"]
    table = markup.table(("Column", "Type"), rows[:_PAGE_SIZE], caption="Columns")
    more = len(rows) - _PAGE_SIZE
    rest = markup.note(f"and {more:,} more; Columns lists them.") if more > 0 else ""
    parts.html(table, rest)


def _before_after(change: ColumnChange) -> tuple[object, object]:
    before, after = ("" if value is None else markup.code(value) for value in (change.before, change.after))
    return before, after


# Files


def _files(model: ReadModel, detail: TableDetail, at: str | None) -> None:
    if detail.partition_by:
        _partitions(model, detail, at)
    search = parts.search_box("Search data files", key="file")
    page = list_data_files(
        model,
        detail.table,
        ref=detail.ref,
        at=at,
        search=search,
        limit=_PAGE_SIZE,
        cursor=parts.param("after"),
    )
    if not page.items:
        parts.show_empty("No data file's path contains that" if search else "The table has no data files")
        return
    rows = (
        (_relative_path(one.path, detail.location), one.partition or "–", _number(one.rows), size(one.size_bytes))
        for one in page.items
    )
    columns = ("Data file", "Partition", TableColumn("Rows", "num"), TableColumn("Size", "num"))
    parts.html(Markup("<h2>Data files</h2>"), markup.table(columns, rows, caption="Data files, the largest first"))
    parts.show_pagination(page, "file")
    if not page.complete:
        parts.note("The table has more files. Only the first 10,000 were read.")
    parts.html(markup.facts(("Below", markup.code(detail.location))))


def _partitions(model: ReadModel, detail: TableDetail, at: str | None) -> None:
    page = list_partitions(
        model, detail.table, ref=detail.ref, at=at, limit=_COLUMNS_PER_PAGE, cursor=parts.param("partitions")
    )
    largest = max((one.size_bytes for one in page.items), default=0)
    rows = (
        (
            one.partition or "–",
            markup.bar(one.size_bytes, largest, tone="live"),
            size(one.size_bytes),
            _number(one.rows),
            _number(one.files),
        )
        for one in page.items
    )
    columns = ("Partition", "", TableColumn("Size", "num"), TableColumn("Rows", "num"), TableColumn("Files", "num"))
    parts.html(Markup("<h2>Partitions</h2>"), markup.table(columns, rows, caption="Partitions, the largest first"))
    parts.show_pagination(page, "partition", cursor_name="partitions")


def _relative_path(path: str, location: str) -> Markup:
    """Return a file's path below its table's folder, with the whole path on hover."""
    # Match the folder only: Spark writes file:/ where the location has file:///.
    folder = location.rstrip("/").rpartition("/")[2]
    tail = path.partition(f"/{folder}/")[2]
    return Markup('<span title="{}">{}</span>').format(path, markup.code(tail or path))


# Rows


def _preview(detail: TableDetail, at: str | None) -> None:
    if shared().access.settings.examples == 0:
        parts.show_empty("Rows of data are hidden", Markup("by the setting {}").format(markup.code("ui.examples")))
        return
    table = shared().lake.table(detail.table, ref=detail.commit)
    names = [one.name for one in detail.columns]
    start = parts.start_param("after", len(names))
    shown = names[start : start + _PREVIEW_COLUMNS]
    rows = table.to_arrow(columns=shown, limit=_PREVIEW_ROWS)
    if rows.num_rows == 0:
        parts.show_empty("The table has no rows here")
        return
    found = parts.unmasked(rows_of(rows))
    parts.html(
        markup.example_rows(found, (), caption=f"The first rows of {detail.table}"),
        markup.note(
            f"{counted(len(found), 'row')} as they are in commit ",
            markup.code(detail.commit[:12]),
            ". ",
            markup.link("Query it", "query", sql=rows_query(detail.table), ref=detail.ref, at=at),
        ),
    )
    _paginate_columns(start, len(shown), len(names))


def _properties(detail: TableDetail) -> None:
    parts.html(
        markup.facts(
            ("Location", markup.code(detail.location)),
            ("Metadata file", markup.code(detail.metadata_location)),
            ("Commit", markup.code(detail.commit)),
            ("Format version", str(detail.format_version)),
            ("Partitioned by", ", ".join(detail.partition_by) or "–"),
        )
    )
    if detail.properties:
        rows = sorted(detail.properties.items())
        parts.html(markup.table(("Property", "Value"), rows, caption="Properties"))


PAGE = Page("Table", path="table", icon="table", order=15, show=show, listed=False)
