"""The journal in Postgres, through pg8000, for several machines that share a lake.

The tables are in their own schema, ``lakegate``, so that the database can be used for other things too.
"""

from __future__ import annotations

import hashlib
import ssl
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from functools import partial
from socket import socket
from typing import Any, Literal, cast

import sqlalchemy as sa
from sqlalchemy import (
    URL,
    BindParameter,
    Connection,
    Select,
    create_engine,
    event,
    func,
    literal_column,
    select,
    text,
)
from sqlalchemy.engine import ExceptionContext
from sqlalchemy.exc import DBAPIError, SQLAlchemyError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError

from lakegate.credentials.secret import Secret
from lakegate.errors import ClockError, ConfigurationError, LakegateError, RetryableError
from lakegate.journal.database import BUSY_TIMEOUT_S, Database, JournalTransaction, utc_now
from lakegate.model.tables import CLOCKS_DIFFER
from lakegate.model.words import duration

SCHEMA = "lakegate"
MAX_CONNECTIONS = 30
_ANSWER_TIMEOUT_S = 30.0
_LOCK_POOL_TIMEOUT_S = 1.0
_KEPT_OPEN = 5
_SESSION = {
    "search_path": SCHEMA,
    # The code relies on these, whatever a role, the database or the server sets. With another isolation level, a
    # transaction that waited for a lock wouldn't see what the previous holder did.
    "default_transaction_isolation": "read committed",
    "client_encoding": "UTF8",
    "DateStyle": "ISO",
    "TimeZone": "UTC",
    # Without these, the server would keep the locks of a lost machine for two hours.
    "tcp_keepalives_idle": 30,
    "tcp_keepalives_interval": 10,
    "tcp_keepalives_count": 3,
}
_NO_TLS = "Server refuses SSL"  # pg8000's words
# https://www.postgresql.org/docs/current/errcodes-appendix.html
_SERVER_GOES = ("57P01", "57P02", "57P03", "08", "25006")
"""25006: the server is read-only. A failover has demoted it, but DNS may still name it."""
_LOGIN_REFUSED = "28P01"
_NOT_ALLOWED = {
    _LOGIN_REFUSED: "Check journal.url's user and the secret that journal.password names.",
    "28000": "Check journal.url's user and the server's pg_hba.conf.",
    "3D000": "Create the database first, for example with createdb.",
    **dict.fromkeys(
        ("42501", "3F000"),
        "The user needs the right to create a schema in the database: GRANT CREATE ON DATABASE … TO …",
    ),
}
_TYPES = {int: "BIGINT", float: "DOUBLE PRECISION"}


