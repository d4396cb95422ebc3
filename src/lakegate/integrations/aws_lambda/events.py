"""Events: S3's notifications, whichever way they come.

The forms are those that AWS documents: "Event message structure" of S3, "Amazon EventBridge event message structure" of
S3, "Amazon SNS message and JSON formats", and "Using Lambda with" SQS, SNS and S3. Only what is used of them is
declared, so other fields do no harm. (The models of Powertools for AWS Lambda declare all of it, are refused
by other stores' notifications for what these leave out, and would be one more package in the function.)
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal, TypeVar
from urllib.parse import unquote_plus

from pydantic import AliasChoices, BaseModel, ConfigDict, Field, ValidationError

from lakegate.errors import InputError

_DEEPEST = 4
"""The longest chain of wrappers: S3 → EventBridge → SNS → SQS."""
_CREATED = "ObjectCreated:"
_CREATED_BY_BRIDGE = "Object Created"
_SHOWN_PROBLEMS = 3
_Model = TypeVar("_Model", bound="_Part")


class MalformedEventError(InputError):
    """The function's event isn't a notification of S3, or not a complete one."""

    code = "malformed-event"


@dataclass(frozen=True, slots=True)
class Notified:
    """An object that an event announces.

    Attributes:
        etag: Its entity tag; ``None`` if the event has none.
        sequencer: Orders the events of one key: of two, the later one's is the greater text (when as long).
    """

    bucket: str
    key: str
    etag: str | None = None
    version_id: str | None = None
    sequencer: str | None = None
    at: datetime | None = None

    @property
    def uri(self) -> str:
        """``s3://bucket/key``, nothing encoded."""
        return f"s3://{self.bucket}/{self.key}"


@dataclass(frozen=True, slots=True)
class Message:
    """One message: it's done as a whole, or delivered again.

    Attributes:
        files: The objects that it announces; none if it's about something else.
        id: Its id in the queue; ``None`` if it didn't come from one.
        times: How often it was received from its queue.
        receipt: The queue's handle of this delivery.
    """

    files: tuple[Notified, ...]
    id: str | None = None
    sent_at: datetime | None = None
    times: int = 1
    error: InputError | None = None
    queue: str | None = None
    receipt: str | None = None


@dataclass(frozen=True, slots=True)
class Delivery:
    """The messages of one call.

    Attributes:
        by_queue: Whether they came from SQS, which redelivers each by itself.
    """

    messages: tuple[Message, ...]
    by_queue: bool


def read_event(event: object) -> Delivery:
    """Return the messages of an event. An unreadable message of a queue has an ``error``.

    Raises:
        MalformedEventError: The event can't be read, or a message of a queue has no id.

    Example:
        >>> s3 = {"bucket": {"name": "landing"}, "object": {"key": "nyc/a+b.csv"}}
        >>> record = {"eventSource": "aws:s3", "eventName": "ObjectCreated:Put", "s3": s3}
        >>> [file.uri for file in read_event({"Records": [record]}).messages[0].files]
        ['s3://landing/nyc/a b.csv']
    """
    records = event.get("Records") if isinstance(event, Mapping) else None
    if isinstance(records, Sequence) and records and _source(records[0]) == "aws:sqs":
        return Delivery(tuple(_of_queue(record) for record in records), by_queue=True)
    return Delivery((Message(tuple(_unwrapped(event))),), by_queue=False)


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")


class _Bucket(_Part):
    name: str = Field(pattern=r"^[A-Za-z0-9._-]{3,255}$")


class _Object(_Part):
    key: str
    etag: str | None = Field(default=None, validation_alias=AliasChoices("eTag", "etag"))
    version_id: str | None = Field(default=None, validation_alias=AliasChoices("versionId", "version-id"))
    sequencer: str | None = None


class _Place(_Part):
    bucket: _Bucket
    object: _Object


class _S3Record(_Part):
    name: str = Field(validation_alias="eventName")
    time: datetime | None = Field(default=None, validation_alias="eventTime")
    s3: _Place


class _SnsMessage(_Part):
    text: str = Field(validation_alias="Message")


class _SnsRecord(_Part):
    sns: _SnsMessage = Field(validation_alias="Sns")


