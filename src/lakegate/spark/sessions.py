"""Spark sessions: one for writes and audits, and one for each reference that is queried.

A session's Spark catalog is bound to a reference on first use, so each reference needs its own session. Sessions are
cheap: those of one server share everything but settings.
"""

from __future__ import annotations

import importlib
import logging
import os
import warnings
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lakegate.errors import ConfigurationError, EngineUnavailableError
from lakegate.spark.failures import import_spark, spark_errors

if TYPE_CHECKING:
    from lakegate.credentials.tokens import Token
    from lakegate.spark.channels import SparkChannels

CATALOG = "lakegate"
"""Name of the Spark catalog in all our sessions."""
SNAPSHOT_PROPERTY = "spark.sql.iceberg.snapshot-property."
"""Prefix of session settings that Iceberg copies into the properties of the session's snapshots."""

_SIGN_OF_LIFE_S = 5.0
_OPENED_WITHIN_S = 30.0
_MAX_RETRIES = 5
_MAX_BACKOFF_MS = 2_000
_SETTINGS = {
    # SQL strings must not depend on the server's settings: "x" is a string, ${x} isn't replaced.
    "spark.sql.ansi.doubleQuotedIdentifiers": "false",
    "spark.sql.ansi.enabled": "true",
    # Otherwise, a column called user would be read as current_user.
    "spark.sql.ansi.enforceReservedKeywords": "false",
    "spark.sql.variable.substitute": "false",
    # No SQL in our sessions may read files by path, or write other files than a table's: Spark can't instantiate this
    # abstract class.
    "spark.sql.runSQLOnFiles": "false",
    "spark.sql.sources.commitProtocolClass": "org.apache.spark.internal.io.FileCommitProtocol",
    "spark.sql.caseSensitive": "false",
    "spark.sql.files.ignoreCorruptFiles": "false",
    "spark.sql.files.ignoreMissingFiles": "false",
    "spark.sql.legacy.javaCharsets": "true",
    # Spark only reads parquet's nanosecond timestamps as numbers, which the reader converts.
    "spark.sql.legacy.parquet.nanosAsLong": "true",
    "spark.sql.parquet.binaryAsString": "false",
    "spark.sql.parquet.datetimeRebaseModeInRead": "CORRECTED",
    "spark.sql.parquet.inferTimestampNTZ.enabled": "true",
    "spark.sql.parquet.int96RebaseModeInRead": "CORRECTED",
    "spark.sql.parser.escapedStringLiterals": "false",
    "spark.sql.parser.quotedRegexColumnNames": "false",
    "spark.sql.session.timeZone": "UTC",
    # With LEGACY, Spark would write NULL for values that don't fit.
    "spark.sql.storeAssignmentPolicy": "ANSI",
    "spark.sql.timestampType": "TIMESTAMP_LTZ",
}
"""Settings that fix what our SQL means and how files are read, whatever the server's or user's settings are."""
PREDICATE_SETTINGS = {
    "spark.sql.alwaysInlineCommonExpr": "true",
    "spark.sql.subexpressionElimination.skipForShortcutExpr": "true",
}
"""Settings with which ``AND`` and ``OR`` guard what follows them, as in ``kind = 'n' AND CAST(x AS INT) > 5``.

By default, Spark first computes every expression that occurs twice, in two predicates of a scan or in one ``BETWEEN``,
for each row. The first setting would evaluate ``rand()`` twice, which queries and transactions may call, but predicates
may not.
"""

SessionFactory = Callable[[Mapping[str, str]], Any]
"""Creates an independent session with the given settings."""


def remote_sessions(
    url: str, *, token: Token | None = None, tls: bool | None = None, ca_file: Path | None = None
) -> SessionFactory:
    """Return a factory of sessions on a Spark Connect server.

    Args:
        url: The server's address: ``sc://host:port``, optionally with Spark's own ``/;key=value``.
        token: Bearer token, read for each session, and renewed once if the server rejects it.
        tls: Whether to use TLS. By default, as ``url`` says, or else if there's a token and the server isn't local.
        ca_file: Certificates (PEM) of trusted authorities. By default, ``SSL_CERT_FILE``, or else gRPC's own.

    Returns:
        The factory. It raises :class:`~lakegate.errors.ConfigurationError` when the server rejects the token, its
        certificate isn't trusted, or a token would be sent without TLS; and
        :class:`~lakegate.errors.EngineUnavailableError` when it doesn't answer.
    """

    def create(settings: Mapping[str, str]) -> Any:
        import_spark("pyspark.sql.connect.session", "pyspark.sql.connect.functions", "lakegate.spark.channels")
        from lakegate.spark.channels import SparkChannels

        def connect(bearer: str | None) -> Any:
            return _open(SparkChannels(url, token=bearer, tls=tls, ca_file=ca_file), settings)

        prefer_connect_functions()
        _quiet_client()
        sent = None if token is None else token.value()
        try:
            return connect(sent)
        except ConfigurationError:
            if token is None:
                raise
            token.renew()
            renewed = token.value()
            if renewed == sent:
                raise
            return connect(renewed)

    return create


