"""Connections to a Spark Connect server: TLS, tokens, deadlines, and the reasons why one fails.

This imports PySpark's client, so import it with :func:`lakegate.spark.failures.import_spark`.
"""

from __future__ import annotations

import os
import socket
import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import grpc
from pyspark.errors import PySparkValueError
from pyspark.sql.connect.client.core import ChannelBuilder, DefaultChannelBuilder

from lakegate.credentials.secret import trusting
from lakegate.errors import ConfigurationError, EngineUnavailableError
from lakegate.model.secrets import is_loopback

_PROBE_TIMEOUT_S = 5.0
_HTTP2 = "h2"
_KEEPALIVE_S = 120
"""Seconds that a connection may be silent before it's pinged.

Spark 4.1 accepts one such ping in five minutes. At the third extra one without any traffic in between, it closes the
connection. That takes a call that is silent for ten minutes, which :data:`_DEADLINES_S` rules out.
"""
_KEEPALIVE_ANSWER_S = 20
_DEADLINES_S = {"AnalyzePlan": 540.0, "Interrupt": 5.0, "ReleaseExecute": 10.0, "ReleaseSession": 5.0}
"""Seconds that Spark may take to answer, by call. Queries have no limit: keepalive pings show that Spark is alive."""
_OTHERS_DEADLINE_S = 120.0
_at_most_s: ContextVar[float | None] = ContextVar("at_most_s", default=None)
_CERTIFICATE_HINT = "If your own authority signed it, set engine.ca_file. Otherwise, renew the server's certificate."
_PLAIN_HINT = (
    "Enable TLS in Spark, or in a proxy in front of it. If you don't use a token, you may turn TLS off: "
    "engine.tls = false."
)


