"""What to paste into another engine to read a table (``lakegate table connect``).

To add an engine, add a template to :data:`FILES` if it reads a table by its metadata file, one to :data:`SERVED` if it
speaks to an Iceberg REST catalog, and its name below; a test in ``tests/integration/test_any_engine.py`` runs it. No
snippet contains a secret: each says how the engine finds its credentials.
"""

from __future__ import annotations

import builtins
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from keyword import iskeyword
from typing import Literal, TypeAlias, get_args
from urllib.parse import urlsplit

from lakegate.config import StorageSettings
from lakegate.errors import InputError
from lakegate.model.base import Value
from lakegate.model.identifiers import TableIdentifier
from lakegate.model.quarantine import is_quarantine, table_of
from lakegate.model.refs import Ref
from lakegate.model.words import did_you_mean
from lakegate.storage.objects import ObjectAddress, Service, canonical, is_remote

Engine: TypeAlias = Literal["pyiceberg", "duckdb", "polars", "spark", "trino"]
ENGINES: tuple[Engine, ...] = get_args(Engine)
_TOKEN = "LAKE_READER_TOKEN"  # noqa: S105 - a variable's name
_CREDENTIALS: Mapping[str, str] = {
    "s3": "Credentials: AWS_PROFILE, AWS_ACCESS_KEY_ID with AWS_SECRET_ACCESS_KEY, or a role.",
    "gcs": "Credentials: GOOGLE_APPLICATION_CREDENTIALS, or gcloud auth application-default login.",
    "adls": "Credentials: AZURE_STORAGE_ACCOUNT with AZURE_STORAGE_KEY, or an identity.",
}
_DUCKDB_CREDENTIALS: Mapping[str, str] = {
    "s3": "-- Credentials: from AWS's variables, profile or role.\nINSTALL aws; LOAD aws;\n",
    "adls": "-- Credentials: from Azure's variables, az login or identity.\nINSTALL azure; LOAD azure;\n",
    "gcs": "-- Credentials: CREATE SECRET lake (TYPE gcs, KEY_ID …, SECRET …), with a Google HMAC key.\n",
}

FILES: Mapping[str, str] = {
    "pyiceberg": """\
from pyiceberg.table import StaticTable

{header}
{name} = StaticTable.from_metadata({metadata}, {properties})
print({name}.scan(limit=10).to_arrow())""",
    "polars": """\
import polars as pl

{header}
{name} = pl.scan_iceberg({metadata}, storage_options={properties})
print({name}.head(10).collect())""",
    "duckdb": """\
{header}
INSTALL iceberg; LOAD iceberg;
{duckdb_secret}CREATE OR REPLACE VIEW {quoted_name} AS SELECT * FROM iceberg_scan({sql_metadata});
SELECT * FROM {quoted_name} LIMIT 10;""",
}
"""Templates that name the table's metadata file. They need no catalog, and always read the same state."""
SERVED: Mapping[str, str] = {
    "pyiceberg": """\
import os
from pyiceberg.catalog import load_catalog

{header}
lake = load_catalog("lake", **{{{options}{python_token}}})
{name} = lake.load_table({table})
print({name}.scan(limit=10).to_arrow())""",
    "polars": """\
import os
import polars as pl
from pyiceberg.catalog import load_catalog

{header}
lake = load_catalog("lake", **{{{options}{python_token}}})
{name} = pl.scan_iceberg(lake.load_table({table}))
print({name}.head(10).collect())""",
    "duckdb": """\
{header}
INSTALL iceberg; LOAD iceberg;
{duckdb_token}ATTACH {sql_warehouse} AS lake (TYPE iceberg, ENDPOINT {sql_url}, {duckdb_access});
SELECT * FROM lake.{quoted_namespace}.{quoted_name} LIMIT 10;""",
    "spark": """\
import os
from pyspark.sql import SparkSession

{header}
# Start Python with: pyspark --packages org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0
spark = (
    SparkSession.builder
    .config("spark.sql.catalog.lake", "org.apache.iceberg.spark.SparkCatalog")
{spark_options}{spark_token}
    .getOrCreate()
)
{name} = spark.table({spark_table})
{name}.show(10)""",
    "trino": """\
{header}
# etc/catalog/lake.properties:
connector.name=iceberg
iceberg.catalog.type=rest
iceberg.rest-catalog.uri={url}
iceberg.rest-catalog.warehouse={warehouse}
{trino_options}
-- Then, in a Trino client:
SELECT * FROM lake.{quoted_namespace}.{quoted_name} LIMIT 10;""",
}
"""Templates that read through ``lakegate serve``. On ``main``, they also show later publishes."""


