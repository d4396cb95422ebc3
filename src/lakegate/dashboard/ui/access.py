"""Who may see the dashboard and who may act: on loopback everyone, elsewhere people who have logged in."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any

from lakegate.config import UiSettings
from lakegate.credentials.secret import Secret
from lakegate.errors import ConfigurationError
from lakegate.model.secrets import is_loopback
from lakegate.progress import one_line

CALLBACK = "oauth2callback"
_SHORTEST_SECRET = 32
"""The key length of HMAC-SHA256, in bytes."""


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
        login: Whether people log in with OpenID Connect. Without, it's on loopback only.
        allow_actions: Whether anyone may act at all (``--allow-actions``).
    """

    login: bool = False
    allow_actions: bool = False
    settings: UiSettings = field(default_factory=UiSettings)

    def visitor(self, claims: Any) -> Visitor:
        """Return the visitor.

        Args:
            claims: The login's claims about the visitor: ``st.user``.
        """
        if not self.login:
            return Visitor(name=None, may_see=True, may_act=self.allow_actions)
        name = self._name(claims)
        may_see = name is not None and _matches(name, self.settings.users)
        may_act = self.allow_actions and may_see and _matches(name or "", self.settings.actors)
        return Visitor(name=name, may_see=may_see, may_act=may_act)

    def _name(self, claims: Any) -> str | None:
        if not claims.get("is_logged_in"):
            return None
        # Anyone could claim an unverified address.
        verified = claims.get("email_verified", True) not in (False, "false")
        return one_line((claims.get("email") if verified else None) or claims.get("sub") or "").strip() or None


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
    if settings.oidc_metadata_url is not None or settings.oidc_client_id is not None:
        missing = [name for name, value in oidc.items() if value is None]
        if missing:
            raise ConfigurationError(
                f"A login with OpenID Connect also needs {', '.join(missing)}.",
                hint="lakegate admin config shows what is set; docs/how-to/use-the-dashboard.md has an example.",
                setting=missing[0],
            )
        return Access(login=True, allow_actions=allow_actions, settings=settings)
    if not is_loopback(host):
        raise ConfigurationError(
            f"The dashboard would listen on {host} without a login, for everyone who reaches this machine.",
            hint="Set up a login in [ui] of lakegate.toml (oidc_metadata_url …), or leave out --host and tunnel: "
            "ssh -L 8484:127.0.0.1:8484 HOST",
            host=host,
        )
    return Access(allow_actions=allow_actions, settings=settings)


def auth_secrets(access: Access) -> dict[str, Any]:
    """Return the secrets for Streamlit's login, read from where the settings point."""
    settings = access.settings
    if not access.login:
        return {}
    client = Secret(settings.oidc_client_secret or "", setting="ui.oidc_client_secret").value()
    cookie = Secret(settings.cookie_secret or "", setting="ui.cookie_secret").value()
    if len(cookie) < _SHORTEST_SECRET:
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


def _matches(name: str, patterns: Sequence[str]) -> bool:
    return any(fnmatchcase(name.lower(), pattern.lower()) for pattern in patterns)
