"""DBOS's configuration: ``dbos-config.yaml`` in DBOS's own format, variables, and values that lakegate pins."""

from __future__ import annotations

import os
import re
import ssl
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any, cast
from urllib.parse import quote

import certifi
import yaml
from dbos import DBOS, DBOSConfig, DBOSPortableJSONSerializer
from filelock import FileLock, Timeout
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator
from pydantic.alias_generators import to_camel
from sqlalchemy import make_url
from sqlalchemy.exc import ArgumentError

from lakegate.config import HOME_NAME, JournalSettings
from lakegate.credentials.secret import resolve_secret
from lakegate.errors import ConfigurationError
from lakegate.integrations.dbos.queues import QUEUES
from lakegate.private_files import private_file, private_folder

FILE_NAME = "dbos-config.yaml"
APPLICATION_VERSION = "lakegate-1"
"""DBOS recovers a workflow only in the version that started it. By default that's a hash of the code; this constant
changes less often. Raise it when the steps of a workflow change."""
EXECUTOR_ID = "local"
URL_VARIABLE = "DBOS_SYSTEM_DATABASE_URL"
VERSION_VARIABLE = "DBOS__APPVERSION"
EXECUTOR_VARIABLE = "DBOS__VMID"

_REFERENCE = re.compile(r"\$\{([^}]+)\}")


