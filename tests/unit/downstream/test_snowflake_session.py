"""Snowflake's official connector against a simulated server: sessions, retries, refusals."""

from __future__ import annotations

import importlib.util
import re
from typing import Any

import pytest

from lakegate.downstream.snowflake.session import Session
from lakegate.errors import ConfigurationError, DownstreamError, DownstreamUnavailableError, LakegateError
from support.snowflake_server import SnowflakeAccount
from support.snowflake_support import KEY_VARIABLE, account_settings, private_key

ASK = "SELECT CURRENT_ACCOUNT() AS ACCOUNT"


def open_session(account: SnowflakeAccount, **changes: Any) -> Session:
    return Session("snowflake", account_settings(**{"url": account.url, **changes}))


def refusal(account: SnowflakeAccount, statement: str = ASK, **changes: Any) -> LakegateError:
    with open_session(account, **changes) as session, pytest.raises(LakegateError) as caught:
        session.run(statement)
    return caught.value


def test_a_session_signs_in_once_with_a_key_and_signs_out(account: SnowflakeAccount) -> None:
    with open_session(account) as session:
        assert (
            session.run(ASK)
            == session.run(ASK)
            == [
                {
                    "account": "ACME",
                    "user": "LAKEGATE",
                    "role": "LAKEGATE",
                    "warehouse": "LAKEGATE_WH",
                    "version": "10.2.0",
                }
            ]
        )
    [login] = account.logins
    assert login["AUTHENTICATOR"] == "SNOWFLAKE_JWT"
    assert "PASSWORD" not in login
    assert login["SESSION_PARAMETERS"]["QUERY_TAG"] == "lakegate"
    assert account.requests[-1][0] == "/session"
    assert not account.sessions
    assert not any("telemetry" in path for path, _ in account.requests)


def test_an_expired_session_is_renewed_and_one_that_ended_is_opened_again(account: SnowflakeAccount) -> None:
    with open_session(account) as session:
        session.run(ASK)
        account.expire_sessions()
        assert session.run(ASK)
        assert [path for path, _ in account.requests].count("/session/token-request") == 1
        assert len(account.logins) == 1
        account.end_sessions()
        assert session.run(ASK)
        assert len(account.logins) == 2
        account.expire_sessions()
        account.fail("token-request", code="390114", message="Authentication token has expired.")
        assert session.run(ASK)
        assert len(account.logins) == 3


def test_a_slow_statement_is_polled_for(account: SnowflakeAccount) -> None:
    account.slow("CURRENT_ACCOUNT", polls=3)
    with open_session(account) as session:
        assert session.run(ASK)[0]["account"] == "ACME"
    assert sum(path.endswith("/result") for path, _ in account.requests) == 3


def test_a_busy_server_is_asked_again(account: SnowflakeAccount) -> None:
    for status in (429, 503):
        account.fail("login-request", status=status)
        account.fail("CURRENT_ACCOUNT", status=status)
    with open_session(account) as session:
        assert session.run(ASK)
    assert len(account.statements) == 1
    assert [path for path, _ in account.requests].count("/session/v1/login-request") == 3


def test_a_server_that_stays_busy_is_unavailable(account: SnowflakeAccount) -> None:
    account.fail("CURRENT_ACCOUNT", status=503, times=99)
    error = refusal(account, timeout_s=0.5)
    assert isinstance(error, DownstreamUnavailableError)
    assert "'acme-lake' doesn't answer" in error.message
    error = refusal(account, url="http://127.0.0.1:9", timeout_s=0.5)
    assert isinstance(error, DownstreamUnavailableError)


def test_an_internal_error_of_snowflake_is_tried_again_later(account: SnowflakeAccount) -> None:
    account.fail("CURRENT_ACCOUNT", code="000603", message="SQL execution internal error:\nProcessing aborted.")
    assert isinstance(refusal(account), DownstreamUnavailableError)


@pytest.mark.parametrize(
    ("changes", "said", "hint"),
    [
        ({"user": "NOBODY"}, "refused user 'NOBODY': JWT token is invalid", "SET RSA_PUBLIC_KEY"),
        ({"role": "NOPE"}, "Role 'NOPE' doesn't exist, or user", "GRANT ROLE NOPE TO USER LAKEGATE"),
        ({"role": "lakegate"}, "Role 'lakegate' doesn't exist", "did you mean 'LAKEGATE'?"),
    ],
)
def test_a_refused_sign_in_says_what_to_change(
    account: SnowflakeAccount, changes: dict[str, Any], said: str, hint: str
) -> None:
    error = refusal(account, **changes)
    assert isinstance(error, DownstreamError)
    assert said in error.message
    assert hint in str(error.hint)
    assert "\n" not in error.message + str(error.hint)