class PostgresDatabase(Database):
    """A Postgres server.

    Args:
        url: URL with the driver, and with the password if it never changes.
        password: Replaces the one in ``url``; read for each connection, and again when it's refused.
        busy_timeout_s: Seconds to wait for a lock in the database.
        tls: How to use TLS; ``None`` uses it if the server offers it, ``False`` never does.
        max_connections: Largest number of connections; a third of them are for named locks.
    """

    from_json = "jsonb_array_elements(CAST(:given AS jsonb))"

    def __init__(
        self,
        url: URL,
        *,
        password: Secret | None = None,
        busy_timeout_s: float = BUSY_TIMEOUT_S,
        tls: ssl.SSLContext | Literal[False] | None = None,
        max_connections: int = MAX_CONNECTIONS,
    ) -> None:
        name = f"{url.host or 'localhost'}{f':{url.port}' if url.port else ''}/{url.database or ''}"
        shown = f"postgresql://{url.username}@{name}" if url.username else f"postgresql://{name}"
        locks = max(1, max_connections // 3)
        engine = partial(_engine, url, password, busy_timeout_s, tls)
        super().__init__(engine(_ANSWER_TIMEOUT_S, max_connections - locks, _ANSWER_TIMEOUT_S), shown)
        # Each named lock takes a connection of its own. Without a free one, we go on without the lock: otherwise, a
        # transaction over many tables would wait for itself.
        self._waiting = engine(_ANSWER_TIMEOUT_S, locks, _LOCK_POOL_TIMEOUT_S)

    def lock(self, connection: Connection, names: Sequence[str]) -> None:
        """Take an advisory lock for each name, always in the same order, so that writers never deadlock."""
        for key in sorted(map(_key, set(names))):
            connection.execute(select(func.pg_advisory_xact_lock(key)))

    def now(self, connection: Connection) -> datetime:
        """Return the server's time, which doesn't depend on any client's clock."""
        return cast("datetime", connection.scalar(select(func.clock_timestamp())))

    def require_clock(self, now: datetime) -> None:
        """Check that this machine's clock isn't ahead of the server's, by which it is ``now``."""
        ahead = utc_now() - now
        if ahead > CLOCKS_DIFFER:
            raise ClockError(
                f"This machine's clock is {duration(ahead.total_seconds())} ahead of that of the journal {self.name}. "
                "Nobody else could write to the tables that it publishes until then.",
                hint="Synchronize the clock with NTP, then try again.",
            )

    def field(self, at: int, kind: type) -> str:
        """Return the SQL for a field of ``value``."""
        return f"CAST(value ->> {at} AS {_TYPES.get(kind, 'TEXT')})"

    def packed(self, values: Collection[str]) -> str:
        """Return strings as the value of one parameter: an array's text, with each string in quotes.

        pg8000 quotes only some strings of a list, and Postgres takes ``null`` without quotes for NULL.
        """
        quoted = (value.replace("\\", r"\\").replace('"', r"\"") for value in values)
        return "{" + ",".join(f'"{one}"' for one in quoted) + "}"

    def listed(self, given: BindParameter[Any]) -> Select[Any]:
        """Return a query that yields the strings in a parameter, an array.

        With JSON, Postgres always expects 100 rows, and then scans a whole table to find a few.
        """
        source = text("unnest(CAST(:given AS text[])) AS one(value)").bindparams(given)
        return select(literal_column("one.value")).select_from(source)

    @contextmanager
    def creating(self) -> Iterator[JournalTransaction]:
        """Open a transaction for creating the tables."""
        with self.writing() as tx:
            tx.lock("schema")
            if not tx.scalar(select(func.to_regclass(f"{SCHEMA}.runs"))):
                self._require_unicode(tx)
            # CREATE … IF NOT EXISTS needs the CREATE privilege even if the schema exists.
            if not tx.scalar(select(func.to_regnamespace(SCHEMA))):
                tx.execute(sa.schema.CreateSchema(SCHEMA, if_not_exists=True))
            if tx.scalar(select(func.current_schema())) not in (SCHEMA, None):  # none if the user may not use it
                raise ConfigurationError(
                    f"The sessions of the journal {self.name} lose their settings, as behind a connection pooler.",
                    hint="Connect to Postgres itself, or have the pooler keep sessions apart (pool_mode = session).",
                    setting="journal.url",
                )
            yield tx

    @contextmanager
    def named_lock(self, name: str, *, timeout_s: float) -> Iterator[bool]:
        """Wait for a session's advisory lock, which is released when its connection closes."""
        key = _key(f"turn {name}")
        connection = self._take_lock(key, timeout_s)
        try:
            yield connection is not None
        finally:
            if connection is not None:
                # Closing the connection releases the lock, whatever state it's in, but a moment later.
                with suppress(SQLAlchemyError, OSError):
                    _socket_of(connection).settimeout(_ANSWER_TIMEOUT_S)
                    connection.execute(select(func.pg_advisory_unlock(key)))
                connection.invalidate()
                connection.close()

    def is_locked(self, name: str) -> bool:
        """Return whether somebody holds an advisory lock. Concurrent calls of this method don't count."""
        with self.reading() as tx:  # reuse a connection: opening one takes longer than the rest of a publish
            return not tx.scalar(select(func.pg_try_advisory_xact_lock_shared(_key(f"turn {name}"))))

    def close(self) -> None:
        """Close connections."""
        super().close()
        self._waiting.dispose()

    def _take_lock(self, key: int, timeout_s: float) -> Connection | None:
        try:
            connection = self._waiting.connect().execution_options(isolation_level="AUTOCOMMIT")
        except (SQLAlchemyError, OSError):
            return None
        try:
            if connection.scalar(select(func.pg_try_advisory_lock(key))):
                return connection
            milliseconds = max(1, round(timeout_s * 1000))  # 0 would mean forever
            # The lock may take longer than any other answer, but a lost server never answers.
            _socket_of(connection).settimeout(timeout_s + _ANSWER_TIMEOUT_S)
            connection.execute(select(func.set_config("lock_timeout", str(milliseconds), sa.false())))
            connection.execute(select(func.pg_advisory_lock(key)))
        except BaseException as error:
            connection.invalidate()
            connection.close()
            if isinstance(error, (SQLAlchemyError, OSError)):
                return None
            raise
        return connection

    def _require_unicode(self, tx: JournalTransaction) -> None:
        encoding = tx.scalar(text("SHOW server_encoding"))
        if encoding != "UTF8":
            raise ConfigurationError(
                f"The journal {self.name} can't store all of Unicode: the database's encoding is {encoding}.",
                hint="Create one with createdb --encoding=UTF8 --template=template0, and name it in journal.url.",
                setting="journal.url",
            )

    def _translate(self, error: DBAPIError) -> LakegateError:
        code, text = _code_and_text(error.orig)
        if text == _NO_TLS:
            hint = "Turn on TLS in the server (ssl = on), or set journal.tls = false."
            return ConfigurationError(f"The journal {self.name} doesn't support TLS.", hint=hint)
        if code in _NOT_ALLOWED:
            return ConfigurationError(f"Can't use the journal {self.name}: {text}.", hint=_NOT_ALLOWED[code])
        cause = None if error.orig is None else error.orig.__cause__
        if isinstance(cause, OSError):  # pg8000 itself only says that there's a network error
            text = cause.strerror or str(cause)
        return RetryableError(
            f"The journal {self.name} isn't available: {text}.", hint="Check that the server is running, and try again."
        )

    def _unavailable(self, error: Exception) -> LakegateError:
        if isinstance(error, PoolTimeoutError):
            return RetryableError(
                f"All connections that this process may open to the journal {self.name} are in use.",
                hint="Raise journal.max_connections if the server allows more, or run fewer things at the same time.",
                setting="journal.max_connections",
            )
        if not isinstance(error, ssl.SSLCertVerificationError):
            return super()._unavailable(error)
        return ConfigurationError(
            f"The certificate of the journal {self.name} isn't trusted: {error.verify_message.rstrip('.')}.",
            hint="If your own authority signed it, set journal.ca_file. Otherwise, renew the server's certificate.",
            setting="journal.ca_file",
        )


def _engine(
    url: URL,
    password: Secret | None,
    busy_timeout_s: float,
    tls: ssl.SSLContext | Literal[False] | None,
    timeout_s: float | None,
    most: int,
    pool_timeout_s: float,
) -> sa.Engine:
    connect = {"timeout": timeout_s, "ssl_context": tls, "application_name": "lakegate"}
    try:
        kept = min(_KEPT_OPEN, most)
        engine = create_engine(
            url,
            pool_pre_ping=True,
            pool_size=kept,
            max_overflow=most - kept,
            pool_timeout=pool_timeout_s,
            connect_args=connect,
        )
    except ModuleNotFoundError:
        raise ConfigurationError(
            "The journal is in Postgres, but the Postgres driver isn't installed.",
            hint="pip install 'lakegate[postgres]'",
            setting="journal.url",
        ) from None
    settings = {**_SESSION, "lock_timeout": round(busy_timeout_s * 1000)}
    configuring = ", ".join(f"set_config('{name}', '{value}', false)" for name, value in settings.items())

    def configure(connection: Any, _record: object) -> None:
        connection.cursor().execute(f"SELECT {configuring}")
        connection.commit()

    def ping(connection: Any) -> bool:
        # When a connection is reset, pg8000 raises a plain OSError, which the pool doesn't see as a disconnect.
        try:
            return plain_ping(connection)
        except OSError as error:
            raise engine.dialect.loaded_dbapi.InterfaceError("network error") from error

    plain_ping = engine.dialect.do_ping
    engine.dialect.do_ping = ping  # type: ignore[assignment, method-assign]
    if password is not None:
        event.listen(engine, "do_connect", partial(_connect, password))
    event.listen(engine, "connect", configure)
    event.listen(engine, "handle_error", _recognise_disconnect)
    return engine


def _connect(password: Secret, dialect: Any, _record: object, given: Sequence[Any], named: dict[str, Any]) -> Any:
    sent = password.value()
    try:
        return dialect.connect(*given, **{**named, "password": sent})
    except dialect.loaded_dbapi.Error as error:
        if _code_and_text(error)[0] != _LOGIN_REFUSED:
            raise
        password.renew()
        renewed = password.value()
        if renewed == sent:
            raise
        return dialect.connect(*given, **{**named, "password": renewed})


def _recognise_disconnect(context: ExceptionContext) -> None:
    # A server that shuts down or is no longer the primary reports that as an ordinary error.
    if _code_and_text(context.original_exception)[0].startswith(_SERVER_GOES):
        context.is_disconnect = True


def _socket_of(connection: Connection) -> socket:
    driver: Any = connection.connection.driver_connection
    return cast("socket", driver._usock)  # noqa: SLF001 - pg8000 sets a timeout only once, when it connects


def _code_and_text(error: BaseException | None) -> tuple[str, str]:
    """Return the SQLSTATE (empty if the server sent none) and the message of a driver's error."""
    details = error.args[0] if error is not None and error.args else ""
    if isinstance(details, dict):
        return str(details.get("C", "")), str(details.get("M", ""))
    return "", str(details)


def _key(name: str) -> int:
    digest = hashlib.sha256(f"lakegate {name}".encode()).digest()
    return int.from_bytes(digest[:8], "big", signed=True)
