"""Creating an object where there is none, told apart from another's even when an answer is lost on the way."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping

from lakegate.storage.errors import ReplacedError, exists
from lakegate.storage.retrying import retried

_MARK = "lakegatecreation"  # a name that all stores take


def create_once(uri: str, write: Callable[[dict[str, str]], None], look: Callable[[], Mapping[str, str]]) -> None:
    """Write an object where there is none.

    A library sends a request again whose answer was lost, and then finds what it made itself; the mark in the object's
    metadata tells.

    Args:
        uri: The object.
        write: Writes it together with the metadata it gets; raises ``ReplacedError`` when there is one.
        look: Returns the metadata of the one that is there; raises ``FileNotFoundError`` when there is none.

    Raises:
        FileExistsError: When there is one.
    """
    mark = uuid.uuid4().hex
    try:
        retried(lambda: write({_MARK: mark}))
    except ReplacedError as error:
        try:
            found = look().get(_MARK)
        except FileNotFoundError:
            found = None
        if found != mark:
            raise exists(uri) from error
