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

from lakegate.config import ENVIRON_LOCK
from lakegate.errors import ConfigurationError, EngineUnavailableError
from lakegate.spark.failures import import_spark, translated

if TYPE_CHECKING:
    from lakegate.credentials.tokens import Token
    from lakegate.spark.channels import SparkChannels

CATALOG = "lakegate"
"""Name of the Spark catalog in all our sessions."""
SNAPSHOT_PROPERTY = "spark.sql.iceberg.snapshot-property."
"""Settings by which Iceberg writes properties into snapshots that a session makes."""

_SIGN_OF_LIFE_S = 5.0
_OPENED_WITHIN_S = 30.0
_MAX_RETRIES = 5
_MAX_BACKOFF_MS = 2_000
_SETTINGS = {
    # What a string means must not depend on the server: "x" is a string, ${x} is nothing special.
    "spark.sql.ansi.doubleQuotedIdentifiers": "false",
    "spark.sql.ansi.enabled": "true",
    "spark.sql.variable.substitute": "false",
    # No SQL in our sessions reads files by their paths, or writes any but a table's: an abstract class can't be made.
    "spark.sql.runSQLOnFiles": "false",
    "spark.sql.sources.commitProtocolClass": "org.apache.spark.internal.io.FileCommitProtocol",
    "spark.sql.caseSensitive": "false",
    "spark.sql.files.ignoreCorruptFiles": "false",
    "spark.sql.files.ignoreMissingFiles": "false",
    "spark.sql.legacy.javaCharsets": "true",
    # Spark refuses parquet's nanosecond timestamps unless it may read them as numbers; the reader converts them.
    "spark.sql.legacy.parquet.nanosAsLong": "true",
    "spark.sql.parquet.binaryAsString": "false",
    "spark.sql.parquet.datetimeRebaseModeInRead": "CORRECTED",
    "spark.sql.parquet.inferTimestampNTZ.enabled": "true",
    "spark.sql.parquet.int96RebaseModeInRead": "CORRECTED",
    "spark.sql.parser.escapedStringLiterals": "false",
    "spark.sql.parser.quotedRegexColumnNames": "false",
    "spark.sql.session.timeZone": "UTC",
    # Of a server's own, LEGACY would write NULL for what doesn't fit.
    "spark.sql.storeAssignmentPolicy": "ANSI",
    "spark.sql.timestampType": "TIMESTAMP_LTZ",
}
"""Without these, a server's or a user's settings could change what our SQL means and how files are read."""

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
        certificate isn't accepted, or a token would travel without TLS;
        :class:`~lakegate.errors.EngineUnavailableError` when it doesn't answer.
    """

    def create(settings: Mapping[str, str]) -> Any:
        import_spark("pyspark.sql.connect.session", "pyspark.sql.connect.functions", "lakegate.spark.channels")
        from lakegate.spark.channels import SparkChannels

        def connect(bearer: str | None) -> Any:
            return _open(SparkChannels(url, token=bearer, tls=tls, ca_file=ca_file), settings)

        _prefer_connect_functions()
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
    """Return a factory of sessions separate from the user's own, which is never changed."""

    def create(settings: Mapping[str, str]) -> Any:
        with translated("deriving a session"):
            _quiet_settings()
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
    """Return whether a session speaks Spark Connect."""
    return ".connect." in type(session).__module__


def planned(frame: Any) -> Any:
    """Return ``frame`` once Spark has planned it: Connect does so late, and what's wrong must fail here."""
    frame.schema  # noqa: B018 - asking for it plans
    return frame


def always(session: Any) -> Any:
    """Return a column that is true in every row."""
    if is_connect(session):
        from pyspark.sql.connect.functions import lit
    else:
        from pyspark.sql.functions import lit
    return lit(True)  # noqa: FBT003 - it is the value


def end_session(session: Any) -> None:
    """End one of our sessions. A classic one is left alone: it is part of the user's application."""
    if is_connect(session):
        with suppress(Exception):
            # A server that is gone has ended the session already: don't wait for it.
            session.client.set_retry_policies([])
            session.stop()
        with suppress(Exception):
            # pyspark closes a session again when it is collected, under a lock; in a thread that is just being started
            # for that very lock's holder, both wait forever. Ours are closed by now.
            session.client.close = _nothing


def is_alive(session: Any) -> bool:
    """Return whether the server of one of our sessions answers at once, and still knows it."""
    if not is_connect(session):
        return True
    from lakegate.spark.channels import answered_within

    try:
        with answered_within(_SIGN_OF_LIFE_S):
            session.conf.get("spark.sql.session.timeZone")
    except Exception:  # noqa: BLE001 - whatever it is, the session is useless
        return False
    return True


def hang_up(session: Any) -> None:
    """Close a session's connection without asking its server, so that calls under way fail at once."""
    if is_connect(session):
        with suppress(Exception):
            session.client._channel.close()  # closing the client would first wait for calls under way
            session.client._closed = True
            session.client.close = _nothing


def release(abandoned: Any, *, through: Any) -> None:
    """End a session that we hung up on, and what still runs in it, through another one's connection."""
    if not (is_connect(abandoned) and is_connect(through)):
        return
    from pyspark.sql.connect.proto import ReleaseSessionRequest

    with suppress(Exception):  # its server may be another by now
        old, client = abandoned.client, through.client
        request = ReleaseSessionRequest(session_id=old._session_id, client_type=client._builder.userAgent)
        if old._user_id:
            request.user_context.user_id = old._user_id
        client._stub.ReleaseSession(request, metadata=client._builder.metadata())


def _open(channels: SparkChannels, settings: Mapping[str, str]) -> Any:
    from pyspark.sql.connect.client.retries import DefaultPolicy
    from pyspark.sql.connect.session import SparkSession

    from lakegate.spark.channels import answered_within

    channels.check()
    try:
        with translated(f"connecting to {channels.place}"), answered_within(_OPENED_WITHIN_S):
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
    # Some settings are pinned to their defaults, and Spark warns about them anyway.
    warnings.filterwarnings("ignore", message=r"The SQL config '.*' has been deprecated", category=UserWarning)


def _quiet_client() -> None:
    # The client logs each of Spark's errors with its JVM stack to standard error; we translate and raise them.
    logging.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL)
    logging.getLogger("pyspark").setLevel(logging.CRITICAL)
    warnings.filterwarnings("ignore", message=r"\[RETRIES_EXCEEDED\]", category=UserWarning)
    _quiet_settings()
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")


def _prefer_connect_functions() -> None:
    # pyspark.sql.functions asks this variable which kind of Column to build; a classic session in the process wins.
    from pyspark.util import is_remote_only

    if not is_remote_only():
        from pyspark import SparkContext

        if SparkContext._active_spark_context is not None:  # the only way to ask without starting one
            return
    with ENVIRON_LOCK:  # a check that's asked in another thread sets this variable, and sets it back
        os.environ.setdefault("SPARK_CONNECT_MODE_ENABLED", "1")


def _nothing() -> None:
    pass