def derived_sessions(session: Any) -> SessionFactory:
    """Return a factory of sessions derived from the user's own session, which is never changed."""

    def create(settings: Mapping[str, str]) -> Any:
        with spark_errors("deriving a session"):
            _quiet_settings()
            session.version  # noqa: B018 - the first call creates a Connect session on its server
            fresh = session.cloneSession() if is_connect(session) else session.newSession()
            for key, value in settings.items():
                fresh.conf.set(key, value)
        return fresh

    return create


def session_settings(catalog_options: Mapping[str, str]) -> dict[str, str]:
    """Return all settings of a session whose catalog has the given options. The key ``""`` is the catalog's class."""
    prefix = f"spark.sql.catalog.{CATALOG}"
    options = {f"{prefix}.{key}" if key else prefix: value for key, value in catalog_options.items()}
    return {**_SETTINGS, **options}


def is_connect(session: Any) -> bool:
    """Return whether a session uses Spark Connect."""
    return ".connect." in type(session).__module__


def plan_now(frame: Any) -> Any:
    """Let Spark plan ``frame`` now, so that an invalid one fails here; Connect would plan it later. Return it."""
    frame.schema  # noqa: B018 - needs the plan
    return frame


def functions_for(session: Any) -> Any:
    """Return PySpark's functions for columns of a session, or of a DataFrame's session."""
    return importlib.import_module(f"pyspark.sql.{'connect.' if is_connect(session) else ''}functions")


def always_true(session: Any) -> Any:
    """Return a ``Column`` that is true for every row."""
    return functions_for(session).lit(True)  # noqa: FBT003 - the value itself


def end_session(session: Any) -> None:
    """End one of our sessions. Classic ones stay: they are part of the user's application."""
    if is_connect(session):
        with suppress(Exception):
            # Without retries: if the server is gone, so is the session.
            session.client.set_retry_policies([])
            session.client.release_session()
        with suppress(Exception):
            # Released or not. PySpark warns if it fails to, by a deprecated method: where warnings are errors, the
            # dead session would stay the active one, which the user's columns ask for settings.
            session.release_session_on_close = False
            session.stop()
        with suppress(Exception):
            # PySpark closes a session again, under a lock, when it's garbage-collected. In a thread that the lock's
            # holder is just starting, that would deadlock. Ours is closed already.
            session.client.close = lambda: None


def is_alive(session: Any) -> bool:
    """Return whether a session's server answers promptly and still has the session."""
    if not is_connect(session):
        return True
    from lakegate.spark.channels import call_timeout

    try:
        with call_timeout(_SIGN_OF_LIFE_S):
            session.conf.get("spark.sql.session.timeZone")
    except Exception:  # noqa: BLE001 - any error makes the session useless
        return False
    return True


def disconnect(session: Any) -> None:
    """Close a session's connection without telling its server, so that running calls fail at once."""
    if is_connect(session):
        with suppress(Exception):
            session.client._channel.close()  # closing the client would wait for running calls first
            session.client._closed = True
            session.client.close = lambda: None


def release_session(abandoned: Any, *, through: Any) -> None:
    """End an abandoned session, and the work that still runs in it, through another session's connection."""
    if not (is_connect(abandoned) and is_connect(through)):
        return
    from pyspark.sql.connect.proto import ReleaseSessionRequest

    with suppress(Exception):  # the server may have been replaced
        old, client = abandoned.client, through.client
        request = ReleaseSessionRequest(session_id=old._session_id, client_type=client._builder.userAgent)
        if old._user_id:
            request.user_context.user_id = old._user_id
        client._stub.ReleaseSession(request, metadata=client._builder.metadata())


def _open(channels: SparkChannels, settings: Mapping[str, str]) -> Any:
    from pyspark.sql.connect.client.retries import DefaultPolicy
    from pyspark.sql.connect.session import SparkSession

    from lakegate.spark.channels import call_timeout

    channels.check()
    try:
        with spark_errors(f"connecting to {channels.place}"), call_timeout(_OPENED_WITHIN_S):
            session = SparkSession.Builder().channelBuilder(channels).create()
            session.client.set_retry_policies([DefaultPolicy(max_retries=_MAX_RETRIES, max_backoff=_MAX_BACKOFF_MS)])
            try:
                session.conf._set_all(configs=dict(settings), silent=False)  # one round trip for all
            except BaseException:
                end_session(session)
                raise
    except EngineUnavailableError:
        channels.explain()
        raise
    return session


def _quiet_settings() -> None:
    # Spark warns about deprecated settings even when they are set to their defaults, as some of ours are.
    warnings.filterwarnings("ignore", message=r"The SQL config '.*' has been deprecated", category=UserWarning)


def _quiet_client() -> None:
    # The client logs each Spark error, with its JVM stack trace, to standard error. We translate and raise them.
    logging.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL)
    logging.getLogger("pyspark").setLevel(logging.CRITICAL)
    warnings.filterwarnings("ignore", message=r"\[RETRIES_EXCEEDED\]", category=UserWarning)
    _quiet_settings()
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")


def prefer_connect_functions() -> None:
    """Have ``pyspark.sql.functions`` build columns for Spark Connect, unless the process has a classic session."""
    from pyspark.util import is_remote_only

    if not is_remote_only():
        from pyspark import SparkContext

        if SparkContext._active_spark_context is not None:  # the only way to find out without starting one
            return
    os.environ.setdefault("SPARK_CONNECT_MODE_ENABLED", "1")
