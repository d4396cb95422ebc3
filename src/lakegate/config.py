"""Settings: ``lakegate.toml`` < ``LAKEGATE_*`` variables < flags. With none at all, everything works locally.

The project's home is the nearest folder upwards that holds ``lakegate.toml`` or ``.lakegate/``, else the current one.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, get_args

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator
from pydantic.fields import FieldInfo

from lakegate.errors import ConfigurationError
from lakegate.model.batch import CsvOptions
from lakegate.model.channels import NotifySettings, read_json
from lakegate.model.durations import parse_duration
from lakegate.model.identifiers import TableIdentifier, validate_ref_name
from lakegate.model.order import OnBusy, OnChanged, OnFailure
from lakegate.model.schema import nearest

FILE_NAME = "lakegate.toml"
HOME_NAME = ".lakegate"
ENV_PREFIX = "LAKEGATE_"
_MEMORY = re.compile(r"[1-9][0-9]*[mg]")
_ENDPOINT = re.compile(r"https?://[^/@\s?#]+/?", re.IGNORECASE)
_PASSWORD_IN_URL = re.compile(r"^[^:/]+://[^@/]*:[^@]*@|[?&](?:password|passfile)=", re.IGNORECASE)


class _Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class CatalogSettings(_Section):
    """Which catalog. Without ``uri``, the local stack's own."""

    type: str = "nessie"
    """Name of an implementation: ``nessie``, or one that a package registers under ``lakegate.catalogs``."""
    uri: str | None = None
    """Nessie's API v2, for example ``https://nessie.example.com/api/v2``."""
    warehouse: str | None = None
    """Root of the tables' files; needed with ``uri``."""
    token: str | None = None
    """Bearer token, by reference: ``env:NAME``, ``file:/path`` or ``aws-secret:name#json-key``."""
    oauth2_token_endpoint: str | None = None
    """Where access tokens come from, by OAuth 2's client credentials; instead of ``token``."""
    oauth2_client_id: str | None = None
    oauth2_client_secret: str | None = None
    """Secret of the client, by reference."""
    oauth2_scope: str | None = None
    """Scopes to ask for, with spaces between."""
    timeout_s: float = Field(default=30.0, gt=0)
    """Seconds to wait for one answer."""


class EngineSettings(_Section):
    """Which Spark. Without ``url``, the local stack's own."""

    url: str | None = None
    """Spark Connect address: ``sc://host:15002``."""
    token: str | None = None
    """Bearer token, by reference."""
    tls: bool | None = None
    """Whether to speak TLS. By default with a token, except to this machine."""
    ca_file: Path | None = None
    """Certificates (PEM) of the authorities that the server's is signed by, instead of the usual ones."""


class JournalSettings(_Section):
    """Where the journal is. Without ``url``, ``.lakegate/journal.db``."""

    url: str | None = None
    """SQLAlchemy URL without password, for example ``postgresql://user@db.example.com:5432/lake``."""
    password: str | None = None
    """Password of the database, by reference."""
    tls: bool | None = None
    """Whether to speak TLS with Postgres and check its certificate. By default TLS where it is offered, unchecked."""
    ca_file: Path | None = None
    """Certificates (PEM) of the authorities that Postgres's is signed by, instead of the usual ones."""
    lease_s: float = Field(default=60.0, gt=0)
    """Seconds after which a run whose process on another machine was not heard of may be taken over."""
    park_s: float = Field(default=3600.0, gt=0)
    """Seconds for which a run that waits for its next step in an orchestrator is left alone."""

    @field_validator("url")
    @classmethod
    def _refuse_password(cls, value: str | None) -> str | None:
        if value is not None and _PASSWORD_IN_URL.search(value):
            raise ValueError('must not hold a password; write journal.password = "env:NAME_OF_THE_VARIABLE"')
        return value


class LocalSettings(_Section):
    """The embedded stack. Memory is the JVM's maximum heap, such as ``512m`` or ``4g``."""

    nessie_memory: str = "512m"
    spark_memory: str | None = None
    """Default: a quarter of the machine's memory, between 1g and 8g."""
    start_timeout_s: float = Field(default=120.0, gt=0)
    """Seconds to wait for a server to answer after its start."""

    @field_validator("nessie_memory", "spark_memory")
    @classmethod
    def _validate_memory(cls, value: str | None) -> str | None:
        if value is not None and not _MEMORY.fullmatch(value):
            raise ValueError("must be a number followed by 'm' or 'g', such as '512m' or '4g'")
        return value


