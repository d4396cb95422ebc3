"""Which messages SQS is asked to deliver again soon, and how."""

from __future__ import annotations

import logging
from typing import Any

import boto3
import pytest
from botocore.stub import Stubber

from lakegate.orchestrators.aws_lambda.again import come_again
from lakegate.orchestrators.aws_lambda.events import Message

QUEUE = "arn:aws:sqs:eu-central-1:123456789012:lakegate-demo-Queue"
URL = "https://sqs.eu-central-1.amazonaws.com/123456789012/lakegate-demo-Queue"


@pytest.fixture
def sqs(monkeypatch: pytest.MonkeyPatch) -> Stubber:
    """SQS, as its library checks what it is asked."""
    client = boto3.Session("AKIDEXAMPLE", "no-secret", region_name="eu-central-1").client("sqs")
    stub = Stubber(client)
    stub.activate()

    def connect(service: str, *, region_name: str, **_: Any) -> Any:
        assert (service, region_name) == ("sqs", "eu-central-1")
        return client

    monkeypatch.setattr(boto3, "client", connect)
    return stub


def messages(number: int) -> list[Message]:
    return [Message((), id=f"m{one}", queue=QUEUE, receipt=f"r{one}") for one in range(number)]


def change(*numbers: int) -> dict[str, Any]:
    entries = [
        {"Id": str(place), "ReceiptHandle": f"r{number}", "VisibilityTimeout": 60}
        for place, number in enumerate(numbers)
    ]
    return {"QueueUrl": URL, "Entries": entries}


def test_ten_at_a_time(sqs: Stubber) -> None:
    account = {"QueueName": "lakegate-demo-Queue", "QueueOwnerAWSAccountId": "123456789012"}
    sqs.add_response("get_queue_url", {"QueueUrl": URL}, account)
    for numbers in (range(10), range(10, 12)):
        sqs.add_response("change_message_visibility_batch", {"Successful": [], "Failed": []}, change(*numbers))

    come_again(messages(12), after_s=60)

    sqs.assert_no_pending_responses()


def test_by_no_queue_nobody_is_asked(sqs: Stubber) -> None:
    come_again([Message(())], after_s=60)  # asked, the stub would fail: it has no answer

    sqs.assert_no_pending_responses()


@pytest.mark.parametrize("queue", [QUEUE, "nonsense"])
def test_a_queue_that_cannot_be_asked_is_no_error(sqs: Stubber, queue: str, caplog: pytest.LogCaptureFixture) -> None:
    sqs.add_client_error("get_queue_url", "AccessDenied")

    with caplog.at_level(logging.WARNING, "lakegate"):
        come_again([Message((), queue=queue, receipt="r")], after_s=60)

    assert "was not asked to deliver again soon" in caplog.text
