"""A server on this machine that takes runs as W&B does, as far as the client asks: for tests of the online mode."""

import contextlib
import http.server
import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any


@dataclass
class Kept:
    """What the server has of a run: lines by their number, as they were sent; how it ended."""

    name: str
    history: dict[int, list[dict[str, Any]]] = field(default_factory=dict)
    exit_codes: list[int] = field(default_factory=list)
    opened: int = 0

    def lines(self) -> list[tuple[int, dict[str, float]]]:
        """(round, values) of each line, in order; each came with one content."""
        found = []
        for number in sorted(self.history):
            item, *again = self.history[number]
            assert all(other == item for other in again)
            values = {key: value for key, value in item.items() if key != "round" and key[0] != "_"}
            found.append((item["round"], values))
        return found

    def tail(self) -> str:
        """The last line, as a client that resumes asks for it."""
        return json.dumps([json.dumps(self.history[max(self.history)][0])] if self.history else [])


@dataclass
class Wandb:
    """The server: its URL and runs. While ``deaf`` is set it takes requests and does not answer."""

    url: str = ""
    status: int = 200
    runs: dict[str, Kept] = field(default_factory=dict)
    deaf: threading.Event = field(default_factory=threading.Event)
    over: threading.Event = field(default_factory=threading.Event)

    def graphql(self, operation: str, values: dict[str, Any]) -> dict[str, Any]:
        """The answer to a question of the client."""
        project = {"id": "P", "name": "fedtables", "entity": {"id": "E", "name": "team"}}
        if operation == "RunResumeStatus":
            kept = self.runs.get(values["name"])
            return {"model": {**project, "bucket": None if kept is None else self._state(kept)}}
        if operation == "UpsertBucket":
            kept = self.runs.setdefault(values["name"], Kept(values["name"]))
            kept.opened += values.get("displayName") is not None
            bucket = {"id": "B", "name": kept.name, "displayName": kept.name, "project": project}
            return {"upsertBucket": {"bucket": bucket, "inserted": kept.opened == 1}}
        if operation == "CreateRunFiles":
            files = [{"name": name, "uploadUrl": f"{self.url}/storage/{name}"} for name in values["files"]]
            return {"createRunFiles": {"runID": "B", "uploadHeaders": [], "files": files}}
        return {}

    def _state(self, kept: Kept) -> dict[str, Any]:
        names = {"id": "B", "name": kept.name, "displayName": kept.name, "tags": [], "notes": None}
        lines = {"logLineCount": 0, "historyLineCount": len(kept.history), "eventsLineCount": 0}
        content = {"summaryMetrics": "{}", "config": "{}", "wandbConfig": '{"t": 1}'}
        return {**names, **lines, **content, "historyTail": kept.tail(), "eventsTail": "[]"}

    def stream(self, run: str, content: dict[str, Any]) -> None:
        """Keep what a client sends of a run."""
        kept = self.runs[run]
        part = content.get("files", {}).get("wandb-history.jsonl")
        if part is not None:
            # A client that misses an answer sends the same lines again, under the same numbers.
            for number, line in enumerate(part["content"], part["offset"]):
                kept.history.setdefault(number, []).append(json.loads(line))
        if content.get("complete"):
            kept.exit_codes.append(content["exitcode"])


class Quiet(http.server.ThreadingHTTPServer):
    """A client that hangs up, as a killed one does, is nothing to print a traceback for."""

    daemon_threads = True

    def handle_error(self, *_: Any) -> None:
        """Say nothing."""


@contextlib.contextmanager
def wandb_server() -> Iterator[Wandb]:
    """A running server."""
    state = Wandb()

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            if state.deaf.is_set():
                state.over.wait()
                return
            answer: dict[str, Any] = {}
            if state.status == 200 and self.path.startswith("/graphql"):
                question = json.loads(body)
                answer = {"data": state.graphql(question["operationName"], question["variables"] or {})}
            elif state.status == 200 and self.path.endswith("/file_stream"):
                state.stream(self.path.split("/")[-2], json.loads(body))
            content = json.dumps(answer).encode()
            self.send_response(state.status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        do_GET = do_PUT = do_POST

        def log_message(self, *args: Any) -> None:
            """Say nothing."""

    web = Quiet(("127.0.0.1", 0), Handler)
    state.url = f"http://127.0.0.1:{web.server_address[1]}"
    thread = threading.Thread(target=web.serve_forever, daemon=True)
    thread.start()
    try:
        yield state
    finally:
        state.over.set()
        web.shutdown()
        web.server_close()
        thread.join()