@dataclass(frozen=True)
class SnippetTarget:
    """A table to read, at the commit that ``ref`` resolved to.

    Attributes:
        ref: Branch, tag or commit, with the hash to read.
        metadata_location: The table's metadata file, as the catalog spells it.
        warehouse: Root of the tables' files.
    """

    table: TableIdentifier
    ref: Ref
    metadata_location: str
    warehouse: str
    storage: StorageSettings

    @property
    def service(self) -> Service | None:
        """The object store that holds the files; ``None`` if they're on this machine."""
        return ObjectAddress.parse(self.metadata_location).service if is_remote(self.metadata_location) else None

    @property
    def served_name(self) -> str:
        """The warehouse name of this state for clients of ``lakegate serve``."""
        if self.ref.kind == "detached":
            return f"commit:{self.ref.hash}"
        if self.ref.kind == "tag":
            return f"tag:{self.ref.name}"
        if self.ref.name == "main":
            return "main"
        raise InputError(
            f"lakegate serve shows main, its tags and its commits, but not branch '{self.ref.name}'.",
            hint="Leave out --rest to read the branch by its metadata file.",
            ref=self.ref.name,
        )


class Snippet(Value):
    """Code to paste into an engine to read a table.

    Attributes:
        ref: Branch, tag or commit requested.
        commit: The commit that ``ref`` pointed at when the snippet was written.
        follows: Whether it also shows later publishes.
    """

    engine: str
    language: str
    table: str
    ref: str
    commit: str
    metadata_location: str
    follows: bool
    text: str


def write_snippet(engine: str, target: SnippetTarget, *, rest: str | None = None, has_token: bool = False) -> Snippet:
    """Return the snippet for an engine.

    Args:
        rest: URL of ``lakegate serve``, to read through it.

    Raises:
        InputError: The engine is unknown or can't read this way, or the server at ``rest`` doesn't serve the table.
    """
    if engine not in ENGINES:
        raise InputError(
            f"Unknown engine '{engine}'.", hint=f"{did_you_mean(engine, ENGINES)}Known: {', '.join(ENGINES)}."
        )
    if not target.metadata_location.isprintable():
        raise InputError(f"The location of {target.table} contains unprintable characters.")
    values = _values_of_file(engine, target)
    if rest is not None:
        if is_quarantine(target.table):
            raise InputError(
                f"lakegate serve doesn't serve {target.table}: its rows failed a check.",
                hint=f"Leave out --rest, or see the rows: lakegate quarantine show {table_of(target.table)}",
                table=str(target.table),
            )
        values |= _values_of_server(engine, target, _require_url(rest), has_token=has_token)
    elif engine not in FILES:
        raise InputError(
            f"{engine} reads tables through a catalog.", hint="Start lakegate serve, and add its URL: --rest URL."
        )
    text = (FILES if rest is None else SERVED)[engine].format_map(values)
    return Snippet(
        engine=engine,
        language={"duckdb": "sql", "trino": "properties and sql"}.get(engine, "python"),
        table=str(target.table),
        ref=target.ref.name,
        commit=target.ref.hash,
        metadata_location=_file_uri(target.metadata_location),
        follows=rest is not None and target.ref.kind == "branch",
        text=text,
    )


def _values_of_file(engine: str, target: SnippetTarget) -> dict[str, str]:
    """Return what templates say about the table and its files."""
    metadata = _file_uri(target.metadata_location)
    name = target.table.name.replace("-", "_")
    return {
        "header": _header(engine, target, "Later publishes don't show: print it again, or use lakegate serve."),
        "name": f"{name}_table" if iskeyword(name) or hasattr(builtins, name) else name,
        "metadata": _literal(metadata),
        "properties": _literal(_pyiceberg_properties(target)),
        "sql_metadata": _sql_text(metadata),
        "quoted_name": _quoted(target.table.name),
        "quoted_namespace": _quoted(".".join(target.table.namespace)),
        "duckdb_secret": _duckdb_secret(target),
    }


def _values_of_server(engine: str, target: SnippetTarget, url: str, *, has_token: bool) -> dict[str, str]:
    """Return what templates say about ``lakegate serve``."""
    from lakegate.iceberg.spark_options import spark_file_io

    options = {"type": "rest", "uri": url, "warehouse": target.served_name}
    python = {**options, **_pyiceberg_properties(target)}
    catalog = "spark.sql.catalog.lake"
    spark = {**options, **spark_file_io(target.warehouse, target.storage)}
    comment = f"-- Credentials: replace the dots with the token of {_TOKEN}.\n"
    return {
        "header": _header(engine, target, "Later publishes show, too."),
        "url": url,
        "warehouse": target.served_name,
        "table": _literal(str(target.table)),
        "sql_warehouse": _sql_text(target.served_name),
        "sql_url": _sql_text(url),
        "options": _literal(python)[1:-1],
        "python_token": f', "token": os.environ["{_TOKEN}"]' if has_token else "",
        "duckdb_token": f"{comment}CREATE OR REPLACE SECRET reader (TYPE iceberg, TOKEN '…');\n" if has_token else "",
        "duckdb_access": "SECRET reader" if has_token else "AUTHORIZATION_TYPE 'none'",
        "spark_options": "\n".join(
            f"    .config({_literal(f'{catalog}.{key}')}, {_literal(value)})" for key, value in spark.items()
        ),
        "spark_token": f'\n    .config("{catalog}.token", os.environ["{_TOKEN}"])' if has_token else "",
        "spark_table": _literal(".".join(("lake", *(f"`{part}`" for part in target.table.parts)))),
        "trino_options": "\n".join(_trino_options(target, has_token=has_token)),
    }


