"""A password of Postgres that is changed while the journal is open."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from lakegate.config import JournalSettings
from lakegate.errors import ConfigurationError
from lakegate.journal.factory import open_journal
from support.postgres import PostgresServer

pytestmark = pytest.mark.xdist_group("postgres")

ROLE = "rotated"


def test_a_rotated_password_counts_for_the_next_connection(postgres: PostgresServer, tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.touch(mode=0o600)
    file.write_text("first\n", encoding="utf-8")
    postgres.run(f"CREATE ROLE {ROLE} LOGIN PASSWORD 'first'", f"CREATE DATABASE {ROLE} OWNER {ROLE}")
    settings = JournalSettings(url=f"postgresql://{ROLE}@127.0.0.1:{postgres.port}/{ROLE}", password=f"file:{file}")
    with closing(open_journal(settings, tmp_path)) as journal:
        assert list(journal.runs()) == []
        postgres.run(
            f"ALTER ROLE {ROLE} PASSWORD 'second'",
            f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = '{ROLE}'",
        )
        with pytest.raises(ConfigurationError, match="Can't use the journal") as caught:
            list(journal.runs())
        assert "first" not in f"{caught.value.to_dict()}"
        file.write_text("second\n", encoding="utf-8")
        assert list(journal.runs()) == []
