"""Checks with vLLM's own client, whose source is taken from a file and run as it is."""

import json
import logging
import random
import socketserver
import threading
import time
from abc import ABC, abstractmethod
from http.server import BaseHTTPRequestHandler

import requests
from requests.adapters import HTTPAdapter
from urllib3.util.retry import Retry

try:
    import orjson
except ImportError:
    orjson = None  # older clients do without

HEADS = ("class Hf3fsMetadataInterface(ABC):", "class Hf3fsGlobalMetadataClient(Hf3fsMetadataInterface):")


def class_text(text, head):
    """The first class that begins with this line, up to the next line that is not indented."""
    lines = text.splitlines()
    begin = lines.index(head)
    end = begin + 1
    while end < len(lines) and (not lines[end].strip() or lines[end].startswith(" ")):
        end += 1
    return "\n".join(lines[begin:end]) + "\n"


def client_text(path):
    with open(path, encoding="utf-8") as file:
        text = file.read()
    return [class_text(text, head) for head in HEADS]


def missing_package(path):
    """The missing dependency of the client in this file, as a sentence; None if there is none."""
    text = "".join(client_text(path))
    if orjson is None and "orjson" in text and "HAS_ORJSON" not in text:
        return "this version of vLLM's client needs the Python package orjson, which PyPI has: pip install orjson"
    return None


def load_client(path):
    names = {
        "ABC": ABC,
        "HAS_ORJSON": orjson is not None,
        "HTTPAdapter": HTTPAdapter,
        "Retry": Retry,
        "abstractmethod": abstractmethod,
        "logger": logging.getLogger("vllm_client"),
        "orjson": orjson,
        "requests": requests,
    }
    names["logger"].disabled = True
    for text in client_text(path):
        exec(compile(text, path, "exec"), names)
    return names["Hf3fsGlobalMetadataClient"]


def expect(what, got, wanted):
    if got != wanted:
        raise AssertionError(f"{what}: got {got!r}, expected {wanted!r}")


def expect_error(what, call, status):
    """The client turns every error into one exception; the status is in its cause."""
    try:
        call()
    except RuntimeError as error:
        response = getattr(error.__cause__, "response", None)
        expect(what, response.status_code if response is not None else None, status)
    else:
        raise AssertionError(f"{what}: no error")


class flaky_proxy:
    """Forwards requests. The server gets the next `lose` requests too, but the client gets 503."""

    def __init__(self, port):
        outer = self
        self.lose = 0
        self.requests = 0

        class handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self):
                outer.requests += 1
                body = self.rfile.read(int(self.headers["Content-Length"]))
                answer = requests.post(f"http://127.0.0.1:{port}{self.path}", data=body, timeout=30)
                code, content = answer.status_code, answer.content
                if outer.lose > 0:
                    outer.lose -= 1
                    code, content = 503, b"{}"
                self.send_response(code)
                if code != 204:
                    self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                if code != 204:
                    self.wfile.write(content)

            def log_message(self, *arguments):
                pass

        class threading_server(socketserver.ThreadingTCPServer):
            daemon_threads = True
            allow_reuse_address = True

        self.server = threading_server(("127.0.0.1", 0), handler)
        self.port = self.server.server_address[1]
        self.thread = threading.Thread(target=self.server.serve_forever, daemon=True)
        self.thread.start()

    def close(self):
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()


def check_usual_course(client):
    client.initialize(0, role="scheduler")
    expect("before any rank", client.batch_key_exists(["a"]), [False])
    expect_error("a rank that is not initialized", lambda: client.allocate_pages_for_keys(0, [("a", "")]), 404)
    client.initialize(0, 8)
    client.initialize(1, 8, "worker")
    client.initialize(0, 8)
    expect_error("another number of pages", lambda: client.initialize(0, 9), 409)
    expect_error("no pages", lambda: client.initialize(2, 0), 400)
    expect_error("an unknown role", lambda: client.initialize(2, 8, "writer"), 400)

    keys = ["277eea91ca4b473737090281ef7e3fec", "2475cfddf289f6f8197bb30218808f0b", "386b2d9cf5aa91ba3a4b42c35396c822"]
    for rank in (0, 1):
        given = client.allocate_pages_for_keys(rank, [(key, "") for key in keys])
        expect("keys of an allocation", [key for key, _ in given], keys)
        pages = [page for _, page in given]
        expect("pages that are different and there", len(set(pages) & set(range(8))), 3)
        expect("complete before all ranks", client.batch_key_exists(keys), [False] * 3)
        expect("found before all ranks", client.get_key_locations(rank, keys), [None] * 3)
        client.confirm_write_for_keys(rank, [tuple(x) for x in given])
    expect("complete", client.batch_key_exists([*keys, "other"]), [True] * 3 + [False])
    expect("told", client.get_key_locations(1, ["other", *keys]), [None, *pages])
    expect("given again", client.allocate_pages_for_keys(1, [(keys[1], "")]), [[keys[1], pages[1]]])

    spare = client.allocate_pages_for_keys(0, [("spare", "")])[0][1]
    client.confirm_write_for_keys(0, [], [spare])
    expect("after a write that failed", client.batch_key_exists(["spare"]), [False])
    client.confirm_write_for_keys(0, [], None)
    expect("a rank that is not there", expect_error("locations", lambda: client.get_key_locations(7, keys), 404), None)
    expect_error("confirmation for it", lambda: client.confirm_write_for_keys(7, [("a", 0)], [0]), 404)


