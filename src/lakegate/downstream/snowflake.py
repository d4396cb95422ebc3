"""Snowflake: its Iceberg tables point at the metadata on ``main``. It reads the lake's files, and copies nothing.

A table's comment names the table of the lake and its folder. By that, lakegate knows which tables it created, and that
a table was dropped and created again. It never touches a table without such a comment.

Source: https://docs.snowflake.com/en/sql-reference/sql/alter-iceberg-table-refresh
"""

from __future__ import annotations

import re
import weakref
from typing import Any
from urllib.parse import urlsplit

import snowflake.connector
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from lakegate.config import SnowflakeDownstream
from lakegate.credentials.secret import Secret, resolve_secret
from lakegate.downstream import DownstreamContext
from lakegate.errors import ConfigurationError, DownstreamError, DownstreamUnavailableError, LakegateError
from lakegate.model.downstream import DownstreamEvent
from lakegate.model.identifiers import TableIdentifier
from lakegate.model.run import Run
from lakegate.progress import one_line, without_secrets
from lakegate.storage.objects import canonical, is_remote

OPTIONS: dict[str, Any] = {
    "application": "lakegate",
    "session_parameters": {"QUERY_TAG": "lakegate", "CLIENT_TELEMETRY_ENABLED": False},
    "client_store_temporary_credential": False,
    # No statement is left running in the background.
    "enable_server_session_keep_alive_auto_detection": False,
}
"""Options of every connection."""
_GUIDE = "docs/how-to/read-from-snowflake.md"
_MAX_LOGIN_S = 60
_AUTHENTICATORS = {"oauth": "OAUTH", "programmatic": "PROGRAMMATIC_ACCESS_TOKEN"}
_SESSION_ENDED = frozenset({390111, 390112, 390114, 390115})
_TOKEN_REFUSED = frozenset({390303, 390318, 394300, 394301})
_ABSENT = frozenset({2003, 2043})
_RETRYABLE = frozenset({603, 604, 630})
"""An internal error, a cancelled statement, a timeout."""
_FIRST_SERVER_ERROR = 100
"""Smaller numbers are the connector's own, for failures on the way to the server."""
_CONNECTION_FAILED = 250001
_HTTP_STATUS = re.compile(r"error status: (\d{3})")
_UNAVAILABLE = re.compile(r"after retries|timed out|timeout|Connection|connection|name or service|dns", re.IGNORECASE)
_UNQUOTED = re.compile(r"[A-Z_][A-Z0-9_$]*")


