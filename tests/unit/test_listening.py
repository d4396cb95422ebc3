"""Where servers listen, and whose requests `ui` and `serve` answer."""

from __future__ import annotations

import socket

import pytest
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.responses import PlainTextResponse
from starlette.routing import Route, WebSocketRoute
from starlette.testclient import TestClient
from starlette.websockets import WebSocket, WebSocketDisconnect

from lakegate.dashboard.ui.server import OwnPagesMiddleware
from lakegate.errors import InputError
from lakegate.listening import listen, may_ask

LAKE = "https://lake.example.com"


@pytest.mark.parametrize(
    ("host", "origin", "url", "allowed"),
    [
        ("localhost", None, None, True),
        ("LOCALHOST:8484", None, None, True),
        ("127.0.0.1:8484", None, None, True),
        ("127.9.9.9", None, None, True),
        ("[::1]:8484", None, None, True),
        ("spark.localhost:8484", None, None, True),
        ("", None, None, False),
        (":8484", None, None, False),
        ("evil.example.com", None, None, False),
        ("evil.example.com:8484", None, None, False),
        ("127.0.0.1.evil.example.com", None, None, False),
        ("[::1].evil.example.com", None, None, False),
        ("[::1]@evil.example.com", None, None, False),
        ("[::1", None, None, False),
        ("::1", None, None, False),
        ("[localhost]", None, None, False),
        ("localhost:", None, None, False),
        ("localhost:80.evil.example.com", None, None, False),
        ("localhost@evil.example.com", None, None, False),
        ("127.0.0.1:8181@evil.example.com", None, None, False),
        ("localhost/evil.example.com", None, None, False),
        ("localhost ", None, None, False),
        ("127.0.0.1:8484", "http://127.0.0.1:8484", None, True),
        ("LOCALHOST:8484", "http://localhost:8484", None, True),
        ("localhost", "http://localhost:80", None, True),
        ("[::1]:8484", "http://[::1]:8484", None, True),
        ("127.0.0.1:8484", "http://127.0.0.1:3000", None, False),
        ("127.0.0.1:8484", "http://127.0.0.1", None, False),
        ("127.0.0.1:8484", "http://localhost:8484", None, False),
        ("127.0.0.1:8484", "http://evil.example.com", None, False),
        ("127.0.0.1:8484", "http://127.0.0.1:8484.evil.example.com", None, False),
        ("127.0.0.1:8484", "http://evil@127.0.0.1:8484", None, False),
        ("127.0.0.1:8484", "null", None, False),
        ("127.0.0.1:8484", "http://[", None, False),
        ("127.0.0.1:8484", "", None, False),
        ("lake.example.com", "https://lake.example.com", LAKE, True),
        ("lake.example.com", "https://lake.example.com:8443", LAKE, False),
        ("lake.example.com", "https://lake.example.com:8443", f"{LAKE}:8443/ui", True),
        ("lake.example.com", "http://lake.example.com", LAKE, False),
        ("localhost", None, LAKE, False),
        ("", None, LAKE, False),
        ("other.example.com", None, LAKE, False),
    ],
)
def test_only_own_names_and_own_pages_are_answered(
    host: str, origin: str | None, url: str | None, allowed: bool
) -> None:
    origins = [] if origin is None else [origin]
    assert may_ask([host], origins, url=url) is allowed
    assert not may_ask([host, host], origins, url=url)
    assert not may_ask([], origins, url=url)


def test_the_dashboard_refuses_other_names_other_pages_and_frames() -> None:
    async def say(websocket: WebSocket) -> None:
        await websocket.accept()
        await websocket.send_text("nyc.trips")
        await websocket.close()

    async def answer(_: object) -> PlainTextResponse:
        return PlainTextResponse("nyc.trips")

    routes = [WebSocketRoute("/_stcore/stream", say), Route("/_stcore/health", answer), Route("/", answer)]
    app = Starlette(routes=routes, middleware=[Middleware(OwnPagesMiddleware, url=None)])
    client = TestClient(app, base_url="http://localhost:8484")
    own = {"Host": "localhost:8484", "Origin": "http://localhost:8484"}
    with client.websocket_connect("/_stcore/stream", headers=own) as opened:
        assert opened.receive_text() == "nyc.trips"
    assert client.get("/").headers["Content-Security-Policy"] == "frame-ancestors 'none'"
    for other in ({"Origin": "http://localhost:3000"}, {"Host": ""}, {"Host": "evil.example.com"}):
        headers = own | other
        with pytest.raises(WebSocketDisconnect), client.websocket_connect("/_stcore/stream", headers=headers):
            pass
        refused = client.get("/", headers=headers)
        assert refused.status_code == 403
        assert "nyc.trips" not in refused.text
        assert client.get("/_stcore/health", headers=headers).status_code == 200


def test_a_body_does_not_wait_for_the_receipt_of_its_headers() -> None:
    with (
        listen("127.0.0.1", 0, command="lakegate serve") as listening,
        socket.create_connection(listening.getsockname()),
    ):
        connection, _ = listening.accept()
        with connection:
            assert connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


@pytest.mark.parametrize("host", ["no-such-host.invalid", "192.0.2.1", "a b", "x" * 300, "127.0.0.1:80"])
def test_an_address_of_another_machine_is_said_so(host: str) -> None:
    with pytest.raises(InputError, match="Can't listen on") as caught:
        listen(host, 0, command="lakegate ui")
    assert caught.value.hint == "lakegate ui --host 127.0.0.1"
