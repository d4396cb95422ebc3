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
    polls: int = 0


@dataclass
class Object:
    """A table or view, and who may read it."""

    kind: str
    comment: str = ""
    path: str = ""
    volume: str = ""
    readers: set[str] = field(default_factory=set)


@dataclass
class SnowflakeAccount:
    """Everything in the account, and what was asked of it.

    Attributes:
        missing: Paths of metadata files that the volume lacks.
        denied: Privileges that the role lacks, such as ``CREATE EXTERNAL VOLUME``.
        readable: Whether the volume's role trusts Snowflake.
        said_of_volume: What verifying the volume says, instead of whether it's readable.
        blind: How many listings of tables leave out everything, as if it were created a moment later.
    """

    url: str = ""
    user: str = "LAKEGATE"
    roles: set[str] = field(default_factory=lambda: {"LAKEGATE", "ANALYST", "PUBLIC"})
    warehouses: set[str] = field(default_factory=lambda: {"LAKEGATE_WH"})
    volumes: dict[str, Document] = field(default_factory=dict)
    integrations: dict[str, Document] = field(default_factory=dict)
    databases: dict[str, dict[str, dict[str, Object]]] = field(default_factory=dict)
    grants: set[tuple[str, str, str, str]] = field(default_factory=set)
    missing: set[str] = field(default_factory=set)
    denied: set[str] = field(default_factory=set)
    readable: bool = True
    blind: int = 0
    said_of_volume: str | None = None
    tokens: set[str] = field(default_factory=set)
    statements: list[str] = field(default_factory=list)
    requests: list[tuple[str, str]] = field(default_factory=list)
    logins: list[Document] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)
    sessions: dict[str, Document] = field(default_factory=dict)
    pending: dict[str, tuple[int, Document]] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def furnish(self, base_url: str = "s3://lake/wh/") -> None:
        """Make all that tables need, as an administrator would."""
        self.volumes["LAKEGATE"] = {"NAME": "lakegate", "STORAGE_BASE_URL": base_url}
        self.integrations["LAKEGATE"] = {"CATALOG_SOURCE": "OBJECT_STORE", "TABLE_FORMAT": "ICEBERG"}
        self.databases["LAKE"] = {"PUBLIC": {}}

    def table(self, schema: str, name: str, database: str = "LAKE") -> Object:
        return self.databases[database][schema][name]

    def fail(self, match: str, *, times: int = 1, status: int | None = None, code: str = "", message: str = "") -> None:
        """Let requests fail whose path or statement matches: by an HTTP status, or by an error code."""
        refusal = RefusalError(code, message) if code else None
        self.faults.append(Fault(match, times, status, refusal))

    def slow(self, match: str, *, polls: int) -> None:
        """Answer the statement only after it was polled for."""
        self.faults.append(Fault(match, polls=polls))

    def expire_sessions(self) -> None:
        """Let all session tokens expire; the master tokens stay valid."""
        for session in self.sessions.values():
            session["expired"] = True

    def end_sessions(self) -> None:
        """End all sessions, master tokens too."""
        self.sessions.clear()

    def made(self) -> list[str]:
        """Return the statements that change something."""
        return [one for one in self.statements if one.split()[0] not in {"SHOW", "DESC", "SELECT"}]


@contextmanager
def snowflake_account() -> Iterator[SnowflakeAccount]:
    """Serve an empty account until the body ends."""
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
            # Groups with a name are taken as they are.
            raw = set(found.re.groupindex.values())
            parts = [one if at in raw else _plain(one) for at, one in enumerate(found.groups(), 1)]
            answer = act(account, session, *parts)
            return answer or (["status"], [["Statement executed successfully."]])
    raise RefusalError("001003", f"SQL compilation error:\nsyntax error line 1 at position 0 unexpected '{sql[:20]}'.")


def _plain(text: str | None) -> str:
    return "" if text is None else re.sub(r"\\(.)", r"\1", text.replace('""', '"').replace("''", "'"))


def _absent(what: str, name: str) -> RefusalError:
    return RefusalError("002003", f"SQL compilation error:\n{what} '{name}' does not exist or not authorized.", "02000")


def _need(account: SnowflakeAccount, privilege: str, on: str = "account 'ACME'") -> None:
    if privilege in account.denied:
        raise RefusalError("003001", f"SQL access control error:\nInsufficient privileges to operate on {on}.", "42501")