class SnowflakeTarget:
    """Implements :class:`lakegate.ports.Downstream` with the tables of a Snowflake database.

    Args:
        name: The downstream's name in the settings, for messages.
        root: The warehouse's URI, ending in ``/``: the location of the external volume.
    """

    def __init__(self, name: str, settings: SnowflakeDownstream, root: str) -> None:
        self._name = name
        self._settings = settings
        self._root = root
        # One session for all deliveries, because signing in takes longer than a refresh.
        self._connection: Any = None

    def deliver(self, event: DownstreamEvent, run: Run | None) -> None:
        """Create, refresh or drop each table of a publish.

        Raises:
            DownstreamUnavailableError: Snowflake doesn't answer.
            DownstreamError: It refuses a statement, or the name belongs to a table that lakegate didn't create.
        """
        del run
        for table in event.tables:
            if table.dropped:
                self._drop(TableIdentifier.stored(table.table))
            elif table.after is not None:
                self._point_at(TableIdentifier.stored(table.table), table.after)

    def test(self) -> str:
        """Sign in, and look for the warehouse, database, external volume and catalog integration. Changes nothing."""
        settings = self._settings
        self._run(f"SHOW SCHEMAS IN DATABASE {identifier(settings.database)}")
        self._run(f"DESC EXTERNAL VOLUME {identifier(settings.external_volume)}")
        self._run(f"DESC CATALOG INTEGRATION {identifier(settings.catalog_integration)}")
        [session] = self._run("SELECT CURRENT_ACCOUNT() AS ACCOUNT, CURRENT_WAREHOUSE() AS WAREHOUSE")
        if session["warehouse"] is None:
            raise DownstreamError(
                f"Warehouse '{settings.warehouse}' doesn't exist, or role '{settings.role}' may not use it.",
                hint=f"Check downstream.{self._name}.warehouse; names are case-sensitive.",
            )
        return (
            f"Signed in to {session['account']} as {settings.user} with role {settings.role}; warehouse, database, "
            "external volume and catalog integration exist."
        )

    def _point_at(self, table: TableIdentifier, location: str) -> None:
        schema, name = self._names(table)
        path = self._relative(location)
        comment = f"{_mark(table)}{path.rpartition('/metadata/')[0]}"
        existing = self._find(table)
        if existing == comment:
            self._run(f"ALTER ICEBERG TABLE {schema}.{name} REFRESH {text(path)}")
            return
        # Another folder: the lake's table was dropped, and another was created by its name.
        create = "CREATE ICEBERG TABLE" if existing is None else "CREATE OR REPLACE ICEBERG TABLE"
        statement = (
            f"{create} {schema}.{name}"
            f" EXTERNAL_VOLUME = {text(as_parameter(self._settings.external_volume))}"
            f" CATALOG = {text(as_parameter(self._settings.catalog_integration))}"
            f" METADATA_FILE_PATH = {text(path)}"
            f" COMMENT = {text(comment)}"
        )
        if existing is None:
            self._run(f"CREATE SCHEMA IF NOT EXISTS {schema}")
        self._run(statement)

    def _drop(self, table: TableIdentifier) -> None:
        """Drop a table that the lake has dropped, if lakegate created it. The files are the lake's, and stay."""
        schema, name = self._names(table)
        try:
            existing = self._find(table)
        except TakenError:
            return
        if existing is not None:
            self._run(f"DROP ICEBERG TABLE IF EXISTS {schema}.{name}")

    def _find(self, table: TableIdentifier) -> str | None:
        """Return the comment of lakegate's table in Snowflake; ``None`` if there's none.

        Raises:
            TakenError: Another table has the name.
        """
        schema, name = self._names(table)
        try:
            rows = self._run(f"SHOW ICEBERG TABLES IN SCHEMA {schema} STARTS WITH {text(self._cased(table.name))}")
        except SnowflakeError as error:
            if error.number in _ABSENT:
                return None
            raise
        row = next((row for row in rows if identifier(row["name"]) == name), None)
        if row is None:
            return None
        comment = str(row["comment"] or "")
        if not comment.startswith(_mark(table)):
            raise TakenError(f"{schema}.{name}", table)
        return comment

    def _names(self, table: TableIdentifier) -> tuple[str, str]:
        """Return the quoted names of a table's schema and of the table in it."""
        schema = self._cased(".".join(table.namespace))
        return f"{identifier(self._settings.database)}.{identifier(schema)}", identifier(self._cased(table.name))

    def _cased(self, name: str) -> str:
        return name.upper() if self._settings.case == "upper" else name

    def _relative(self, location: str) -> str:
        """Return a metadata file's path relative to the external volume, as Snowflake requires."""
        uri = canonical(location)
        path = uri.removeprefix(self._root)
        if path == uri:
            raise DownstreamError(
                f"The metadata file {location} isn't below the warehouse {self._root}, so Snowflake's external volume "
                "doesn't reach it.",
                hint="Exclude the table from the downstream's 'tables', or set catalog.warehouse to a folder above it.",
                path=location,
            )
        return path

    def _run(self, sql: str) -> list[dict[str, Any]]:
        """Run a statement; return its rows as dicts, with column names in lower case. Signs in if necessary."""
        for has_renewed in (False, True):
            try:
                if self._connection is None:
                    self._connection = self._sign_in()
                    weakref.finalize(self, _close, self._connection)
                with self._connection.cursor(snowflake.connector.DictCursor) as cursor:
                    cursor.execute(sql)
                    return [{key.lower(): value for key, value in row.items()} for row in cursor.fetchall()]
            except snowflake.connector.Error as error:
                # The connector's error refers to its own frames in a cycle, and so keeps our callers alive.
                error.__context__ = error.__cause__ = error.__traceback__ = None
                if has_renewed or not self._may_sign_in_again(error):
                    raise self._translate(error, sql) from None
                self._connection = None
        raise AssertionError  # pragma: no cover - the second round returns or raises

    def _sign_in(self) -> Any:
        settings = self._settings
        address = urlsplit(settings.url or f"https://{settings.account}.snowflakecomputing.com")
        return snowflake.connector.connect(
            account=settings.account,
            host=address.hostname,
            port=address.port or (443 if address.scheme == "https" else 80),
            protocol=address.scheme,
            user=settings.user,
            role=as_parameter(settings.role),
            warehouse=as_parameter(settings.warehouse),
            **self._credentials(),
            login_timeout=int(min(_MAX_LOGIN_S, settings.timeout_s)) or 1,
            query_timeout=int(settings.timeout_s) or 1,
            request_timeout=int(settings.timeout_s) or 1,
            **OPTIONS,
        )

    def _credentials(self) -> dict[str, Any]:
        settings, section = self._settings, f"downstream.{self._name}"
        if settings.token is not None:
            token = Secret(settings.token, setting=f"{section}.token")
            return {"authenticator": _AUTHENTICATORS[settings.token_type], "token": token.value()}
        pem = resolve_secret(settings.private_key, setting=f"{section}.private_key") or ""
        passphrase = resolve_secret(settings.private_key_passphrase, setting=f"{section}.private_key_passphrase")
        try:
            # Environment variables may hold the key on one line, with \n for its line breaks.
            # Validation takes longer than signing in, and the user's own key needs none.
            key = load_pem_private_key(
                pem.replace("\\n", "\n").encode(),
                passphrase.encode() if passphrase else None,
                unsafe_skip_rsa_key_validation=True,
            )
        except (ValueError, TypeError) as error:
            # The library's TypeError says that the passphrase is missing, or that there's one too many.
            reason = "private_key_passphrase doesn't fit" if isinstance(error, TypeError) else "it isn't valid PEM"
            raise ConfigurationError(
                f"Setting {section}.private_key doesn't refer to a usable private key: {reason}, or its passphrase is "
                "wrong.",
                hint="Create one: openssl genrsa 2048 | openssl pkcs8 -topk8 -nocrypt -out key.p8",
                setting=f"{section}.private_key",
            ) from None
        return {"authenticator": "SNOWFLAKE_JWT", "private_key": key}

    def _may_sign_in_again(self, error: Exception) -> bool:
        number, token = _number(error), self._settings.token
        if number in _TOKEN_REFUSED and token is not None:
            # The token may have been replaced at its source since it was read.
            Secret(token, setting=f"downstream.{self._name}.token").renew()
            return True
        # A session that can't be renewed fails like a new connection. Only a session that was open counts.
        return self._connection is not None and (number in _SESSION_ENDED or "refresh session" in str(error))

    def _translate(self, error: Exception, sql: str) -> LakegateError:
        settings, number, reason = self._settings, _number(error), _message(error)
        status = _HTTP_STATUS.search(reason)
        if status and self._connection is None and status[1] in {"403", "404"}:
            return SnowflakeError(
                f"Snowflake has no account '{settings.account}' at this address (HTTP {status[1]}).",
                number=number,
                hint=f"Set downstream.{self._name}.account to the account identifier: SELECT "
                "CURRENT_ORGANIZATION_NAME() || '-' || CURRENT_ACCOUNT_NAME(). For PrivateLink, set its url.",
            )
        if (
            number in _RETRYABLE
            or number < _FIRST_SERVER_ERROR
            or (number == _CONNECTION_FAILED and _UNAVAILABLE.search(reason))
            or status
        ):
            return DownstreamUnavailableError(
                f"Snowflake account '{settings.account}' doesn't answer: {reason}",
                hint=f"Check the network and downstream.{self._name}.account; then run: "
                f"lakegate admin downstream retry {self._name}",
            )
        if self._connection is None:
            return SnowflakeError(
                f"Snowflake refused the sign-in of user '{settings.user}' with role '{settings.role}': {reason}",
                number=number,
                hint=f"Check downstream.{self._name}; names are case-sensitive. Then run: "
                f"lakegate admin downstream test {self._name}",
            )
        return SnowflakeError(
            f"Snowflake refused a statement: {reason}",
            number=number,
            hint=f"The statement was: {sql[:200]}. What the account needs is in {_GUIDE}.",
        )


