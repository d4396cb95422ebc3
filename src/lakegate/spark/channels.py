"""Connections to a Spark Connect server: TLS, tokens, deadlines, and why a connection fails.

Imports pyspark's client; ask for it with :func:`lakegate.spark.failures.import_spark`.
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
"""How long a connection may be silent before it is pinged.

Spark 4.1 takes one such ping in five minutes, and ends the connection at the third one too many unless it has said
something in between: not before a call was silent for ten minutes, which :data:`_DEADLINES_S` forbids.
"""
_KEEPALIVE_ANSWER_S = 20
_DEADLINES_S = {"AnalyzePlan": 540.0, "Interrupt": 5.0, "ReleaseExecute": 10.0, "ReleaseSession": 5.0}
"""How long Spark may take to answer, by call. Queries have no limit: keepalive shows that Spark is alive."""
_OTHERS_DEADLINE_S = 120.0
_at_most_s: ContextVar[float | None] = ContextVar("at_most_s", default=None)
_CERTIFICATE_HINT = "If an authority of your own signed it, set engine.ca_file; else have the server's renewed."
_PLAIN_HINT = (
    "Let Spark or a proxy in front of it speak TLS; only without a token may you leave TLS out: engine.tls = false."
)


class SparkChannels(DefaultChannelBuilder):  # type: ignore[misc]  # pyspark's types aren't followed
    """Makes channels to one server, as Spark's own class does, but never sends a token in the clear.

    Args:
        url: ``sc://host:port``, with ``/;key=value`` of Spark's own behind it.
        token: Instead of one in ``url``.
        tls: Whether to speak TLS; default: what ``url`` says (``use_ssl``), else with a token, except to this machine.
        ca_file: Certificates (PEM) of the authorities to trust; default: ``SSL_CERT_FILE``, else gRPC's own.

    Raises:
        ConfigurationError: When ``url`` isn't one, a token would travel without TLS, or ``ca_file`` can't be used.
    """

    def __init__(
        self, url: str, *, token: str | None = None, tls: bool | None = None, ca_file: Path | None = None
    ) -> None:
        try:
            super().__init__(url)
        except (PySparkValueError, ValueError):
            # Its text stays out of the message: it may hold a token.
            raise ConfigurationError(
                "engine.url isn't a Spark Connect address.",
                hint="Write it as sc://host:15002, or leave it unset to use the local engine.",
                setting="engine.url",
            ) from None
        if token is not None:
            self.set(ChannelBuilder.PARAM_TOKEN, token)
        is_here = is_loopback(self.url.hostname)
        if is_here:  # gRPC would send even this through http_proxy
            self.setChannelOption("grpc.enable_http_proxy", 0)
        self._tls = self._speaks_tls(wanted=tls, is_here=is_here)
        if not self._tls and self.token is not None and not is_here:
            raise ConfigurationError(
                f"The token for {self.place} isn't sent without TLS.",
                hint="Set engine.tls = true, and let Spark or a proxy in front of it speak TLS.",
                setting="engine.tls",
            )
        if not self._tls and ca_file is not None:
            raise ConfigurationError(
                f"engine.ca_file is set, and {self.place} isn't reached over TLS.",
                hint="Set engine.tls = true, or leave engine.ca_file out.",
                setting="engine.ca_file",
            )
        self._context, self._authorities = _trusted(ca_file)
        self.setChannelOption("grpc.keepalive_time_ms", _KEEPALIVE_S * 1000)
        self.setChannelOption("grpc.keepalive_timeout_ms", _KEEPALIVE_ANSWER_S * 1000)
        self.setChannelOption("grpc.http2.ping_timeout_ms", _KEEPALIVE_ANSWER_S * 1000)  # a minute, whatever is above
        self.setChannelOption("grpc.http2.max_pings_without_data", 0)

    @property
    def place(self) -> str:
        """The server's address, without what follows it."""
        return f"sc://{self.endpoint}"

    def toChannel(self) -> grpc.Channel:  # noqa: N802 - Spark's name
        """Return a channel."""
        if not self._tls and self.token is None:
            return _with_deadlines(self._insecure_channel(self.endpoint))
        # The latter lets gRPC itself make sure that the connection stays on this machine.
        credentials = grpc.ssl_channel_credentials(self._authorities) if self._tls else grpc.local_channel_credentials()
        if self.token is not None:
            call = grpc.access_token_call_credentials(self.token)
            credentials = grpc.composite_channel_credentials(credentials, call)
        return _with_deadlines(self._secure_channel(self.endpoint, credentials))

    def check(self) -> None:
        """Shake hands with the server where TLS is to be spoken; gRPC itself tries long, and says only that it failed.

        A server that refuses the connection is left to gRPC, which waits for it a while.
        """
        if not self._tls:
            return
        try:
            protocol = self._shake_hands(self._context)
        except ssl.SSLCertVerificationError as error:
            raise self._unusable(
                f"has a certificate that isn't accepted: {error.verify_message.rstrip('.')}", _CERTIFICATE_HINT
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
            raise self._unusable("speaks TLS, but not HTTP/2", "Have the proxy in front of it offer h2 by ALPN.")

    def explain(self) -> None:
        """Find out why a connection failed, where TLS wasn't to be spoken."""
        if self._tls:
            return
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        with suppress(OSError):  # of which ssl.SSLError is one
            self._shake_hands(context)
            raise self._unusable("speaks TLS only", "Set engine.tls = true.")

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
def answered_within(seconds: float) -> Iterator[None]:
    """Time out calls in the body that Spark doesn't answer in time."""
    token = _at_most_s.set(seconds)
    try:
        yield
    finally:
        _at_most_s.reset(token)


def _with_deadlines(channel: grpc.Channel) -> grpc.Channel:
    """Make sure that no call waits forever for a server that vanished.

    Not by an interceptor: gRPC then looks the method up again for each call, and on a channel that was closed meanwhile
    that ends the process (a null pointer in ``_get_registered_call_handle`` of grpcio 1.8x).
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
    """Return which authorities are trusted, for Python and for gRPC; ``None`` is gRPC's own list."""
    named = ca_file or os.environ.get("SSL_CERT_FILE")
    context = trusting(named, setting="engine.ca_file")
    context.set_alpn_protocols([_HTTP2])
    return context, None if named is None else Path(named).read_bytes()
