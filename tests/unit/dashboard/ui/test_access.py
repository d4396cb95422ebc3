"""Who may see the dashboard, and who may act."""

from __future__ import annotations

from typing import Any

import pytest

from lakegate.config import UiSettings
from lakegate.dashboard.ui.access import auth_secrets, decide_access
from lakegate.errors import ConfigurationError

OIDC: dict[str, Any] = {
    "url": "https://lake.example.com",
    "oidc_metadata_url": "https://id.example.com/.well-known/openid-configuration",
    "oidc_client_id": "lakegate",
    "oidc_client_secret": "env:UI_CLIENT_SECRET",
    "cookie_secret": "env:UI_COOKIE_SECRET",
}


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "localhost", "127.9.9.9"])
def test_this_machine_needs_no_login(host: str) -> None:
    access = decide_access(UiSettings(), host, allow_actions=True)
    visitor = access.visitor({})
    assert (access.login, visitor.may_see, visitor.may_act) == (False, True, True)
    assert not decide_access(UiSettings(), host, allow_actions=False).visitor({}).may_act


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.1", "lake.example.com", ""])
def test_elsewhere_nobody_listens_without_a_login(host: str) -> None:
    with pytest.raises(ConfigurationError, match="without a login") as caught:
        decide_access(UiSettings(), host, allow_actions=False)
    assert "[ui]" in (caught.value.hint or "")


@pytest.mark.parametrize("missing", sorted(OIDC))
def test_half_a_login_is_refused_by_name(missing: str) -> None:
    settings = UiSettings(**{name: value for name, value in OIDC.items() if name != missing})
    with pytest.raises(ConfigurationError):
        decide_access(settings, "0.0.0.0", allow_actions=False)


def test_users_and_actors_are_told_apart() -> None:
    settings = UiSettings(**OIDC, users=("*@example.com",), actors=("ann@example.com",))
    access = decide_access(settings, "0.0.0.0", allow_actions=True)

    def told(**claims: Any) -> tuple[bool, bool]:
        visitor = access.visitor(claims)
        return visitor.may_see, visitor.may_act

    assert told(is_logged_in=True, email="Ann@example.com") == (True, True)
    assert told(is_logged_in=True, email="bob@example.com") == (True, False)
    assert told(is_logged_in=True, email="eve@example.org") == (False, False)
    assert told(is_logged_in=True, email="ann@example.com", email_verified=False) == (False, False)
    assert told(is_logged_in=False, email="ann@example.com") == (False, False)
    assert told() == (False, False)


def test_secrets_are_read_where_the_settings_refer_to(monkeypatch: pytest.MonkeyPatch) -> None:
    access = decide_access(UiSettings(**OIDC), "127.0.0.1", allow_actions=False)
    monkeypatch.setenv("UI_CLIENT_SECRET", "hidden")
    monkeypatch.setenv("UI_COOKIE_SECRET", "short")
    with pytest.raises(ConfigurationError, match="too short") as caught:
        auth_secrets(access)
    assert "'short'" not in str(caught.value)
    monkeypatch.setenv("UI_COOKIE_SECRET", "c" * 32)
    found = auth_secrets(access)["auth"]
    assert found["redirect_uri"] == "https://lake.example.com/oauth2callback"
    assert found["client_secret"] == "hidden"
