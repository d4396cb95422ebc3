"""A contract's columns are compared with the files and the table before anything is written."""

from __future__ import annotations

from dataclasses import replace

import pytest

from lakegate.errors import AuditFailedError, SchemaError
from lakegate.model.refs import CommitRequest
from lakegate.model.request import ContractTerms
from lakegate.model.schema import Column, Schema
from lakegate.model.tables import WriteTarget
from lakegate.wap.audit import ConfiguredChecks
from lakegate.wap.ingest import ingest
from lakegate.wap.plan import CONTRACT_COLUMNS, contract_check, plan
from lakegate.wap.review import audit_branch, publish_branch
from support.fakes import FakeLakehouse
from support.flow_support import MORE, TRIPS, ordered, planned


def terms(*columns: tuple[str, str], extra: bool = True) -> ContractTerms:
    listed = tuple(Column(name=name, type=kind) for name, kind in columns)
    return ContractTerms(file="contracts/nyc.trips.yaml", columns=listed, extra_columns=extra)


def held(*contracts: ContractTerms) -> ConfiguredChecks:
    """Return what gives the checks that contracts' columns are."""
    return lambda _: [check for one in contracts if (check := contract_check(one)) is not None]


def types(house: FakeLakehouse) -> dict[str, str]:
    return {column.name: column.type for column in planned(house).table_schema.columns}


def test_a_new_table_gets_the_types_of_its_contract(house: FakeLakehouse) -> None:
    order = ordered(house, contract=terms(("passengers", "string"), ("ID", types(house)["id"])))
    made = plan(house.context, order.model_copy(update={"batch": order.batch.model_copy(update={"format": "csv"})}))
    assert made.table_schema.find("passengers") == Column(name="passengers", type="string")
    assert made.request.create_as == made.table_schema


@pytest.mark.parametrize("exists", [False, True])
def test_differences_are_listed_before_anything_is_written(house: FakeLakehouse, exists: bool) -> None:
    if exists:
        ingest(house.context, ordered(house, MORE, run="r0"))
    with pytest.raises(SchemaError) as caught:
        planned(house, contract=terms(("id", "date"), ("pasengers", ""), extra=False))
    message = caught.value.message
    assert "doesn't fit contracts/nyc.trips.yaml, the contract of nyc.trips:" in message
    assert ": \n" not in message
    assert f"column 'id' is {types(house)['id']} in the {'table' if exists else 'batch'} and date in" in message
    assert "column 'pasengers' of the contract is missing (there is 'passengers')" in message
    assert "column 'passengers' isn't in the contract" in message


def test_what_was_written_without_the_contract_is_audited_by_its_columns(house: FakeLakehouse) -> None:
    ingest(house.context, ordered(house, MORE, run="r0"))
    branch = house.catalog.create_branch("by-hand", house.catalog.get_ref("main")).name
    house.append(
        house.batch("by hand", MORE),
        WriteTarget(table=TRIPS, ref=branch, table_schema=None, snapshot_properties={}),
    )
    checks = held(terms(("ID", types(house)["id"]), ("passengers", "")), terms(("id", "date"), extra=False), terms())
    report = audit_branch(house.context, TRIPS, branch, checks=None, configured=checks)
    assert [(one.name, one.verdict) for one in report.results] == [
        ("contract_columns", "pass"),
        ("contract_columns #2", "fail"),
    ]
    assert report.results[1].detail == f"id is of type {types(house)['id']}; passengers isn't expected."
    assert {report.rows, *(one.total_rows for one in report.results)} == {len(MORE)}  # although no check read one
    with pytest.raises(AuditFailedError):
        publish_branch(house.context, branch, configured=checks)


def test_an_ingest_s_columns_are_compared_with_a_contract_that_changed_since(house: FakeLakehouse) -> None:
    contract = terms(("id", types(house)["id"]))
    run = ingest(house.context, ordered(house, contract=contract), until="audit", suspends=True)
    newer = held(terms(("id", types(house)["id"]), ("note", "")))
    with pytest.raises(AuditFailedError, match=CONTRACT_COLUMNS):
        publish_branch(house.context, run.branch, configured=newer)
    report = audit_branch(house.context, TRIPS, run.branch, checks=None, configured=newer)
    assert [one.detail for one in report.failures] == ["note is missing."]


def test_columns_that_somebody_changed_on_an_ingest_s_branch_are_compared(house: FakeLakehouse) -> None:
    contract = terms(*types(house).items(), extra=False)
    run = ingest(house.context, ordered(house, contract=contract), until="audit", suspends=True)
    branch = house.catalog.get_ref(run.branch)
    pointer = house.pointer(branch.hash)
    version = house.versions[pointer.metadata_location]
    wider = Schema(columns=(*version.schema.columns, Column(name="note", type="string")))
    house.versions["mem://metadata/altered"] = replace(version, schema=wider)
    altered = pointer.model_copy(update={"metadata_location": "mem://metadata/altered"})
    house.catalog.commit(CommitRequest(branch=branch.name, base=branch.hash, message="ALTER TABLE", puts=(altered,)))
    for _ in range(2):
        with pytest.raises(AuditFailedError, match=CONTRACT_COLUMNS):
            publish_branch(house.context, run.branch, configured=held(contract))
        assert not audit_branch(house.context, TRIPS, run.branch, checks=None, configured=held(contract)).passed
    assert house.catalog.get_table(TRIPS, house.catalog.get_ref("main")) is None