class SnowflakeError(DownstreamError):
    """Snowflake refused a statement or a sign-in; ``number`` is its error number."""

    def __init__(self, message: str, *, number: int, hint: str) -> None:
        super().__init__(message, hint=hint, number=number)
        self.number = number


class TakenError(DownstreamError):
    """A table that lakegate didn't create, or not for this table of the lake, has the name that it needs."""

    def __init__(self, place: str, table: TableIdentifier) -> None:
        super().__init__(
            f"{place} exists in Snowflake, but lakegate didn't create it for {table}, which isn't shown there.",
            hint="Rename or drop it there, then run: lakegate admin downstream retry",
            table=str(table),
        )


def make(name: str, settings: SnowflakeDownstream, context: DownstreamContext) -> SnowflakeTarget:
    """Return the Snowflake account that a section of the settings describes."""
    if not is_remote(context.warehouse):
        raise ConfigurationError(
            f"Snowflake can't read this lake: its files are on this machine, in {context.warehouse}.",
            hint='Keep the tables in an object store: set catalog.warehouse = "s3://bucket/warehouse" '
            "(docs/how-to/keep-tables-on-s3.md).",
            setting="catalog.warehouse",
        )
    return SnowflakeTarget(name, settings, canonical(context.warehouse).rstrip("/") + "/")


