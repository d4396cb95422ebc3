"""A stand-in for a Snowflake account, at the protocol that the official connector speaks; real HTTP on loopback.

It knows the statements that lakegate sends, and no others: a misspelt one is a syntax error. What it can't show is
whether Snowflake itself would do as it does.
"""

from __future__ import annotations

import gzip
import json
import re
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, cast
from urllib.parse import parse_qs, urlsplit

Document = dict[str, Any]
_NAME = r'"((?:[^"]|"")+)"'
_TABLE = rf"{_NAME}\.{_NAME}\.{_NAME}"
_TEXT = r"'((?:[^'\\]|''|\\.)*)'"


@dataclass
class RefusalError(Exception):
    """How the account refuses a statement or a login."""

    code: str
    message: str
    sqlstate: str = "42000"


@dataclass
class Fault:
    """What happens to the next requests whose path or statement matches, instead of an answer."""

    match: str
    times: int = 1
    status: int | None = None
    refusal: RefusalError | None = None


@dataclass
class Object:
    """A table or view."""

    kind: str
    comment: str = ""
    path: str = ""


@dataclass
class SnowflakeAccount:
    """Everything in the account, and what was asked of it.

    Attributes:
        missing: Paths of metadata files that the volume lacks.
    """

    url: str = ""
    user: str = "LAKEGATE"
    roles: set[str] = field(default_factory=lambda: {"LAKEGATE", "PUBLIC"})
    warehouses: set[str] = field(default_factory=lambda: {"LAKEGATE_WH"})
    databases: dict[str, dict[str, dict[str, Object]]] = field(default_factory=lambda: {"LAKE": {"PUBLIC": {}}})
    missing: set[str] = field(default_factory=set)
    tokens: set[str] = field(default_factory=set)
    statements: list[str] = field(default_factory=list)
    requests: list[tuple[str, str]] = field(default_factory=list)
    logins: list[Document] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)
    sessions: dict[str, Document] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def table(self, schema: str, name: str, database: str = "LAKE") -> Object:
        return self.databases[database][schema][name]

    def fail(self, match: str, *, times: int = 1, status: int | None = None, code: str = "", message: str = "") -> None:
        """Let requests fail whose path or statement matches: by an HTTP status, or by an error code."""
        refusal = RefusalError(code, message) if code else None
        self.faults.append(Fault(match, times, status, refusal))

    def end_sessions(self) -> None:
        """End all sessions, master tokens too."""
        self.sessions.clear()

    def made(self) -> list[str]:
        """Return the statements that change something."""
        return [one for one in self.statements if one.split()[0] not in {"SHOW", "DESC", "SELECT"}]


@contextmanager
def snowflake_account() -> Iterator[SnowflakeAccount]:
    """Serve an account as an administrator has prepared it, without tables, until the body ends."""
    with _Server(("127.0.0.1", 0), _Handler) as server:
        server.account = SnowflakeAccount(f"http://127.0.0.1:{server.server_address[1]}")
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        thread.start()
        try:
            yield server.account
        finally:
            server.shutdown()
            thread.join()


# statements -----------------------------------------------------------------------------------------------------------


def _run(account: SnowflakeAccount, sql: str, session: Document) -> tuple[list[str], list[list[Any]]]:
    for pattern, act in _STATEMENTS.items():
        found = re.fullmatch(pattern, sql, re.DOTALL)
        if found:
            answer = act(account, session, *map(_plain, found.groups()))
            return answer or (["status"], [["Statement executed successfully."]])
    raise RefusalError("001003", f"SQL compilation error:\nsyntax error line 1 at position 0 unexpected '{sql[:20]}'.")


def _plain(text: str | None) -> str:
    return "" if text is None else re.sub(r"\\(.)", r"\1", text.replace('""', '"').replace("''", "'"))


def _absent(what: str, name: str) -> RefusalError:
    return RefusalError("002003", f"SQL compilation error:\n{what} '{name}' does not exist or not authorized.", "02000")


def _create_schema(account: SnowflakeAccount, _session: Document, database: str, name: str) -> None:
    _database(account, database).setdefault(name, {})


def _database(account: SnowflakeAccount, name: str) -> dict[str, dict[str, Object]]:
    if name not in account.databases:
        raise _absent("Database", name)
    return account.databases[name]


