"""Snippets that read through a catalog: Nessie, or ``lakegate serve``. On ``main``, they also show later publishes."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

from lakegate.errors import InputError
from lakegate.iceberg.files import spark_file_io
from lakegate.snippets import Engine
from lakegate.snippets.target import SnippetTarget, file_uri, python_literal, quoted, quoted_text

_SPARK_PACKAGE = "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0"
_READER_VARIABLE = "LAKE_READER_TOKEN"


@dataclass(frozen=True)
class ServeEndpoint:
    """A running ``lakegate serve``."""

    url: str
    has_token: bool

    @classmethod
    def parse(cls, url: str, *, has_token: bool) -> ServeEndpoint:
        """Return the server at ``url``."""
        try:
            parts = urlsplit(url)
            is_fine = parts.scheme in {"http", "https"} and bool(parts.hostname) and "@" not in parts.netloc
        except ValueError:
            is_fine = False
        if not is_fine or parts.query or parts.fragment or not re.fullmatch(r"[!-~]+", url):
            raise InputError(
                "--rest must be a URL such as http://127.0.0.1:8181.", hint="lakegate serve prints its URL."
            )
        return cls(url.rstrip("/"), has_token)


def _header(target: SnippetTarget, *more: str | None, mark: str = "#") -> list[str]:
    news = "it never changes" if target.is_pinned else "later publishes show too"
    first = f"{target.table} of {target.state}; {news}."
    return [f"{mark} {line}" for line in (first, *more) if line]


# Nessie


def spark(target: SnippetTarget) -> list[str]:
    """Return Python for Spark, through Nessie."""
    options = {**target.spark_options, "warehouse": file_uri(target.warehouse)}
    lines = [*_spark_start(target), *_spark_options({**options, **spark_file_io(target.warehouse, target.storage)})]
    variable = target.token_variable()
    if variable is not None:
        lines = ["import os", "", *lines]
        lines += [
            '    .config("spark.sql.catalog.lake.authentication.type", "BEARER")',
            f'    .config("spark.sql.catalog.lake.authentication.token", os.environ[{python_literal(variable)}])',
        ]
    elif target.catalog.oauth2_token_endpoint is not None:
        lines.append("    # and spark.sql.catalog.lake.authentication.type OAUTH2, with its client's id and secret")
    return [*lines, *_spark_end(target)]


def trino(target: SnippetTarget) -> list[str]:
    """Return Trino's catalog file and a query, through Nessie.

    Raises:
        InputError: The table has a nested namespace or capital letters. Trino doesn't find such tables through Nessie.
    """
    if len(target.table.namespace) > 1 or str(target.table) != str(target.table).lower():
        raise InputError(
            f"Through Nessie, Trino can't find {target.table}: it has a nested namespace or capital letters.",
            hint="Start lakegate serve, and read through it with --rest URL.",
            table=str(target.table),
        )
    ref, first = target.ref.name, None
    if target.is_commit:
        ref = f"at-{target.ref.hash[:12]}"
        first = f"Trino reads only branches and tags. Run once: lakegate tag create {ref} --from {target.ref.hash}"
    lines = [
        *_header(target, first, "etc/catalog/lake.properties:"),
        "connector.name=iceberg",
        "iceberg.catalog.type=nessie",
        f"iceberg.nessie-catalog.uri={target.nessie_uri}",
        f"iceberg.nessie-catalog.ref={ref}",
        f"iceberg.nessie-catalog.default-warehouse-dir={file_uri(target.warehouse)}",
    ]
    if target.token_variable() is not None:
        lines += [
            "iceberg.nessie-catalog.authentication.type=BEARER",
            f"iceberg.nessie-catalog.authentication.token=${{ENV:{target.token_variable()}}}",
        ]
    return [*lines, *_trino_files(target), "", *_trino_query(target)]


def dremio(target: SnippetTarget) -> list[str]:
    """Return SQL for Dremio, through a source of type Nessie."""
    if target.is_commit:
        at = f"COMMIT {quoted(target.ref.hash)}"
    else:
        at = f"{'TAG' if target.ref.kind == 'tag' else 'BRANCH'} {quoted(target.ref.name)}"
    endpoint = f"Once: add a source of type Nessie, named lake, with the endpoint {target.nessie_uri}"
    credentials = "Credentials: in the settings of the source, for Nessie and for the files."
    return [
        *_header(target, endpoint, credentials, mark="--"),
        f"SELECT * FROM lake.{target.dotted} AT {at} LIMIT 10;",
    ]


# lakegate serve


def served_python(engine: Engine) -> Callable[[SnippetTarget, ServeEndpoint], list[str]]:
    """Return the writer of Python snippets for a library that reads through PyIceberg's catalogs."""
    imports = {"pyiceberg": None, "polars": "import polars as pl", "daft": "import daft"}
    reads = {
        "pyiceberg": ("{table}", "print({name}.scan(limit=10).to_arrow())"),
        "polars": ("pl.scan_iceberg({table})", "print({name}.head(10).collect())"),
        "daft": ("daft.read_iceberg({table})", "{name}.show(10)"),
    }

    def make(target: SnippetTarget, server: ServeEndpoint) -> list[str]:
        options = {
            "type": "rest",
            "uri": server.url,
            "warehouse": target.warehouse_name,
            **target.pyiceberg_properties(),
        }
        read, show = reads[engine]
        if engine == "daft" and target.has_deletes:
            read = "daft.from_arrow({table}.scan().to_arrow())"
        given = ", ".join(f"{python_literal(key)}: {python_literal(value)}" for key, value in options.items())
        token = f', "token": os.environ[{python_literal(_READER_VARIABLE)}]' if server.has_token else ""
        table = f"lake.load_table({python_literal(str(target.table))})"
        return [
            *(["import os", ""] if server.has_token else []),
            *([imported] if (imported := imports[engine]) else []),
            "from pyiceberg.catalog import load_catalog",
            "",
            *_header(target, target.credentials()),
            f'lake = load_catalog("lake", **{{{given}{token}}})',
            f"{target.variable} = {read.format(table=table)}",
            show.format(name=target.variable),
        ]

    return make


