"""Where the dashboard listens, and how it configures Streamlit."""

from __future__ import annotations

import errno
import socket

import pytest

from lakegate.config import UiSettings
from lakegate.dashboard.ui.access import Access, decide_access
from lakegate.dashboard.ui.server import address_of, listen, options
from lakegate.errors import ConfigurationError, RetryableError


def test_a_port_that_is_taken_is_named_with_the_next_command() -> None:
    with listen("127.0.0.1", 0) as opened:
        port = opened.getsockname()[1]
        assert address_of(opened) == f"http://127.0.0.1:{port}/"
        with pytest.raises(RetryableError, match=f"Port {port} on 127.0.0.1 is in use") as caught:
            listen("127.0.0.1", port)
    assert caught.value.hint == f"lakegate ui --port {port + 1}"


def test_an_address_that_is_not_ours_is_named() -> None:
    with pytest.raises(ConfigurationError, match=r"192\.0\.2\.1"):
        listen("192.0.2.1", 0)


@pytest.mark.parametrize("host", ["a" * 64, "a..b"])
def test_a_name_that_no_host_can_have_is_named(host: str) -> None:
    with pytest.raises(ConfigurationError, match=f"Can't listen on '{host}'"):
        listen(host, 0)


def test_a_machine_without_ipv6_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    class NoIPv6(socket.socket):
        def __init__(self, family: int = -1, *given: int) -> None:
            if family == socket.AF_INET6:
                raise OSError(errno.EAFNOSUPPORT, "Address family not supported by protocol")
            super().__init__(family, *given)

    monkeypatch.setattr(socket, "socket", NoIPv6)
    with pytest.raises(ConfigurationError, match=r"Can't listen on ::1:0: Address family not supported") as caught:
        listen("::1", 0)
    assert caught.value.hint == "lakegate ui --host 127.0.0.1"


def test_streamlit_sends_nothing_and_answers_to_this_machine_only() -> None:
    with listen("127.0.0.1", 0) as opened:
        local = options(Access(), opened)
        proxied = options(
            decide_access(
                UiSettings(url="https://lake.example.com/ui", user_header="X-User", trusted_proxies=("127.0.0.1",)),
                "127.0.0.1",
                allow_actions=False,
            ),
            opened,
        )
    assert local["browser.gatherUsageStats"] is False
    assert local["server.allowedHosts"] == ["localhost", "127.0.0.1", "::1"]
    assert local["server.trustedUserHeaders"] == {}
    assert proxied["server.allowedHosts"] == ["lake.example.com"]
    assert proxied["server.baseUrlPath"] == "ui"
    assert proxied["server.trustedUserHeaders"] == {"X-User": "user"}


def test_all_options_are_streamlit_s() -> None:
    from streamlit import config

    with socket.socket() as unbound:
        unbound.bind(("127.0.0.1", 0))
        assert set(options(Access(), unbound)) <= set(config.get_config_options())