class SparkChannels(DefaultChannelBuilder):  # type: ignore[misc]  # pyspark's types aren't followed
    """Creates channels to one server, as Spark's own class does, but never sends a token in plain text.

    Args:
        url: ``sc://host:port``, optionally with Spark's own ``/;key=value``.
        token: Bearer token, which replaces one in ``url``.
        tls: Whether to use TLS. By default, as ``url`` says (``use_ssl``), or else if there's a token and the server
            isn't local.
        ca_file: Certificates (PEM) of trusted authorities. By default, ``SSL_CERT_FILE``, or else gRPC's own.

    Raises:
        ConfigurationError: When ``url`` is invalid, a token would be sent without TLS, or ``ca_file`` can't be used.
    """

    def __init__(
        self, url: str, *, token: str | None = None, tls: bool | None = None, ca_file: Path | None = None
    ) -> None:
        try:
            super().__init__(url)
        except (PySparkValueError, ValueError):
            # The URL may contain a token, so the message doesn't show it.
            raise ConfigurationError(
                "engine.url isn't a Spark Connect address.",
                hint="Write it as sc://host:15002, or leave it unset to use the local engine.",
                setting="engine.url",
            ) from None
        if token is not None:
            self.set(ChannelBuilder.PARAM_TOKEN, token)
        is_here = is_loopback(self.url.hostname)
        if is_here:  # gRPC would use http_proxy even for this machine
            self.setChannelOption("grpc.enable_http_proxy", 0)
        speaks_tls = self._speaks_tls(wanted=tls, is_here=is_here)
        if not speaks_tls and self.token is not None and not is_here:
            raise ConfigurationError(
                f"lakegate doesn't send the token for {self.place} without TLS.",
                hint="Set engine.tls = true, and enable TLS in Spark or in a proxy in front of it.",
                setting="engine.tls",
            )
        if not speaks_tls and ca_file is not None:
            raise ConfigurationError(
                f"engine.ca_file is set, but {self.place} isn't reached over TLS.",
                hint="Set engine.tls = true, or remove engine.ca_file.",
                setting="engine.ca_file",
            )
        # Reading the machine's authorities takes a twentieth of a second, which a command without TLS doesn't need.
        self._trusted = _trusted(ca_file) if speaks_tls else None
        self.setChannelOption("grpc.keepalive_time_ms", _KEEPALIVE_S * 1000)
        self.setChannelOption("grpc.keepalive_timeout_ms", _KEEPALIVE_ANSWER_S * 1000)
        self.setChannelOption(
            "grpc.http2.ping_timeout_ms", _KEEPALIVE_ANSWER_S * 1000
        )  # a minute unless set, whatever the timeout above
        self.setChannelOption("grpc.http2.max_pings_without_data", 0)

    @property
    def place(self) -> str:
        """The server's address, without parameters."""
        return f"sc://{self.endpoint}"

    def toChannel(self) -> grpc.Channel:  # noqa: N802 - Spark's name
        """Create a channel."""
        if self._trusted is None and self.token is None:
            return _with_deadlines(self._insecure_channel(self.endpoint))
        # With local credentials, gRPC itself makes sure that the connection stays on this machine.
        if self._trusted is None:
            credentials = grpc.local_channel_credentials()
        else:
            credentials = grpc.ssl_channel_credentials(self._trusted[1])
        if self.token is not None:
            call = grpc.access_token_call_credentials(self.token)
            credentials = grpc.composite_channel_credentials(credentials, call)
        return _with_deadlines(self._secure_channel(self.endpoint, credentials))

    def check(self) -> None:
        """Try a TLS handshake, if TLS is used, to find out why it fails. gRPC would retry for long and not say why.

        If the server refuses the connection, this returns, because gRPC waits for it to come up.
        """
        if self._trusted is None:
            return
        try:
            protocol = self._shake_hands(self._trusted[0])
        except ssl.SSLCertVerificationError as error:
            raise self._unusable(
                f"has a certificate that isn't trusted: {error.verify_message.rstrip('.')}", _CERTIFICATE_HINT
            ) from None
        except ssl.SSLError as error:
            raise self._unusable(f"doesn't speak TLS ({error.reason})", _PLAIN_HINT) from None
        except TimeoutError:
            raise EngineUnavailableError(
                f"Spark at {self.place} doesn't answer.", hint="Check engine.url and the network, then try again."
            ) from None
        except OSError:
            return
        if protocol != _HTTP2:
            raise self._unusable("speaks TLS, but not HTTP/2", "Let the proxy in front of it offer h2 through ALPN.")

    def explain(self) -> None:
        """Raise the reason for a failed connection, if it's that the server requires TLS and we didn't use it."""
        if self._trusted is not None:
            return
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        with suppress(OSError):  # includes ssl.SSLError
            self._shake_hands(context)
            raise self._unusable("requires TLS", "Set engine.tls = true.")

    def _speaks_tls(self, *, wanted: bool | None, is_here: bool) -> bool:
        if wanted is not None:
            return wanted
        if ChannelBuilder.PARAM_USE_SSL in self._params:
            return bool(self.use_ssl)
        return self.token is not None and not is_here

    def _shake_hands(self, context: ssl.SSLContext) -> str | None:
        host = self.url.hostname
        with (
            socket.create_connection((host, self._port), timeout=_PROBE_TIMEOUT_S) as plain,
            context.wrap_socket(plain, server_hostname=host) as spoken,
        ):
            return spoken.selected_alpn_protocol()

    def _unusable(self, reason: str, hint: str) -> ConfigurationError:
        return ConfigurationError(f"Spark at {self.place} {reason}.", hint=hint, setting="engine.tls")


@contextmanager
def call_timeout(seconds: float) -> Iterator[None]:
    """Limit each call in the body to this many seconds."""
    token = _at_most_s.set(seconds)
    try:
        yield
    finally:
        _at_most_s.reset(token)


def _with_deadlines(channel: grpc.Channel) -> grpc.Channel:
    """Give every call a deadline, so that none waits forever for a server that vanished.

    An interceptor would make gRPC look up the method for each call, which crashes the process if the channel was closed
    meanwhile (a null pointer in ``_get_registered_call_handle`` of grpcio 1.8x).
    """
    make = channel.unary_unary

    def unary_unary(method: str, *given: Any, **named: Any) -> Callable[..., Any]:
        call = make(method, *given, **named)
        usual_s = _DEADLINES_S.get(method.rpartition("/")[2], _OTHERS_DEADLINE_S)

        def timed(request: Any, timeout: float | None = None, **more: Any) -> Any:
            return call(request, timeout=timeout or _at_most_s.get() or usual_s, **more)

        return timed

    channel.unary_unary = unary_unary
    return channel


def _trusted(ca_file: Path | None) -> tuple[ssl.SSLContext, bytes | None]:
    """Return the trusted authorities, for Python and for gRPC (``None``: gRPC's own list)."""
    named = ca_file or os.environ.get("SSL_CERT_FILE")
    context = trusting(named, setting="engine.ca_file")
    context.set_alpn_protocols([_HTTP2])
    return context, None if named is None else Path(named).read_bytes()
