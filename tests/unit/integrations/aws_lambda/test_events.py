"""Events as AWS documents them, and malformed ones."""

from __future__ import annotations

import copy
import json
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakegate.integrations.aws_lambda.events import MalformedEventError, MessageBatch, read_event
from support.lambda_support import Queue, bridge_event, s3_event, sns_envelope, sns_event

DOCUMENTED = {
    "Records": [
        {
            "eventVersion": "2.1",
            "eventSource": "aws:s3",
            "awsRegion": "us-west-2",
            "eventTime": "1970-01-01T00:00:00.000Z",
            "eventName": "ObjectCreated:Put",
            "userIdentity": {"principalId": "AIDAJDPLRKLG7UEXAMPLE"},
            "requestParameters": {"sourceIPAddress": "127.0.0.1"},
            "responseElements": {"x-amz-request-id": "C3D13FE58DE4C810", "x-amz-id-2": "FMyUVURIY8/IgAtTv8xRjskZQpc"},
            "s3": {
                "s3SchemaVersion": "1.0",
                "configurationId": "testConfigRule",
                "bucket": {
                    "name": "amzn-s3-demo-bucket",
                    "ownerIdentity": {"principalId": "A3NL1KOZZKExample"},
                    "arn": "arn:aws:s3:::amzn-s3-demo-bucket",
                },
                "object": {
                    "key": "Happy+Face%2B%C3%A9.jpg",
                    "size": 1024,
                    "eTag": "d41d8cd98f00b204e9800998ecf8427e",
                    "versionId": "096fKKXTRTtl3on89fVO.nfljtsv6qko",
                    "sequencer": "0055AED6DCD90281E5",
                },
            },
        }
    ]
}
"""S3's user guide, "Event message structure"; the key is one that is encoded."""
TEST_EVENT = {
    "Service": "Amazon S3",
    "Event": "s3:TestEvent",
    "Time": "2014-10-13T15:57:02.089Z",
    "Bucket": "amzn-s3-demo-bucket",
    "RequestId": "5582815E1AEA5ADF",
    "HostId": "8cLeGAmw098X5cv4Zkwcmo8vvZa3eH3eKxsPzbB9wrR",
}
NOT_OURS: list[Any] = [
    None,
    [],
    7,
    "s3",
    {},
    {"Records": [None]},
    {"Records": [{}]},
    {"Records": [{"eventSource": "aws:s3"}]},
    {"Records": [{"eventSource": "aws:kinesis", "kinesis": {}}]},
    {"Records": [{"EventSource": "aws:sns", "Sns": {"Message": 7}}]},
    {"Records": [{"EventSource": "aws:sns", "Sns": {"Message": "[" * 100_000}}]},
    {"Records": [{"eventSource": "aws:sqs", "body": "{}"}]},
    {"source": "aws.ec2", "detail-type": "Object Created"},
    {"source": "aws.s3", "detail-type": "Object Created", "detail": {}},
    {"Type": "Notification", "Message": json.dumps(sns_envelope(sns_envelope(sns_envelope(sns_envelope({})))))},
    s3_event("landing", ""),
    s3_event("landing", "a\0b.parquet"),
    s3_event("*", "a.parquet"),
    bridge_event("landing", "\ud800.parquet"),
]

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=20,
)


def uris(delivery: MessageBatch) -> list[str]:
    return [file.uri for message in delivery.messages for file in message.files]


def queued(*payloads: object) -> dict[str, Any]:
    queue = Queue()
    queue.send(*payloads)
    return queue.receive()


def test_the_documented_notification() -> None:
    (message,) = read_event(DOCUMENTED).messages
    (file,) = message.files
    assert file.uri == "s3://amzn-s3-demo-bucket/Happy Face+é.jpg"
    assert file.etag == "d41d8cd98f00b204e9800998ecf8427e"
    assert file.version_id == "096fKKXTRTtl3on89fVO.nfljtsv6qko"
    assert file.sequencer == "0055AED6DCD90281E5"
    assert file.at == datetime(1970, 1, 1, tzinfo=UTC)