def _schema(account: SnowflakeAccount, database: str, name: str) -> dict[str, Object]:
    if name not in _database(account, database):
        raise _absent("Schema", f"{database}.{name}")
    return account.databases[database][name]


def _show_schemas(account: SnowflakeAccount, _session: Document, database: str) -> tuple[list[str], list[list[Any]]]:
    return ["created_on", "name"], [["2026", one] for one in _database(account, database)]


def _show_tables(
    account: SnowflakeAccount, _session: Document, database: str, schema: str, prefix: str
) -> tuple[list[str], list[list[Any]]]:
    rows = [
        ["2026", name, one.comment]
        for name, one in _schema(account, database, schema).items()
        if one.kind == "ICEBERG TABLE" and name.startswith(prefix)
    ]
    return ["created_on", "name", "comment"], rows


def _describe(
    _account: SnowflakeAccount, _session: Document, kind: str, name: str
) -> tuple[list[str], list[list[Any]]]:
    if name != "LAKEGATE":
        raise _absent(kind.capitalize(), name)
    return ["property", "property_value"], [["ENABLED", "true"]]


def _create_table(
    account: SnowflakeAccount,
    session: Document,
    replace: str,
    database: str,
    schema: str,
    name: str,
    volume: str,
    catalog: str,
    path: str,
    comment: str,
) -> None:
    tables = _schema(account, database, schema)
    if not session["warehouse"]:
        raise RefusalError("000606", "No active warehouse selected in the current session.", "57P03")
    volume, catalog = volume.strip('"'), catalog.strip('"')
    if (volume, catalog) != ("LAKEGATE", "LAKEGATE"):
        raise _absent("External volume", volume)
    if name in tables and not (replace and tables[name].kind == "ICEBERG TABLE"):
        raise RefusalError("002002", f"SQL compilation error:\nObject '{name}' already exists.", "42710")
    _require_readable(account, path)
    tables[name] = Object("ICEBERG TABLE", comment, path)


def _require_readable(account: SnowflakeAccount, path: str) -> None:
    if path in account.missing:
        raise RefusalError("091016", f"Remote file '{path}' was not found.", "22000")


def _refresh(account: SnowflakeAccount, _session: Document, database: str, schema: str, name: str, path: str) -> None:
    tables = _schema(account, database, schema)
    if name not in tables:
        raise _absent("Iceberg table", name)
    _require_readable(account, path)
    tables[name].path = path


def _drop(account: SnowflakeAccount, _session: Document, database: str, schema: str, name: str) -> None:
    _schema(account, database, schema).pop(name, None)


def _current(_account: SnowflakeAccount, session: Document) -> tuple[list[str], list[list[Any]]]:
    return ["ACCOUNT", "WAREHOUSE"], [["ACME", session["warehouse"]]]


_STATEMENTS: dict[str, Callable[..., tuple[list[str], list[list[Any]]] | None]] = {
    rf"CREATE SCHEMA IF NOT EXISTS {_NAME}\.{_NAME}": _create_schema,
    rf"SHOW SCHEMAS IN DATABASE {_NAME}": _show_schemas,
    rf"SHOW ICEBERG TABLES IN SCHEMA {_NAME}\.{_NAME} STARTS WITH {_TEXT}": _show_tables,
    rf"DESC (EXTERNAL VOLUME|CATALOG INTEGRATION) {_NAME}": _describe,
    (
        rf"CREATE (OR REPLACE )?ICEBERG TABLE {_TABLE}\s+EXTERNAL_VOLUME = {_TEXT}\s+CATALOG = {_TEXT}\s+"
        rf"METADATA_FILE_PATH = {_TEXT}\s+COMMENT = {_TEXT}"
    ): _create_table,
    rf"ALTER ICEBERG TABLE {_TABLE} REFRESH {_TEXT}": _refresh,
    rf"DROP ICEBERG TABLE IF EXISTS {_TABLE}": _drop,
    r"SELECT CURRENT_ACCOUNT\(\).+": _current,
}


