"""HTTP to servers on this machine."""

from __future__ import annotations

import ssl

import httpx


def loopback_client(*, timeout_s: float = 60.0) -> httpx.Client:
    """Return a client without certificates and without proxies, that opens a connection for each request.

    ``httpx.get`` and its like read all authorities that the machine trusts for each request, which takes longer than
    most requests.
    """
    return httpx.Client(
        timeout=timeout_s,
        trust_env=False,
        verify=ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT),
        limits=httpx.Limits(max_keepalive_connections=0),
    )
