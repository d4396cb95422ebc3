"""Where contracts are found, and what contradicts them."""

from __future__ import annotations

from pathlib import Path

import pytest

from lakegate.config import Settings
from lakegate.contracts.store import Contracts
from lakegate.errors import ConfigurationError
from lakegate.model.identifiers import TableIdentifier

TRIPS = TableIdentifier.parse("nyc.trips")
TEXT = "version: 1\ntable: nyc.trips\nfreshness: 1d\npartition_by: [vendor]\nchecks: [not_null(id)]\n"


def put(home: Path, name: str = "nyc.trips.yaml", text: str = TEXT) -> Path:
    path = home / "contracts" / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def test_without_a_contract_the_settings_hold(tmp_path: Path) -> None:
    settings = Settings.model_validate({"tables": {"nyc.trips": {"partition_by": ["day"]}}})
    found = Contracts(tmp_path, settings)
    assert found.find(TRIPS) is None
    assert found.settings_of(TRIPS).partition_by == ("day",)


def test_a_contract_is_found_by_the_name_of_its_table(tmp_path: Path) -> None:
    put(tmp_path)
    put(tmp_path, ".nyc.trips.yaml.swp", "")
    put(tmp_path, "readme.md", "")
    found = Contracts(tmp_path, Settings())
    loaded = found.find(TRIPS)
    assert loaded is not None
    assert [str(check) for check in loaded.checks] == ["not_null(id)"]
    assert found.settings_of(TRIPS).partition_by == ("vendor",)
    assert found.late() == {"nyc.trips": "1d"}


def test_a_contract_is_found_by_its_ending_in_any_case(tmp_path: Path) -> None:
    put(tmp_path, "nyc.trips.YAML")
    found = Contracts(tmp_path, Settings())
    assert [str(check) for loaded in found.all().values() for check in loaded.checks] == ["not_null(id)"]
    assert found.named(tmp_path / "contracts" / "nyc.trips.YAML").table == TRIPS


def test_a_contract_is_read_again_when_its_file_has_changed(tmp_path: Path) -> None:
    path = put(tmp_path)
    found = Contracts(tmp_path, Settings())
    first = found.find(TRIPS)
    assert found.find(TRIPS) is first
    path.write_text(TEXT.replace("(id)", "(trip_id)"), encoding="utf-8")
    second = found.find(TRIPS)
    assert second is not None
    assert str(second.checks[0]) == "not_null(trip_id)"


def test_a_contract_and_a_section_for_one_table_are_an_error_that_names_both(tmp_path: Path) -> None:
    put(tmp_path)
    settings = Settings.model_validate({"tables": {"nyc.trips": {"checks": ["not_null(id)"]}}})
    with pytest.raises(ConfigurationError) as caught:
        Contracts(tmp_path, settings).settings_of(TRIPS)
    assert '[tables."nyc.trips"] in lakegate.toml' in caught.value.message
    assert "contracts/nyc.trips.yaml" in caught.value.message


def test_freshness_in_two_places_is_an_error_that_names_both(tmp_path: Path) -> None:
    put(tmp_path)
    settings = Settings.model_validate({"notify": {"late": {"nyc.trips": "2d"}}})
    with pytest.raises(ConfigurationError, match=r"notify\.late in lakegate\.toml and contracts/nyc\.trips\.yaml"):
        Contracts(tmp_path, settings).late()


@pytest.mark.parametrize(
    ("names", "said"),
    [
        (["trips.yaml"], "contracts/trips.yaml isn't named like a table"),
        (["nyc.trips.yaml", "nyc.trips.yml"], "nyc.trips has two contracts"),
        (["nyc.fares.yaml"], "contracts/nyc.fares.yaml is named like nyc.fares, and says 'table: nyc.trips'"),
    ],
)
def test_a_file_that_no_run_would_find_is_an_error(tmp_path: Path, names: list[str], said: str) -> None:
    for name in names:
        put(tmp_path, name)
    with pytest.raises(ConfigurationError) as caught:
        Contracts(tmp_path, Settings()).all()
    assert said in caught.value.message
