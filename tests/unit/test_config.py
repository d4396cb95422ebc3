from __future__ import annotations

import os
from pathlib import Path

import pytest

from lakegate import connect
from lakegate.config import FILE_NAME, Settings, find_home, home_at, load_settings
from lakegate.errors import ConfigurationError
from lakegate.model.identifiers import TableIdentifier


def write(folder: Path, text: str) -> Path:
    (folder / "lakegate.toml").write_text(text)
    return folder


def test_nothing_is_needed(tmp_path: Path) -> None:
    settings = load_settings(tmp_path, env={})
    assert settings.catalog.uri is None
    assert settings.ingest.on_failure == "keep"


def test_flags_win_over_variables_and_variables_over_the_file(tmp_path: Path) -> None:
    write(tmp_path, '[engine]\nurl = "sc://file"\n[ingest]\nbranch_prefix = "file"\non_failure = "drop"\n')
    env = {"LAKEGATE_ENGINE_URL": "sc://env", "LAKEGATE_INGEST_BRANCH_PREFIX": "env"}
    settings = load_settings(tmp_path, env=env, flags={"engine.url": "sc://flag", "catalog.uri": None})
    assert settings.engine.url == "sc://flag"
    assert settings.ingest.branch_prefix == "env"
    assert settings.ingest.on_failure == "drop"


def test_tables_hold_checks_and_partitioning(tmp_path: Path) -> None:
    write(tmp_path, '[tables."nyc.trips"]\nchecks = ["not_null(a)"]\npartition_by = ["days(b)"]\n')
    table = load_settings(tmp_path, env={}).table(TableIdentifier.parse("nyc.trips"))
    assert (table.checks, table.partition_by) == (("not_null(a)",), ("days(b)",))
    assert load_settings(tmp_path, env={}).table(TableIdentifier.parse("nyc.other")).checks == ()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[engin]\nurl = 'x'", ["unknown key 'engin'", "did you mean 'engine'?"]),
        ("[engine]\nurk = 'x'", ["unknown key 'engine.urk'", "did you mean 'url'?"]),
        ("[tables.'nyc.trips']\ncheck = []", ["'tables.nyc.trips.check'", "did you mean 'checks'?"]),
        ("[local]\nspark_memory = 'lots'", ["'local.spark_memory'", "such as '512m'"]),
        ("[ingest]\non_failure = 'explode'", ["'ingest.on_failure'", "'keep' or 'drop'"]),
        ("[catalog]\ntimeout_s = 'x'", ["'catalog.timeout_s'", "number"]),
        ("[tables.'nyc.trips'.columns]\nFare = 'a'\nfare = 'b'", ["'fare' can't be both 'a' and 'b'"]),
        ("[tables.'nyc.trips'.columns]\nFare = ''", ["a column name is empty"]),
        ("catalog = ", ["isn't valid TOML"]),
    ],
)
def test_an_invalid_setting_names_the_file_the_key_and_known_keys(tmp_path: Path, text: str, words: list[str]) -> None:
    write(tmp_path, text)
    with pytest.raises(ConfigurationError) as caught:
        load_settings(tmp_path, env={})
    for word in [*words, "lakegate.toml"]:
        assert word in caught.value.message


def test_a_file_may_begin_with_a_byte_order_mark(tmp_path: Path) -> None:
    (tmp_path / FILE_NAME).write_text("[watch]\nmax_files = 7\n", encoding="utf-8-sig")
    assert load_settings(tmp_path, env={}).watch.max_files == 7


def test_a_section_that_is_a_value_is_an_error(tmp_path: Path) -> None:
    write(tmp_path, "engine = 'x'")
    with pytest.raises(ConfigurationError, match="engine"):
        load_settings(tmp_path, env={"LAKEGATE_ENGINE_URL": "sc://x"})


def test_a_table_with_an_odd_name_is_an_error(tmp_path: Path) -> None:
    write(tmp_path, "[tables.'a;b']\nchecks = []")
    with pytest.raises(ConfigurationError, match=r"'tables\.a;b': 'a;b' can't name a table"):
        load_settings(tmp_path, env={})


def test_other_variables_are_ignored(tmp_path: Path) -> None:
    others = {"LAKEGATE_FAULT": "x:y", "LAKEGATE_": "z", "LAKEGATE_NESSIE_TOKEN": "s", "LAKEGATE_ENGINES_ROOM": "1"}
    assert load_settings(tmp_path, env=others).engine.url is None
    with pytest.raises(ConfigurationError, match="LAKEGATE_ENGINES_URL") as caught:
        load_settings(tmp_path, env={"LAKEGATE_ENGINES_URL": "sc://x"})
    assert caught.value.hint == "Did you mean LAKEGATE_ENGINE_URL?"


@pytest.mark.parametrize(
    ("text", "link"),
    [
        ("", None),
        ("[ui]\nurl = 'https://lake.example.com/'", "https://lake.example.com/run?run=r%2F1"),
        ("[ui]\nurl = 'https://a'\n[notify]\nreport_url = 'https://b/{run_id}/{table}'", "https://b/r%2F1/nyc.trips"),
    ],
)
def test_a_run_has_a_link_where_a_setting_names_one(tmp_path: Path, text: str, link: str | None) -> None:
    write(tmp_path, text)
    assert load_settings(tmp_path, env={}).link_to("r/1", "nyc.trips") == link


def test_a_delimiter_may_be_spelled_out_and_quotes_left_out(tmp_path: Path) -> None:
    write(tmp_path, "[tables.'nyc.trips'.csv]\ndelimiter = 'tab'\nquote = ''")
    assert load_settings(tmp_path, env={}).tables["nyc.trips"].csv.delimiter == "tab"


