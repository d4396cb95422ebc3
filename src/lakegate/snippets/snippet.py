"""Writes the snippet for an engine."""

from __future__ import annotations

from lakegate.errors import InputError
from lakegate.model.base import Value
from lakegate.model.quarantine import is_quarantine, table_of
from lakegate.model.words import did_you_mean
from lakegate.snippets import ENGINES, RUN_HERE, TITLES, Engine, catalogs, files
from lakegate.snippets.target import SnippetTarget

_LANGUAGES: dict[Engine, str] = {
    **dict.fromkeys(("pyiceberg", "polars", "daft", "spark"), "python"),
    **dict.fromkeys(("duckdb", "dremio", "snowflake", "redshift", "clickhouse"), "sql"),
    "athena": "shell",
    "trino": "properties and sql",
}


class Snippet(Value):
    """Code to paste into an engine to read a table.

    Attributes:
        ref: Branch, tag or commit requested.
        commit: The commit that ``ref`` pointed at when the snippet was written.
        follows: Whether it also shows later publishes.
        run_here: Whether lakegate's tests run this engine's snippets.
    """

    engine: str
    language: str
    table: str
    ref: str
    commit: str
    metadata_location: str
    follows: bool
    run_here: bool
    text: str


def write_snippet(engine: str, target: SnippetTarget, *, rest: str | None = None, has_token: bool = False) -> Snippet:
    """Return the snippet for an engine.

    Args:
        rest: URL of ``lakegate serve``, to read through it.

    Raises:
        InputError: The engine is unknown, can't reach the files, or can't read this way, or the server at ``rest``
            doesn't serve the table.
    """
    known = next((one for one in ENGINES if one == engine), None)
    if known is None:
        raise InputError(
            f"Unknown engine '{engine}'.", hint=f"{did_you_mean(engine, ENGINES)}Known: {', '.join(ENGINES)}."
        )
    if not (target.metadata_location + target.location).isprintable():
        raise InputError(f"The location of {target.table} contains unprintable characters.")
    if rest is not None:
        if known not in catalogs.SERVED:
            raise InputError(
                f"There's no snippet for {TITLES[known]} to read through lakegate serve.",
                hint=f"Leave out --rest. Engines with --rest: {', '.join(catalogs.SERVED)}.",
            )
        if is_quarantine(target.table):
            raise InputError(
                f"lakegate serve doesn't serve {target.table}: its rows failed a check.",
                hint=f"Leave out --rest, or see the rows: lakegate quarantine show {table_of(target.table)}",
                table=str(target.table),
            )
        lines = catalogs.SERVED[known](target, catalogs.ServeEndpoint.parse(rest, has_token=has_token))
    elif known in catalogs.NESSIE:
        if target.catalog.type != "nessie":
            raise InputError(
                f"The snippet for {known} needs Nessie, but the catalog is of type '{target.catalog.type}'.",
                hint="Read through lakegate serve: --rest URL.",
            )
        lines = catalogs.NESSIE[known](target)
    else:
        lines = files.SNIPPETS[known](target)
    follows = not target.is_pinned and (rest is not None or known in catalogs.NESSIE)
    return Snippet(
        engine=known,
        language=_LANGUAGES[known],
        table=str(target.table),
        ref=target.ref.name,
        commit=target.ref.hash,
        metadata_location=target.metadata,
        follows=follows,
        run_here=known in RUN_HERE,
        text="\n".join(lines),
    )