class _ConfigSection(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class _Runtime(_ConfigSection):
    start: list[str] = Field(default_factory=list)
    setup: list[str] | None = None
    max_executor_threads: int | None = None
    scheduler_polling_interval_sec: float | None = None
    notification_listener_polling_interval_sec: float | None = None
    notification_coalesce_sec: float | None = None
    observability_query_timeout_sec: float | None = None


class _Database(_ConfigSection):
    sys_db_pool_size: int | None = None
    sys_db_polling_concurrency: int | None = None
    sys_db_idle_transaction_timeout_sec: float | None = None
    migrate: list[str] | None = None


class _Logs(_ConfigSection, alias_generator=to_camel):
    log_level: str | None = None
    console_log_level: str | None = None
    otlp_log_level: str | None = None


class _Exporter(_ConfigSection, alias_generator=to_camel):
    logs_endpoint: list[str] | None = None
    traces_endpoint: list[str] | None = None


class _Telemetry(_ConfigSection):
    logs: _Logs = _Logs()
    OTLPExporter: _Exporter | None = None


class _File(_ConfigSection):
    name: str = Field(default="lakegate", pattern=r"^[a-z0-9_-]{3,256}$")
    language: str | None = None
    system_database_url: str | None = None
    dbos_system_schema: str | None = None
    run_migrations: bool | None = None
    use_listen_notify: bool | None = None
    runtime: _Runtime = Field(default=_Runtime(), alias="runtimeConfig")
    database: _Database = _Database()
    telemetry: _Telemetry = _Telemetry()
    env: Mapping[str, str] = Field(default_factory=dict)

    @field_validator("env", mode="before")
    @classmethod
    def _as_text(cls, value: Any) -> Any:
        return {key: str(one) for key, one in value.items()} if isinstance(value, dict) else value


@dataclass(frozen=True, slots=True)
class DbosConfiguration:
    """The program's configuration.

    Attributes:
        variables: The process's variables, with section ``env`` of the file as defaults.
        logs_all: Whether the file also enables DBOS's own log.
        locks: The folder of locks that give each process on this machine its own executor id.
    """

    dbos: DBOSConfig
    locks: Path
    variables: Mapping[str, str] = field(default_factory=dict)
    logs_all: bool = False


def load_configuration(
    path: Path | None, *, home: Path, journal: JournalSettings, environ: Mapping[str, str] | None = None
) -> DbosConfiguration:
    """Read ``dbos-config.yaml``, and fill in defaults.

    Without ``system_database_url``, DBOS's tables go next to the journal: into the same Postgres (schema ``dbos``), or
    into ``.lakegate/dbos.db``.

    Args:
        path: The file; ``None`` for the one in the current folder or in ``home``, if there is one.
        environ: Variables; by default the process's. ``DBOS_SYSTEM_DATABASE_URL``, ``DBOS__APPVERSION`` and
            ``DBOS__VMID`` override the file and the values that lakegate pins.

    Raises:
        ConfigurationError: If the file can't be read, has an unknown key or value, or refers to an unset variable.
    """
    variables = os.environ if environ is None else environ
    found = path or next((one for one in (Path(FILE_NAME), home / FILE_NAME) if one.is_file()), None)
    file = _File() if found is None else _read(found, variables)
    url = variables.get(URL_VARIABLE) or file.system_database_url or _url_beside_journal(home, journal)
    given = {
        **file.runtime.model_dump(exclude={"start", "setup"}),
        **file.database.model_dump(exclude={"migrate"}),
        **file.model_dump(include={"name", "dbos_system_schema", "run_migrations", "use_listen_notify"}),
        **_telemetry(file.telemetry),
        "system_database_url": _checked(url),
        "application_version": variables.get(VERSION_VARIABLE) or APPLICATION_VERSION,
        "executor_id": variables.get(EXECUTOR_VARIABLE) or EXECUTOR_ID,
    }
    config = {key: value for key, value in given.items() if value is not None}
    # JSON, so that any program can read a workflow's input and result, and reading them runs no code.
    config["serializer"] = DBOSPortableJSONSerializer()
    return DbosConfiguration(
        dbos=cast("DBOSConfig", config),
        locks=home / HOME_NAME / "locks",
        variables={**file.env, **variables},
        logs_all=file.telemetry.logs.log_level is not None,
    )


def location_of(url: str) -> str:
    """Return a database's location, without user and password.

    Example:
        >>> location_of("postgresql://me:secret@db.example.com:5432/lake"), location_of("sqlite:////tmp/dbos.db")
        ('db.example.com:5432/lake', '/tmp/dbos.db')
    """
    parsed = make_url(url)
    if parsed.host is None:
        return parsed.database or ""
    port = "" if parsed.port is None else f":{parsed.port}"
    return f"{parsed.host}{port}/{parsed.database}"


def _telemetry(section: _Telemetry) -> dict[str, Any]:
    exporter = section.OTLPExporter
    return {
        "log_level": section.logs.log_level,
        "console_log_level": section.logs.console_log_level,
        "otlp_log_level": section.logs.otlp_log_level,
        "enable_otlp": None if exporter is None else True,
        "otlp_logs_endpoints": None if exporter is None else exporter.logs_endpoint,
        "otlp_traces_endpoints": None if exporter is None else exporter.traces_endpoint,
    }


def _url_beside_journal(home: Path, journal: JournalSettings) -> str:
    if journal.url is None or make_url(journal.url).get_backend_name() != "postgresql":
        database = private_folder(home / HOME_NAME) / "dbos.db"
        private_file(database)
        # A URL's database ends at "?", but a URI inside it may have one.
        return f"sqlite:///file:{quote(str(database))}?uri=true" if "?" in str(database) else f"sqlite:///{database}"
    password = resolve_secret(journal.password, setting="journal.password")
    url = make_url(journal.url).set(drivername="postgresql", password=password).update_query_dict(_tls(journal))
    return url.render_as_string(hide_password=False)


def _tls(journal: JournalSettings) -> dict[str, str]:
    """Return the journal's settings for TLS as parameters of libpq, which DBOS connects with."""
    if journal.ca_file is None and not journal.tls:
        return {} if journal.tls is None else {"sslmode": "disable"}
    # Not "system": libpq comes with an OpenSSL of its own, which may look in a folder that isn't here.
    authorities = journal.ca_file or ssl.get_default_verify_paths().cafile or certifi.where()
    return {"sslmode": "verify-full", "sslrootcert": str(authorities)}


def _checked(url: str) -> str:
    """Return the URL if DBOS supports its database. It may contain a password, so no message shows it."""
    try:
        parsed = make_url(url)
    except (ArgumentError, ValueError):
        parsed = None
    if parsed is None or parsed.get_backend_name() not in ("postgresql", "sqlite") or not parsed.database:
        raise ConfigurationError(
            "system_database_url isn't the URL of a Postgres or SQLite database.",
            hint="Write it as postgresql://user:${PGPASSWORD}@host:5432/database or sqlite:///dbos.db, "
            f"in {FILE_NAME} or in {URL_VARIABLE}.",
            setting="system_database_url",
        )
    return url


def _read(path: Path, variables: Mapping[str, str]) -> _File:
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"Can't read {path}: {error}", file=str(path)) from None
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        place = "" if mark is None else f" (line {mark.line + 1})"
        raise ConfigurationError(f"{path} isn't valid YAML{place}.", file=str(path)) from None
    if not isinstance(content, dict):
        raise ConfigurationError(f"{path} has no keys.", hint="Start it with: name: lakegate", file=str(path))
    try:
        return _File.model_validate(_substituted(content, path, variables))
    except ValidationError as error:
        raise _validation_error(error, path) from None


