"""When and how SQS is asked to redeliver messages."""

from __future__ import annotations

import logging
from typing import Any

import boto3
import pytest
from botocore.stub import Stubber

from lakegate.config import FunctionSettings
from lakegate.integrations.aws_lambda.events import AnnouncedObject, EventMessage
from lakegate.integrations.aws_lambda.work import FileOutcome, delay_s, deliver_again

QUEUE = "arn:aws:sqs:eu-central-1:123456789012:lakegate-demo-Queue"
URL = "https://sqs.eu-central-1.amazonaws.com/123456789012/lakegate-demo-Queue"
SETTINGS = FunctionSettings()


@pytest.fixture
def sqs(monkeypatch: pytest.MonkeyPatch) -> Stubber:
    """SQS with requests that boto3 validates."""
    client = boto3.Session("AKIDEXAMPLE", "no-secret", region_name="eu-central-1").client("sqs")
    stub = Stubber(client)
    stub.activate()

    def connect(service: str, *, region_name: str, **_: Any) -> Any:
        assert (service, region_name) == ("sqs", "eu-central-1")
        return client

    monkeypatch.setattr(boto3, "client", connect)
    return stub


def change(*numbers: int) -> dict[str, Any]:
    entries = [
        {"Id": str(place), "ReceiptHandle": f"r{number}", "VisibilityTimeout": 60 + number}
        for place, number in enumerate(numbers)
    ]
    return {"QueueUrl": URL, "Entries": entries}


def test_messages_are_postponed_ten_at_a_time_each_with_its_own_delay(sqs: Stubber) -> None:
    account = {"QueueName": "lakegate-demo-Queue", "QueueOwnerAWSAccountId": "123456789012"}
    sqs.add_response("get_queue_url", {"QueueUrl": URL}, account)
    for numbers in (range(10), range(10, 12)):
        sqs.add_response("change_message_visibility_batch", {"Successful": [], "Failed": []}, change(*numbers))

    deliver_again((EventMessage((), id=f"m{one}", queue=QUEUE, receipt=f"r{one}"), 60 + one) for one in range(12))

    sqs.assert_no_pending_responses()


@pytest.mark.parametrize("queue", [QUEUE, "nonsense"])
def test_an_unreachable_queue_is_not_an_error(sqs: Stubber, queue: str, caplog: pytest.LogCaptureFixture) -> None:
    sqs.add_client_error("get_queue_url", "AccessDenied")

    with caplog.at_level(logging.WARNING, "lakegate"):
        deliver_again([(EventMessage((), queue=queue, receipt="r"), 60)])

    assert "Couldn't ask queue" in caplog.text


def test_a_message_that_the_queue_refuses_is_logged(sqs: Stubber, caplog: pytest.LogCaptureFixture) -> None:
    sqs.add_response("get_queue_url", {"QueueUrl": URL})
    failed = {"Id": "0", "SenderFault": True, "Code": "InvalidParameterValue"}
    sqs.add_response("change_message_visibility_batch", {"Successful": [], "Failed": [failed]})

    with caplog.at_level(logging.WARNING, "lakegate"):
        deliver_again([(EventMessage((), queue=QUEUE, receipt="r"), 43_200)])

    assert "deliver a message again: InvalidParameterValue" in caplog.text


def delays(*fates: FileOutcome, times: int = 1) -> set[int]:
    """Return the delays that a message of files with these fates is given, drawn again and again."""
    files = tuple(AnnouncedObject("b", str(number)) for number in range(len(fates)))
    known = {file.uri: fate for file, fate in zip(files, fates, strict=True)}
    return {delay_s(EventMessage(files, times=times), known, SETTINGS) for _ in range(300)}


DONE = FileOutcome("published")
FAILED = FileOutcome("failed")
GIVEN_UP = FileOutcome("failed", is_given_up=True)
LATE = FileOutcome("not done")
AWAY = FileOutcome("put off")


@pytest.mark.parametrize(
    ("fates", "times", "longest"),
    [
        ([FAILED, DONE], 9, 60),
        ([GIVEN_UP], 50, 20),
        ([GIVEN_UP, FAILED], 1, 60),
        ([LATE], 1, 30),
        ([LATE], 30, 300),
        ([LATE], 40, 778),
        ([LATE], 99, 14_400),
        ([AWAY, LATE], 1, 30),
        ([AWAY, FAILED], 5, 152),
        ([AWAY], 30, 3600),
        ([AWAY], 40, 9_337),
        ([AWAY], 999, 14_400),
    ],
)
def test_delays_and_how_they_are_spread(fates: list[FileOutcome], times: int, longest: int) -> None:
    found = delays(*fates, times=times)

    assert max(found) <= longest
    assert min(found) >= longest // 2
    assert len(found) >= 5, "messages that were put off together do not come back all at once"


def test_an_outage_of_three_days_takes_fewer_deliveries_than_there_are() -> None:
    waited = deliveries = 0
    while waited < 3 * 24 * 3600:
        deliveries += 1
        waited += min(delays(AWAY, times=deliveries))

    assert deliveries < 160
