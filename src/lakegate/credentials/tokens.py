"""Bearer tokens, from a setting or through OAuth 2's client credentials, and the HTTP clients that send them."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Generator
from http import HTTPStatus
from typing import Any, Protocol
from urllib.parse import quote_plus, urlsplit

import httpx
from pydantic import BaseModel, ValidationError

from lakegate.config import CatalogSettings
from lakegate.credentials.secret import Secret
from lakegate.errors import CatalogUnavailableError, ConfigurationError, LakegateError
from lakegate.model.secrets import is_loopback
from lakegate.progress import hide

_SENDABLE = re.compile(r"[\x21-\x7e]+")
_ERROR_CODE = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_RENEW_BEFORE_S = 60.0
_DEFAULT_LIFE_S = 60.0
_OAUTH2_SETTINGS = ("oauth2_token_endpoint", "oauth2_client_id", "oauth2_client_secret")


class Token(Protocol):
    """A bearer token that may change while it's in use, such as :class:`~lakegate.credentials.secret.Secret`."""

    def value(self) -> str:
        """Return the current token."""
        ...

    def renew(self) -> None:
        """Drop the token after it was rejected, so that the next use gets a new one, if there is one."""
        ...


class BearerAuth(httpx.Auth):
    """Sends a token with each request. If it's rejected, tries once more with a new one.

    Args:
        setting: Name of the setting that the token comes from, for messages.
    """

    def __init__(self, token: Token, *, setting: str) -> None:
        self._token = token
        self._setting = setting

    def auth_flow(self, request: httpx.Request) -> Generator[httpx.Request, httpx.Response, None]:
        """Send ``request`` with the token."""
        sent = self._sign(request)
        response = yield request
        if response.status_code == HTTPStatus.UNAUTHORIZED:
            self._token.renew()
            if self._sign(request) != sent:
                yield request

    def _sign(self, request: httpx.Request) -> str:
        value = self._token.value()
        if not _SENDABLE.fullmatch(value):
            raise ConfigurationError(
                "The catalog's token is empty, or has characters that aren't allowed in a header.",
                hint=f"Check the value of {self._setting} for spaces and line breaks.",
            )
        request.headers["Authorization"] = f"Bearer {value}"
        return value


def http_client(**options: Any) -> httpx.Client:
    """Return an HTTP client. With ``trust_env``, it goes through the environment's proxy.

    Raises:
        ConfigurationError: When that proxy can't be used. The message doesn't show it, because it may have a password.
    """
    try:
        return httpx.Client(**options)
    except (ImportError, ValueError, httpx.InvalidURL) as error:
        socks = isinstance(error, ImportError)
        raise ConfigurationError(
            "The proxy in HTTPS_PROXY, HTTP_PROXY or ALL_PROXY "
            + ("is a SOCKS proxy, which needs the package socksio." if socks else "isn't a valid address."),
            hint=("pip install 'httpx[socks]'. " if socks else "Write it as http://host:port. ")
            + "For hosts that need no proxy, set NO_PROXY.",
        ) from None


class _TokenResponse(BaseModel):
    """A token endpoint's response, RFC 6749 §5.1."""

    access_token: str
    expires_in: float = _DEFAULT_LIFE_S


class _ErrorResponse(BaseModel):
    """A token endpoint's error, RFC 6749 §5.2."""

    error: str