def test_a_sign_in_that_is_refused_for_another_reason(account: SnowflakeAccount) -> None:
    said = "Incoming request with IP/Token 192.0.2.7 is not allowed to access Snowflake."
    account.fail("login-request", code="390420", message=said)
    error = refusal(account)
    assert isinstance(error, DownstreamError)
    assert error.message == f"Snowflake refused the sign-in of user 'LAKEGATE': {said}"


@pytest.mark.parametrize("status", [403, 404])
def test_an_account_that_does_not_exist(account: SnowflakeAccount, status: int) -> None:
    account.fail("login-request", status=status, times=9)
    error = refusal(account)
    assert isinstance(error, DownstreamError)
    assert "has no account 'acme-lake'" in error.message
    assert "downstream.snowflake.account" in str(error.hint)


def test_a_refused_statement_names_what_lacks(account: SnowflakeAccount) -> None:
    account.denied.add("CREATE DATABASE")
    error = refusal(account, 'CREATE DATABASE IF NOT EXISTS "LAKE"')
    assert error.message == ("Role 'LAKEGATE' may not do this: Insufficient privileges to operate on account 'ACME'.")
    assert "plan --offline" in str(error.hint)
    error = refusal(account, "SELEC 1")
    assert "syntax error line 1" in error.message
    assert error.hint == "The statement was: SELEC 1"


def test_a_token_is_read_again_when_it_expired(
    account: SnowflakeAccount, monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    token = tmp_path / "token"
    token.touch(mode=0o600)
    token.write_text("first-token")
    account.tokens = {"first-token"}
    with open_session(account, private_key=None, token=f"file:{token}") as session:
        assert session.run(ASK)
        # Another program replaces the token; Snowflake ends the session and takes no old token.
        token.write_text("second-token")
        account.tokens = {"second-token"}
        account.end_sessions()
        assert session.run(ASK)
    assert [login["TOKEN"] for login in account.logins] == ["first-token", "second-token"]
    account.tokens = set()
    error = refusal(account, private_key=None, token=f"file:{token}")
    assert "OAuth access token expired" in error.message
    assert "Put a new token where downstream.snowflake.token points" in str(error.hint)
    assert "second-token" not in repr(error.to_dict())


def test_a_programmatic_access_token_is_one(account: SnowflakeAccount, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEST_SNOWFLAKE_TOKEN", "pat-1")
    token = {"private_key": None, "token": "env:TEST_SNOWFLAKE_TOKEN", "token_type": "programmatic"}
    with open_session(account, **token) as session:
        assert session.run(ASK)
    assert (account.logins[0]["AUTHENTICATOR"], account.logins[0]["TOKEN"]) == ("PROGRAMMATIC_ACCESS_TOKEN", "pat-1")


def test_what_snowflake_says_steers_no_terminal(account: SnowflakeAccount) -> None:
    account.fail("CURRENT_ACCOUNT", code="001234", message="SQL error:\n\x1b[31mred\u202e [bold]loud[/] \r\n second")
    message = refusal(account).message
    assert message.isprintable()
    assert "[bold]loud[/]" in message


def test_an_encrypted_key_needs_its_passphrase(account: SnowflakeAccount, monkeypatch: pytest.MonkeyPatch) -> None:
    from cryptography.hazmat.primitives.serialization import (
        BestAvailableEncryption,
        Encoding,
        PrivateFormat,
        load_pem_private_key,
    )

    key = load_pem_private_key(private_key().encode(), None)
    encrypted = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"sesame")).decode()
    # As in a variable of one line.
    monkeypatch.setenv(KEY_VARIABLE, encrypted.replace("\n", "\\n"))
    monkeypatch.setenv("TEST_PASSPHRASE", "sesame")
    passphrase = {"private_key_passphrase": "env:TEST_PASSPHRASE"}
    with open_session(account, **passphrase) as session:
        assert session.run(ASK)
    error = refusal(account)
    assert isinstance(error, ConfigurationError)
    assert "private_key_passphrase isn't set" in error.message
    monkeypatch.setenv("TEST_PASSPHRASE", "wrong-one")
    assert "passphrase is wrong" in refusal(account, **passphrase).message
    monkeypatch.setenv(KEY_VARIABLE, "not a key")
    assert "not a key" not in refusal(account).message


def test_without_the_connector_one_line_says_what_to_install(
    account: SnowflakeAccount, monkeypatch: pytest.MonkeyPatch
) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name.startswith("snowflake") else find(name))
    error = refusal(account)
    assert error.hint == "pip install 'lakegate[snowflake]'"


def test_after_its_time_a_session_begins_nothing(account: SnowflakeAccount) -> None:
    with open_session(account) as session:
        session.limit(0)
        with pytest.raises(DownstreamUnavailableError, match=re.escape("took longer than 120 s")):
            session.run(ASK)
    assert not account.requests
