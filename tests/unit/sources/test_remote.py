"""Objects of S3 by their listing alone: which are meant, in how much memory, and what their keys rule out."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, quote, urlsplit

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from lakegate.config import S3Settings, StorageSettings
from lakegate.errors import ConfigurationError, InputError, SourceError, StorageUnavailableError
from lakegate.sources import discover
from lakegate.sources.discovery import list_files
from lakegate.sources.remote import RemotePattern
from lakegate.storage import s3 as client
from lakegate.storage.objects import ObjectAddress
from lakegate.storage.s3 import s3_place

PAGE = 200


class Listing:
    """A server that knows nothing but to list ``keys``, or as many made-up ones as ``count`` says, a page at a time."""

    def __init__(self, keys: Sequence[str] = (), count: int = 0) -> None:
        self.pages = 0
        self._keys = keys
        self._count = len(keys) or count
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()

    @property
    def storage(self) -> StorageSettings:
        endpoint = f"http://127.0.0.1:{self._server.server_address[1]}"
        return StorageSettings(s3=S3Settings(endpoint=endpoint, path_style=True))

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def page(self, start: int, prefix: str) -> bytes:
        self.pages += 1
        end = min(start + PAGE, self._count)
        keys = (self._keys[at] if self._keys else f"in/day={at // 50}/{at:08}.csv" for at in range(start, end))
        entries = (
            f"<Contents><Key>{quote(key)}</Key><LastModified>2026-01-31T07:00:00.000Z</LastModified>"
            f"<ETag>&quot;{at:032x}&quot;</ETag><Size>8</Size></Contents>"
            for at, key in enumerate(keys, start)
            if key.startswith(prefix)
        )
        more = f"<NextContinuationToken>{end}</NextContinuationToken>" if end < self._count else ""
        return (
            f"<ListBucketResult><EncodingType>url</EncodingType><IsTruncated>{str(bool(more)).lower()}</IsTruncated>"
            f"{more}{''.join(entries)}</ListBucketResult>"
        ).encode()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        listing = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                asked = parse_qs(urlsplit(self.path).query)
                body = listing.page(int(asked.get("continuation-token", ["0"])[0]), asked.get("prefix", [""])[0])
                self.send_response(200)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def do_HEAD(self) -> None:
                self.send_response(404)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, format: str, *args: object) -> None:
                pass

        return Handler


@pytest.fixture(autouse=True)
def credentials(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in ("AWS_PROFILE", "AWS_REGION", "AWS_DEFAULT_REGION", "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", "/nonexistent")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/nonexistent")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    client.s3_client.cache_clear()
    yield
    client.s3_client.cache_clear()


@pytest.fixture
def many() -> Iterator[Listing]:
    listing = Listing(count=30 * PAGE)
    yield listing
    listing.close()


def test_keys_that_spark_cannot_read_are_refused_by_name() -> None:
    keys = ["in/a//b.csv", "in//c.csv", "in/./d.csv", "in/10:00 [1].csv", "in/ok.csv"]
    listing = Listing(keys)
    try:
        listed = [file.uri for file in list_files(["s3://landing/in/"], storage=listing.storage)]
        # '.' is a name that Spark leaves out
        assert listed == [f"s3://landing/{key}" for key in keys if "/./" not in key]
        with pytest.raises(SourceError) as caught:
            discover(["s3://landing/in/"], storage=listing.storage)
    finally:
        listing.close()
    for key in ("in/a//b.csv", "in//c.csv"):
        assert f"'s3://landing/{key}' has an empty part" in caught.value.message
    assert "10:00 [1].csv' has both a ':' and one of" in caught.value.message


@pytest.mark.parametrize("text", ["s3://", "s3:///a.csv", "s3://b/a.csv", "s3://-bucket/a", "s3://a b/c"])
def test_what_names_no_bucket(text: str) -> None:
    with pytest.raises(InputError, match="doesn't name a bucket"):
        list(list_files([text]))


_NAMES = st.text(st.sampled_from("ab1[]*?. "), min_size=1, max_size=4)


@given(st.lists(_NAMES, min_size=1, max_size=4), st.lists(_NAMES, min_size=1, max_size=4))
@example(["?", "**"], ["1"])
def test_patterns_mean_what_a_plain_translation_says(pattern: list[str], key: list[str]) -> None:
    text, name = "/".join(pattern), "/".join(key)
    parsed = RemotePattern("", ObjectAddress("s3://landing", "s3", "landing", text))
    if not parsed.is_glob or not name.startswith(parsed.prefix):
        return
    found = parsed.below(name)
    taken = found[0] if found is not None and found[1] else None
    if any(part.startswith(".") for part in key[text[: len(parsed.prefix)].count("/") :]):
        assert taken is None
    else:
        assert (taken is not None) == (re.fullmatch(_expression(pattern), name) is not None)


def _expression(parts: list[str]) -> str:
    """Translate a pattern by the plainest rules; ``**`` stands alone in its part or means ``*``."""
    text = ""
    for at, part in enumerate(parts):
        last = at == len(parts) - 1
        if part == "**":
            text += ".*" if last else "(?:[^/]+/)*"
            continue
        text += re.sub(r"\[(?:\]|!\]|[^]])[^]]*\]|.", lambda match: _character(match[0]), part) + ("" if last else "/")
    return text


def _character(found: str) -> str:
    if found == "*":
        return "[^/]*"
    if found == "?":
        return "[^/]"
    if len(found) > 1:
        return f"[{re.escape(found[1:-1])}]"
    return re.escape(found)


@pytest.mark.parametrize(
    ("settings", "variables", "place"),
    [
        (S3Settings(), {}, S3Settings(region="us-east-1")),
        (S3Settings(), {"AWS_REGION": "eu-west-1"}, S3Settings(region="eu-west-1")),
        (S3Settings(region="eu-north-1"), {"AWS_REGION": "eu-west-1"}, S3Settings(region="eu-north-1")),
        (
            S3Settings(),
            {"AWS_ENDPOINT_URL": "http://127.0.0.1:9000"},
            S3Settings(endpoint="http://127.0.0.1:9000", region="us-east-1", path_style=True),
        ),
        (
            S3Settings(endpoint="https://store.example.com"),
            {"AWS_ENDPOINT_URL": "http://127.0.0.1:9000"},
            S3Settings(endpoint="https://store.example.com", region="us-east-1"),
        ),
    ],
)
def test_where_s3_is(
    monkeypatch: pytest.MonkeyPatch, settings: S3Settings, variables: dict[str, str], place: S3Settings
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert s3_place(settings) == place


def test_a_password_in_the_address_shows_nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "ATTEMPTS", 1)
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://me:planted@127.0.0.1:9")
    with pytest.raises(ConfigurationError, match="AWS_ENDPOINT_URL") as place:
        s3_place(S3Settings())
    with pytest.raises(StorageUnavailableError, match=r"127\.0\.0\.1") as listing:
        discover(["s3://landing/in/"])
    for caught in (place, listing):
        assert "planted" not in str(caught.value.to_dict())


def test_a_profile_that_does_not_exist(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_PROFILE", "no-such-profile")
    with pytest.raises(ConfigurationError, match="no-such-profile"):
        discover(["s3://landing/in/"])


@pytest.mark.parametrize("endpoint", ["s3.example.com", "https://key:secret@s3.example.com", "https://a/b"])
def test_an_endpoint_must_be_a_url_without_password(endpoint: str) -> None:
    with pytest.raises(ValueError, match="must be a URL"):
        S3Settings(endpoint=endpoint)