def _create_volume(account: SnowflakeAccount, _session: Document, name: str, rest: str) -> None:
    _need(account, "CREATE EXTERNAL VOLUME")
    values = dict(re.findall(rf"(\w+) = {_TEXT}", rest))
    values |= {
        "S3": {"STORAGE_AWS_IAM_USER_ARN": "arn:aws:iam::940482405254:user/hzdt0000-s"},
        "GCS": {"STORAGE_GCP_SERVICE_ACCOUNT": "snow@gcpuscentral1.iam.gserviceaccount.com"},
        "AZURE": {
            "AZURE_CONSENT_URL": "https://login.microsoftonline.com/t/oauth2/authorize?client_id=1",
            "AZURE_MULTI_TENANT_APP_NAME": "snow_1700000000",
        },
    }[values["STORAGE_PROVIDER"].removesuffix("GOV")]
    if values["STORAGE_PROVIDER"].startswith("S3"):
        values.setdefault("STORAGE_AWS_EXTERNAL_ID", "ACME_SFCRole=2_iMI2Dcus3iSF+A=")
    account.volumes.setdefault(name, values)


def _desc_volume(account: SnowflakeAccount, _session: Document, name: str) -> tuple[list[str], list[list[Any]]]:
    if name not in account.volumes:
        raise _absent("External volume", name)
    columns = ["parent_property", "property", "property_type", "property_value", "property_default"]
    rows = [
        ["", "ALLOW_WRITES", "Boolean", "false", "true"],
        ["STORAGE_LOCATIONS", "STORAGE_LOCATION_1", "String", json.dumps(account.volumes[name]), ""],
        ["STORAGE_LOCATIONS", "ACTIVE", "String", account.volumes[name]["NAME"], ""],
    ]
    return columns, rows


def _verify(account: SnowflakeAccount, _session: Document, name: str) -> tuple[list[str], list[list[Any]]]:
    name = name.strip('"')
    if name not in account.volumes:
        raise _absent("External volume", name)
    said = {"success": account.readable, "storageLocationSelectionResult": "PASSED" if account.readable else "FAILED"}
    return ["VERIFIED"], [[account.said_of_volume or json.dumps(said)]]


def _create_integration(account: SnowflakeAccount, _session: Document, name: str) -> None:
    _need(account, "CREATE INTEGRATION")
    account.integrations.setdefault(name, {"CATALOG_SOURCE": "OBJECT_STORE", "TABLE_FORMAT": "ICEBERG"})


def _desc_integration(account: SnowflakeAccount, _session: Document, name: str) -> tuple[list[str], list[list[Any]]]:
    if name not in account.integrations:
        raise _absent("Integration", name)
    values = {"ENABLED": "true", **account.integrations[name]}
    columns = ["property", "property_type", "property_value", "property_default"]
    return columns, [[key, "String", value, ""] for key, value in values.items()]


def _create_database(account: SnowflakeAccount, _session: Document, name: str) -> None:
    _need(account, "CREATE DATABASE")
    account.databases.setdefault(name, {"PUBLIC": {}})


def _create_schema(account: SnowflakeAccount, _session: Document, database: str, name: str) -> None:
    _need(account, "CREATE SCHEMA", f"database '{database}'")
    _database(account, database).setdefault(name, {})


def _database(account: SnowflakeAccount, name: str) -> dict[str, dict[str, Object]]:
    if name not in account.databases:
        raise _absent("Database", name)
    return account.databases[name]


def _schema(account: SnowflakeAccount, database: str, name: str) -> dict[str, Object]:
    if name not in _database(account, database):
        raise _absent("Schema", f"{database}.{name}")
    return account.databases[database][name]


def _show_databases(account: SnowflakeAccount, _session: Document, prefix: str) -> tuple[list[str], list[list[Any]]]:
    return ["created_on", "name"], [["2026", one] for one in account.databases if one.startswith(prefix)]


def _show_schemas(account: SnowflakeAccount, _session: Document, database: str) -> tuple[list[str], list[list[Any]]]:
    return ["created_on", "name"], [["2026", one] for one in _database(account, database)]


def _show_tables(
    account: SnowflakeAccount, _session: Document, database: str, schema: str = "", prefix: str = ""
) -> tuple[list[str], list[list[Any]]]:
    schemas = {schema: _schema(account, database, schema)} if schema else _database(account, database)
    if account.blind:
        account.blind -= 1
        schemas = {}
    rows = [
        ["2026", name, database, space, one.volume, one.comment]
        for space, tables in schemas.items()
        for name, one in tables.items()
        if one.kind == "ICEBERG TABLE" and name.startswith(prefix)
    ]
    return ["created_on", "name", "database_name", "schema_name", "external_volume_name", "comment"], rows


