"""OpenLineage events, validated by the official schemas."""

from __future__ import annotations

import json
from typing import Any
from uuid import UUID

import pytest
from jsonschema import Draft202012Validator, FormatChecker

from lakegate.model.batch import SourceFile
from lakegate.model.run import Run, UndoneTable
from lakegate.telemetry.openlineage import EventContext, as_json, events
from support.cli_support import (
    BATCH,
    FAILED,
    FAILED_RUN,
    HASH,
    METADATA,
    PASSED,
    PUBLICATION,
    REJECTED,
    REQUEST,
    SKIPPED,
    FakeLake,
    invoke,
    make_run,
    staged,
)

_TEXT = {"type": "string"}
_FLAG = {"type": "boolean"}
_COUNT = {"type": "integer", "minimum": 0}


def _facet(file: str, version: str, required: dict[str, Any], optional: dict[str, Any] | None = None) -> dict[str, Any]:
    """A facet of the spec: each names its producer and its schema."""
    url = f"https://openlineage.io/spec/facets/{version}/{file}.json#/$defs/{file}"
    base = {"_producer": {"type": "string", "format": "uri"}, "_schemaURL": {"const": url}}
    return {
        "type": "object",
        "properties": base | required | (optional or {}),
        "required": [*base, *required],
        "additionalProperties": False,
    }


def _object(required: dict[str, Any], optional: dict[str, Any] | None = None) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": required | (optional or {}),
        "required": list(required),
        "additionalProperties": False,
    }