def check_retries(make_client, port):
    proxy = flaky_proxy(port)
    try:
        client = make_client(f"http://127.0.0.1:{proxy.port}/hf3fs/retries/")
        client.initialize(0, 2)
        proxy.lose = 2
        lost = client.allocate_pages_for_keys(0, [("a", "")])
        expect("lost answers", proxy.lose, 0)
        proxy.lose = 1
        client.confirm_write_for_keys(0, [tuple(lost[0])])
        expect("confirmed once or twice", client.get_key_locations(0, ["a"]), [lost[0][1]])
        # No page leaked: the other one is available.
        other = client.allocate_pages_for_keys(0, [("b", "")])
        expect("both pages", {lost[0][1], other[0][1]}, {0, 1})
        # A permanent error is not retried.
        proxy.requests = 0
        expect_error("unknown rank", lambda: client.allocate_pages_for_keys(5, [("a", "")]), 404)
        expect("requests for it", proxy.requests, 1)
        # Retries of a temporary error end.
        proxy.lose = 100
        proxy.requests = 0
        try:
            client.batch_key_exists(["a"])
            raise AssertionError("an answer out of nowhere")
        except RuntimeError:
            expect("attempts", proxy.requests, 4)
    finally:
        proxy.close()


def check_random_course(client, seed, pages):
    """One engine with two ranks that saves, loads and fails, against a dictionary."""
    print(f"seed {seed}")
    draw = random.Random(seed)
    ranks = 2
    for rank in range(ranks):
        client.initialize(rank, pages)
    stored = {}  # key -> page per rank
    for _ in range(150):
        if draw.random() < 0.5:
            keys = list({f"k{draw.randrange(40)}" for _ in range(draw.randint(1, 4))})
            for rank in range(ranks):
                given = client.allocate_pages_for_keys(rank, [(key, "") for key in keys])
                expect("keys", [key for key, _ in given], keys)
                good = [(key, page) for key, page in given if page >= 0]
                if draw.random() < 0.2:
                    client.confirm_write_for_keys(rank, [], [page for _, page in good])
                    for key, _ in good:
                        stored.get(key, {}).pop(rank, None)
                    continue
                client.confirm_write_for_keys(rank, good)
                for key, page in good:
                    stored.setdefault(key, {})[rank] = page
        else:
            keys = [f"k{draw.randrange(40)}" for _ in range(6)]
            exists = client.batch_key_exists(keys)
            for rank in range(ranks):
                notified = client.get_key_locations(rank, keys)
                for key, there, page in zip(keys, exists, notified):
                    # Stored pages may have been evicted, but only stored ones are found.
                    if page is not None:
                        expect(f"page of {key}", page, stored[key][rank])
                        expect(f"{key} complete", there and len(stored[key]) == ranks, True)
    for rank in range(ranks):
        notified = [x for x in client.get_key_locations(rank, [f"k{i}" for i in range(40)]) if x is not None]
        expect("pages found at the end", len(notified), len(set(notified)))


def check_full_pool(client):
    """A pool of few pages accepts any number of keys, one after the other."""
    client.initialize(0, 4)
    for i in range(5):
        deadline = time.monotonic() + 30
        while (page := client.allocate_pages_for_keys(0, [(f"k{i}", "")])[0][1]) < 0:
            if time.monotonic() > deadline:
                raise AssertionError("a full pool makes no room")
        client.confirm_write_for_keys(0, [(f"k{i}", page)])
        expect("the newest", client.batch_key_exists([f"k{i}"]), [True])