class ClientCredentials:
    """Gets access tokens through OAuth 2's client credentials (RFC 6749 §4.4), and renews them before they expire.

    Thread-safe. The client's id and secret are sent in a header, form-encoded (RFC 6749 §2.3.1).

    Args:
        scope: Scopes to request, separated by spaces; ``None`` for the server's default.
    """

    def __init__(
        self,
        endpoint: str,
        client_id: str,
        secret: Secret,
        *,
        scope: str | None = None,
        timeout_s: float = 30.0,
        transport: httpx.BaseTransport | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.endpoint = endpoint
        self.client_id = client_id
        self.secret = secret
        self.scope = scope
        self._timeout_s = timeout_s
        self._transport = transport
        self._clock = clock
        self._lock = threading.Lock()
        self._access_token = ""
        self._renew_at = float("-inf")

    def __repr__(self) -> str:
        return f"ClientCredentials({self.endpoint!r}, {self.client_id!r})"

    def value(self) -> str:
        """Return an access token that doesn't expire soon.

        Raises:
            CatalogUnavailableError: When the endpoint is unavailable.
            ConfigurationError: When it rejects the client, or doesn't return a token.
        """
        with self._lock:
            if self._clock() >= self._renew_at:
                asked_at = self._clock()
                answer = self._fetch()
                # Renew a short-lived token after half of its life, or it would never be used.
                life_s = answer.expires_in - min(_RENEW_BEFORE_S, answer.expires_in / 2)
                self._access_token, self._renew_at = answer.access_token, asked_at + life_s
                hide(answer.access_token)
            return self._access_token

    def renew(self) -> None:
        """Drop the access token after it was rejected."""
        with self._lock:
            self._renew_at = float("-inf")

    def _fetch(self) -> _TokenResponse:
        secret = self.secret.value()
        response = self._ask(secret)
        if response.status_code in (HTTPStatus.BAD_REQUEST, HTTPStatus.UNAUTHORIZED):
            self.secret.renew()
            renewed = self.secret.value()
            response = response if renewed == secret else self._ask(renewed)
        if not response.is_success:
            raise self._refused(response)
        try:
            return _TokenResponse.model_validate_json(response.content)
        except ValidationError:
            raise self._misconfigured("didn't return an access token") from None

    def _ask(self, secret: str) -> httpx.Response:
        form = {"grant_type": "client_credentials"} | ({} if self.scope is None else {"scope": self.scope})
        url = httpx.URL(self.endpoint)
        try:
            with http_client(
                timeout=self._timeout_s, trust_env=not is_loopback(url.host), transport=self._transport
            ) as client:
                return client.post(url, data=form, auth=(quote_plus(self.client_id), quote_plus(secret)))
        except httpx.HTTPError as error:
            raise self._unavailable(type(error).__name__) from None

    def _refused(self, response: httpx.Response) -> LakegateError:
        status = response.status_code
        if response.is_server_error or status in (HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.REQUEST_TIMEOUT):
            return self._unavailable(f"HTTP {status}")
        try:
            code = _ErrorResponse.model_validate_json(response.content).error
        except ValidationError:
            return self._misconfigured(f"isn't an OAuth 2 token endpoint (HTTP {status})")
        said = code if _ERROR_CODE.fullmatch(code) else f"HTTP {status}"
        return self._misconfigured(f"rejected the client '{self.client_id}' ({said})")

    def _unavailable(self, reason: str) -> CatalogUnavailableError:
        return CatalogUnavailableError(
            f"The token endpoint {self.endpoint} is unavailable ({reason}); the catalog needs a token.",
            hint="Check catalog.oauth2_token_endpoint, then try again.",
            uri=self.endpoint,
        )

    def _misconfigured(self, reason: str) -> ConfigurationError:
        return ConfigurationError(
            f"The token endpoint {self.endpoint} {reason}.",
            hint="Check catalog.oauth2_token_endpoint, oauth2_client_id, oauth2_client_secret and oauth2_scope.",
            uri=self.endpoint,
        )


def catalog_token(settings: CatalogSettings) -> Token | None:
    """Return the token for the catalog that the settings name, without reading or fetching it yet.

    Raises:
        ConfigurationError: When the settings conflict or are incomplete, or a secret would be sent without TLS.
    """
    oauth2 = {name: getattr(settings, name) for name in _OAUTH2_SETTINGS}
    given = [name for name, value in oauth2.items() if value is not None]
    if settings.token is None and not given:
        return None
    require_tls(settings.uri, "catalog.uri")
    if settings.token is not None:
        if given:
            raise ConfigurationError(
                f"catalog.token and catalog.{given[0]} are both set, but lakegate can only use one.",
                hint="Remove catalog.token to use OAuth 2.",
                setting="catalog.token",
            )
        return Secret(settings.token, setting="catalog.token")
    missing = next((name for name in _OAUTH2_SETTINGS if name not in given), None)
    if missing is not None:
        raise ConfigurationError(
            f"catalog.{given[0]} is set, but catalog.{missing} isn't.",
            hint="OAuth 2 needs all of catalog.oauth2_token_endpoint, oauth2_client_id and oauth2_client_secret.",
            setting=f"catalog.{missing}",
        )
    require_tls(oauth2["oauth2_token_endpoint"], "catalog.oauth2_token_endpoint")
    return ClientCredentials(
        oauth2["oauth2_token_endpoint"],
        oauth2["oauth2_client_id"],
        Secret(oauth2["oauth2_client_secret"], setting="catalog.oauth2_client_secret"),
        scope=settings.oauth2_scope,
        timeout_s=settings.timeout_s,
    )


def require_tls(address: str | None, setting: str) -> None:
    """Raise :class:`ConfigurationError` unless secrets may be sent to an address."""
    try:
        httpx.URL(address or "")
        url = urlsplit(address or "")
    except (httpx.InvalidURL, ValueError):
        raise ConfigurationError(f"{setting} isn't a valid URL.", setting=setting) from None
    if url.username is not None or (address is not None and url.scheme not in ("http", "https")):
        raise ConfigurationError(
            f"{setting} isn't an http or https address without user and password.", setting=setting
        )
    if url.scheme == "http" and not is_loopback(url.hostname or ""):
        raise ConfigurationError(
            f"{setting} is '{address}', but lakegate doesn't send tokens or secrets without TLS.",
            hint=f"Set it to https://{url.netloc}{url.path}, and enable TLS there or in a proxy in front of it.",
            setting=setting,
        )