class IngestSettings(_Section):
    """Defaults of ``lakegate ingest``."""

    on_failure: OnFailure = "keep"
    on_changed: OnChanged = "refuse"
    """A file whose path was published with other content: ``refuse``, ``append`` its rows, ``replace`` the old ones."""
    on_busy: OnBusy = "wait"
    """A file that another run is at: ``wait`` for that run, or ``skip`` the file."""
    wait_s: float = Field(default=600.0, gt=0)
    """Seconds to wait for another run that is at the same file."""
    keep_rejected: str = "7d"
    """How long the branch of a rejected run is kept before ``lakegate gc`` drops it."""
    branch_prefix: str = "wap"

    @field_validator("keep_rejected")
    @classmethod
    def _validate_duration(cls, value: str) -> str:
        parse_duration(value)
        return value

    @field_validator("branch_prefix")
    @classmethod
    def _validate_prefix(cls, value: str) -> str:
        return validate_ref_name(value)


class GcSettings(_Section):
    """What ``lakegate gc`` may delete."""

    grace: str = "1d"
    """Files younger than this are left alone: a run in progress writes files long before it commits them."""
    history: str | None = None
    """How far back reading at an earlier time must work; by default as far as the history goes."""

    @field_validator("grace", "history")
    @classmethod
    def _validate_duration(cls, value: str | None) -> str | None:
        if value is not None:
            parse_duration(value)
        return value


class WatchSettings(_Section):
    """Defaults of ``lakegate watch``."""

    every: str = "5m"
    """How often everything is looked at; files in local folders are noticed at once besides."""
    settle_s: float = Field(default=5.0, ge=0)
    """Seconds for which a file must have been left unchanged before it is taken."""
    max_files: int = Field(default=100, ge=1)
    """Files in one run, at most."""
    max_bytes: int = Field(default=1 << 30, ge=1)
    """Bytes in one run, at most, unless one file alone has more."""
    max_tries: int = Field(default=3, ge=1)
    """How often a file is tried before it is given up until it changes."""
    routes: tuple[str, ...] | None = None
    """Which table each file goes to: ``landing/{namespace}/{table}/*.parquet``."""

    @field_validator("routes", mode="before")
    @classmethod
    def _read_variable(cls, value: Any) -> Any:
        return read_json(value)

    @field_validator("every")
    @classmethod
    def _validate_every(cls, value: str) -> str:
        if not parse_duration(value):
            raise ValueError("must be longer than nothing")
        return value


class LogSettings(_Section):
    """How commands tell of their work on standard error."""

    format: Literal["text", "json"] = "text"
    """``text`` for people, ``json`` for machines: one object per line."""


class S3Settings(_Section):
    """Where S3 is. Credentials come by the usual ways of AWS's own tools, never from here."""

    endpoint: str | None = None
    """Address of another store than AWS's that speaks S3; default: ``AWS_ENDPOINT_URL``, the profile's, or AWS."""
    region: str | None = None
    """Default: ``AWS_REGION``, ``AWS_DEFAULT_REGION`` or the profile's."""
    path_style: bool = False
    """Name buckets in the path and not in the host name, as many other stores want it."""

    @field_validator("endpoint")
    @classmethod
    def _validate_endpoint(cls, value: str | None) -> str | None:
        return _validated_endpoint(value)


class FunctionSettings(_Section):
    """The function that takes in what events tell of, on AWS Lambda."""

    margin_s: float = Field(default=15.0, gt=0)
    """Seconds before the function's time is over at which it stops, leaving what it is at to the next call.

    More than ``notify.timeout_s``, so that there is time to tell of a run that ended at the last moment.
    """
    retry_s: int = Field(default=60, ge=0, le=43_200)
    """Seconds after which SQS delivers a message again whose file failed.

    Another that is not done comes again when the queue's visibility timeout is over.
    """


class GcsSettings(_Section):
    """Where Google Cloud Storage is. Credentials come by the usual ways of Google's own tools, never from here."""

    endpoint: str | None = None
    """Address of another store that speaks Google's API; default: Google's."""

    @field_validator("endpoint")
    @classmethod
    def _validate_endpoint(cls, value: str | None) -> str | None:
        return _validated_endpoint(value)


class AdlsSettings(_Section):
    """Where Azure Data Lake Storage is. Credentials come by the usual ways of Azure's own tools, never from here."""

    endpoint: str | None = None
    """Address of another store that speaks Azure's Blob API, the account's name behind it; default: Azure's."""

    @field_validator("endpoint")
    @classmethod
    def _validate_endpoint(cls, value: str | None) -> str | None:
        return _validated_endpoint(value)


class StorageSettings(_Section):
    """Where the object stores are, all of them."""

    s3: S3Settings = S3Settings()
    gcs: GcsSettings = GcsSettings()
    adls: AdlsSettings = AdlsSettings()


class TableSettings(_Section):
    """What is known of one table: ``[tables."nyc.trips"]``."""

    checks: tuple[str, ...] = ()
    partition_by: tuple[str, ...] = ()
    csv: CsvOptions = CsvOptions()


