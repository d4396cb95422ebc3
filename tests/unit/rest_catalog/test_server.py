"""Where the server listens, and its errors if it can't."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest
from starlette.types import Receive, Scope, Send

from lakegate.errors import AlreadyExistsError, ConfigurationError, InputError
from lakegate.rest_catalog.app import ListenAddress, listen, require_safe, run


def test_a_port_that_is_taken_is_said_so() -> None:
    with listen(ListenAddress("127.0.0.1", 0)) as first:
        port = first.getsockname()[1]
        with pytest.raises(AlreadyExistsError, match=f"Port {port} on 127.0.0.1 is in use") as error:
            listen(ListenAddress("127.0.0.1", port))
    assert "--port" in (error.value.hint or "")


def test_a_body_does_not_wait_for_the_receipt_of_its_headers() -> None:
    with listen(ListenAddress("127.0.0.1", 0)) as listening, socket.create_connection(listening.getsockname()):
        connection, _ = listening.accept()
        with connection:
            assert connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


@pytest.mark.parametrize("host", ["no-such-host.invalid", "192.0.2.1", "a b", "x" * 300, "127.0.0.1:80"])
def test_an_address_of_another_machine_is_said_so(host: str) -> None:
    with pytest.raises(InputError, match="Can't listen on"):
        listen(ListenAddress(host, 0))


@pytest.mark.parametrize(
    ("address", "url"),
    [
        (ListenAddress("127.0.0.1", 8181), "http://127.0.0.1:8181"),
        (ListenAddress("::1", 8181), "http://[::1]:8181"),
        (ListenAddress("lake.example.com", 443, Path("c"), Path("k")), "https://lake.example.com:443"),
    ],
)
def test_the_address_as_clients_spell_it(address: ListenAddress, url: str) -> None:
    assert address.url == url


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.1", "lake.example.com"])
def test_other_machines_need_a_token(host: str) -> None:
    with pytest.raises(ConfigurationError, match="without a token"):
        require_safe(ListenAddress(host, 8181), has_token=False)
    require_safe(ListenAddress(host, 8181), has_token=True)
    require_safe(ListenAddress("localhost", 8181), has_token=False)


def test_a_certificate_that_is_none_is_said_so(tmp_path: Path) -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        raise AssertionError

    (tmp_path / "c.pem").write_text("no certificate")
    address = ListenAddress("127.0.0.1", 0, tmp_path / "c.pem", tmp_path / "c.pem")
    with socket.socket() as unused, pytest.raises(ConfigurationError, match="Can't use the certificate"):
        run(app, unused, address)