def served_duckdb(target: SnippetTarget, server: ServeEndpoint) -> list[str]:
    """Return SQL for DuckDB."""
    access = "AUTHORIZATION_TYPE 'none'"
    warehouse, url = quoted_text(target.warehouse_name), quoted_text(server.url)
    lines = []
    if server.has_token:
        lines = [
            f"-- Credentials: replace the dots with the token of {_READER_VARIABLE}.",
            "CREATE OR REPLACE SECRET reader (TYPE iceberg, TOKEN '…');",
        ]
        access = "SECRET reader"
    return [
        *_header(target, mark="--"),
        "INSTALL iceberg; LOAD iceberg;",
        *lines,
        f"ATTACH {warehouse} AS lake (TYPE iceberg, ENDPOINT {url}, {access});",
        f"SELECT * FROM lake.{quoted('.'.join(target.table.namespace))}.{quoted(target.table.name)} LIMIT 10;",
    ]


def served_spark(target: SnippetTarget, server: ServeEndpoint) -> list[str]:
    """Return Python for Spark."""
    options = {"type": "rest", "uri": server.url, "warehouse": target.warehouse_name}
    lines = [*_spark_start(target), *_spark_options({**options, **spark_file_io(target.warehouse, target.storage)})]
    if server.has_token:
        lines = ["import os", "", *lines]
        lines.append(f'    .config("spark.sql.catalog.lake.token", os.environ[{python_literal(_READER_VARIABLE)}])')
    return [*lines, *_spark_end(target)]


def served_trino(target: SnippetTarget, server: ServeEndpoint) -> list[str]:
    """Return Trino's catalog file and a query."""
    token = ["iceberg.rest-catalog.security=OAUTH2", f"iceberg.rest-catalog.oauth2.token=${{ENV:{_READER_VARIABLE}}}"]
    has_capitals = str(target.table) != str(target.table).lower()
    return [
        *_header(target, "etc/catalog/lake.properties:"),
        "connector.name=iceberg",
        "iceberg.catalog.type=rest",
        f"iceberg.rest-catalog.uri={server.url}",
        f"iceberg.rest-catalog.warehouse={target.warehouse_name}",
        *(["iceberg.rest-catalog.nested-namespace-enabled=true"] if len(target.table.namespace) > 1 else []),
        *(["iceberg.rest-catalog.case-insensitive-name-matching=true"] if has_capitals else []),
        *(token if server.has_token else []),
        *_trino_files(target),
        "",
        *_trino_query(target),
    ]


def _spark_start(target: SnippetTarget) -> list[str]:
    return [
        "from pyspark.sql import SparkSession",
        "",
        *_header(target, f"Start Python with: pyspark --packages {_SPARK_PACKAGE}", target.credentials()),
        "spark = (",
        "    SparkSession.builder",
    ]


def _spark_options(options: Mapping[str, str]) -> list[str]:
    catalog = "spark.sql.catalog.lake"
    settings = {catalog: "org.apache.iceberg.spark.SparkCatalog"}
    settings |= {f"{catalog}.{key}": value for key, value in options.items()}
    return [f"    .config({python_literal(key)}, {python_literal(value)})" for key, value in settings.items()]


def _spark_end(target: SnippetTarget) -> list[str]:
    quoted = ".".join("`" + part + "`" for part in target.table.parts)
    return [
        "    .getOrCreate()",
        ")",
        f"{target.variable} = spark.table({python_literal(f'lake.{quoted}')})",
        f"{target.variable}.show(10)",
    ]


def _trino_files(target: SnippetTarget) -> list[str]:
    s3 = target.storage.s3
    match target.service:
        case "s3":
            return [
                "# Credentials: from AWS's variables, profile or role.",
                "fs.native-s3.enabled=true",
                *([f"s3.region={s3.region}"] if s3.region else []),
                *([f"s3.endpoint={s3.endpoint}"] if s3.endpoint else []),
                *(["s3.path-style-access=true"] if s3.path_style else []),
            ]
        case "gcs":
            return ["# Credentials: Google's defaults, or gcs.json-key-file-path.", "fs.native-gcs.enabled=true"]
        case "adls":
            return ["# Credentials: azure.auth-type and its settings.", "fs.native-azure.enabled=true"]
    return ["fs.hadoop.enabled=true"]


def _trino_query(target: SnippetTarget) -> list[str]:
    schema, table = quoted(".".join(target.table.namespace)), quoted(target.table.name)
    return ["-- Then, in a Trino client:", f"SELECT * FROM lake.{schema}.{table} LIMIT 10;"]


NESSIE: Mapping[Engine, Callable[[SnippetTarget], list[str]]] = {"spark": spark, "trino": trino, "dremio": dremio}
SERVED: Mapping[Engine, Callable[[SnippetTarget, ServeEndpoint], list[str]]] = {
    "pyiceberg": served_python("pyiceberg"),
    "polars": served_python("polars"),
    "daft": served_python("daft"),
    "duckdb": served_duckdb,
    "spark": served_spark,
    "trino": served_trino,
}