def test_a_key_of_eventbridge_is_not_encoded() -> None:
    (message,) = read_event(bridge_event("landing", "a+b%20c.parquet")).messages
    assert message.files[0].uri == "s3://landing/a+b%20c.parquet"
    assert message.files[0].version_id == "IYV3p45BT0ac8hjHg1houSd"


@pytest.mark.parametrize(
    "wrap",
    [
        sns_event,
        queued,
        lambda event: queued(sns_envelope(event)),
        lambda event: queued(sns_envelope(sns_envelope(event))),
    ],
)
@pytest.mark.parametrize("event", [s3_event("landing", "a b.parquet"), bridge_event("landing", "a b.parquet")])
def test_whatever_it_is_wrapped_in(wrap: Any, event: dict[str, Any]) -> None:
    delivery = read_event(wrap(event))
    assert uris(delivery) == ["s3://landing/a b.parquet"]
    assert delivery.by_queue == ("aws:sqs" in json.dumps(wrap(event)))


@pytest.mark.parametrize(
    "event",
    [
        TEST_EVENT,
        s3_event("landing", "a.parquet", name="ObjectRemoved:Delete"),
        s3_event("landing", "a.parquet", name="LifecycleExpiration:DeleteMarkerCreated"),
        bridge_event("landing", "a.parquet", kind="Object Deleted"),
        {"Records": []},
    ],
)
def test_unrelated_events_are_ignored(event: dict[str, Any]) -> None:
    assert uris(read_event(event)) == []
    delivery = read_event(queued(event))
    assert uris(delivery) == []
    assert [message.error for message in delivery.messages] == [None]


@pytest.mark.parametrize("event", NOT_OURS)
def test_unreadable_events(event: Any) -> None:
    with pytest.raises(MalformedEventError):
        read_event(event)


@pytest.mark.parametrize("payload", ["", "{", "[" * 100_000, "9" * 5_000, *NOT_OURS[:9]])
def test_a_malformed_message_fails_alone(payload: object) -> None:
    good = s3_event("landing", "a.parquet")
    delivery = read_event(queued(good, payload, good))
    assert [message.error is None for message in delivery.messages] == [True, False, True]
    assert len({message.id for message in delivery.messages}) == 3
    assert len(uris(delivery)) == 2


def test_how_often_and_since_when_a_message_comes() -> None:
    queue = Queue()
    queue.send(s3_event("landing", "a.parquet"))
    queue.sent_ms = dict.fromkeys(queue.sent_ms, 1_738_306_800_000)
    queue.receive()
    (message,) = read_event(queue.receive()).messages
    assert message.times == 2
    assert message.sent_at == datetime(2025, 1, 31, 7, tzinfo=UTC)


@given(st.data())
def test_a_notification_with_one_thing_changed(data: st.DataObject) -> None:
    event = copy.deepcopy(data.draw(st.sampled_from([DOCUMENTED, bridge_event("landing", "a"), sns_event(DOCUMENTED)])))
    place: Any = event
    while True:
        key = data.draw(st.sampled_from(sorted(place) if isinstance(place, dict) else range(len(place))))
        if not isinstance(place[key], (dict, list)) or not place[key] or data.draw(st.booleans()):
            break
        place = place[key]
    place[key] = data.draw(json_values)
    with suppress(MalformedEventError):
        assert all(uri.startswith("s3://") for uri in uris(read_event(event)))
    (message,) = read_event(queued(event)).messages
    assert message.error is None or not message.files


@given(st.text(min_size=1).filter(lambda key: "\0" not in key and key.isprintable()))
def test_any_key_arrives_as_it_is(key: str) -> None:
    expected = [] if key.endswith("/") else [f"s3://landing/{key}"]  # a folder of the console is no file
    assert uris(read_event(s3_event("landing", key))) == expected
    assert uris(read_event(queued(bridge_event("landing", key)))) == expected
