"""All messages of a script run arrive, even if another run of the same window is requested before they do."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from streamlit.proto.ClientState_pb2 import ClientState
from streamlit.proto.ForwardMsg_pb2 import ForwardMsg
from streamlit.runtime.app_session import AppSession, AppSessionState
from streamlit.runtime.scriptrunner import ScriptRunnerEvent

from lakegate.dashboard.ui import server


class Runner:
    """A script run, running or ended."""

    def __init__(self, asked: list[str], *, ended: bool) -> None:
        self._asked = asked
        self._ended = ended

    def request_rerun(self, wanted: Any) -> bool:
        if not self._ended:
            self._asked.append(wanted.fragment_id)
        return not self._ended


class Session(AppSession):
    """A window's session, without the server around it."""

    def __init__(self, loop: asyncio.AbstractEventLoop, runner: Any) -> None:
        self.said: list[str] = []
        self._state = AppSessionState.APP_NOT_RUNNING
        self._event_loop = loop
        self._scriptrunner = runner
        self._client_state = ClientState()

    def __del__(self) -> None:
        """Close nothing: there is no server."""

    def has_fragment(self, fragment_id: str) -> bool:
        return True

    def _enqueue_forward_msg(self, msg: ForwardMsg) -> None:
        self.said.append(msg.page_not_found.page_name)

    def _settle_once_delivered(self) -> None:
        pass

    def start(self, runner: Any) -> None:
        self._scriptrunner = runner

    def hear(self, runner: Any, *events: Any) -> None:
        """Receive a message from a run's thread while the loop is busy."""
        for event in events:
            message = event if isinstance(event, ForwardMsg) else None
            kind = ScriptRunnerEvent.ENQUEUE_FORWARD_MSG if message else event
            self._on_scriptrunner_event(runner, kind, forward_msg=message)

    def request_shutdown(self) -> None:
        """Close the session, except for the run that is ending."""
        self._state = AppSessionState.SHUTDOWN_REQUESTED
        self._scriptrunner = None


@pytest.mark.parametrize("then", ["nothing else", "another click", "closed"])
def test_what_a_run_said_before_the_next_was_asked_for_is_handled(monkeypatch: pytest.MonkeyPatch, then: str) -> None:
    begun: list[str] = []

    def begin(session: Any, wanted: Any) -> None:
        session.start(Runner(begun, ended=False))
        begun.append(wanted.fragment_id)

    begin.__module__ = "streamlit"
    monkeypatch.setattr(server, "_RETRY_RERUN_S", 0.0)
    monkeypatch.setattr(AppSession, "_create_scriptrunner", begin)
    server.deliver_messages_before_rerun()
    server.deliver_messages_before_rerun()  # once is enough

    async def race() -> Any:
        loop, ended = asyncio.get_running_loop(), Runner(begun, ended=True)
        session: Any = Session(loop, ended)
        answer = ForwardMsg()
        answer.page_not_found.page_name = "Write a reason"
        session.hear(ended, answer, ScriptRunnerEvent.SHUTDOWN)
        session.request_rerun(ClientState(fragment_id="look", is_auto_rerun=True))
        assert (begun, session.said) == ([], [])
        if then == "another click":
            session.request_rerun(ClientState(fragment_id="dialog"))
        elif then == "closed":
            loop.call_soon(session.request_shutdown)
        for _ in range(10):  # turns of the loop
            await asyncio.sleep(0)
        return session.said

    assert asyncio.run(race()) == ["Write a reason"]
    assert begun == {"nothing else": ["look"], "another click": ["look", "dialog"], "closed": []}[then]


def test_streamlit_still_begins_runs_where_they_are_held_up() -> None:
    assert hasattr(AppSession, "_create_scriptrunner")
