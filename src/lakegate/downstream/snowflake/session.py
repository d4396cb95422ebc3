"""A session with a Snowflake account through the official connector, with helpful errors."""

from __future__ import annotations

import importlib.util
import math
import re
import time
from collections.abc import Callable, Mapping
from typing import Any, Self
from urllib.parse import urlsplit

from lakegate.config import SnowflakeDownstream
from lakegate.credentials.secret import Secret
from lakegate.downstream.snowflake.sql import as_parameter
from lakegate.errors import (
    ConfigurationError,
    DownstreamError,
    DownstreamUnavailableError,
    LakegateError,
    missing_package,
)
from lakegate.model.secrets import is_loopback
from lakegate.progress import one_line, without_secrets

_SESSION_ENDED = frozenset({390111, 390112, 390114, 390115})
"""The session or its master token has expired; signing in again helps."""
_TOKEN_REFUSED = frozenset({390303, 390318, 394300, 394301})
_RETRYABLE = frozenset({603, 604, 630})
"""An internal error, a cancelled statement, a timeout."""
_MAX_LOGIN_S = 60
_AUTHENTICATORS = {"oauth": "OAUTH", "programmatic": "PROGRAMMATIC_ACCESS_TOKEN"}
"""What the connector calls the types of tokens."""
_HTTP_STATUS = re.compile(r"error status: (\d{3})")
_UNAVAILABLE = re.compile(r"after retries|timed out|timeout|Connection|connection|name or service|dns", re.IGNORECASE)
_VOLUME_RIGHTS = re.compile(
    r"assum\w+ AWS_ROLE|access ?denied|not authorized to (?:access|perform)|forbidden", re.IGNORECASE
)


OPTIONS: dict[str, Any] = {
    "application": "lakegate",
    "session_parameters": {"QUERY_TAG": "lakegate", "CLIENT_TELEMETRY_ENABLED": False},
    "client_store_temporary_credential": False,
    # No statement is left running in the background.
    "enable_server_session_keep_alive_auto_detection": False,
}
"""Options of every connection."""


class SnowflakeError(DownstreamError):
    """Snowflake refused a statement or a sign-in; ``number`` is its error number."""

    def __init__(self, message: str, *, number: int = 0, hint: str | None = None, **context: object) -> None:
        super().__init__(message, hint=hint, number=number or None, **context)
        self.number = number


