"""Secrets by reference: read where they are, read anew when they change, shown nowhere."""

from __future__ import annotations

import io
import json
from collections import deque
from collections.abc import Iterator
from pathlib import Path

import pytest

from lakegate import progress
from lakegate.credentials import secret as secrets_by_reference
from lakegate.credentials.secret import AwsSecrets, Secret, resolve_secret
from lakegate.errors import ConfigurationError, LakegateError, RetryableError
from lakegate.model.secrets import SecretReference
from lakegate.progress import LogNarrator
from support.secrets_manager import SecretsManager, secrets_manager

PLANTED = "planted-s3cret"
ARN = "arn:aws:secretsmanager:eu-central-1:123456789012:secret:lake/nessie-AbCdEf"


@pytest.fixture(autouse=True)
def known_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave no secret to the tests that come after, whose errors may have the same words."""
    monkeypatch.setattr(progress, "_SECRETS", deque[str]())


def shown(error: LakegateError) -> str:
    chain = [error, error.__cause__, None if error.__suppress_context__ else error.__context__]
    return f"{error.to_dict()} {chain}"


def refused(reference: str) -> LakegateError:
    with pytest.raises(LakegateError) as caught:
        Secret(reference, setting="engine.token").value()
    assert PLANTED not in shown(caught.value)
    assert "engine.token" in caught.value.message
    return caught.value


@pytest.fixture
def manager(monkeypatch: pytest.MonkeyPatch) -> Iterator[SecretsManager]:
    with secrets_manager() as running:
        monkeypatch.setenv("AWS_ENDPOINT_URL_SECRETS_MANAGER", running.endpoint)
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIAEXAMPLE")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "example")
        monkeypatch.setenv("AWS_REGION", "us-east-1")
        monkeypatch.setenv("AWS_CONFIG_FILE", "/nonexistent")
        yield running


@pytest.mark.parametrize(
    "reference",
    [
        PLANTED,
        f"vault:{PLANTED}",
        "env:",
        f"env:{PLANTED}=",
        "file:secrets/token",
        "file:/run/secrets/",
        "aws-secret:",
        "aws-secret:lake#",
        f"aws-secret:{PLANTED}:{PLANTED}",
    ],
)
def test_what_is_no_reference_is_refused_and_not_shown(reference: str) -> None:
    error = refused(reference)
    assert isinstance(error, ConfigurationError)
    assert "file:/run/secrets/NAME" in str(error.hint)


@pytest.mark.parametrize(
    ("text", "parsed"),
    [
        ("env:TOKEN", SecretReference("env", "TOKEN")),
        ("file:/run/secrets/a#b", SecretReference("file", "/run/secrets/a#b")),
        ("aws-secret:lake/nessie", SecretReference("aws-secret", "lake/nessie")),
        (f"aws-secret:{ARN}#password", SecretReference("aws-secret", ARN, "password")),
    ],
)
def test_references_survive_being_read_and_written(text: str, parsed: SecretReference) -> None:
    assert SecretReference.parse(text) == parsed
    assert str(parsed) == text


def test_a_variable_is_read_at_each_use(monkeypatch: pytest.MonkeyPatch) -> None:
    secret = Secret("env:MY_TOKEN", setting="engine.token")
    monkeypatch.setenv("MY_TOKEN", PLANTED)
    assert secret.value() == PLANTED
    monkeypatch.setenv("MY_TOKEN", "another")
    assert secret.value() == "another"
    assert PLANTED not in repr(secret)


@pytest.mark.parametrize("value", [None, ""])
def test_a_variable_must_be_set(value: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MY_TOKEN", raising=False)
    if value is not None:
        monkeypatch.setenv("MY_TOKEN", value)
    assert "MY_TOKEN, which isn't set" in refused("env:MY_TOKEN").message


@pytest.mark.parametrize("value", ["planted-s3cret", "abc"], ids=["long", "short"])
def test_what_was_read_stays_out_of_logs(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_TOKEN", value)
    Secret("env:MY_TOKEN", setting="engine.token").value()
    log = io.StringIO()
    LogNarrator(log).note(f"the server said: <{value}> is wrong")
    # Whoever leaves out every text of three characters leaves nothing to read.
    assert (value in log.getvalue()) is (value == "abc")


def test_no_reference_is_no_secret() -> None:
    assert resolve_secret(None, setting="engine.token") is None


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "token"
    path.write_text(f"{PLANTED}\n", encoding="utf-8")
    path.chmod(0o600)
    return path


def test_a_file_is_read_anew_without_its_line_end(file: Path) -> None:
    secret = Secret(f"file:{file}", setting="engine.token")
    assert secret.value() == PLANTED
    file.write_text(" another \r\n", encoding="utf-8")
    assert secret.value() == " another "


def test_a_file_that_is_exchanged_as_kubernetes_does_counts_at_once(file: Path) -> None:
    link = file.with_name("link")
    link.symlink_to(file)
    secret = Secret(f"file:{link}", setting="engine.token")
    assert secret.value() == PLANTED
    later = file.with_name("later")
    later.write_text("rotated", encoding="utf-8")
    later.chmod(0o440)
    swap = file.with_name("swap")
    swap.symlink_to(later)
    swap.replace(link)
    assert secret.value() == "rotated"


@pytest.mark.parametrize("mode", [0o644, 0o604, 0o602, 0o666])
def test_a_file_for_everybody_is_refused(file: Path, mode: int) -> None:
    file.chmod(mode)
    error = refused(f"file:{file}")
    assert "every user" in error.message
    assert f"chmod 600 {file}" in str(error.hint)


def test_what_an_engine_mounted_may_be_readable_but_not_writable(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(secrets_by_reference, "_SECRET_MOUNTS", (file.parent,))
    file.chmod(0o444)
    assert Secret(f"file:{file}", setting="engine.token").value() == PLANTED
    file.chmod(0o446)
    assert "every user" in refused(f"file:{file}").message


@pytest.mark.parametrize(
    ("content", "reason"),
    [(b"", "is empty"), (b"\r\n\n", "is empty"), (b"\xff" + PLANTED.encode(), "UTF-8"), (b"x" * 65_537, "65,536")],
)
def test_a_file_without_a_secret_is_refused(file: Path, content: bytes, reason: str) -> None:
    file.write_bytes(content)
    assert reason in refused(f"file:{file}").message


def test_what_is_no_file_is_refused(tmp_path: Path) -> None:
    assert "can't be read: Is a directory" in refused(f"file:{tmp_path}").message
    assert "No such file" in refused(f"file:{tmp_path}/none").message
    assert "isn't a file" in refused("file:/dev/null").message


def test_a_secret_of_aws_is_fetched_once(manager: SecretsManager) -> None:
    manager.secrets["lake/once"] = f"{PLANTED}\n"
    for _ in range(3):
        assert resolve_secret("aws-secret:lake/once", setting="engine.token") == PLANTED
    assert manager.asked == ["lake/once"]


def test_one_secret_of_aws_may_hold_several_values(manager: SecretsManager) -> None:
    manager.secrets[ARN] = json.dumps({"username": "journal-user", "password": PLANTED})
    assert resolve_secret(f"aws-secret:{ARN}#password", setting="journal.password") == PLANTED
    assert resolve_secret(f"aws-secret:{ARN}#username", setting="journal.password") == "journal-user"
    assert manager.asked == [ARN]


def test_a_refused_secret_of_aws_is_fetched_anew(manager: SecretsManager) -> None:
    manager.secrets["lake/renewed"] = "old"
    secret = Secret("aws-secret:lake/renewed", setting="engine.token")
    assert secret.value() == "old"
    manager.secrets["lake/renewed"] = "new"
    assert secret.value() == "old"
    secret.renew()
    assert secret.value() == "new"


def test_a_secret_of_aws_is_fetched_anew_after_a_while(manager: SecretsManager) -> None:
    now = 0.0
    secrets = AwsSecrets(clock=lambda: now)
    reference = SecretReference.parse("aws-secret:lake/aged")
    manager.secrets["lake/aged"] = "old"
    assert secrets.read(reference, "engine.token") == "old"
    manager.secrets["lake/aged"] = "new"
    now = 299.0
    assert secrets.read(reference, "engine.token") == "old"
    now = 300.0
    assert secrets.read(reference, "engine.token") == "new"


@pytest.mark.parametrize(
    ("text", "key", "reason"),
    [
        (" ", "", "is empty"),
        (PLANTED, "#password", "isn't a JSON object"),
        (f'["{PLANTED}"]', "#password", "isn't a JSON object"),
        (f'{{"token": "{PLANTED}"}}', "#password", "has no text at 'password'"),
        (f'{{"password": {{"x": "{PLANTED}"}}}}', "#password", "has no text at 'password'"),
    ],
)
def test_a_secret_of_aws_that_is_otherwise_is_refused(
    manager: SecretsManager, text: str, key: str, reason: str, request: pytest.FixtureRequest
) -> None:
    name = f"lake/other-{abs(hash(request.node.name))}"
    manager.secrets[name] = text
    assert reason in refused(f"aws-secret:{name}{key}").message


@pytest.mark.parametrize(
    ("refusal", "kind", "words"),
    [
        (None, ConfigurationError, "doesn't exist"),
        ((400, "AccessDeniedException"), ConfigurationError, "can't be read (AccessDeniedException)"),
        ((400, "ThrottlingException"), RetryableError, "couldn't return"),
        ((500, "InternalServiceError"), RetryableError, "couldn't return"),
    ],
)
def test_refusals_of_aws_say_what_to_do(
    manager: SecretsManager,
    refusal: tuple[int, str] | None,
    kind: type[LakegateError],
    words: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("lakegate.credentials.secret._ATTEMPTS", 1)
    manager.refusal = refusal
    error = refused("aws-secret:lake/none")
    assert isinstance(error, kind)
    assert words in error.message
    assert error.hint


def test_aws_without_credentials_or_out_of_reach(manager: SecretsManager, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lakegate.credentials.secret._ATTEMPTS", 1)
    monkeypatch.setenv("AWS_ENDPOINT_URL_SECRETS_MANAGER", "http://127.0.0.1:9")
    assert isinstance(refused("aws-secret:lake/away"), RetryableError)
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/nonexistent")
    error = refused("aws-secret:lake/away")
    assert isinstance(error, ConfigurationError)
    assert "Unable to locate credentials" in error.message