def check_engine_that_died(client, clear):
    """It was killed during a save and restarts with another page size."""
    client.initialize(0, 64)
    client.initialize(1, 64)
    written = client.allocate_pages_for_keys(0, [("written", "")])
    client.confirm_write_for_keys(0, [tuple(written[0])])
    begun = client.allocate_pages_for_keys(0, [("begun-1", ""), ("begun-2", "")])
    client.get_key_locations(0, ["written"])
    expect_error("before it is cleared", lambda: client.initialize(0, 32), 409)
    clear()
    # Each of these raises unless the answer is 200.
    for rank in (0, 1):
        client.initialize(rank, 32)
    client.confirm_write_for_keys(0, [tuple(x) for x in begun], [begun[0][1]])
    client.confirm_write_for_keys(1, [tuple(x) for x in begun])
    expect("confirmed by a dead writer", client.batch_key_exists(["written", "begun-1", "begun-2"]), [False] * 3)
    # Late writes of the old engine may be anywhere in the file: nothing is given out until its time has passed.
    expect("pages beside late writers", client.allocate_pages_for_keys(0, [("begun-1", "")]), [["begun-1", -1]])
    # Without ranks there is nothing to wait for.
    page = client.allocate_pages_for_keys(1, [("begun-1", "")])[0][1]
    expect("a page of the new registration", 0 <= page < 32, True)


def check_restart(server, source):
    """Engines initialize once, when they start: after a restart of the server, they continue without an error."""
    client = load_client(source)(f"http://127.0.0.1:{server.port}")
    for rank in (0, 1):
        client.initialize(rank, 64)
    keys = [f"key-{i}" for i in range(20)]
    pages = []
    for rank in (0, 1):
        given = client.allocate_pages_for_keys(rank, [(key, "") for key in keys])
        client.confirm_write_for_keys(rank, [tuple(x) for x in given])
        pages.append([page for _, page in given])
    half = client.allocate_pages_for_keys(0, [("half", "")])[0][1]
    client.confirm_write_for_keys(0, [("half", half)])
    client.allocate_pages_for_keys(0, [("never confirmed", "")])
    for _ in range(2):
        server.kill()
        server.start()
        expect("confirmed before", client.batch_key_exists(keys), [True] * len(keys))
        expect("not confirmed before", client.batch_key_exists(["half", "never confirmed"]), [False, False])
        for rank in (0, 1):
            expect("where", client.get_key_locations(rank, keys), pages[rank])
        # New pages are none of those that are live.
        new = client.allocate_pages_for_keys(0, [(f"new-{i}", "") for i in range(10)])
        taken = {*pages[0], half}
        expect("pages given out again", [page for _, page in new if page in taken or page < 0], [])
    client.confirm_write_for_keys(1, [tuple(client.allocate_pages_for_keys(1, [("half", "")])[0])])
    expect("completed afterwards", client.batch_key_exists(["half"]), [True])
    client.initialize(0, 64)
    expect_error("another number of pages", lambda: client.initialize(0, 65), 409)


def check(port, source, pages):
    make_client = load_client(source)

    def client_of(name):
        return make_client(f"http://127.0.0.1:{port}/hf3fs/{name}")

    check_usual_course(make_client(f"http://127.0.0.1:{port}/"))
    check_retries(make_client, port)
    check_full_pool(client_of("full"))
    check_engine_that_died(client_of("died"), lambda: requests.post(
        f"http://127.0.0.1:{port}/hf3fs/died/clear", timeout=30).raise_for_status())
    for seed in (1, 2):
        check_random_course(client_of(f"random-{seed}"), seed, pages)
    requests.post(f"http://127.0.0.1:{port}/clear", timeout=30).raise_for_status()
    client = make_client(f"http://127.0.0.1:{port}")
    expect("after clear", client.batch_key_exists(["277eea91ca4b473737090281ef7e3fec"]), [False])
    expect("ranks after clear", len(client.allocate_pages_for_keys(0, [("new", "")])), 1)
    # JSON as other encoders write it.
    answer = requests.post(
        f"http://127.0.0.1:{port}/keys/batch_exists", data=json.dumps({"keys": ["ключ"]}, ensure_ascii=False).encode(),
        timeout=30)
    expect("no content type, UTF-8", answer.json(), {"exists": [False]})
