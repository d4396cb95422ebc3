"""A snippet, and who writes it."""

from __future__ import annotations

from lakegate.errors import InputError
from lakegate.model.base import Value
from lakegate.model.quarantine import is_quarantine, table_of
from lakegate.model.words import did_you_mean
from lakegate.snippets import ENGINES, RUN_HERE, Engine, catalogs, files
from lakegate.snippets.target import Target

_LANGUAGES: dict[Engine, str] = {
    **dict.fromkeys(("pyiceberg", "polars", "daft", "spark"), "python"),
    **dict.fromkeys(("duckdb", "dremio", "snowflake", "redshift", "clickhouse"), "sql"),
    "athena": "shell",
    "trino": "properties and sql",
}


class Snippet(Value):
    """What to paste into an engine to read a table.

    Attributes:
        ref: Branch, tag or commit that was asked for.
        commit: The commit that it read when the snippet was made.
        metadata_location: The table's metadata file at that commit.
        follows: Whether it shows later publishes, too.
        run_here: Whether lakegate's tests run such snippets in the engine.
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


def write_snippet(engine: str, target: Target, *, rest: str | None = None, has_token: bool = False) -> Snippet:
    """Return the snippet for an engine.

    Args:
        engine: One of :data:`ENGINES`.
        rest: URL of ``lakegate serve``, to read through it.

    Raises:
        InputError: The engine isn't known, can't reach the files, or can't read that way; or ``rest`` doesn't serve the
            table.
    """
    known = next((one for one in ENGINES if one == engine), None)
    if known is None:
        raise InputError(
            f"Unknown engine '{engine}'.", hint=f"{did_you_mean(engine, ENGINES)}Known: {', '.join(ENGINES)}."
        )
    if not (target.metadata_location + target.location).isprintable():
        raise InputError(f"The location of {target.table} holds characters that can't be printed.")
    if rest is not None:
        if known not in catalogs.SERVED:
            raise catalogs.no_rest(known)
        if is_quarantine(target.table):
            raise InputError(
                f"lakegate serve doesn't serve {target.table}: its rows failed a check.",
                hint=f"Leave out --rest, or see the rows: lakegate quarantine show {table_of(target.table)}",
                table=str(target.table),
            )
        text = catalogs.SERVED[known](target, catalogs.Server.parse(rest, has_token=has_token))
    elif known in catalogs.NESSIE:
        if target.catalog.type != "nessie":
            raise InputError(
                f"The snippet for {known} is for Nessie, and the catalog is of type '{target.catalog.type}'.",
                hint="Read through lakegate serve: --rest URL.",
            )
        text = catalogs.NESSIE[known](target)
    else:
        text = files.SNIPPETS[known](target)
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
        text=text,
    )