class Session:
    """Runs statements one by one. Signs in on first use, and again when the session has expired. Not thread-safe.

    Args:
        name: The downstream's name in the settings, for messages.
    """

    def __init__(self, name: str, settings: SnowflakeDownstream) -> None:
        self.name = name
        self.settings = settings
        self._ends_at = math.inf
        self._connection: Any = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def is_open(self) -> bool:
        """Whether it's signed in."""
        return self._connection is not None

    def limit(self, seconds: float) -> None:
        """Start no more statements once ``seconds`` have passed."""
        self._ends_at = time.monotonic() + seconds

    def close(self) -> None:
        """Sign out. The next statement signs in again."""
        connection, self._connection = self._connection, None
        if connection is not None:
            try:
                connection.close()
            except Exception:  # noqa: BLE001 - the work is done, and Snowflake ends idle sessions itself
                return

    def run(self, sql: str) -> list[dict[str, Any]]:
        """Run a statement; return its rows as dicts, with column names in lower case."""
        connector = require_connector()
        if time.monotonic() >= self._ends_at:
            raise DownstreamUnavailableError(
                f"Snowflake took longer than {self.settings.timeout_s:g} s; the rest is sent later.",
                hint=f"If this happens often, raise {self._setting('timeout_s')}.",
            )
        for has_renewed in (False, True):
            try:
                self._connection = self._connection or self._sign_in(connector)
                with self._connection.cursor(connector.DictCursor) as cursor:
                    cursor.execute(sql)
                    return [{key.lower(): value for key, value in row.items()} for row in cursor.fetchall()]
            except connector.Error as error:
                # The connector's error refers to its own frames in a cycle, and so keeps our callers alive.
                error.__context__ = error.__cause__ = error.__traceback__ = None
                if has_renewed or not self._may_sign_in_again(error):
                    raise self._to_lakegate_error(error, sql) from None
                self.close()
        raise AssertionError  # pragma: no cover - the second round returns or raises

    def _sign_in(self, connector: Any) -> Any:
        settings = self.settings
        address = urlsplit(settings.url or f"https://{settings.account}.snowflakecomputing.com")
        try:
            return connector.connect(
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
                **({"use_proxy_env": False} if is_loopback(address.hostname or "") else {}),
                **OPTIONS,
            )
        except connector.Error as error:
            if _number(error) in _TOKEN_REFUSED and settings.token is not None:
                # The token may have been replaced at its source since it was read.
                self._secret(settings.token, "token").renew()
            raise

    def _credentials(self) -> Mapping[str, Any]:
        settings = self.settings
        if settings.token is not None:
            token = self._secret(settings.token, "token").value()
            return {"authenticator": _AUTHENTICATORS[settings.token_type], "token": token}
        assert settings.private_key is not None  # noqa: S101 - the settings have one or the other
        passphrase = settings.private_key_passphrase
        given = None if passphrase is None else self._secret(passphrase, "private_key_passphrase").value()
        key = _read_key(self._secret(settings.private_key, "private_key").value(), given, self._setting("private_key"))
        return {"authenticator": "SNOWFLAKE_JWT", "private_key": key}

    def _secret(self, reference: str, field: str) -> Secret:
        return Secret(reference, setting=self._setting(field))

    def _setting(self, field: str) -> str:
        return f"downstream.{self.name}.{field}"

    def _may_sign_in_again(self, error: Exception) -> bool:
        number = _number(error)
        # A session that can't be renewed fails like a new connection. Only a session that was open counts.
        is_over = self._connection is not None and (number in _SESSION_ENDED or "refresh session" in str(error))
        return is_over or (number in _TOKEN_REFUSED and self.settings.token is not None)

    def _to_lakegate_error(self, error: Exception, sql: str) -> LakegateError:
        number, said = _number(error), _message(error)
        status = _HTTP_STATUS.search(said)
        if status and self._connection is None and status[1] in {"403", "404"}:
            return SnowflakeError(
                f"Snowflake has no account '{self.settings.account}' at this address (HTTP {status[1]}).",
                number=number,
                hint=f"Set {self._setting('account')} to the account identifier: in Snowsight, Account > View account "
                "details, or run SELECT CURRENT_ORGANIZATION_NAME() || '-' || CURRENT_ACCOUNT_NAME(). "
                "For PrivateLink, set its url.",
            )
        explain = _EXPLANATIONS.get(number)
        if explain is not None:
            return explain(self, said, number)
        if (
            number in _RETRYABLE
            or number < _FIRST_SERVER_ERROR
            or (number == _CONNECTION_FAILED and _UNAVAILABLE.search(said))
            or status
        ):
            return DownstreamUnavailableError(
                f"Snowflake account '{self.settings.account}' doesn't answer: {said}",
                hint=f"Check the network, and that {self._setting('account')} is right; then run: "
                "lakegate snowflake refresh",
            )
        if not self.is_open:
            return SnowflakeError(
                f"Snowflake refused the sign-in of user '{self.settings.user}': {said}",
                number=number,
                hint="After fixing it, run: lakegate snowflake status",
            )
        if _VOLUME_RIGHTS.search(said) and not sql.startswith(("SHOW", "DESC")):
            return SnowflakeError(
                f"Snowflake can't read the lake's files through external volume '{self.settings.external_volume}': "
                f"{said}",
                number=number,
                hint="Grant the permissions that this prints: lakegate snowflake status",
            )
        hint = "The statement was: " + sql.partition("\n")[0][:200]
        return SnowflakeError(f"Snowflake refused a statement: {said}", number=number, hint=hint)


_FIRST_SERVER_ERROR = 100
"""Smaller numbers are the connector's own, for failures on the way to the server."""
_CONNECTION_FAILED = 250001


def require_connector() -> Any:
    """Return the official connector; raise if it isn't installed."""
    if importlib.util.find_spec("snowflake") is None or importlib.util.find_spec("snowflake.connector") is None:
        raise missing_package("Snowflake needs", "snowflake-connector-python", "snowflake")
    import snowflake.connector

    return snowflake.connector