def test_a_table_is_nowhere_below_the_folder_from_which_its_project_was_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("lake", "notebooks"):
        (tmp_path / name).mkdir()
    monkeypatch.chdir(tmp_path / "notebooks")
    with connect("../lake") as lake:
        assert lake.home == tmp_path / "lake"
        assert lake.warehouse == f"file://{tmp_path}/lake/.lakegate/warehouse"
    assert home_at("lake") == tmp_path / "notebooks" / "lake"


def test_a_project_that_somebody_else_put_into_a_folder_for_everyone_is_ignored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    below = tmp_path / "tmp" / "mine"
    below.mkdir(parents=True)
    planted = write(tmp_path / "tmp", "") / FILE_NAME
    assert find_home(below) == tmp_path / "tmp"
    if os.geteuid() == 0:
        os.chown(planted, 12_345, -1)
    else:
        monkeypatch.setattr(os, "geteuid", lambda: planted.stat().st_uid + 1)
    assert find_home(below) == tmp_path / "tmp", "a folder that a team shares, or is mounted"
    planted.parent.chmod(0o1777)
    assert find_home(below) == below
    with pytest.raises(ConfigurationError, match=r"Another user has put a lakegate project into .*/tmp, a"):
        find_home(planted.parent)
    write(below, "")
    assert find_home(below) == below


def test_paths_in_the_file_start_at_the_projects_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / FILE_NAME).write_text(
        '[engine]\nca_file = "ca.pem"\n[journal]\nca_file = "/etc/ca.pem"\n'
        '[serve]\ntls_certificate = "tls/cert.pem"\ntls_key = "tls/key.pem"\n',
        encoding="utf-8",
    )
    (tmp_path / "below").mkdir()
    monkeypatch.chdir(tmp_path / "below")
    settings = load_settings(tmp_path, env={}, flags={"serve.tls_key": "key.pem"})
    assert settings.engine.ca_file == tmp_path / "ca.pem"
    assert settings.journal.ca_file == Path("/etc/ca.pem")
    assert (settings.serve.tls_certificate, settings.serve.tls_key) == (tmp_path / "tls/cert.pem", Path("key.pem"))


def test_home_is_the_nearest_folder_above(tmp_path: Path) -> None:
    deep = tmp_path / "a" / "b"
    deep.mkdir(parents=True)
    assert find_home(deep) == deep
    (tmp_path / ".lakegate").mkdir()
    assert find_home(deep) == tmp_path
    write(tmp_path / "a", "")
    assert find_home(deep) == tmp_path / "a"


def test_the_section_openlineage_is_a_downstream_system(tmp_path: Path) -> None:
    (tmp_path / FILE_NAME).write_text('[openlineage]\nurl = "https://marquez.example.com"\napi_key = "env:KEY"\n')
    found = load_settings(tmp_path, env={"LAKEGATE_OPENLINEAGE_TABLES": '["nyc.*"]'})
    system = found.downstream["openlineage"]
    assert system == found.openlineage
    assert (system.type, system.tables) == ("openlineage", ("nyc.*",))
    assert Settings.model_validate(found.model_dump()) == found
    assert load_settings(tmp_path / "empty", env={}).downstream == {}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("catalog = 1", "'catalog': must be a section"),
        ("[ui]\nmasked = 'email'", "mustn't be text in lakegate.toml"),
        ("[tables.'nyc.trips']\nchecks = 'not_null(id)'", "must be a list, such as"),
        ("[gc]\nkeep = '1y'", "'gc.keep': Invalid duration '1y'. Use a number and a unit"),
        ("[watch]\nsettle_s = inf", "'watch.settle_s': must be a finite number"),
        ("[catalog]\ntimeout_s = true", "'catalog.timeout_s': must be a number"),
        ("[catalog]\nuri = 5", "'catalog.uri': must be text"),
        ("[catalog]\nurl = 'x'", "unknown key 'catalog.url' (did you mean 'uri'?)."),
        ("[downstream.x]\ntype = 'command'", "'downstream.x.argv': is missing"),
        ("[watch]\nmax_files = true", "'watch.max_files': must be a number"),
        (
            "[tables.'nyc.trips'.csv]\ndelimiter = ';;'",
            "'tables.nyc.trips.csv': 'delimiter' must be one ASCII character",
        ),
        ("[tables.'nyc.trips'.csv]\nquote = 'é'", "'tables.nyc.trips.csv': 'quote' must be one ASCII character"),
    ],
)
def test_a_value_of_the_wrong_kind_is_named_in_the_files_terms(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / FILE_NAME).write_text(text)
    with pytest.raises(ConfigurationError) as caught:
        load_settings(tmp_path, env={})
    assert said in caught.value.message


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[openlineage]\nendpoint = 'x'", "'openlineage': OpenLineage events need either 'url' or 'file'"),
        ("[openlineage]\nurl = 'http://a.example'\napi_key = 'env:K'", "must start with https://"),
        ("[openlineage]\nurl = 'https://a.example'\napi_key = 'secret'", "openlineage.api_key"),
        ("[openlineage]\nfil = 'x'", "did you mean 'file'?"),
        ("openlineage = 'x'", "'openlineage': must be a section"),
        (
            "[openlineage]\nfile = 'a'\n[downstream.openlineage]\ntype = 'openlineage'\nfile = 'b'",
            "[openlineage] and [downstream.openlineage] are the same system",
        ),
    ],
)
def test_an_invalid_section_openlineage_is_reported(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / FILE_NAME).write_text(text)
    with pytest.raises(ConfigurationError) as refused:
        load_settings(tmp_path, env={})
    assert said in refused.value.message