def _facets(**known: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": known, "additionalProperties": False, "minProperties": 1}


_TEST = {
    **dict.fromkeys(("expected", "actual", "content", "contentType", "description"), _TEXT),
    "severity": {"enum": ["error", "warn"]},
    "params": {"type": "object"},
}
_ASSERTIONS = _facet(
    "DataQualityAssertionsDatasetFacet",
    "1-1-0",
    {
        "assertions": {
            "type": "array",
            "items": _object({"assertion": _TEXT, "success": _FLAG}, {"column": _TEXT, "name": _TEXT, **_TEST}),
        }
    },
)
_TESTS = _facet(
    "TestRunFacet",
    "1-0-1",
    {
        "tests": {
            "type": "array",
            "items": _object({"name": _TEXT, "status": {"enum": ["pass", "fail", "skip"]}}, {"type": _TEXT, **_TEST}),
        }
    },
)
_IDENTIFIER = _object({"namespace": _TEXT, "name": _TEXT, "type": _TEXT})
_CHANGE = {"enum": ["ALTER", "CREATE", "DROP", "OVERWRITE", "RENAME", "TRUNCATE"]}
_DATASET = {
    "facets": _facets(
        version=_facet("DatasetVersionDatasetFacet", "1-0-1", {"datasetVersion": _TEXT}),
        schema=_facet(
            "SchemaDatasetFacet",
            "1-2-0",
            {"fields": {"type": "array", "items": _object({"name": _TEXT, "type": _TEXT, "ordinal_position": _COUNT})}},
        ),
        symlinks=_facet("SymlinksDatasetFacet", "1-0-1", {"identifiers": {"type": "array", "items": _IDENTIFIER}}),
        lifecycleStateChange=_facet("LifecycleStateChangeDatasetFacet", "1-0-1", {"lifecycleStateChange": _CHANGE}),
    )
}
_INPUT = {
    "inputFacets": _facets(
        dataQualityAssertions=_ASSERTIONS,
        inputStatistics=_facet("InputStatisticsInputDatasetFacet", "1-0-0", {"rowCount": _COUNT}),
    )
}
_OUTPUT = {
    "outputFacets": _facets(
        outputStatistics=_facet(
            "OutputStatisticsOutputDatasetFacet", "1-0-2", {"rowCount": _COUNT}, {"size": _COUNT, "fileCount": _COUNT}
        )
    )
}
_PLACE = {"namespace": _TEXT, "name": {"type": "string", "minLength": 1}}
_RUN = _object(
    {"runId": {"type": "string", "format": "uuid"}},
    {
        "facets": _facets(
            processing_engine=_facet(
                "ProcessingEngineRunFacet",
                "1-1-1",
                {"version": _TEXT},
                {"name": _TEXT, "openlineageAdapterVersion": _TEXT},
            ),
            test=_TESTS,
            errorMessage=_facet("ErrorMessageRunFacet", "1-0-1", {"message": _TEXT, "programmingLanguage": _TEXT}),
        )
    },
)
_JOB_TYPE = _facet("JobTypeJobFacet", "2-0-4", {"processingType": _TEXT, "integration": _TEXT}, {"jobType": _TEXT})
RUN_EVENT = _object(
    {
        "eventTime": {"type": "string", "format": "date-time"},
        "producer": {"type": "string", "format": "uri"},
        "schemaURL": {"const": "https://openlineage.io/spec/2-0-2/OpenLineage.json#/$defs/RunEvent"},
        "run": _RUN,
        "job": _object(_PLACE, {"facets": _facets(jobType=_JOB_TYPE)}),
    },
    {
        "eventType": {"enum": ["START", "RUNNING", "COMPLETE", "ABORT", "FAIL", "OTHER"]},
        "inputs": {"type": "array", "items": _object(_PLACE, _DATASET | _INPUT)},
        "outputs": {"type": "array", "items": _object(_PLACE, _DATASET | _OUTPUT)},
    },
)
_VALID = Draft202012Validator(RUN_EVENT, format_checker=FormatChecker())
CONTEXT = EventContext(catalog="https://nessie.example.com/api/v2", schemas={"nyc.trips": METADATA.table_schema})
POINTER = staged("nyc.trips").pointer.model_copy(update={"metadata_location": "s3://lake/nyc/trips_1/metadata/0.json"})
STAGED = staged("nyc.trips", before=None, pointer=POINTER)


def told(run: Run, context: EventContext = CONTEXT) -> list[dict[str, Any]]:
    """The events of a run, validated."""
    found = [json.loads(as_json(event)) for event in events(run, context)]
    for event in found:
        _VALID.validate(event)
    return found


def test_a_published_run_says_what_it_read_wrote_and_proved() -> None:
    run = make_run("published", publication=PUBLICATION, staged=(STAGED,), reports=(PASSED,))
    begun, ended = told(run)
    assert (begun["eventType"], ended["eventType"]) == ("START", "COMPLETE")
    assert begun["run"]["runId"] == ended["run"]["runId"] == told(run)[0]["run"]["runId"]
    assert UUID(begun["run"]["runId"]).version == 5
    assert ended["job"]["name"] == "ingest.nyc.trips"
    assert ended["eventTime"] == "2026-01-31T07:05:12.250Z"
    file, table = ended["inputs"]
    assert (file["namespace"], file["name"]) == ("file", "/data/trips.parquet")
    assert (table["namespace"], table["name"]) == ("s3://lake", "nyc/trips_1")
    assertions = table["inputFacets"]["dataQualityAssertions"]["assertions"]
    assert [(one["assertion"], one["success"], one["column"]) for one in assertions] == [
        ("not_null", True, "passenger_count"),
        ("in_range", True, "trip_distance"),
    ]
    [output] = ended["outputs"]
    assert output["name"] == "nyc/trips_1"
    assert output["facets"]["version"]["datasetVersion"] == HASH
    assert output["facets"]["schema"]["fields"] == [{"name": "passenger_count", "type": "long", "ordinal_position": 1}]
    assert output["facets"]["symlinks"]["identifiers"][0]["name"] == "nyc.trips"
    assert output["facets"]["lifecycleStateChange"]["lifecycleStateChange"] == "CREATE"
    assert output["outputFacets"]["outputStatistics"]["rowCount"] == 100_000


def test_a_rejected_run_fails_with_its_tests_and_without_output() -> None:
    ended = told(REJECTED)[1]
    assert (ended["eventType"], ended["outputs"]) == ("FAIL", [])
    blocking, warning = ended["run"]["facets"]["test"]["tests"]
    assert (blocking["status"], blocking["severity"], blocking["actual"]) == ("fail", "error", "1003")
    assert (warning["status"], warning["severity"]) == ("fail", "warn")
    assert "not_null_passenger_count" in ended["run"]["facets"]["errorMessage"]["message"]


def test_no_event_holds_a_row_of_data_or_a_secret() -> None:
    assert FAILED.results[0].examples
    text = "".join(map(json.dumps, told(make_run("rejected", reports=(FAILED,)))))
    assert "trip_id" not in text
    secret = EventContext(catalog="https://me:hunter22@nessie.example.com/api/v2")
    batch = BATCH.model_copy(update={"files": (BATCH.files[0].model_copy(update={"uri": "s3://k:hunter22@b/x"}),)})
    run = make_run("published", publication=PUBLICATION, request=REQUEST.model_copy(update={"batch": batch}))
    assert "hunter22" not in json.dumps(told(run, secret))


@pytest.mark.parametrize(
    ("run", "types"),
    [
        (FAILED_RUN, ["START", "FAIL"]),
        (SKIPPED, ["START", "COMPLETE"]),
        (make_run("discarded"), ["START", "ABORT"]),
        (make_run("running", finished_at=None), ["START"]),
        (make_run("reverted", publication=PUBLICATION), ["START", "COMPLETE"]),
    ],
)
def test_each_ending_has_its_event(run: Run, types: list[str]) -> None:
    assert [event["eventType"] for event in told(run)] == types


def test_a_revert_that_drops_a_table_says_so() -> None:
    undone = (UndoneTable(table="nyc.trips", rows=-5, data_files=-1, dropped=True),)
    run = make_run("published", kind="revert", publication=PUBLICATION, undone=undone, request=None)
    [output] = told(run, EventContext(locations={"nyc.trips": "file:///lake/trips"}))[1]["outputs"]
    assert (output["namespace"], output["name"]) == ("file", "/lake/trips")
    assert output["facets"]["lifecycleStateChange"]["lifecycleStateChange"] == "DROP"


def test_thousands_of_files_are_named_by_their_folders() -> None:
    files = tuple(
        SourceFile(uri=f"s3://in/{n % 3}/{n}.parquet", size_bytes=1, version="1", rows=1) for n in range(5000)
    )
    request = REQUEST.model_copy(update={"batch": BATCH.model_copy(update={"files": files})})
    assert [one["name"] for one in told(make_run("skipped", request=request))[0]["inputs"]] == ["0", "1", "2"]


@pytest.mark.usefixtures("in_a_project")
def test_the_command_writes_one_event_a_line() -> None:
    settings = type("Settings", (), {"catalog": type("Catalog", (), {"uri": None, "warehouse": None})})
    lake: Any = FakeLake(run=REJECTED, written_schemas={})
    lake.settings = settings
    lines = invoke("runs 2026 -o openlineage", lake).stdout.splitlines()
    assert [json.loads(line)["eventType"] for line in lines] == ["START", "FAIL"]
