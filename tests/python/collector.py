"""A collector of OpenTelemetry: receives OTLP over HTTP as JSON, checks its form, and keeps the spans."""

import contextlib
import http.server
import json
import re
import sys
import threading
import time

WAIT_SECONDS = 60


class Collector:
    """Listens on a free port of the loopback interface while it is used as a context. `answers`: status, body and
    headers of the next answers; after them everything is taken."""

    def __init__(self, answers=(), context=None, port=0):
        self.answers, self.spans, self.resources, self.requests, self.faults = list(answers), [], [], [], []
        self.connections, self.bodies = set(), []
        self.changed, self.open = threading.Condition(), threading.Event()
        self.open.set()
        collector = self

        class handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"]))
                collector.open.wait(WAIT_SECONDS)
                collector.connections.add(self.client_address)
                status, said, headers = collector._received(self.path, dict(self.headers), body)
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(said)))
                self.end_headers()
                self.wfile.write(said)

            def log_message(self, *arguments):
                """Prints nothing."""

        class server(http.server.ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, request, client_address):
                """Clients may close connections at any time."""

        self._server = server(("127.0.0.1", port), handler)
        if context is not None:
            self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self.port = self._server.server_address[1]
        self.url = f"http{'s' if context else ''}://127.0.0.1:{self.port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *error):
        self.open.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    @contextlib.contextmanager
    def hanging(self):
        """Requests are read, and not answered."""
        self.open.clear()
        yield
        self.open.set()

    def _received(self, path, headers, body):
        with self.changed:
            self.requests.append((path, headers))
            self.bodies.append(body)
            answer = self.answers.pop(0) if self.answers else (200, b"{}", {})
            if answer[0] == 200:
                try:
                    self._take(json.loads(body))
                except (KeyError, TypeError, ValueError, AssertionError) as error:
                    self.faults.append(repr(error))
                    answer = (400, repr(error).encode(), {})
            self.changed.notify_all()
            return answer

    def _take(self, said):
        for group in said["resourceSpans"]:
            self.resources.append(plain(group["resource"]["attributes"]))
            for scope in group["scopeSpans"]:
                assert scope["scope"]["name"]
                self.spans += [span(each) for each in scope["spans"]]

    def wait(self, holds):
        """Waits until a condition of this object holds; returns whether it does."""
        with self.changed:
            return self.changed.wait_for(lambda: holds(self), WAIT_SECONDS)

    def of(self, request):
        """Spans of a request of the engine, by name; several of one name in their order."""
        with self.changed:
            root = next(x for x in self.spans if x["attributes"].get("troupe.request.id") == request)
            parts = [x for x in self.spans if x["parent"] == root["id"]]
            return root, sorted(parts, key=lambda x: (x["start"], x["end"]))


def plain(attributes):
    """Attributes as a dict. AssertionError for a value that is not one of the protocol's."""
    out = {}
    for each in attributes:
        (kind, value), = each["value"].items()
        assert isinstance(value, {"stringValue": str, "boolValue": bool, "intValue": str}[kind]), each
        assert each["key"] not in out, each
        out[each["key"]] = int(value) if kind == "intValue" else value
    return out


def span(said):
    """A span, as far as tests look at it. AssertionError for a form that a collector refuses."""
    assert re.fullmatch("[0-9a-f]{32}", said["traceId"]) and re.fullmatch("[0-9a-f]{16}", said["spanId"]), said
    assert int(said["traceId"], 16) and int(said["spanId"], 16), said
    parent = said.get("parentSpanId", "")
    assert not parent or re.fullmatch("[0-9a-f]{16}", parent), said
    start, end = said["startTimeUnixNano"], said["endTimeUnixNano"]
    assert isinstance(start, str) and isinstance(end, str) and 0 < int(start) <= int(end), said
    return {"name": said["name"], "trace": said["traceId"], "id": said["spanId"], "parent": parent, "start": int(start),
            "end": int(end), "attributes": plain(said["attributes"]), "flags": said["flags"],
            "state": said.get("traceState", ""), "error": said.get("status", {}).get("message", "")}


def wait_until(holds):
    """Waits until it holds; returns whether it does."""
    ends = time.monotonic() + WAIT_SECONDS
    while not holds():
        if time.monotonic() > ends:
            return False
        time.sleep(0.01)
    return True


def main():
    """A collector in a process of its own: prints its URL, and at the end of its input what it has received."""
    with Collector() as collector:
        print(collector.url, flush=True)
        sys.stdin.read()
        print(json.dumps({"spans": len(collector.spans), "requests": len(collector.requests),
                          "faults": collector.faults[:1]}), flush=True)


if __name__ == "__main__":
    main()
