"""Names for shell completion. Quick or silent: nothing is started, and nothing is ever printed but names."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

import click

from lakegate.cli.app import App

if TYPE_CHECKING:
    from lakegate.lake import Lake

_PATIENCE_S = 2.0
_RUNS = 100


def tables(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Complete table names on main."""
    del param
    return _starting(incomplete, lambda: _ask(ctx, lambda lake: [str(table.table) for table in lake.tables()]))


def branches(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Complete names of branches."""
    del param
    return _starting(incomplete, lambda: _ask(ctx, lambda lake: [ref.name for ref in lake.branches()]))


def tags(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Complete names of tags."""
    del param
    return _starting(incomplete, lambda: _ask(ctx, lambda lake: [ref.name for ref in lake.tags()]))


def refs(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Complete names of branches and tags."""
    del param
    return _starting(incomplete, lambda: _ask(ctx, lambda lake: [ref.name for ref in (*lake.branches(), *lake.tags())]))


def runs(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Complete run ids, newest first. The journal needs no server."""
    del param
    return _run_ids(ctx, incomplete, status=None)


def published_runs(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Complete ids of runs whose rows are on main, newest first: those that can be reverted."""
    del param
    return _run_ids(ctx, incomplete, status="published")


def _run_ids(ctx: click.Context, incomplete: str, *, status: str | None) -> list[str]:
    app = ctx.ensure_object(App)

    def ids(lake: Lake) -> list[str]:
        return [run.run_id for run in lake.runs(status=status, limit=_RUNS)]

    return _starting(incomplete, lambda: _with_lake(app, ids))


def _ask(ctx: click.Context, names: Callable[[Lake], Sequence[str]]) -> Sequence[str]:
    app = ctx.ensure_object(App)
    return _with_lake(app, names) if app.catalog_answers() else ()


def _with_lake(app: App, names: Callable[[Lake], Sequence[str]]) -> Sequence[str]:
    app.quiet = True
    with app.lake() as lake:
        return names(lake)


def _starting(incomplete: str, names: Callable[[], Iterable[str]]) -> list[str]:
    """Return the names that start with ``incomplete``; none when they cannot be had in time."""
    found: list[str] = []

    def collect() -> None:
        try:
            found.extend(name for name in names() if name.startswith(incomplete))
        except Exception:  # noqa: BLE001 - a prompt is no place for errors
            found.clear()

    worker = threading.Thread(target=collect, daemon=True)
    worker.start()
    worker.join(_PATIENCE_S)
    return [] if worker.is_alive() else found
