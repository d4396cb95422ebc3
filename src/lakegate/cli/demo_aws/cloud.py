"""What the demo asks of AWS, once it is deployed: to take a file, and what became of it."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote_plus

from lakegate.aws.clients import Clients
from lakegate.aws.errors import translated
from lakegate.narration import redact

_LOOKED_AGAIN_AFTER_S = 5
_MOST_MESSAGES = 10
_FRAME = ("START RequestId", "END RequestId", "REPORT RequestId")


@dataclass(frozen=True, slots=True)
class Deployed:
    """What is deployed, by the names that AWS gave it.

    Attributes:
        bucket: The bucket for uploads.
        dead_letters: URL of the queue for what the function gave up.
        log_group: Where the function's log is.
    """

    bucket: str
    dead_letters: str
    log_group: str


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A message that the function gave up, as it is in the queue.

    Attributes:
        key: The object it tells of.
        event: What happened to the object.
        received: How often the function was given it.
        queue: URL of the queue that it is in now.
    """

    key: str
    event: str
    received: int
    queue: str


class Cloud:
    """AWS, or what stands in for it.

    Args:
        deployed: What is deployed.
        clients: The services.
    """

    def __init__(self, deployed: Deployed, clients: Clients) -> None:
        self.deployed = deployed
        self._clients = clients

    def upload(self, path: Path, key: str) -> str:
        """Put a file into the bucket, and return its URI."""
        self._clients.s3.upload_file(str(path), self.deployed.bucket, key)
        return f"s3://{self.deployed.bucket}/{key}"

    def dead_letter(self, key: str) -> DeadLetter | None:
        """Return the message about an object that was given up; ``None`` while there is none. It stays in its queue.

        Each look counts as a try, so only the first that finds it tells how often the function was given it.
        """
        answer = self._clients.sqs.receive_message(
            QueueUrl=self.deployed.dead_letters,
            MaxNumberOfMessages=_MOST_MESSAGES,
            VisibilityTimeout=_LOOKED_AGAIN_AFTER_S,
            AttributeNames=["ApproximateReceiveCount"],
        )
        for message in answer.get("Messages", ()):
            for record in json.loads(message["Body"]).get("Records", ()):
                if unquote_plus(record["s3"]["object"]["key"]) == key:
                    looks = int(message["Attributes"]["ApproximateReceiveCount"])
                    return DeadLetter(key, record["eventName"], looks - 1, self.deployed.dead_letters)
        return None

    def log_tail(self, lines: int) -> Sequence[str]:
        """Return the last lines that the function wrote, without what may be secrets in them."""
        with translated("reading the function's log"):
            pages = self._clients.logs.get_paginator("filter_log_events").paginate(logGroupName=self.deployed.log_group)
            texts = [line for page in pages for event in page["events"] for line in event["message"].splitlines()]
        told = (text for text in texts if text.strip() and not text.startswith(_FRAME))
        return [redact(text) for text in deque(told, maxlen=lines)]
