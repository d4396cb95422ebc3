"""What is sent to S3 with each request, whatever is asked."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from pydantic import ValidationError

from lakegate.config import S3Settings
from lakegate.errors import ConfigurationError, SourceError, StorageUnavailableError
from lakegate.storage.s3 import S3Store

OWNER, ANOTHER = "123456789012", "210987654321"
OBJECT = "s3://lake/a.parquet"
ETAG = "d41d8cd98f00b204e9800998ecf8427e"


class OwnedBucket(BaseHTTPRequestHandler):
    """A bucket of ``OWNER`` that answers as AWS documents it: with 403 when the owner isn't the expected one."""

    asked: set[str]

    def do(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        expected = self.headers.get("x-amz-expected-bucket-owner")
        self.asked.add(self.command)
        is_allowed = expected in (None, OWNER)
        body = b"" if self.command in ("HEAD", "PUT") else b"<Answer/>" if is_allowed else self._denied
        self.send_response(200 if is_allowed else 403)
        self.send_header("ETag", f'"{ETAG}"')
        self.send_header("Last-Modified", "Sat, 31 Jan 2026 07:00:00 GMT")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    _denied = b"<Error><Code>AccessDenied</Code><Message>Access Denied</Message></Error>"

    def do_GET(self) -> None:
        self.do()

    do_HEAD = do_PUT = do_POST = do_GET

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[ThreadingHTTPServer]:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "no-secret")
    OwnedBucket.asked = set()
    running = ThreadingHTTPServer(("127.0.0.1", 0), OwnedBucket)
    threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
    yield running
    running.shutdown()
    running.server_close()


def _store(server: ThreadingHTTPServer, owner: str | None) -> S3Store:
    endpoint = f"http://127.0.0.1:{server.server_address[1]}"
    return S3Store(S3Settings(endpoint=endpoint, region="us-east-1", path_style=True, bucket_owner=owner))


def _each(store: S3Store) -> dict[str, Callable[[], object]]:
    return {
        "list": lambda: list(store.list("s3://lake/landing/")),
        "stat": lambda: store.stat(OBJECT),
        "read": lambda: store.open(OBJECT, etag=ETAG, size_bytes=9).read(),
        "create": lambda: store.create(OBJECT, b"1"),
        "delete": lambda: store.delete([OBJECT]),
    }


def test_no_request_is_answered_about_a_bucket_that_another_account_has_taken(server: ThreadingHTTPServer) -> None:
    for name, ask in _each(_store(server, ANOTHER)).items():
        with pytest.raises(PermissionError):
            ask()
            pytest.fail(f"{name} was answered")

    assert OwnedBucket.asked == {"GET", "HEAD", "PUT", "POST"}


@pytest.mark.parametrize("owner", [OWNER, None])
def test_the_own_bucket_answers(server: ThreadingHTTPServer, owner: str | None) -> None:
    for ask in _each(_store(server, owner)).values():
        ask()


@pytest.mark.parametrize("owner", ["", "me", "12345678901", "arn:aws:iam::123456789012:root"])
def test_an_account_is_twelve_digits(owner: str) -> None:
    with pytest.raises(ValidationError):
        S3Settings(bucket_owner=owner)


class Refusing(OwnedBucket):
    """Refuses all requests. As HTTP demands, its answers to HEAD have no body."""

    status: int
    code: str

    def do(self) -> None:
        body = f"<Error><Code>{self.code}</Code><Message>In words.</Message></Error>".encode()
        self.send_response(self.status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)


@pytest.mark.parametrize(
    ("status", "code", "becomes", "text"),
    [
        (400, "ExpiredToken", ConfigurationError, "ExpiredToken: In words"),
        (403, "InvalidAccessKeyId", ConfigurationError, "InvalidAccessKeyId: In words"),
        (403, "RequestTimeTooSkewed", StorageUnavailableError, r"clock .* is wrong \(RequestTimeTooSkewed: In words"),
        (403, "AccessDenied", PermissionError, "AccessDenied: In words"),
    ],
)
def test_an_object_that_cannot_be_found_says_why(
    server: ThreadingHTTPServer, status: int, code: str, becomes: type[Exception], text: str
) -> None:
    server.RequestHandlerClass = type("Refusal", (Refusing,), {"status": status, "code": code})
    with pytest.raises(becomes, match=text):
        _store(server, None).stat(OBJECT)


class CutOff(OwnedBucket):
    """Lists objects as version 1 of the request does, whatever is asked."""

    def do(self) -> None:
        entry = f'<Key>a.csv</Key><Size>1</Size><ETag>"{ETAG}"</ETag><LastModified>2026-01-31T07:00:00Z</LastModified>'
        body = f"<ListBucketResult><IsTruncated>true</IsTruncated><Contents>{entry}</Contents></ListBucketResult>"
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body.encode())


def test_a_listing_without_a_way_to_go_on_is_not_taken_for_all(server: ThreadingHTTPServer) -> None:
    server.RequestHandlerClass = CutOff
    with pytest.raises(SourceError, match="cut off the list"):
        list(_store(server, None).list("s3://lake/landing/"))
