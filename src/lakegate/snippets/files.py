"""Snippets that name the table's metadata file. They need no catalog, and always read the same state."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Mapping
from urllib.parse import urlsplit

from lakegate.progress import one_line
from lakegate.snippets import Engine
from lakegate.snippets.target import SnippetTarget, file_uri, python_literal, quoted, quoted_text
from lakegate.storage.objects import ObjectAddress


def _header(target: SnippetTarget, *more: str | None, mark: str = "#") -> list[str]:
    news = "Later publishes don't show: print it again, or use lakegate serve."
    first = f"{target.table} of {target.state}. {'It never changes.' if target.is_pinned else news}"
    return [f"{mark} {line}" for line in (first, *more) if line]


def pyiceberg(target: SnippetTarget) -> list[str]:
    """Return Python for PyIceberg."""
    return [
        "from pyiceberg.table import StaticTable",
        "",
        *_header(target, target.credentials()),
        f"{target.variable} = {_static_table(target)}",
        f"print({target.variable}.scan(limit=10).to_arrow())",
    ]


def polars(target: SnippetTarget) -> list[str]:
    """Return Python for Polars."""
    properties = target.pyiceberg_properties()
    options = f", storage_options={python_literal(properties)}" if properties else ""
    return [
        "import polars as pl",
        "",
        *_header(target, target.credentials()),
        f"{target.variable} = pl.scan_iceberg({python_literal(target.metadata)}{options})",
        f"print({target.variable}.head(10).collect())",
    ]


def daft(target: SnippetTarget) -> list[str]:
    """Return Python for Daft."""
    read = f"daft.read_iceberg({_static_table(target)})"
    why = None
    if target.has_deletes:
        why = "The table has delete files, which Daft 0.7 doesn't read reliably: PyIceberg reads the rows instead."
        read = f"daft.from_arrow({_static_table(target)}.scan().to_arrow())"
    return [
        "import daft",
        "from pyiceberg.table import StaticTable",
        "",
        *_header(target, why, target.credentials()),
        f"{target.variable} = {read}",
        f"{target.variable}.show(10)",
    ]


def duckdb(target: SnippetTarget) -> list[str]:
    """Return SQL for DuckDB."""
    view = quoted(target.table.name)
    return [
        *_header(target, mark="--"),
        "INSTALL iceberg; LOAD iceberg;",
        *_duckdb_secret(target),
        f"CREATE OR REPLACE VIEW {view} AS SELECT * FROM iceberg_scan({quoted_text(target.metadata)});",
        f"SELECT * FROM {view} LIMIT 10;",
    ]


def clickhouse(target: SnippetTarget) -> list[str]:
    """Return SQL for ClickHouse."""
    folder = file_uri(target.location).rstrip("/") + "/"
    file = target.metadata.removeprefix(folder)
    service = target.service
    if service is None:
        engine, note = f"IcebergLocal({quoted_text(folder.removeprefix('file://'))})", "The server reads its own disk."
    elif service == "adls":
        target.require_store("clickhouse", "s3", "gcs")
        raise AssertionError
    else:
        engine = f"IcebergS3({quoted_text(_http_url(target, folder))})"
        note = "Credentials: from the server's own environment, or as arguments: IcebergS3(url, key, secret)."
    view = quoted(target.variable)
    return [
        *_header(target, note, mark="--"),
        f"CREATE OR REPLACE TABLE {view}",
        f"ENGINE = {engine}",
        f"SETTINGS iceberg_metadata_file_path = {quoted_text(file)};",
        f"SELECT * FROM {view} LIMIT 10;",
    ]


def snowflake(target: SnippetTarget) -> list[str]:
    """Return SQL for Snowflake."""
    target.require_store("snowflake", "s3", "gcs", "adls")
    root = file_uri(target.warehouse).rstrip("/") + "/"
    volume = f"The external volume lakegate must point at {one_line(root)}. It uses its own role: no secret is needed."
    database, schema = quoted("LAKE"), quoted("_".join(target.table.namespace))
    return [
        *_header(
            target,
            "A downstream of type snowflake refreshes it after each publish: docs/how-to/read-from-snowflake.md",
            volume,
            mark="--",
        ),
        "CREATE CATALOG INTEGRATION IF NOT EXISTS lakegate_files",
        "  CATALOG_SOURCE = OBJECT_STORE TABLE_FORMAT = ICEBERG ENABLED = TRUE;",
        f"CREATE DATABASE IF NOT EXISTS {database};",
        f"CREATE SCHEMA IF NOT EXISTS {database}.{schema};",
        f"CREATE ICEBERG TABLE IF NOT EXISTS {database}.{schema}.{quoted(target.table.name)}",
        "  EXTERNAL_VOLUME = 'lakegate' CATALOG = 'lakegate_files'",
        f"  METADATA_FILE_PATH = {quoted_text(target.metadata.removeprefix(root))};",
        f"SELECT * FROM {database}.{schema}.{quoted(target.table.name)} LIMIT 10;",
    ]


def athena(target: SnippetTarget) -> list[str]:
    """Return AWS CLI commands that register the table in Glue, and query it in Athena."""
    target.require_store("athena", "s3")
    database, table = "_".join(target.table.namespace).lower(), target.table.name.lower()
    parameters = {"table_type": "ICEBERG", "metadata_location": target.metadata}
    entry = {
        "Name": table,
        "TableType": "EXTERNAL_TABLE",
        "Parameters": parameters,
        "StorageDescriptor": {"Columns": [], "Location": file_uri(target.location)},
    }
    made = shlex.quote(json.dumps(entry))
    query = f"SELECT * FROM {quoted(database)}.{quoted(table)} LIMIT 10"
    return [
        *_header(target, target.credentials(), "If the table is already in Glue, use aws glue update-table."),
        f"aws glue create-database --database-input {shlex.quote(json.dumps({'Name': database}))}",
        f"aws glue create-table --database-name {shlex.quote(database)} --table-input {made}",
        f"aws athena start-query-execution --work-group primary --query-string {shlex.quote(query)}",
    ]


def redshift(target: SnippetTarget) -> list[str]:
    """Return SQL for Redshift, which reads through Glue."""
    target.require_store("redshift", "s3")
    database, table = "_".join(target.table.namespace).lower(), target.table.name.lower()
    return [
        *_header(
            target,
            "The table must be in Glue: lakegate table connect --engine athena prints how.",
            "Credentials: the cluster's default IAM role, with permission to read Glue and the bucket.",
            mark="--",
        ),
        f"CREATE EXTERNAL SCHEMA IF NOT EXISTS {quoted(database)}",
        f"FROM DATA CATALOG DATABASE {quoted_text(database)} IAM_ROLE default;",
        f"SELECT * FROM {quoted(database)}.{quoted(table)} LIMIT 10;",
    ]


def _static_table(target: SnippetTarget) -> str:
    properties = target.pyiceberg_properties()
    more = f", {python_literal(properties)}" if properties else ""
    return f"StaticTable.from_metadata({python_literal(target.metadata)}{more})"


def _duckdb_secret(target: SnippetTarget) -> list[str]:
    s3 = target.storage.s3
    match target.service:
        case "s3":
            options = ["TYPE s3", "PROVIDER credential_chain"]
            options += [f"REGION {quoted_text(s3.region)}"] if s3.region else []
            if s3.endpoint:
                options += [f"ENDPOINT {quoted_text(urlsplit(s3.endpoint).netloc)}"]
                options += ["USE_SSL false"] if s3.endpoint.startswith("http:") else []
            options += ["URL_STYLE 'path'"] if s3.path_style else []
            return [
                "-- Credentials: from AWS's variables, profile or role.",
                "INSTALL aws; LOAD aws;",
                f"CREATE OR REPLACE SECRET lake ({', '.join(options)});",
            ]
        case "gcs":
            return ["-- Credentials: CREATE SECRET lake (TYPE gcs, KEY_ID …, SECRET …), with a Google HMAC key."]
        case "adls":
            account = quoted_text(ObjectAddress.parse(target.metadata).root.partition("@")[2].partition(".")[0])
            return [
                "-- Credentials: from Azure's variables, az login or identity.",
                "INSTALL azure; LOAD azure;",
                f"CREATE OR REPLACE SECRET lake (TYPE azure, PROVIDER credential_chain, ACCOUNT_NAME {account});",
            ]
    return []


def _http_url(target: SnippetTarget, folder: str) -> str:
    """Return a folder on S3 or Google Cloud Storage as the URL that ClickHouse accepts."""
    address, s3 = ObjectAddress.parse(folder), target.storage.s3
    if target.service == "gcs":
        return f"https://storage.googleapis.com/{address.bucket}/{address.key}"
    if s3.endpoint:
        return f"{s3.endpoint.rstrip('/')}/{address.bucket}/{address.key}"
    return f"https://{address.bucket}.s3.{s3.region or 'us-east-1'}.amazonaws.com/{address.key}"


SNIPPETS: Mapping[Engine, Callable[[SnippetTarget], list[str]]] = {
    "pyiceberg": pyiceberg,
    "duckdb": duckdb,
    "polars": polars,
    "daft": daft,
    "snowflake": snowflake,
    "athena": athena,
    "redshift": redshift,
    "clickhouse": clickhouse,
}
