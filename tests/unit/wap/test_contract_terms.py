"""What a contract says about columns, held against the files and the table before anything is written."""

from __future__ import annotations

import pytest

from lakegate.errors import SchemaError
from lakegate.model.request import ContractTerms
from lakegate.model.schema import Column
from lakegate.wap.ingest import ingest
from lakegate.wap.plan import plan
from support.fakes import FakeLakehouse
from support.flow_support import MORE, ordered, planned


def terms(*columns: tuple[str, str], extra: bool = True) -> ContractTerms:
    listed = tuple(Column(name=name, type=kind) for name, kind in columns)
    return ContractTerms(file="contracts/nyc.trips.yaml", columns=listed, extra_columns=extra)


def types(house: FakeLakehouse) -> dict[str, str]:
    return {column.name: column.type for column in planned(house).table_schema.columns}


def test_a_new_table_gets_the_types_of_its_contract(house: FakeLakehouse) -> None:
    order = ordered(house, contract=terms(("passengers", "string"), ("ID", types(house)["id"])))
    made = plan(house.context, order.model_copy(update={"batch": order.batch.model_copy(update={"format": "csv"})}))
    assert made.table_schema.find("passengers") == Column(name="passengers", type="string")
    assert made.request.create_as == made.table_schema


def test_a_new_table_that_fits_as_it_is_is_created_as_it_is(house: FakeLakehouse) -> None:
    assert planned(house, contract=terms(("id", types(house)["id"]), ("passengers", ""))).request.create_as is None


@pytest.mark.parametrize("exists", [False, True])
def test_what_does_not_fit_is_listed_before_anything_is_written(house: FakeLakehouse, exists: bool) -> None:
    if exists:
        ingest(house.context, ordered(house, MORE, run="r0"))
    with pytest.raises(SchemaError) as caught:
        planned(house, contract=terms(("id", "date"), ("pasengers", ""), extra=False))
    message = caught.value.message
    assert "doesn't fit contracts/nyc.trips.yaml, the contract of nyc.trips" in message
    assert f"column 'id' is {types(house)['id']} in the {'table' if exists else 'batch'} and date in" in message
    assert "column 'pasengers' of the contract is missing (there is 'passengers')" in message
    assert "column 'passengers' isn't in the contract" in message