class _BridgeEvent(_Part):
    source: Literal["aws.s3"]
    kind: str = Field(validation_alias="detail-type")
    time: datetime | None = None
    detail: _Place


class _SqsAttributes(_Part):
    times: int = Field(default=1, ge=1, validation_alias="ApproximateReceiveCount")
    sent_ms: int | None = Field(default=None, ge=0, le=4_102_444_800_000, validation_alias="SentTimestamp")


class _SqsRecord(_Part):
    id: str = Field(min_length=1, validation_alias="messageId")
    body: str
    attributes: _SqsAttributes = _SqsAttributes()
    queue: str | None = Field(default=None, validation_alias="eventSourceARN")
    receipt: str | None = Field(default=None, validation_alias="receiptHandle")


def _of_queue(record: object) -> Message:
    known = _validated(_SqsRecord, record)
    sent_ms = known.attributes.sent_ms
    sent_at = None if sent_ms is None else datetime.fromtimestamp(sent_ms / 1000, UTC)
    try:
        files, error = tuple(_unwrapped(_parsed(known.body))), None
    except MalformedEventError as malformed:
        files, error = (), malformed
    return Message(files, known.id, sent_at, known.attributes.times, error, known.queue, known.receipt)


def _unwrapped(payload: object, depth: int = 1) -> Iterator[Notified]:
    """Yield the objects that a payload announces, whatever it's wrapped in."""
    if not isinstance(payload, Mapping) or depth > _DEEPEST:
        raise MalformedEventError("The event isn't from S3, SQS, SNS or EventBridge.")
    if payload.get("Event") == "s3:TestEvent":
        return
    records = payload.get("Records")
    if isinstance(records, list):
        for record in records:
            yield from _of_record(record, depth)
    elif payload.get("Type") == "Notification":
        yield from _unwrapped(_parsed(_validated(_SnsMessage, payload).text), depth + 1)
    elif "detail-type" in payload:
        yield from _of_bridge(payload)
    else:
        raise MalformedEventError("The event isn't from S3, SQS, SNS or EventBridge.")


def _of_record(record: object, depth: int) -> Iterator[Notified]:
    source = _source(record)
    if source == "aws:sns":
        yield from _unwrapped(_parsed(_validated(_SnsRecord, record).sns.text), depth + 1)
        return
    # Other stores name themselves: "minio:s3", "ministack:s3".
    if not source.endswith(":s3"):
        raise MalformedEventError(f"A record of the event isn't from S3, but from '{source[:40]}'.")
    read = _validated(_S3Record, record)
    if read.name.removeprefix("s3:").startswith(_CREATED):
        yield from _notified(read.s3, unquote_plus(read.s3.object.key), read.time)


def _of_bridge(payload: object) -> Iterator[Notified]:
    read = _validated(_BridgeEvent, payload)
    if read.kind == _CREATED_BY_BRIDGE:
        yield from _notified(read.detail, read.detail.object.key, read.time)


def _notified(place: _Place, key: str, time: datetime | None) -> Iterator[Notified]:
    # Damaged keys; libraries below would report them less clearly.
    if not key or "\0" in key or any("\ud800" <= character <= "\udfff" for character in key):
        raise MalformedEventError("The event names an object with an invalid key.")
    if key.endswith("/"):  # a folder, created in a console: there is nothing in it
        return
    about = place.object
    at = time if time is None or time.tzinfo else time.replace(tzinfo=UTC)
    yield Notified(place.bucket.name, key, about.etag, about.version_id, about.sequencer, at)


def _source(record: object) -> str:
    if not isinstance(record, Mapping):
        return ""
    return str(record.get("eventSource", record.get("EventSource", "")))


def _parsed(text: str) -> object:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        raise MalformedEventError("The message isn't JSON.") from None


def _validated(model: type[_Model], value: object) -> _Model:
    try:
        return model.model_validate(value)
    except ValidationError as error:
        problems = (
            f"{'.'.join(map(str, problem['loc'])) or 'event'}: {problem['msg']}"
            for problem in error.errors()[:_SHOWN_PROBLEMS]
        )
        raise MalformedEventError(f"The event is incomplete: {'; '.join(problems)}.") from None