def identifier(name: str) -> str:
    """Quote an identifier, so that its case counts and nothing in it is read as SQL.

    Example:
        >>> print(identifier('odd"name'))
        "odd""name"
    """
    return '"' + name.replace('"', '""') + '"'


def text(value: str) -> str:
    r"""Quote a string. Snowflake reads backslashes in strings as escapes.

    Example:
        >>> print(text("it's a \\"))
        'it''s a \\'
    """
    return "'" + value.replace("\\", "\\\\").replace("'", "''") + "'"


def as_parameter(name: str) -> str:
    """Return a name for parameters in which Snowflake parses an identifier from a string; quoted if needed.

    Example:
        >>> as_parameter("LAKEGATE"), as_parameter("lake gate")
        ('LAKEGATE', '"lake gate"')
    """
    return name if _UNQUOTED.fullmatch(name) else identifier(name)


def _mark(table: TableIdentifier) -> str:
    return f"lakegate {table} in "


def _close(connection: Any) -> None:
    try:
        connection.close()
    except Exception:  # noqa: BLE001 - the work is done, and Snowflake ends idle sessions itself
        return


def _number(error: Exception) -> int:
    number = getattr(error, "errno", None)
    return number if isinstance(number, int) else 0


def _message(error: Exception) -> str:
    """Return Snowflake's own message on one line, without the connector's additions."""
    raw = getattr(error, "raw_msg", None) or str(error)
    reason = one_line(without_secrets(str(raw)))
    return re.sub(r",? ?(?:code: \d+|\((?:request_id|sfqid)=[^)]*\))", "", reason).strip()