class Settings(_Section):
    """All settings of one project."""

    catalog: CatalogSettings = CatalogSettings()
    engine: EngineSettings = EngineSettings()
    journal: JournalSettings = JournalSettings()
    local: LocalSettings = LocalSettings()
    ingest: IngestSettings = IngestSettings()
    gc: GcSettings = GcSettings()
    watch: WatchSettings = WatchSettings()
    log: LogSettings = LogSettings()
    function: FunctionSettings = FunctionSettings()
    s3: S3Settings = S3Settings()
    gcs: GcsSettings = GcsSettings()
    adls: AdlsSettings = AdlsSettings()
    notify: NotifySettings = NotifySettings()
    tables: dict[str, TableSettings] = Field(default_factory=dict)

    @field_validator("tables")
    @classmethod
    def _validate_tables(cls, value: dict[str, TableSettings]) -> dict[str, TableSettings]:
        for name in value:
            TableIdentifier.parse(name)
        return value

    @property
    def storage(self) -> StorageSettings:
        """Where the object stores are: the sections ``s3``, ``gcs`` and ``adls``."""
        return StorageSettings(s3=self.s3, gcs=self.gcs, adls=self.adls)

    def table(self, table: TableIdentifier) -> TableSettings:
        """Return the table's section, or defaults."""
        return self.tables.get(str(table), TableSettings())


def find_home(start: Path | None = None) -> Path:
    """Return the project's folder for ``start`` (default: the current folder)."""
    here = (start or Path.cwd()).absolute()
    for folder in (here, *here.parents):
        if (folder / FILE_NAME).is_file() or (folder / HOME_NAME).is_dir():
            return folder
    return here


def load_settings(
    home: Path, *, env: Mapping[str, str] | None = None, flags: Mapping[str, Any] | None = None
) -> Settings:
    """Read the settings of the project in ``home``.

    Args:
        home: Folder that may hold ``lakegate.toml``.
        env: Variables; default the process's. ``LAKEGATE_ENGINE_URL`` sets ``engine.url``.
        flags: Values that override all, by dotted key: ``{"engine.url": "sc://…"}``. ``None`` values are ignored.

    Raises:
        ConfigurationError: When the file cannot be read or parsed, a key is unknown (naming the nearest known one), or
            a value is not allowed.
    """
    path = home / FILE_NAME
    merged = _read_file(path)
    for variable, value in sorted((os.environ if env is None else env).items()):
        key = _key_of(variable)
        if key is not None:
            _put(merged, key, value)
    for dotted, value in (flags or {}).items():
        if value is not None:
            _put(merged, tuple(dotted.split(".")), value)
    try:
        return Settings.model_validate(merged)
    except ValidationError as error:
        raise _explain(error, path) from None


def _validated_endpoint(value: str | None) -> str | None:
    if value is not None and not _ENDPOINT.fullmatch(value):
        raise ValueError("must be a URL such as 'https://store.example.com', without user, password and path")
    return value


def _read_file(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{path} cannot be read: {error}", file=str(path)) from None
    except tomllib.TOMLDecodeError as error:
        raise ConfigurationError(
            f"{path} is not valid TOML: {error}", hint="See https://toml.io.", file=str(path)
        ) from None


def _key_of(variable: str) -> tuple[str, str] | None:
    if not variable.startswith(ENV_PREFIX):
        return None
    section, _, name = variable.removeprefix(ENV_PREFIX).lower().partition("_")
    field = Settings.model_fields.get(section)
    return (section, name) if field is not None and section != "tables" and name else None


def _put(tree: dict[str, Any], key: tuple[str, ...], value: Any) -> None:
    for part in key[:-1]:
        tree = tree.setdefault(part, {})
        if not isinstance(tree, dict):
            raise ConfigurationError(f"'{part}' must be a section of {FILE_NAME}, not a value.", setting=part)
    tree[key[-1]] = value


def _explain(error: ValidationError, path: Path) -> ConfigurationError:
    lines = []
    hint = None
    for problem in error.errors():
        location = tuple(str(part) for part in problem["loc"])
        dotted = ".".join(location)
        if problem["type"] == "extra_forbidden":
            guess = nearest(location[-1], _known_keys(location[:-1]))
            lines.append(f"unknown key '{dotted}'" + (f"; did you mean '{guess}'?" if guess else ""))
            hint = hint or f"Known keys there: {', '.join(sorted(_known_keys(location[:-1])))}."
        else:
            lines.append(f"'{dotted}': {problem['msg'].removeprefix('Value error, ')}")
    return ConfigurationError(f"Settings ({path} and variables): {'; '.join(lines)}.", hint=hint, file=str(path))


def _known_keys(location: tuple[str, ...]) -> list[str]:
    model: type[BaseModel] = Settings
    for part in location:
        field = model.model_fields.get(part)
        inner = None if field is None else _inner_model(field)
        model = inner or model
    return list(model.model_fields)


def _inner_model(field: FieldInfo) -> type[BaseModel] | None:
    candidates = (field.annotation, *get_args(field.annotation))
    return next((c for c in candidates if isinstance(c, type) and issubclass(c, BaseModel)), None)
