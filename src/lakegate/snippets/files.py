"""Snippets that name the table's metadata file: no catalog takes part, and what they read never changes."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Mapping

from lakegate.snippets import Engine
from lakegate.snippets.target import Target, host, name, python, text, uri
from lakegate.storage.objects import Address


def _about(target: Target, *more: str | None, mark: str = "#") -> list[str]:
    news = "Later publishes aren't in it: print this again, or run lakegate serve."
    first = f"{target.table} of {target.state}. {'It never changes.' if target.is_pinned else news}"
    return [f"{mark} {line}" for line in (first, *more) if line]


def pyiceberg(target: Target) -> str:
    """Return Python for PyIceberg."""
    return "\n".join(
        [
            "from pyiceberg.table import StaticTable",
            "",
            *_about(target, target.credentials()),
            f"{target.variable} = {_static(target)}",
            f"print({target.variable}.scan(limit=10).to_arrow())",
        ]
    )


def polars(target: Target) -> str:
    """Return Python for Polars."""
    properties = target.pyiceberg_properties()
    options = f", storage_options={python(properties)}" if properties else ""
    return "\n".join(
        [
            "import polars as pl",
            "",
            *_about(target, target.credentials()),
            f"{target.variable} = pl.scan_iceberg({python(target.metadata)}{options})",
            f"print({target.variable}.head(10).collect())",
        ]
    )


def daft(target: Target) -> str:
    """Return Python for Daft."""
    read = f"daft.read_iceberg({_static(target)})"
    why = None
    if target.has_deletes:
        why = "Rows were deleted in place, which Daft 0.7 doesn't read reliably: PyIceberg reads them for it."
        read = f"daft.from_arrow({_static(target)}.scan().to_arrow())"
    return "\n".join(
        [
            "import daft",
            "from pyiceberg.table import StaticTable",
            "",
            *_about(target, why, target.credentials()),
            f"{target.variable} = {read}",
            f"{target.variable}.show(10)",
        ]
    )


def duckdb(target: Target) -> str:
    """Return SQL for DuckDB."""
    view = name(target.table.name)
    return "\n".join(
        [
            *_about(target, mark="--"),
            "INSTALL iceberg; LOAD iceberg;",
            *_duckdb_secret(target),
            f"CREATE OR REPLACE VIEW {view} AS SELECT * FROM iceberg_scan({text(target.metadata)});",
            f"SELECT * FROM {view} LIMIT 10;",
        ]
    )


def clickhouse(target: Target) -> str:
    """Return SQL for ClickHouse."""
    folder = uri(target.location).rstrip("/") + "/"
    file = target.metadata.removeprefix(folder)
    service = target.service
    if service is None:
        engine, note = f"IcebergLocal({text(folder.removeprefix('file://'))})", "The server reads its own disk."
    elif service == "adls":
        target.require_store("clickhouse", "s3", "gcs")
        raise AssertionError
    else:
        engine = f"IcebergS3({text(_http(target, folder))})"
        note = "Credentials: those of the server's own environment, or more arguments: IcebergS3(url, key, secret)."
    view = name(target.variable)
    return "\n".join(
        [
            *_about(target, note, mark="--"),
            f"CREATE OR REPLACE TABLE {view}",
            f"ENGINE = {engine}",
            f"SETTINGS iceberg_metadata_file_path = {text(file)};",
            f"SELECT * FROM {view} LIMIT 10;",
        ]
    )


def snowflake(target: Target) -> str:
    """Return SQL for Snowflake."""
    target.require_store("snowflake", "s3", "gcs", "adls")
    root = uri(target.warehouse).rstrip("/") + "/"
    database, schema = name("LAKE"), name("_".join(target.table.namespace))
    return "\n".join(
        [
            *_about(
                target,
                "lakegate snowflake plan prints all of it, with the volume's rights, and lakegate keeps it fresh.",
                f"The external volume lakegate is on {_line(root)}, with a role of its own: no secret is in here.",
                mark="--",
            ),
            "CREATE CATALOG INTEGRATION IF NOT EXISTS lakegate_files",
            "  CATALOG_SOURCE = OBJECT_STORE TABLE_FORMAT = ICEBERG ENABLED = TRUE;",
            f"CREATE DATABASE IF NOT EXISTS {database};",
            f"CREATE SCHEMA IF NOT EXISTS {database}.{schema};",
            f"CREATE ICEBERG TABLE IF NOT EXISTS {database}.{schema}.{name(target.table.name)}",
            "  EXTERNAL_VOLUME = 'lakegate' CATALOG = 'lakegate_files'",
            f"  METADATA_FILE_PATH = {text(target.metadata.removeprefix(root))};",
            f"SELECT * FROM {database}.{schema}.{name(target.table.name)} LIMIT 10;",
        ]
    )


def athena(target: Target) -> str:
    """Return commands of AWS's command line that register the table in Glue, and SQL for Athena."""
    target.require_store("athena", "s3")
    database, table = "_".join(target.table.namespace).lower(), target.table.name.lower()
    parameters = {"table_type": "ICEBERG", "metadata_location": target.metadata}
    entry = {
        "Name": table,
        "TableType": "EXTERNAL_TABLE",
        "Parameters": parameters,
        "StorageDescriptor": {"Columns": [], "Location": uri(target.location)},
    }
    made = shlex.quote(json.dumps(entry))
    query = f"SELECT * FROM {name(database)}.{name(table)} LIMIT 10"
    return "\n".join(
        [
            *_about(target, target.credentials(), "If the table is in Glue already: aws glue update-table."),
            f"aws glue create-database --database-input {shlex.quote(json.dumps({'Name': database}))}",
            f"aws glue create-table --database-name {shlex.quote(database)} --table-input {made}",
            f"aws athena start-query-execution --work-group primary --query-string {shlex.quote(query)}",
        ]
    )


