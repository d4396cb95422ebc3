"""Spark sessions: one for writing and auditing, one for each reference that is queried.

A session's Spark catalog is bound to one reference when it is first used, so reading at another reference takes a
session of its own. They are cheap: sessions of one server share everything but settings.
"""

from __future__ import annotations

import logging
import os
import warnings
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lakegate.engine.failures import translated
from lakegate.engine.importing import import_spark
from lakegate.errors import ConfigurationError, EngineUnavailableError

if TYPE_CHECKING:
    from lakegate.credentials.tokens import Token
    from lakegate.engine.channels import SparkChannels

CATALOG = "lakegate"
"""Name of the Spark catalog in all our sessions."""

_MAX_RETRIES = 5
_MAX_BACKOFF_MS = 2_000
_SETTINGS = {
    "spark.sql.ansi.enabled": "true",
    "spark.sql.caseSensitive": "false",
    "spark.sql.files.ignoreCorruptFiles": "false",
    "spark.sql.files.ignoreMissingFiles": "false",
    "spark.sql.legacy.javaCharsets": "true",
    # Spark refuses parquet's nanosecond timestamps unless it may read them as numbers; the reader converts them.
    "spark.sql.legacy.parquet.nanosAsLong": "true",
    "spark.sql.parquet.inferTimestampNTZ.enabled": "true",
    "spark.sql.session.timeZone": "UTC",
}

SessionFactory = Callable[[Mapping[str, str]], Any]
"""Makes an independent session with the given settings."""


def remote_sessions(
    url: str, *, token: Token | None = None, tls: bool | None = None, ca_file: Path | None = None
) -> SessionFactory:
    """Return a factory of sessions on a Spark Connect server.

    Args:
        url: Its address: ``sc://host:port``, with ``/;key=value`` of Spark's own behind it.
        token: Bearer token; read for each session, and once more when it is refused.
        tls: Whether to speak TLS; default: what ``url`` says, else with a token, except to this machine.
        ca_file: Certificates (PEM) of the authorities to trust; default: ``SSL_CERT_FILE``, else gRPC's own.

    Returns:
        The factory. It raises :class:`~lakegate.errors.ConfigurationError` when the server refuses the token, its
        certificate is not accepted, or a token would travel without TLS;
        :class:`~lakegate.errors.EngineUnavailableError` when it does not answer.
    """

    def create(settings: Mapping[str, str]) -> Any:
        import_spark("pyspark.sql.connect.session", "pyspark.sql.connect.functions", "lakegate.engine.channels")
        from lakegate.engine.channels import SparkChannels  # noqa: PLC0415 - heavy, and only for Connect

        _prefer_connect_functions()
        _quiet_client()
        sent = None if token is None else token.value()
        try:
            return _open(SparkChannels(url, token=sent, tls=tls, ca_file=ca_file), settings)
        except ConfigurationError:
            if token is None:
                raise
            token.renew()
            renewed = token.value()
            if renewed == sent:
                raise
            return _open(SparkChannels(url, token=renewed, tls=tls, ca_file=ca_file), settings)

    return create


def derived_sessions(session: Any) -> SessionFactory:
    """Return a factory of sessions beside the user's own, which is never changed."""

    def create(settings: Mapping[str, str]) -> Any:
        with translated("deriving a session"):
            session.version  # noqa: B018 - a Connect session exists on its server from its first call on
            fresh = session.cloneSession() if is_connect(session) else session.newSession()
            for key, value in settings.items():
                fresh.conf.set(key, value)
        return fresh

    return create


def session_settings(catalog_options: Mapping[str, str]) -> dict[str, str]:
    """Return all settings of a session whose catalog has the given options (key ``""`` is its class)."""
    prefix = f"spark.sql.catalog.{CATALOG}"
    options = {f"{prefix}.{key}" if key else prefix: value for key, value in catalog_options.items()}
    return {**_SETTINGS, **options}


def is_connect(session: Any) -> bool:
    """Tell whether a session speaks Spark Connect."""
    return ".connect." in type(session).__module__


def end_session(session: Any) -> None:
    """End one of our sessions. A classic one is left alone: it is part of the user's application."""
    if is_connect(session):
        with suppress(Exception):
            # A server that is gone has ended the session already; it is not worth waiting for.
            session.client.set_retry_policies([])
            session.stop()
        with suppress(Exception):
            # pyspark closes a session again when it is collected, under a lock; in a thread that is just being started
            # for that very lock's holder, both wait for ever. Ours are closed by now.
            session.client.close = _nothing


def _open(channels: SparkChannels, settings: Mapping[str, str]) -> Any:
    from pyspark.sql.connect.client.retries import DefaultPolicy  # noqa: PLC0415 - heavy, and only for Connect
    from pyspark.sql.connect.session import SparkSession  # noqa: PLC0415

    channels.check()
    try:
        with translated(f"connecting to {channels.place}"):
            session = SparkSession.Builder().channelBuilder(channels).create()
            session.client.set_retry_policies([DefaultPolicy(max_retries=_MAX_RETRIES, max_backoff=_MAX_BACKOFF_MS)])
            try:
                session.conf._set_all(configs=dict(settings), silent=False)  # noqa: SLF001 - one round trip for all
            except BaseException:
                end_session(session)
                raise
    except EngineUnavailableError:
        channels.explain()
        raise
    return session


def _nothing() -> None:
    pass


def _prefer_connect_functions() -> None:
    # pyspark.sql.functions asks this variable which kind of Column to build; a classic session in the process wins.
    from pyspark.util import is_remote_only  # noqa: PLC0415

    if is_remote_only() or not _has_classic_session():
        os.environ.setdefault("SPARK_CONNECT_MODE_ENABLED", "1")


def _has_classic_session() -> bool:
    from pyspark import SparkContext  # noqa: PLC0415 - the package pyspark-client is without it

    return SparkContext._active_spark_context is not None  # noqa: SLF001 - the only way to ask without starting one


def _quiet_client() -> None:
    # The client logs each of Spark's errors with its JVM stack to standard error; we translate and raise them.
    logging.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL)
    logging.getLogger("pyspark").setLevel(logging.CRITICAL)
    warnings.filterwarnings("ignore", message=r"\[RETRIES_EXCEEDED\]", category=UserWarning)
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
