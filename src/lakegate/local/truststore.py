"""Which certificates Java trusts when it fetches: the machine's, so that TLS-inspecting proxies work as in Python.

A JRE carries its own list of certificate authorities and looks at no other. Where the system keeps a list for Java
we take that; else we make one from the bundle that Python uses.
"""

from __future__ import annotations

import hashlib
import os
import re
import warnings
from collections.abc import Iterator
from pathlib import Path

from lakegate.local.java import user_java_options

# Debian and Ubuntu (ca-certificates-java); Fedora and RHEL (ca-certificates); Alpine (java-cacerts); SUSE.
_SYSTEM_STORES = (
    Path("/etc/ssl/certs/java/cacerts"),
    Path("/etc/pki/java/cacerts"),
    Path("/etc/pki/ca-trust/extracted/java/cacerts"),
    Path("/var/lib/ca-certificates/java-cacerts"),
)
_PEM = re.compile(rb"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", re.DOTALL)
# Java's own convention. It guards nothing: the store holds public certificates.
_PASSWORD = "changeit"  # noqa: S105


def trust_options(cache: Path) -> tuple[str, ...]:
    """Return the Java options that make TLS trust what this machine trusts.

    None when ``JAVA_TOOL_OPTIONS`` names a trust store already, or when no list of authorities is to be found (then the
    JRE's own list holds).

    Args:
        cache: Folder in which a trust store may be made.
    """
    if "javax.net.ssl.trustStore=" in user_java_options():
        return ()
    for store in _SYSTEM_STORES:
        if os.access(store, os.R_OK):
            return (f"-Djavax.net.ssl.trustStore={store}",)
    bundle = _python_bundle()
    store_or_none = None if bundle is None else build_trust_store(bundle, cache)
    if store_or_none is None:
        return ()
    return (
        f"-Djavax.net.ssl.trustStore={store_or_none}",
        "-Djavax.net.ssl.trustStoreType=PKCS12",
        f"-Djavax.net.ssl.trustStorePassword={_PASSWORD}",
    )


def build_trust_store(bundle: Path, cache: Path) -> Path | None:
    """Make a Java trust store (PKCS #12) from a bundle of PEM certificates, once for each content of the bundle.

    Args:
        bundle: File of PEM certificates.
        cache: Folder for the store.

    Returns:
        The store, or ``None`` when the bundle holds no certificate that can be read.
    """
    content = bundle.read_bytes()
    store = cache / f"truststore-{hashlib.sha256(content).hexdigest()[:16]}.p12"
    if store.is_file():
        return store
    serialized = _serialize(content)
    if serialized is None:
        return None
    cache.mkdir(mode=0o700, parents=True, exist_ok=True)
    draft = store.with_name(f"{store.name}.{os.getpid()}")
    draft.write_bytes(serialized)
    return draft.replace(store)


def _serialize(content: bytes) -> bytes | None:
    from cryptography import x509  # noqa: PLC0415 - slow to import, and rarely needed
    from cryptography.hazmat.primitives import serialization  # noqa: PLC0415
    from cryptography.hazmat.primitives.serialization import pkcs12  # noqa: PLC0415

    entries = []
    with warnings.catch_warnings():
        warnings.simplefilter(
            "ignore"
        )  # old roots break today's rules for serial numbers, and are trusted all the same
        for number, block in enumerate(_PEM.findall(content)):
            try:
                certificate = x509.load_pem_x509_certificate(block)
            except ValueError:
                continue  # one root that cannot be parsed must not cost us the others
            entries.append(pkcs12.PKCS12Certificate(certificate, f"ca-{number}".encode()))
        if not entries:
            return None
        encryption = serialization.BestAvailableEncryption(_PASSWORD.encode())
        return pkcs12.serialize_java_truststore(entries, encryption)


def _python_bundle() -> Path | None:
    return next((path for path in _bundle_candidates() if path.is_file() and os.access(path, os.R_OK)), None)


def _bundle_candidates() -> Iterator[Path]:
    for variable in ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"):
        if value := os.environ.get(variable):
            yield Path(value)
    import ssl  # noqa: PLC0415 - slow to import, and rarely needed

    if default := ssl.get_default_verify_paths().cafile:
        yield Path(default)
    try:
        import certifi  # noqa: PLC0415 - comes with httpx, and only needed as a last resort
    except ImportError:
        return
    yield Path(certifi.where())
