"""A stand-in for an identity provider: discovery, keys, and access tokens for one client, signed as real ones are."""

from __future__ import annotations

import base64
import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote_plus

from joserfc import jwt
from joserfc.jwk import KeySet, RSAKey

CLIENT = "lakegate"


class Oidc:
    """One provider.

    Attributes:
        secret: What the client must give, a sign in it that forms encode.
        lifetime_s: How long an access token is good for.
        late: Scopes whose next token has ended already, though it is said to be good yet.
        scopes: The scope of each request for a token.
        issued: Every access token given.
    """

    def __init__(self, port: int) -> None:
        self.url = f"http://127.0.0.1:{port}"
        self.secret = "s3cret+of/client=%"
        self.lifetime_s = 300.0
        self.late: set[str | None] = set()
        self.scopes: list[str | None] = []
        self.issued: list[str] = []
        self._key = RSAKey.generate_key(2048, {"kid": "k1", "use": "sig", "alg": "RS256"})

    @property
    def token_endpoint(self) -> str:
        return f"{self.url}/token"

    def issue(self, *, lifetime_s: float, subject: str = CLIENT) -> str:
        """Return an access token that ends so many seconds from now; negative: ago."""
        now = time.time()
        claims = {
            "iss": self.url,
            "sub": subject,
            "upn": subject,
            "aud": "nessie",
            "iat": int(now) - 600,
            "exp": int(now + lifetime_s),
            "jti": str(len(self.issued)),
        }
        token = jwt.encode({"alg": "RS256", "kid": "k1"}, claims, self._key)
        self.issued.append(token)
        return token

    def documents(self) -> dict[str, Any]:
        return {
            "/.well-known/openid-configuration": {
                "issuer": self.url,
                "jwks_uri": f"{self.url}/jwks",
                "token_endpoint": self.token_endpoint,
                "authorization_endpoint": f"{self.url}/authorize",
                "response_types_supported": ["code"],
                "subject_types_supported": ["public"],
                "id_token_signing_alg_values_supported": ["RS256"],
            },
            "/jwks": KeySet([self._key]).as_dict(private=False),
        }

    def token(self, authorization: str, form: dict[str, list[str]]) -> tuple[int, dict[str, Any]]:
        kind, _, encoded = authorization.partition(" ")
        client, _, secret = base64.b64decode(encoded).decode().partition(":")
        # Nessie's client in the JVM does not form-encode what it gives, which RFC 6749 §2.3.1 asks for.
        known = self.secret in (secret, unquote_plus(secret))
        if kind != "Basic" or client != CLIENT or not known:
            return 401, {"error": "invalid_client", "error_description": f"no {secret}"}
        if form.get("grant_type") != ["client_credentials"]:
            return 400, {"error": "unsupported_grant_type"}
        scope = form.get("scope", [None])[0]
        self.scopes.append(scope)
        token = self.issue(lifetime_s=-1000 if scope in self.late else self.lifetime_s)
        self.late.discard(scope)
        return 200, {"access_token": token, "token_type": "Bearer", "expires_in": int(self.lifetime_s)}


@contextmanager
def oidc_server() -> Iterator[Oidc]:
    """Run one until the body ends."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            found = provider.documents().get(self.path)
            self._answer(404 if found is None else 200, found or {})

        def do_POST(self) -> None:
            form = parse_qs(self._body().decode())
            self._answer(*provider.token(self.headers.get("Authorization", ""), form))

        def _body(self) -> bytes:
            if self.headers["Transfer-Encoding"] != "chunked":
                return self.rfile.read(int(self.headers["Content-Length"]))
            content = b""  # as the client in the JVM sends it
            while size := int(self.rfile.readline(), 16):
                content += self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
            return content

        def _answer(self, status: int, document: Any) -> None:
            content = json.dumps(document).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    provider = Oidc(server.server_port)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield provider
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