def _header(engine: str, target: SnippetTarget, news: str) -> str:
    """Return the comment that says which state is read, and how the engine finds its credentials."""
    commit = target.ref.hash[:12]
    state = f"commit {commit}" if target.ref.kind == "detached" else f"{target.ref.name} at {commit}"
    lines = [f"{target.table} of {state}. {news if target.ref.kind == 'branch' else 'It never changes.'}"]
    if target.service is not None and engine != "duckdb":
        lines.append(_CREDENTIALS[target.service])
    return "\n".join(f"{'--' if engine == 'duckdb' else '#'} {line}" for line in lines)


def _require_url(url: str) -> str:
    try:
        parts = urlsplit(url)
        is_valid = parts.scheme in {"http", "https"} and bool(parts.hostname) and "@" not in parts.netloc
    except ValueError:
        is_valid = False
    if not is_valid or parts.query or parts.fragment or not re.fullmatch(r"[!-~]+", url):
        raise InputError("--rest must be a URL such as http://127.0.0.1:8181.", hint="lakegate serve prints its URL.")
    return url.rstrip("/")


def _pyiceberg_properties(target: SnippetTarget) -> dict[str, str]:
    """Return the properties that PyIceberg needs to find the store, without credentials."""
    s3, gcs = target.storage.s3, target.storage.gcs
    if target.service == "s3":
        found = {"s3.endpoint": s3.endpoint, "s3.region": s3.region}
        return {key: value for key, value in found.items() if value}
    return {"gcs.service.host": gcs.endpoint} if target.service == "gcs" and gcs.endpoint else {}


def _duckdb_secret(target: SnippetTarget) -> str:
    s3 = target.storage.s3
    if target.service is None or target.service == "gcs":
        return _DUCKDB_CREDENTIALS.get(target.service or "", "")
    options = {"TYPE": "s3" if target.service == "s3" else "azure", "PROVIDER": "credential_chain"}
    if target.service == "adls":
        account = ObjectAddress.parse(target.metadata_location).root.partition("@")[2].partition(".")[0]
        options["ACCOUNT_NAME"] = _sql_text(account)
    else:
        options |= {"REGION": _sql_text(s3.region)} if s3.region else {}
        options |= {"ENDPOINT": _sql_text(urlsplit(s3.endpoint).netloc)} if s3.endpoint else {}
        options |= {"USE_SSL": "false"} if s3.endpoint and s3.endpoint.startswith("http:") else {}
        options |= {"URL_STYLE": "'path'"} if s3.path_style else {}
    given = ", ".join(f"{key} {value}" for key, value in options.items())
    return f"{_DUCKDB_CREDENTIALS[target.service]}CREATE OR REPLACE SECRET lake ({given});\n"


def _trino_options(target: SnippetTarget, *, has_token: bool) -> list[str]:
    s3, table = target.storage.s3, str(target.table)
    options = []
    if len(target.table.namespace) > 1:
        options.append("iceberg.rest-catalog.nested-namespace-enabled=true")
    if table != table.lower():
        options.append("iceberg.rest-catalog.case-insensitive-name-matching=true")
    if has_token:
        options += ["iceberg.rest-catalog.security=OAUTH2", f"iceberg.rest-catalog.oauth2.token=${{ENV:{_TOKEN}}}"]
    file_system = {"s3": "native-s3", "gcs": "native-gcs", "adls": "native-azure"}.get(target.service or "", "hadoop")
    options.append(f"fs.{file_system}.enabled=true")
    if target.service == "s3":
        options += [f"s3.region={s3.region}"] if s3.region else []
        options += [f"s3.endpoint={s3.endpoint}"] if s3.endpoint else []
        options += ["s3.path-style-access=true"] if s3.path_style else []
    return [*options, ""]


def _file_uri(location: str) -> str:
    """Return a location as a URI that all engines accept. Hadoop writes ``file:/lake``.

    Example:
        >>> _file_uri("file:/lake/t"), _file_uri("/lake/t"), _file_uri("S3A://lake/t")
        ('file:///lake/t', 'file:///lake/t', 's3://lake/t')
    """
    if is_remote(location):
        return canonical(location)
    return f"file:///{location.removeprefix('file:').lstrip('/')}"


def _sql_text(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"


def _quoted(value: str) -> str:
    return '"' + value.replace('"', '""') + '"'


def _literal(value: object) -> str:
    """Return a string, or a dict of strings, as a Python literal."""
    # JSON's escapes for characters beyond 16 bits mean something else in Python.
    return json.dumps(value, ensure_ascii=False)