def redshift(target: Target) -> str:
    """Return SQL for Redshift, which reads by Glue."""
    target.require_store("redshift", "s3")
    database, table = "_".join(target.table.namespace).lower(), target.table.name.lower()
    return "\n".join(
        [
            *_about(
                target,
                "The table must be in Glue: lakegate table connect --engine athena prints how.",
                "Credentials: the cluster's default IAM role, with the right to read Glue and the bucket.",
                mark="--",
            ),
            f"CREATE EXTERNAL SCHEMA IF NOT EXISTS {name(database)}",
            f"FROM DATA CATALOG DATABASE {text(database)} IAM_ROLE default;",
            f"SELECT * FROM {name(database)}.{name(table)} LIMIT 10;",
        ]
    )


def _static(target: Target) -> str:
    properties = target.pyiceberg_properties()
    more = f", {python(properties)}" if properties else ""
    return f"StaticTable.from_metadata({python(target.metadata)}{more})"


def _duckdb_secret(target: Target) -> list[str]:
    s3 = target.storage.s3
    match target.service:
        case "s3":
            options = ["TYPE s3", "PROVIDER credential_chain"]
            options += [f"REGION {text(s3.region)}"] if s3.region else []
            if s3.endpoint:
                options += [f"ENDPOINT {text(host(s3.endpoint))}"]
                options += ["USE_SSL false"] if s3.endpoint.startswith("http:") else []
            options += ["URL_STYLE 'path'"] if s3.path_style else []
            return [
                "-- Credentials: AWS's own: variables, profile or role.",
                "INSTALL aws; LOAD aws;",
                f"CREATE OR REPLACE SECRET lake ({', '.join(options)});",
            ]
        case "gcs":
            return ["-- Credentials: CREATE SECRET lake (TYPE gcs, KEY_ID …, SECRET …), with an HMAC key of Google's."]
        case "adls":
            account = Address.parse(target.metadata).root.partition("@")[2].partition(".")[0]
            return [
                "-- Credentials: Azure's own: variables, az login or identity.",
                "INSTALL azure; LOAD azure;",
                f"CREATE OR REPLACE SECRET lake (TYPE azure, PROVIDER credential_chain, ACCOUNT_NAME {text(account)});",
            ]
    return []


def _http(target: Target, folder: str) -> str:
    """Return a folder of S3 or Google as the URL that ClickHouse takes."""
    address, s3 = Address.parse(folder), target.storage.s3
    if target.service == "gcs":
        return f"https://storage.googleapis.com/{address.bucket}/{address.key}"
    if s3.endpoint:
        return f"{s3.endpoint.rstrip('/')}/{address.bucket}/{address.key}"
    return f"https://{address.bucket}.s3.{s3.region or 'us-east-1'}.amazonaws.com/{address.key}"


def _line(value: str) -> str:
    """Return a text on one line, for a comment."""
    return " ".join(value.split())


SNIPPETS: Mapping[Engine, Callable[[Target], str]] = {
    "pyiceberg": pyiceberg,
    "duckdb": duckdb,
    "polars": polars,
    "daft": daft,
    "snowflake": snowflake,
    "athena": athena,
    "redshift": redshift,
    "clickhouse": clickhouse,
}
