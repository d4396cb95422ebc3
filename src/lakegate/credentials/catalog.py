"""From settings to how lakegate proves to the catalog who it is."""

from __future__ import annotations

from urllib.parse import urlsplit

from lakegate.config import CatalogSettings
from lakegate.credentials.places import is_loopback
from lakegate.credentials.secret import Secret
from lakegate.credentials.tokens import ClientCredentials, Token
from lakegate.errors import ConfigurationError

_NEEDED = ("oauth2_token_endpoint", "oauth2_client_id", "oauth2_client_secret")


def catalog_token(settings: CatalogSettings) -> Token | None:
    """Return the token that the settings say the catalog is asked with; nothing is read or fetched yet.

    Raises:
        ConfigurationError: When they name two ways or half of one, or a secret would travel without TLS.
    """
    oauth2 = {name: getattr(settings, name) for name in _NEEDED}
    given = [name for name, value in oauth2.items() if value is not None]
    if settings.token is None and not given:
        return None
    _require_tls(settings.uri, "catalog.uri")
    if settings.token is not None:
        if given:
            raise ConfigurationError(
                f"catalog.token and catalog.{given[0]} are both set, and only one of them can be used.",
                hint="Leave catalog.token out to use OAuth 2.",
                setting="catalog.token",
            )
        return Secret(settings.token, setting="catalog.token")
    missing = next((name for name in _NEEDED if name not in given), None)
    if missing is not None:
        raise ConfigurationError(
            f"catalog.{given[0]} is set, catalog.{missing} is not.",
            hint="OAuth 2 needs all of catalog.oauth2_token_endpoint, oauth2_client_id and oauth2_client_secret.",
            setting=f"catalog.{missing}",
        )
    _require_tls(oauth2["oauth2_token_endpoint"], "catalog.oauth2_token_endpoint")
    return ClientCredentials(
        oauth2["oauth2_token_endpoint"],
        oauth2["oauth2_client_id"],
        Secret(oauth2["oauth2_client_secret"], setting="catalog.oauth2_client_secret"),
        scope=settings.oauth2_scope,
        timeout_s=settings.timeout_s,
    )


def _require_tls(address: str | None, setting: str) -> None:
    url = urlsplit(address or "")
    if url.username is not None or (address is not None and url.scheme not in ("http", "https")):
        raise ConfigurationError(
            f"{setting} is not an http or https address without user and password.", setting=setting
        )
    if url.scheme == "http" and not is_loopback(url.hostname or ""):
        raise ConfigurationError(
            f"{setting} is '{address}': a token or secret is not sent there without TLS.",
            hint=f"Write it as https://{url.netloc}{url.path}, and let the server or a proxy before it speak TLS.",
            setting=setting,
        )
