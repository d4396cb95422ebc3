"""Who may see the dashboard and who may act: on loopback everyone, elsewhere people who have logged in."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from ipaddress import ip_address, ip_network
from typing import TYPE_CHECKING, Any, Literal

from lakegate.config import UiSettings
from lakegate.credentials.secret import Secret
from lakegate.errors import ConfigurationError
from lakegate.model.secrets import is_loopback
from lakegate.progress import one_line

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

Login = Literal["none", "oidc", "proxy"]
CALLBACK = "oauth2callback"


@dataclass(frozen=True)
class Visitor:
    """The person who looks at a page. ``name`` is ``None`` if no login is needed."""

    name: str | None
    may_see: bool
    may_act: bool


@dataclass(frozen=True)
class Access:
    """How people log in, who may see the dashboard, and who may act.

    Attributes:
        login: ``none`` on loopback, ``oidc``, or ``proxy`` for a trusted proxy's header.
        allow_actions: Whether anyone may act at all (``--allow-actions``).
    """

    login: Login = "none"
    allow_actions: bool = False
    settings: UiSettings = field(default_factory=UiSettings)

    def visitor(self, claims: Any) -> Visitor:
        """Return the visitor.

        Args:
            claims: The login's claims about the visitor: ``st.user``.
        """
        if self.login == "none":
            return Visitor(name=None, may_see=True, may_act=self.allow_actions)
        name = self._name(claims)
        may_see = name is not None and _matches(name, self.settings.users)
        may_act = self.allow_actions and may_see and _matches(name or "", self.settings.actors)
        return Visitor(name=name, may_see=may_see, may_act=may_act)

    def _name(self, claims: Any) -> str | None:
        if self.login == "oidc":
            # Anyone could claim an unverified address.
            verified = claims.get("email_verified", True) not in (False, "false")
            known = (claims.get("email") if verified else None) or claims.get("sub")
            known = known if claims.get("is_logged_in") else None
        else:
            known = claims.get("user")
        name = one_line(known or "").strip()
        return name or None


def decide_access(settings: UiSettings, host: str, *, allow_actions: bool) -> Access:
    """Return the rules for a dashboard that listens on ``host``.

    Raises:
        ConfigurationError: It would listen beyond loopback without a login, or the login's settings contradict each
            other.
    """
    oidc = {
        "ui.oidc_metadata_url": settings.oidc_metadata_url,
        "ui.oidc_client_id": settings.oidc_client_id,
        "ui.oidc_client_secret": settings.oidc_client_secret,
        "ui.cookie_secret": settings.cookie_secret,
        "ui.url": settings.url,
    }
    wants_oidc = settings.oidc_metadata_url is not None or settings.oidc_client_id is not None
    if wants_oidc and settings.user_header is not None:
        raise ConfigurationError(
            "ui.oidc_metadata_url and ui.user_header can't be combined: people log in here or at the proxy.",
            hint="Remove one of them from [ui] in lakegate.toml.",
            setting="ui.user_header",
        )
    if wants_oidc:
        missing = [name for name, value in oidc.items() if value is None]
        if missing:
            raise ConfigurationError(
                f"A login with OpenID Connect also needs {_join_names(missing)}.",
                hint="lakegate config shows what is set; docs/how-to/use-the-dashboard.md has an example.",
                setting=missing[0],
            )
        return Access("oidc", allow_actions, settings)
    if settings.user_header is not None:
        if not settings.trusted_proxies:
            raise ConfigurationError(
                "ui.user_header needs ui.trusted_proxies: anyone can send a header.",
                hint='Name the proxy\'s address or network, such as trusted_proxies = ["10.0.0.5"].',
                setting="ui.trusted_proxies",
            )
        return Access("proxy", allow_actions, settings)
    if not is_loopback(host):
        raise ConfigurationError(
            f"The dashboard would listen on {host} without a login, for everyone who reaches this machine.",
            hint="Set up a login in [ui] of lakegate.toml (oidc_metadata_url …, or user_header and trusted_proxies), "
            "or leave out --host and tunnel: ssh -L 8484:127.0.0.1:8484 HOST",
            host=host,
        )
    return Access("none", allow_actions, settings)


def auth_secrets(access: Access) -> dict[str, Any]:
    """Return the secrets for Streamlit's login, read from where the settings point."""
    settings = access.settings
    if access.login != "oidc":
        return {}
    client = Secret(settings.oidc_client_secret or "", setting="ui.oidc_client_secret").value()
    cookie = Secret(settings.cookie_secret or "", setting="ui.cookie_secret").value()
    if len(cookie) < 32:  # the key length of HMAC-SHA256, in bytes
        raise ConfigurationError(
            "The secret that ui.cookie_secret refers to is too short: anyone who guesses it can log in as anyone.",
            hint="Use 32 random characters or more: openssl rand -hex 32",
            setting="ui.cookie_secret",
        )
    return {
        "auth": {
            "redirect_uri": f"{(settings.url or '').rstrip('/')}/{CALLBACK}",
            "cookie_secret": cookie,
            "client_id": settings.oidc_client_id or "",
            "client_secret": client,
            "server_metadata_url": settings.oidc_metadata_url or "",
        }
    }


class OnlyTrustedProxies:
    """ASGI middleware that refuses every request without a user name from a trusted proxy.

    Only the peer's own address counts, never a header that claims another.
    """

    def __init__(self, app: ASGIApp, *, header: str, proxies: Sequence[str]) -> None:
        self._app = app
        self._header = header.lower().encode("latin-1")
        self._networks = [ip_network(proxy, strict=False) for proxy in proxies]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or answer 403."""
        if scope["type"] not in ("http", "websocket") or self._is_trusted(scope):
            await self._app(scope, receive, send)
        elif scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})
        else:
            from starlette.responses import PlainTextResponse

            refusal = PlainTextResponse("Log in at the proxy in front of this dashboard.\n", status_code=403)
            await refusal(scope, receive, send)

    def _is_trusted(self, scope: Scope) -> bool:
        peer = scope.get("client")
        if peer is None:
            return False
        try:
            address = ip_address(peer[0].partition("%")[0])
        except ValueError:
            return False
        address = getattr(address, "ipv4_mapped", None) or address
        values = [value for name, value in scope["headers"] if name == self._header]
        # Of two headers, one could be the visitor's own.
        named = len(values) == 1 and bool(values[0].strip())
        is_health = scope["type"] == "http" and scope["path"] == "/_stcore/health"
        return any(address in network for network in self._networks) and (named or is_health)


def _matches(name: str, patterns: Sequence[str]) -> bool:
    return any(fnmatchcase(name.lower(), pattern.lower()) for pattern in patterns)


def _join_names(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