def _show_objects(account: SnowflakeAccount, _session: Document, database: str) -> tuple[list[str], list[list[Any]]]:
    rows = [
        ["2026", name, database, space, "VIEW" if one.kind == "VIEW" else "TABLE", one.comment]
        for space, tables in _database(account, database).items()
        for name, one in tables.items()
    ]
    return ["created_on", "name", "database_name", "schema_name", "kind", "comment"], rows


def _show_grants(account: SnowflakeAccount, _session: Document, role: str) -> tuple[list[str], list[list[Any]]]:
    if role not in account.roles:
        raise _absent("Role", role)
    rows = [["2026", what, kind, name, "ROLE", to] for what, kind, name, to in account.grants if to == role]
    return ["created_on", "privilege", "granted_on", "name", "granted_to", "grantee_name"], rows


def _grant(account: SnowflakeAccount, _session: Document, privilege: str, kind: str, name: str, role: str) -> None:
    if role not in account.roles:
        raise _absent("Role", role)
    # As Snowflake lists names: quoted where they must be.
    parts = [_plain(one) for one in re.findall(_NAME, name)]
    shown = ".".join(one if re.fullmatch("[A-Z_][A-Z0-9_$]*", one) else f'"{one}"' for one in parts)
    account.grants.add((privilege, kind.replace(" ", "_"), shown, role))


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
    if volume not in account.volumes:
        raise _absent("External volume", volume)
    if catalog not in account.integrations:
        raise _absent("Catalog integration", catalog)
    if name in tables and not (replace and tables[name].kind == "ICEBERG TABLE"):
        raise RefusalError("002002", f"SQL compilation error:\nObject '{name}' already exists.", "42710")
    _require_readable(account, path)
    tables[name] = Object("ICEBERG TABLE", comment, path, volume)


def _require_readable(account: SnowflakeAccount, path: str) -> None:
    if not account.readable:
        said = "Error assuming AWS_ROLE. Please verify the role and externalId are configured correctly in your policy."
        raise RefusalError("003167", f"SQL execution error:\n{said}", "42601")
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


def _information(account: SnowflakeAccount, _session: Document, calls: str) -> tuple[list[str], list[list[Any]]]:
    found = re.findall(rf"SYSTEM\$GET_ICEBERG_TABLE_INFORMATION\({_TEXT}\) AS (\w+)", calls)
    return [name for _, name in found], [[_where(account, _plain(shown)) for shown, _ in found]]


def _where(account: SnowflakeAccount, shown: str) -> str:
    database, schema, table = (_plain(one) for one in re.findall(_NAME, shown))
    one = _schema(account, database, schema).get(table)
    if one is None:
        raise _absent("Iceberg table", table)
    base = account.volumes[one.volume]["STORAGE_BASE_URL"]
    return json.dumps({"metadataLocation": f"{base}{one.path}", "status": "success"})


def _current(_account: SnowflakeAccount, session: Document) -> tuple[list[str], list[list[Any]]]:
    columns = ["ACCOUNT", "USER", "ROLE", "WAREHOUSE", "VERSION"]
    return columns, [["ACME", session["user"], session["role"], session["warehouse"], "10.2.0"]]