def _read_key(pem: str, passphrase: str | None, setting: str) -> Any:
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    try:
        # Environment variables may hold the key on one line, with \n for its line breaks.
        content = pem.replace("\\n", "\n").encode()
        given = None if passphrase is None else passphrase.encode()
        # Key validation takes longer than signing in, and the user's own key needs none.
        key = load_pem_private_key(content, given, unsafe_skip_rsa_key_validation=True)
    except (ValueError, TypeError) as error:
        needs = "it's encrypted, and private_key_passphrase isn't set" if isinstance(error, TypeError) else None
        raise ConfigurationError(
            f"Setting {setting} doesn't refer to a usable private key: "
            f"{needs or 'it is not PEM, is damaged, or its passphrase is wrong'}.",
            hint="Create one: openssl genrsa 2048 | openssl pkcs8 -topk8 -nocrypt -out key.p8",
            setting=setting,
        ) from None
    if not isinstance(key, RSAPrivateKey | EllipticCurvePrivateKey):
        raise ConfigurationError(f"Setting {setting} refers to a key that is neither RSA nor EC.", setting=setting)
    return key


def _number(error: Exception) -> int:
    number = getattr(error, "errno", None)
    return number if isinstance(number, int) else 0


def _message(error: Exception) -> str:
    """Return Snowflake's own message on one line, without the connector's additions."""
    raw = getattr(error, "raw_msg", None) or str(error)
    lines = [line.strip() for line in without_secrets(str(raw)).splitlines() if line.strip()]
    if len(lines) > 1 and lines[0].endswith(":"):
        lines = lines[1:]
    said = one_line(" ".join(lines))
    said = said.removeprefix("Failed to login: ").removeprefix("Login error: ")
    return re.sub(r",? ?(?:code: \d+|\((?:request_id|sfqid)=[^)]*\))", "", said).strip()


def _signed_out(session: Session, said: str, number: int) -> LakegateError:
    settings = session.settings
    what = "token" if settings.token is not None else "private_key"
    if what == "token":
        fix = f"Put a new token where downstream.{session.name}.token points, then run: lakegate snowflake status"
    else:
        fix = (
            f"Check downstream.{session.name}.account and .user, and give the user the key's public half: "
            f"ALTER USER {settings.user} SET RSA_PUBLIC_KEY = '…'. Then run: lakegate snowflake status"
        )
    return SnowflakeError(f"Snowflake refused user '{settings.user}': {said}", number=number, hint=fix)


def _no_role(session: Session, said: str, number: int) -> LakegateError:
    role, user = session.settings.role, session.settings.user
    return SnowflakeError(
        f"Role '{role}' doesn't exist, or user '{user}' may not use it: {said}",
        number=number,
        hint=f"Run in Snowflake: GRANT ROLE {as_parameter(role)} TO USER {as_parameter(user)}; "
        f"or change downstream.{session.name}.role.{_case_hint(role)}",
    )


def no_warehouse(session: Session, said: str = "", number: int = 606) -> SnowflakeError:
    """Return the error for a warehouse that the role can't use."""
    warehouse, role = session.settings.warehouse, session.settings.role
    return SnowflakeError(
        f"Warehouse '{warehouse}' doesn't exist, or role '{role}' may not use it{f': {said}' if said else '.'}",
        number=number,
        hint=f"Run in Snowflake: GRANT USAGE ON WAREHOUSE {as_parameter(warehouse)} TO ROLE {as_parameter(role)}; "
        f"or change downstream.{session.name}.warehouse.{_case_hint(warehouse)}",
    )


def _no_privilege(session: Session, said: str, number: int) -> LakegateError:
    return SnowflakeError(
        f"Role '{session.settings.role}' may not do this: {said}",
        number=number,
        hint="Have an administrator run the missing statements. To print all of them, without a connection, run: "
        "lakegate snowflake plan --offline",
    )


def _absent(session: Session, said: str, number: int) -> LakegateError:
    hint = "To create what is missing, run: lakegate snowflake apply"
    if said.startswith("Role "):
        hint = f"Create the role in Snowflake, or remove it from downstream.{session.name}.readers."
    return SnowflakeError(said, number=number, hint=hint)


def _case_hint(name: str) -> str:
    return f" Names are case-sensitive: did you mean '{name.upper()}'?" if name != name.upper() else ""


_EXPLANATIONS: Mapping[int, Callable[[Session, str, int], LakegateError]] = {
    606: no_warehouse,
    2003: _absent,
    2043: _absent,
    3001: _no_privilege,
    390100: _signed_out,
    390101: _signed_out,
    390144: _signed_out,
    390186: _no_role,
    390189: _no_role,
    390303: _signed_out,
    390318: _signed_out,
    **dict.fromkeys(range(394300, 394308), _signed_out),
}
ABSENT = frozenset({2003, 2043})
"""Error numbers for an object that doesn't exist or isn't visible to the role."""
DENIED = 3001
"""Error number for a missing privilege."""
EXISTS = 2002
"""Error number for an object whose name is taken."""
