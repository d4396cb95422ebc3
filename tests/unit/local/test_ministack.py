"""MiniStack without starting it: its lock file, installation and variables."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

import pytest

from lakegate.errors import ConfigurationError, LocalStackError
from lakegate.local import ministack
from lakegate.local.ministack import LOCK, VERSION, MiniStack, in_environment, prepare_ministack, variables
from lakegate.progress import SilentNarrator

ENDPOINT = "http://127.0.0.1:4566"
PINNED = re.compile(r"^([\w.-]+)==(\S+)", re.MULTILINE)


def prepare(cache: Path) -> Path:
    return prepare_ministack(SilentNarrator(), cache=cache)


def pretend_uv(monkeypatch: pytest.MonkeyPatch, program: str) -> None:
    """Replace uv with a Python program, in which ``{venv}`` is the environment to create."""
    monkeypatch.setattr(
        ministack, "_commands", lambda venv: ((sys.executable, "-c", program.replace("{venv}", str(venv))),)
    )


MAKES_IT = "import pathlib; p = pathlib.Path('{venv}/bin'); p.mkdir(parents=True); (p / 'python').write_text('x')"


def test_the_lock_pins_everything_by_hash() -> None:
    text = LOCK.read_text(encoding="utf-8")
    pinned = dict(PINNED.findall(text))
    assert pinned["ministack"] == VERSION
    assert len(pinned) == len(re.findall(r"==.*\\\n +--hash=sha256:[0-9a-f]{64}", text))
    assert "://" not in text


def test_it_is_installed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pretend_uv(monkeypatch, MAKES_IT)
    python = prepare(tmp_path)
    assert python.read_text() == "x"
    pretend_uv(monkeypatch, "raise SystemExit(1)")
    assert prepare(tmp_path) == python
    assert not list((tmp_path / "ministack").glob("making-*"))


def test_an_environment_without_its_python_is_reinstalled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pretend_uv(monkeypatch, MAKES_IT)
    python = prepare(tmp_path)
    python.unlink()
    python.symlink_to(tmp_path / "no-such-python")
    assert prepare(tmp_path).read_text() == "x"


@pytest.mark.parametrize(
    ("said", "reason", "hint"),
    [
        ("error: x\n  Caused by: dns error\n  Caused by: tcp connect error", "dns error", "needs the network"),
        ("error: x\n  Caused by: invalid peer certificate: UnknownIssuer", "UnknownIssuer", "SSL_CERT_FILE"),
        ("error: Hash mismatch for `six==1.17.0`", "Hash mismatch for `six", "needs the network"),
        ("No space left on device (os error 28)", "No space left on device", "needs the network"),
        ("error: https://me:secret@index.example.com is odd", "https://…@index", "needs the network"),
        ("", "the installer doesn't say why", "needs the network"),
    ],
)
def test_a_failed_installation_says_why_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: str, reason: str, hint: str
) -> None:
    pretend_uv(monkeypatch, f"print({said!r}); raise SystemExit(2)")
    with pytest.raises(LocalStackError) as caught:
        prepare(tmp_path)
    assert reason in caught.value.message
    assert "secret" not in caught.value.message
    assert hint in str(caught.value.hint)
    assert sorted(path.name for path in (tmp_path / "ministack").iterdir()) == ["install.lock", "install.log"]


def test_a_cache_that_cannot_be_written(tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    cache.write_text("")
    with pytest.raises(LocalStackError, match="Can't use the cache") as caught:
        prepare(cache)
    assert "XDG_CACHE_HOME" in str(caught.value.hint)


def test_without_uv_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "uv", None)
    with pytest.raises(ConfigurationError) as caught:
        prepare(tmp_path)
    assert caught.value.hint == "pip install 'lakegate[aws]'"


def test_its_environment_hides_the_users_aws_accounts(monkeypatch: pytest.MonkeyPatch) -> None:
    theirs = {
        "AWS_PROFILE": "work",
        "AWS_SESSION_TOKEN": "t",
        "AWS_ENDPOINT_URL_S3": "https://s3.example.com",
        "AWS_WEB_IDENTITY_TOKEN_FILE": "/x",
        "AWS_ACCESS_KEY_ID": "AKIA",
        "AWS_IGNORE_CONFIGURED_ENDPOINT_URLS": "true",
    }
    for name, value in theirs.items():
        monkeypatch.setenv(name, value)
    before = dict(os.environ)
    with in_environment(variables(ENDPOINT)):
        aws = {name: value for name, value in os.environ.items() if name.startswith("AWS_")}
        assert aws == variables(ENDPOINT)
    assert dict(os.environ) == before


@pytest.mark.parametrize("state", ["", "[]", "{}", '{"pid": "1", "instance": 2, "port": "x"}', '{"pid": 1'])
def test_an_unreadable_state_is_ignored(tmp_path: Path, state: str) -> None:
    folder = tmp_path / ".lakegate" / "ministack"
    folder.mkdir(parents=True)
    (folder / "state.json").write_text(state)
    server = MiniStack(tmp_path, SilentNarrator())
    assert server.endpoint is None
    with pytest.raises(LocalStackError, match="isn't running"):
        _ = server.environment


def test_a_program_that_ends_at_once_is_reported_with_its_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\necho 'RuntimeError: no such thing'\nexit 3\n")
    python.chmod(0o755)
    monkeypatch.setattr("lakegate.local.ministack.prepare_ministack", lambda *_, **__: python)
    with pytest.raises(LocalStackError, match=r"ended with exit code 3.*RuntimeError: no such thing"):
        MiniStack(tmp_path / "home", SilentNarrator()).start()
