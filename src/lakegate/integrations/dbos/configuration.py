"""DBOS's configuration: ``dbos-config.yaml`` in DBOS's own format, variables, and values that lakegate pins."""

from __future__ import annotations

import os
import re
import ssl
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any, cast

import certifi
import yaml
from dbos import DBOS, DBOSConfig, DBOSPortableJSONSerializer
from dbos import error as dbos_errors
from dbos._dbos_config import load_config
from filelock import FileLock, Timeout
from sqlalchemy import make_url
from sqlalchemy.exc import ArgumentError

from lakegate.config import HOME_NAME, JournalSettings
from lakegate.credentials.secret import resolve_secret
from lakegate.errors import ConfigurationError
from lakegate.integrations.dbos.queues import QUEUES
from lakegate.private_files import private_file, private_folder

FILE_NAME = "dbos-config.yaml"
APPLICATION_VERSION = "lakegate-2"
"""DBOS recovers a workflow only in the version that started it. By default that's a hash of the code; this constant
changes less often. Raise it when the steps of a workflow change."""
EXECUTOR_ID = "local"
URL_VARIABLE = "DBOS_SYSTEM_DATABASE_URL"
VERSION_VARIABLE = "DBOS__APPVERSION"
EXECUTOR_VARIABLE = "DBOS__VMID"
_URL_HINT = (
    "Write it as postgresql://user:${PGPASSWORD}@host:5432/database or sqlite:///dbos.db, "
    f"in {FILE_NAME} or in {URL_VARIABLE}."
)
_OLD_PLACES = ("hostname", "port", "username", "password", "app_db_name", "sys_db_name")


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


def load_configuration(path: Path | None, *, home: Path, journal: JournalSettings) -> DbosConfiguration:
    """Read ``dbos-config.yaml`` with DBOS's own loader, and fill in defaults.

    Without ``system_database_url``, DBOS's tables go next to the journal: into the same Postgres (schema ``dbos``), or
    into ``.lakegate/dbos.db``. The variables ``DBOS_SYSTEM_DATABASE_URL``, ``DBOS__APPVERSION`` and ``DBOS__VMID``
    override the file and the values that lakegate pins.

    Args:
        path: The file; ``None`` for the one in the current folder or in ``home``, if there is one.

    Raises:
        ConfigurationError: If the file can't be read, or DBOS doesn't support the database.
    """
    found = path or next((one for one in (Path(FILE_NAME), home / FILE_NAME) if one.is_file()), None)
    file = {key: value for key, value in ({} if found is None else _read(found)).items() if value is not None}
    runtime, database, telemetry = (file.get(name) or {} for name in ("runtimeConfig", "database", "telemetry"))
    logs, exporter = (telemetry.get(name) or {} for name in ("logs", "OTLPExporter"))
    given = {
        "name": "lakegate",
        **runtime,
        **database,
        **file,
        "log_level": logs.get("logLevel"),
        "console_log_level": logs.get("consoleLogLevel"),
        "otlp_log_level": logs.get("otlpLogLevel"),
        "enable_otlp": True if exporter else None,
        "otlp_logs_endpoints": exporter.get("logsEndpoint"),
        "otlp_traces_endpoints": exporter.get("tracesEndpoint"),
        "system_database_url": _checked(
            os.environ.get(URL_VARIABLE) or file.get("system_database_url") or _url_beside_journal(home, journal)
        ),
        "application_version": os.environ.get(VERSION_VARIABLE) or APPLICATION_VERSION,
        "executor_id": os.environ.get(EXECUTOR_VARIABLE) or EXECUTOR_ID,
    }
    config = {key: value for key, value in given.items() if key in DBOSConfig.__annotations__ and value is not None}
    # JSON, so that any program can read a workflow's input and result, and reading them runs no code.
    config["serializer"] = DBOSPortableJSONSerializer()
    # DBOS replaces ${VAR} by nothing if the variable isn't set, which YAML reads as null.
    defaults = {key: "" if value is None else str(value) for key, value in (file.get("env") or {}).items()}
    return DbosConfiguration(
        dbos=cast("DBOSConfig", config),
        locks=home / HOME_NAME / "locks",
        variables={**defaults, **os.environ},
        logs_all="logLevel" in logs,
    )


def _url_beside_journal(home: Path, journal: JournalSettings) -> str:
    if journal.url is None or make_url(journal.url).get_backend_name() != "postgresql":
        database = private_folder(home / HOME_NAME) / "dbos.db"
        private_file(database)
        return f"sqlite:///{database}"
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
            hint=_URL_HINT,
            setting="system_database_url",
        )
    return url


def _read(path: Path) -> dict[str, Any]:
    try:
        file = cast("dict[str, Any]", load_config(str(path)))
    except (OSError, UnicodeDecodeError, dbos_errors.DBOSInitializationError) as error:
        raise ConfigurationError(f"Can't read {path}: {error}", file=str(path)) from None
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        place = "" if mark is None else f" (line {mark.line + 1})"
        raise ConfigurationError(f"{path} isn't valid YAML{place}.", file=str(path)) from None
    for name in ("runtimeConfig", "database", "telemetry", "env"):
        if not isinstance(file.get(name) or {}, dict):
            raise ConfigurationError(f"{path}: {name} must have keys.", file=str(path))
    old_key = next((key for key in _OLD_PLACES if key in (file.get("database") or {})), None)
    if old_key is not None:
        raise ConfigurationError(
            f"{path}: database.{old_key} is of an older DBOS. Name the database in system_database_url instead.",
            hint=_URL_HINT,
            file=str(path),
        )
    return file


@contextmanager
def held_executor_id(locks: Path, base: str) -> Iterator[str]:
    """Hold the first of ``base``, ``base.2``, ``base.3``… that no other process on this machine holds."""
    private_folder(locks)
    for number in count(1):
        name = base if number == 1 else f"{base}.{number}"
        with suppress(Timeout), ExitStack() as held:
            held.enter_context(_lock(locks, name))
            locked = held.pop_all()
            break
    with locked:
        yield name


def recover_dead(locks: Path, base: str) -> list[str]:
    """Make the launched DBOS resume workflows of dead processes, whose executor ids nobody holds.

    Returns:
        The ids of workflows that aren't on our queues.
    """
    recovered: list[str] = []
    version = DBOS.application_version
    pending = DBOS.list_workflows(status="PENDING", app_version=version, load_input=False)
    executors = {workflow.executor_id or "" for workflow in pending} - {DBOS.executor_id}
    for name in executors:
        if not re.fullmatch(rf"{re.escape(base)}(\.\d+)?", name):
            continue
        with suppress(Timeout), _lock(locks, name):
            # Listed again: until now, a living process may have worked on them.
            for workflow in DBOS.list_workflows(
                status="PENDING", app_version=version, executor_id=name, load_input=False
            ):
                queue = workflow.queue_name if workflow.queue_name in QUEUES else None
                DBOS.resume_workflow(workflow.workflow_id, queue_name=queue)
                recovered += [] if queue else [workflow.workflow_id]
    return recovered


def _lock(locks: Path, executor: str) -> FileLock:
    return FileLock(locks / f"dbos-{executor}.lock", timeout=0)
