"""Where secrets may be sent: only to this machine without TLS."""

from __future__ import annotations

from ipaddress import ip_address


def is_loopback(host: str) -> bool:
    """Tell whether a host is this machine, by its name or address alone: nothing is looked up.

    Example:
        >>> is_loopback("127.0.0.1"), is_loopback("spark.localhost"), is_loopback("10.0.0.1")
        (True, True, False)
    """
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False
