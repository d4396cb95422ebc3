"""Loading a table through ``lakegate serve`` over HTTP, against asking Nessie where its metadata file is.

Nessie's own Iceberg REST catalog can't be the contestant: it refuses tables on a local disk. Its answer about the
table, without the metadata, is the least that any catalog on top of it must wait for.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import uvicorn

from benchmarks.harness import Figure, interleave
from lakegate.components import Components
from lakegate.gate.app import create_app
from lakegate.iceberg.files import TableFiles
from lakegate.listening import listen
from lakegate.model.identifiers import TableIdentifier
from lakegate.model.refs import CommitRequest, TablePointer

_MANY = 5_000
_AT_ONCE = 20
_FEW_TABLE, _MANY_TABLE = (TableIdentifier.parse(f"bench.served_{name}") for name in ("few", "many"))


def measure(components: Components, few: TablePointer, rounds: int) -> Iterator[Figure]:
    """Yield the ratios.

    Args:
        components: The lake.
        few: A table with some snapshots.
        rounds: Counted rounds.
    """
    _commit(components, few, _with_snapshots(few, _MANY))
    nessie = components.stack.up().nessie_uri
    with _served(components) as url, httpx.Client(timeout=60) as client:

        def load(table: TableIdentifier, **headers: str) -> httpx.Response:
            answer = client.get(f"{url}/v1/main/namespaces/bench/tables/{table.name}", headers=headers)
            return answer.raise_for_status() if answer.status_code != httpx.codes.NOT_MODIFIED else answer

        def ask_nessie() -> httpx.Response:
            body = {"requestedKeys": [{"elements": _FEW_TABLE.parts}]}
            return client.post(f"{nessie}/trees/main/contents", json=body).raise_for_status()

        size, etag = len(load(_MANY_TABLE).content), load(_MANY_TABLE).headers["etag"]
        medians = interleave(
            rounds,
            {
                "few": lambda: [load(_FEW_TABLE) for _ in range(_AT_ONCE)],
                "many": lambda: [load(_MANY_TABLE) for _ in range(_AT_ONCE)],
                "unchanged": lambda: [load(_MANY_TABLE, **{"If-None-Match": etag}) for _ in range(_AT_ONCE)],
                "nessie": lambda: [ask_nessie() for _ in range(_AT_ONCE)],
            },
        )
    each = {name: seconds / _AT_ONCE * 1000 for name, seconds in medians.items()}
    against = f"{each['few']:.1f} ms / {each['nessie']:.1f} ms"
    yield Figure("serve, load table / Nessie's bare answer", each["few"] / each["nessie"], 3.0, against)
    detail = f"{each['many']:.1f} ms / {each['few']:.1f} ms, {size / 1e6:.1f} MB"
    yield Figure(f"serve, load table, {_MANY:,} snapshots / few", each["many"] / each["few"], None, detail)
    detail = f"{each['unchanged']:.1f} ms / {each['few']:.1f} ms"
    yield Figure(f"serve, {_MANY:,} snapshots, unchanged / few", each["unchanged"] / each["few"], 1.5, detail)


def _with_snapshots(few: TablePointer, count: int) -> TablePointer:
    """Write a metadata file beside the table's own that lists so many snapshots, and return the state that it is."""
    source = Path(few.metadata_location.removeprefix("file:").removeprefix("//"))
    document: dict[str, Any] = json.loads(source.read_bytes())
    [current] = [one for one in document["snapshots"] if one["snapshot-id"] == document["current-snapshot-id"]]
    older = [{**current, "snapshot-id": number} for number in range(1, count)]
    document["snapshots"] = [*older, current]
    target = source.with_name("99999-many.metadata.json")
    target.write_text(json.dumps(document))
    return few.model_copy(update={"metadata_location": target.as_uri()})


def _commit(components: Components, few: TablePointer, many: TablePointer) -> None:
    tables = [
        pointer.model_copy(update={"table": table, "content_id": None})
        for table, pointer in ((_FEW_TABLE, few), (_MANY_TABLE, many))
    ]
    main = components.catalog.get_ref("main")
    components.catalog.commit(
        CommitRequest(branch="main", base=main.hash, message="Tables to serve", puts=tuple(tables))
    )


@contextmanager
def _served(components: Components) -> Iterator[str]:
    app = create_app(components.catalog, TableFiles(components.settings.storage))
    listening = listen("127.0.0.1", 0, command="lakegate serve")
    server = uvicorn.Server(uvicorn.Config(app, log_config=None, access_log=False, lifespan="off", ws="none"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
    thread.start()
    try:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join()
        listening.close()