def _substituted(value: Any, path: Path, variables: Mapping[str, str]) -> Any:
    """Replace ``${NAME}`` with variables, only in values, so that no variable can change the file's structure."""
    if isinstance(value, dict):
        return {key: _substituted(one, path, variables) for key, one in value.items()}
    if isinstance(value, list):
        return [_substituted(one, path, variables) for one in value]
    if not isinstance(value, str):
        return value

    def variable(match: re.Match[str]) -> str:
        name = match[1].strip()
        if not variables.get(name):
            raise ConfigurationError(
                f"{path} refers to the variable {name}, which isn't set.", hint=f"export {name}=…", file=str(path)
            )
        return variables[name]

    return _REFERENCE.sub(variable, value)


def _validation_error(error: ValidationError, path: Path) -> ConfigurationError:
    problems = []
    for one in error.errors(include_input=False, include_url=False):
        key = ".".join(str(part) for part in one["loc"])
        what = "isn't a known key" if one["type"] == "extra_forbidden" else one["msg"]
        problems.append(f"{key}: {what}")
    return ConfigurationError(
        f"{path}: {'; '.join(problems)}",
        hint="https://docs.dbos.dev/python/reference/configuration lists the keys.",
        file=str(path),
    )


@contextmanager
def held_executor_id(locks: Path, base: str) -> Iterator[str]:
    """Hold the first of ``base``, ``base.2``, ``base.3``… that no other process on this machine holds."""
    private_folder(locks)
    with ExitStack() as stack:
        for number in count(1):
            name = base if number == 1 else f"{base}.{number}"
            if _try_hold(stack, locks, name):
                yield name
                return


def recover_dead(locks: Path, base: str) -> list[str]:
    """Make the launched DBOS resume workflows of dead processes, whose executor ids nobody holds.

    Returns:
        The ids of workflows that aren't on our queues.
    """
    recovered: list[str] = []
    pending = DBOS.list_workflows(status="PENDING", app_version=DBOS.application_version, load_input=False)
    for workflow in pending:
        name = workflow.executor_id or ""
        if name == DBOS.executor_id or not _is_executor_of(base, name):
            continue
        with ExitStack() as stack:
            if _try_hold(stack, locks, name) and _is_pending(workflow.workflow_id, name):
                queue = workflow.queue_name if workflow.queue_name in QUEUES else None
                DBOS.resume_workflow(workflow.workflow_id, queue_name=queue)
                recovered += [] if queue else [workflow.workflow_id]
    return recovered


def _is_pending(workflow_id: str, executor: str) -> bool:
    """Return whether nobody has resumed or cancelled a workflow since it was listed."""
    now = DBOS.get_workflow_status(workflow_id)
    return now is not None and (now.status, now.executor_id) == ("PENDING", executor)


def _is_executor_of(base: str, name: str) -> bool:
    return name == base or (name.startswith(f"{base}.") and name.removeprefix(f"{base}.").isdecimal())


def _try_hold(stack: ExitStack, locks: Path, name: str) -> bool:
    try:
        stack.enter_context(FileLock(locks / f"dbos-{name}.lock", timeout=0))
    except Timeout:
        return False
    return True