# protocol -------------------------------------------------------------------------------------------------------------


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    account: SnowflakeAccount


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = -1  # one packet for head and body: two would wait for the client's delayed acknowledgement

    def log_message(self, *_: Any) -> None:
        """Print nothing."""

    def do_GET(self) -> None:
        self._answer()

    def do_POST(self) -> None:
        self._answer()

    def _answer(self) -> None:
        account = cast("_Server", self.server).account
        content = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if self.headers.get("Content-Encoding") == "gzip":
            content = gzip.decompress(content)
        body = json.loads(content) if content else {}
        url = urlsplit(self.path)
        with account.lock:
            sql = body.get("sqlText", "")
            account.requests.append((url.path, sql))
            fault = _fault(account, url.path, sql)
            if fault is not None and fault.status is not None:
                self._send(fault.status, {"success": False, "message": "busy"})
                return
            try:
                reply = self._reply(account, url.path, parse_qs(url.query), body, fault)
            except RefusalError as refusal:
                reply = _refused(refusal)
        self._send(200, reply)

    def _reply(
        self, account: SnowflakeAccount, path: str, query: dict[str, list[str]], body: Document, fault: Fault | None
    ) -> Document:
        token = self.headers.get("Authorization", "").partition('Token="')[2].rstrip('"')
        if fault is not None and fault.refusal is not None:
            raise fault.refusal
        if path == "/session/v1/login-request":
            return _login(account, query, body["data"])
        if path == "/session":
            account.sessions.pop(token, None)
            return {"success": True, "data": None}
        session = account.sessions.get(token)
        if session is None:
            raise RefusalError("390111", "Session no longer exists.  New login required to access the service.")
        if path == "/queries/v1/query-request":
            sql = body["sqlText"]
            account.statements.append(sql)
            return _result(_run(account, sql, session))
        return {"success": True, "data": None}

    def _send(self, status: int, document: Document) -> None:
        content = json.dumps(document).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)


def _fault(account: SnowflakeAccount, path: str, sql: str) -> Fault | None:
    for fault in account.faults:
        if fault.times and re.search(fault.match, sql or path):
            fault.times -= 1
            return fault
    return None


def _login(account: SnowflakeAccount, query: dict[str, list[str]], data: Document) -> Document:
    account.logins.append(data)
    role = query.get("roleName", [""])[0].strip('"')
    warehouse = query.get("warehouse", [""])[0].strip('"')
    if data.get("AUTHENTICATOR") == "OAUTH" and data.get("TOKEN") not in account.tokens:
        raise RefusalError("390318", "OAuth access token expired. [1234-5678]")
    if data.get("AUTHENTICATOR") != "OAUTH" and data.get("LOGIN_NAME", "").upper() != account.user:
        raise RefusalError("390144", "JWT token is invalid. [1234-5678]")
    if role and role not in account.roles:
        said = f"Role '{role}' specified in the connect string does not exist or not authorized."
        raise RefusalError("390189", f"{said} Contact your local system administrator.")
    number = len(account.logins)
    held = warehouse if warehouse in account.warehouses else None
    session = {"user": account.user, "role": role or "PUBLIC", "warehouse": held, "master": f"master-{number}"}
    account.sessions[f"session-{number}"] = session
    return {
        "success": True,
        "data": {
            "token": f"session-{number}",
            "masterToken": f"master-{number}",
            "sessionId": number,
            "validityInSeconds": 3600,
            "masterValidityInSeconds": 14400,
            "parameters": [{"name": "CLIENT_TELEMETRY_ENABLED", "value": False}],
            "sessionInfo": {
                "databaseName": None,
                "schemaName": None,
                "warehouseName": held,
                "roleName": session["role"],
            },
        },
    }


def _refused(refusal: RefusalError) -> Document:
    if refusal.code.startswith("39"):  # of sessions, not of statements
        return {"success": False, "code": refusal.code, "message": refusal.message, "data": None}
    data = {"errorCode": refusal.code, "sqlState": refusal.sqlstate, "queryId": "01-refused", "internalError": False}
    return {"success": False, "code": refusal.code, "message": refusal.message, "data": data}


def _result(answer: tuple[Sequence[str], Sequence[Sequence[Any]]]) -> Document:
    columns, rows = answer
    types = [
        {"name": name, "type": "text", "length": 16777216, "byteLength": 16777216, "nullable": True} for name in columns
    ]
    data = {"rowtype": types, "rowset": rows, "total": len(rows), "returned": len(rows), "queryId": "01-done"}
    return {"success": True, "code": None, "data": {**data, "statementTypeId": 4096, "queryResultFormat": "json"}}
