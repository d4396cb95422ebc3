"""A stand-in for an OpenID provider that people log in at: everyone is ann@example.com, and nobody types a password."""

from __future__ import annotations

import json
import secrets
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

from joserfc import jwt
from joserfc.jwk import RSAKey

CLIENT = "lakegate"
WHO = "ann@example.com"
METADATA = "/.well-known/openid-configuration"


class _Provider(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.url = f"http://127.0.0.1:{self.server_address[1]}"
        self.key = RSAKey.generate_key(2048, {"kid": "k1", "use": "sig", "alg": "RS256"})
        self.nonces: dict[str, str | None] = {}


class _Handler(BaseHTTPRequestHandler):
    server: _Provider

    def do_GET(self) -> None:
        asked = urlsplit(self.path)
        given = dict(parse_qsl(asked.query))
        if asked.path == METADATA:
            ends = {"authorization": "auth", "token": "token"}
            self._answer(
                {
                    "issuer": self.server.url,
                    **{f"{name}_endpoint": f"{self.server.url}/{path}" for name, path in ends.items()},
                    "jwks_uri": f"{self.server.url}/keys",
                    "response_types_supported": ["code"],
                    "subject_types_supported": ["public"],
                    "id_token_signing_alg_values_supported": ["RS256"],
                }
            )
        elif asked.path == "/keys":
            self._answer({"keys": [self.server.key.as_dict(private=False)]})
        else:
            code = secrets.token_hex(8)
            self.server.nonces[code] = given.get("nonce")
            self.send_response(302)
            self.send_header(
                "Location", f"{given['redirect_uri']}?{urlencode({'code': code, 'state': given['state']})}"
            )
            self.end_headers()

    def do_POST(self) -> None:
        given = dict(parse_qsl(self.rfile.read(int(self.headers["Content-Length"])).decode()))
        now = int(time.time())
        claims: dict[str, Any] = {"iss": self.server.url, "aud": CLIENT, "sub": "1", "iat": now, "exp": now + 600}
        claims |= {"email": WHO, "email_verified": True, "nonce": self.server.nonces.pop(given["code"])}
        token = jwt.encode({"alg": "RS256", "kid": "k1"}, claims, self.server.key)
        self._answer({"access_token": "x", "token_type": "Bearer", "expires_in": 600, "id_token": token})

    def log_message(self, *_: Any) -> None:
        pass

    def _answer(self, value: object) -> None:
        body = json.dumps(value).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


@contextmanager
def login_server() -> Iterator[str]:
    """Run a provider; yields its address."""
    provider = _Provider()
    thread = threading.Thread(target=provider.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield provider.url
    finally:
        provider.shutdown()
        thread.join()
        provider.server_close()
