"""TLS before a server that speaks none, as a load balancer ends it; and authorities to sign its certificates."""

from __future__ import annotations

import asyncio
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

_CHUNK = 65_536


class Authority:
    """Signs certificates of servers.

    Attributes:
        file: Its own certificate.
    """

    def __init__(self, folder: Path, name: str) -> None:
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _name(name)
        today = datetime.now(UTC)
        certificate = (
            _builder(self._name, self._name, self._key, today - timedelta(days=30), today + timedelta(days=30))
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .sign(self._key, hashes.SHA256())
        )
        self.file = folder / f"{name}.pem"
        self.file.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))

    def server(self, *, host: str = "localhost", expired: bool = False, protocol: str = "h2") -> ssl.SSLContext:
        """Return what a server needs to be ``host``."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.pair(host=host, expired=expired))
        context.set_alpn_protocols([protocol])
        return context

    def pair(self, *, host: str = "localhost", expired: bool = False) -> Path:
        """Return a file with a new key and the certificate of ``host``."""
        key = ec.generate_private_key(ec.SECP256R1())
        today = datetime.now(UTC)
        ends = today + timedelta(days=-1 if expired else 1)
        names = x509.SubjectAlternativeName([x509.DNSName(host)])
        certificate = (
            _builder(_name(host), self._name, key, today - timedelta(days=2), ends)
            .add_extension(names, critical=False)
            .sign(self._key, hashes.SHA256())
        )
        pair = self._folder / f"server-{certificate.serial_number}.pem"
        pair.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            )
            + certificate.public_bytes(serialization.Encoding.PEM)
        )
        return pair


@dataclass
class Proxy:
    """One that runs.

    Attributes:
        port: Where it listens.
        heard: What clients said, after TLS is taken off.
    """

    port: int
    heard: list[bytes] = field(default_factory=list)


@contextmanager
def tls_proxy(
    target: int | None,
    context: ssl.SSLContext | None,
    *,
    host: str = "127.0.0.1",
    port: int = 0,
    listens_in: bool = True,
) -> Iterator[Proxy]:
    """Run one until the body ends, before a server on the loopback interface.

    Args:
        target: Port to pass on to; ``None`` to say nothing at all.
        context: What it shows; ``None`` to speak no TLS.
        host: The address that it listens on.
        port: Its port; 0 for a free one.
        listens_in: Whether to keep what clients say.
    """
    with socket.create_server((host, port)) as listener:
        proxy = Proxy(listener.getsockname()[1])
        loop, ended = asyncio.new_event_loop(), asyncio.Event()

        writers: list[asyncio.StreamWriter] = []
        carrying: set[asyncio.Future[object]] = set()

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writers.append(writer)
            onward = None
            if target is not None:
                answers, onward = await asyncio.open_connection("127.0.0.1", target)
                writers.append(onward)
                carrying.add(asyncio.ensure_future(_carry(answers, writer, None)))
            carrying.add(asyncio.ensure_future(_carry(reader, onward, proxy.heard if listens_in else None)))

        async def run() -> None:
            async with await asyncio.start_server(serve, sock=listener, ssl=context):
                await ended.wait()
            for writer in writers:
                # Not close: the other side may wait for us to speak TLS to the end.
                writer.transport.abort()
            await asyncio.gather(*carrying, return_exceptions=True)

        with asyncio.Runner(loop_factory=lambda: loop) as runner:
            thread = threading.Thread(target=runner.run, args=(run(),))
            thread.start()
            try:
                yield proxy
            finally:
                loop.call_soon_threadsafe(ended.set)
                thread.join()


async def _carry(source: asyncio.StreamReader, sink: asyncio.StreamWriter | None, heard: list[bytes] | None) -> None:
    try:
        while content := await source.read(_CHUNK):
            if heard is not None:
                heard.append(content)
            if sink is not None:
                sink.write(content)
                await sink.drain()
    finally:
        if sink is not None:
            sink.close()


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, begins: datetime, ends: datetime
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(begins)
        .not_valid_after(ends)
    )