_STATEMENTS: dict[str, Callable[..., tuple[list[str], list[list[Any]]] | None]] = {
    (
        rf"CREATE EXTERNAL VOLUME IF NOT EXISTS {_NAME}\s+STORAGE_LOCATIONS = \(\((?P<raw>.+?)\)\)\s+"
        r"ALLOW_WRITES = FALSE\s+COMMENT = '[^']+'"
    ): _create_volume,
    rf"DESC EXTERNAL VOLUME {_NAME}": _desc_volume,
    rf"SELECT SYSTEM\$VERIFY_EXTERNAL_VOLUME\({_TEXT}\)": _verify,
    (
        rf"CREATE CATALOG INTEGRATION IF NOT EXISTS {_NAME}\s+CATALOG_SOURCE = OBJECT_STORE\s+TABLE_FORMAT = ICEBERG\s+"
        r"ENABLED = TRUE"
    ): _create_integration,
    rf"DESC CATALOG INTEGRATION {_NAME}": _desc_integration,
    rf"CREATE DATABASE IF NOT EXISTS {_NAME}": _create_database,
    rf"CREATE SCHEMA IF NOT EXISTS {_NAME}\.{_NAME}": _create_schema,
    rf"SHOW DATABASES STARTS WITH {_TEXT}": _show_databases,
    rf"SHOW SCHEMAS IN DATABASE {_NAME}": _show_schemas,
    rf"SHOW ICEBERG TABLES IN DATABASE {_NAME}": _show_tables,
    rf"SHOW ICEBERG TABLES IN SCHEMA {_NAME}\.{_NAME} STARTS WITH {_TEXT}": _show_tables,
    rf"SHOW OBJECTS IN DATABASE {_NAME}": _show_objects,
    rf"SHOW GRANTS TO ROLE {_NAME}": _show_grants,
    rf"GRANT (USAGE|SELECT) ON (DATABASE|SCHEMA|ICEBERG TABLE) (?P<raw>\S.*) TO ROLE {_NAME}": _grant,
    (
        rf"CREATE (OR REPLACE )?ICEBERG TABLE {_TABLE}\s+EXTERNAL_VOLUME = {_TEXT}\s+CATALOG = {_TEXT}\s+"
        rf"METADATA_FILE_PATH = {_TEXT}\s+COMMENT = {_TEXT}"
    ): _create_table,
    rf"ALTER ICEBERG TABLE {_TABLE} REFRESH {_TEXT}": _refresh,
    rf"DROP ICEBERG TABLE IF EXISTS {_TABLE}": _drop,
    r"SELECT (?P<raw>SYSTEM\$GET_ICEBERG_TABLE_INFORMATION\(.+)": _information,
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
        if path == "/session/token-request":
            return _renew(account, token)
        if path == "/session":
            account.sessions.pop(token, None)
            return {"success": True, "data": None}
        session = account.sessions.get(token)
        if session is None:
            raise RefusalError("390111", "Session no longer exists.  New login required to access the service.")
        if session.get("expired"):
            raise RefusalError("390112", "Your session has expired. Please login again.")
        if path == "/queries/v1/query-request":
            sql = body["sqlText"]
            account.statements.append(sql)
            answer = _result(_run(account, sql, session))
            if fault is not None and fault.polls:
                number = answer["data"]["queryId"] = f"01-{len(account.statements)}"
                account.pending[number] = (fault.polls, answer)
                return _in_progress(number)
            return answer
        return _poll(account, path.split("/")[2]) if path.endswith("/result") else {"success": True, "data": None}

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


def _renew(account: SnowflakeAccount, token: str) -> Document:
    for old, session in list(account.sessions.items()):
        if session["master"] == token:
            new = f"{old}-renewed"
            account.sessions[new] = {**account.sessions.pop(old), "expired": False}
            data = {"sessionToken": new, "masterToken": token, "validityInSecondsST": 3600, "sessionId": 1}
            return {"success": True, "data": {**data, "validityInSecondsMT": 14400}}
    raise RefusalError("390114", "Authentication token has expired.  The user must authenticate again.")


def _refused(refusal: RefusalError) -> Document:
    if refusal.code.startswith("39"):  # of sessions, not of statements
        return {"success": False, "code": refusal.code, "message": refusal.message, "data": None}
    data = {"errorCode": refusal.code, "sqlState": refusal.sqlstate, "queryId": "01-refused", "internalError": False}
    return {"success": False, "code": refusal.code, "message": refusal.message, "data": data}


def _poll(account: SnowflakeAccount, number: str) -> Document:
    left, answer = account.pending[number]
    account.pending[number] = (left - 1, answer)
    return answer if left <= 1 else _in_progress(number)


def _in_progress(number: str) -> Document:
    url = f"/queries/{number}/result"
    data = {"getResultUrl": url, "queryId": number, "queryAbortsAfterSecs": 300}
    return {"success": True, "code": "333333", "message": "Query execution in progress.", "data": data}


def _result(answer: tuple[Sequence[str], Sequence[Sequence[Any]]]) -> Document:
    columns, rows = answer
    types = [
        {"name": name, "type": "text", "length": 16777216, "byteLength": 16777216, "nullable": True} for name in columns
    ]
    data = {"rowtype": types, "rowset": rows, "total": len(rows), "returned": len(rows), "queryId": "01-done"}
    return {"success": True, "code": None, "data": {**data, "statementTypeId": 4096, "queryResultFormat": "json"}}
