"""The client of the handshake directory against a scripted server: timeouts, heartbeats, refusals."""

import json
import logging
import threading
import time
import unittest
from unittest import mock
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

from troupe import _directory
from troupe._directory import Directory, DirectoryError, Patience, Publisher, Unreachable

logging.getLogger("test").addHandler(logging.NullHandler())
logging.getLogger("test").propagate = False


class Server:
    """Replies with the answers that `answers` has for a method, in turn; the last one repeats. Keeps the requests."""

    def __init__(self, **answers):
        self.answers, self.asked, self.lock = answers, [], threading.Lock()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def handle_any(self):
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                target = urlsplit(self.path)
                with outer.lock:
                    outer.asked.append((self.command, target.path, parse_qs(target.query), body, dict(self.headers)))
                    left = outer.answers[self.command]
                    status, content, headers = left.pop(0) if len(left) > 1 else left[0]
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            do_GET = do_PUT = do_POST = do_DELETE = handle_any

            def log_message(self, *_):
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server.server_address[1]}"

    def methods(self):
        with self.lock:
            return [x[0] for x in self.asked]

    def close(self):
        self.server.shutdown()
        self.server.server_close()


def ok(content=b"{}", **headers):
    return 200, content, {key.replace("_", "-"): value for key, value in headers.items()}


WHOLE, PART = ok(b'{"complete": true}'), ok(b'{"complete": false}')


def no(status, incarnation=None):
    said = {"detail": "no"}
    if incarnation:
        said["incarnation"] = str(incarnation)
    return status, json.dumps(said).encode(), {}


def patient(url, **more):
    return Directory(url, patience=Patience(**{"pause": 0.01, **more}))


class with_server(unittest.TestCase):
    def serve(self, **answers):
        server = Server(**answers)
        self.addCleanup(server.close)
        return server



class Fetching(with_server):
    def test_bytes_and_incarnation(self):
        server = self.serve(GET=[ok(b"\x82\0\xff", Troupe_Incarnation="18446744073709551615")])
        found = Directory(server.url, token="a-token").fetch("an engine", (0, 1, 2), "hash", 7, 1.5)
        self.assertEqual(found, (b"\x82\0\xff", 2**64 - 1))
        _, path, query, _, headers = server.asked[0]
        self.assertEqual(path, "/v1/handshake/an%20engine/ranks/0/1/2")
        self.assertEqual(query, {"compat": ["hash"], "incarnation": ["7"], "wait": ["1500ms"]})
        self.assertEqual(headers["Authorization"], "Bearer a-token")

    def test_refusals_have_their_sentence(self):
        server = self.serve(GET=[no(410, 8)])
        with self.assertRaises(DirectoryError) as caught:
            Directory(server.url).fetch("a", (0, 0, 0), incarnation=7)
        self.assertEqual((caught.exception.status, caught.exception.detail, caught.exception.incarnation),
                         (410, "no", 8))

    def test_what_may_pass_is_tried_again(self):
        server = self.serve(GET=[no(503), no(404), no(429), ok(b"x", Troupe_Incarnation="1")])
        self.assertEqual(patient(server.url).fetch_patiently("a", (0, 0, 0)), (b"x", 1))
        self.assertEqual(len(server.asked), 4)

    def test_what_cannot_pass_is_not(self):
        for status in (400, 401, 403, 409, 410, 422):
            server = self.serve(GET=[no(status)])
            with self.assertRaises(DirectoryError):
                patient(server.url).fetch_patiently("a", (0, 0, 0))
            self.assertEqual(len(server.asked), 1)

    def test_patience_ends(self):
        server = self.serve(GET=[no(404)])
        began = time.monotonic()
        with self.assertRaises(DirectoryError):
            patient(server.url).fetch_patiently("a", (0, 0, 0), patience=0.2)
        self.assertGreaterEqual(time.monotonic() - began, 0.2)
        with self.assertRaises(Unreachable):
            patient("http://127.0.0.1:1").fetch_patiently("a", (0, 0, 0), patience=0.1)

    def test_a_long_wait_is_made_of_several(self):
        server = self.serve(GET=[no(404), no(404), ok(b"x", Troupe_Incarnation="1")])
        patient(server.url, poll=1.5).fetch_patiently("a", (0, 0, 0))
        self.assertEqual([query["wait"] for _, _, query, _, _ in server.asked], [["1500ms"]] * 3)

    def test_pauses_grow_after_failures_and_not_after_waiting(self):
        pauses = []
        server = self.serve(GET=[no(503), no(503), no(503), no(503), no(404), no(503), ok(b"x", Troupe_Incarnation="1")])
        with mock.patch.object(_directory.time, "sleep", pauses.append), \
                mock.patch.object(_directory.random, "uniform", lambda *_: 1.0):
            patient(server.url, pause=1.0, longest=5.0).fetch_patiently("a", (0, 0, 0), patience=1000)
        self.assertEqual(pauses, [1.0, 2.0, 4.0, 5.0, 1.0, 2.0])

    def test_patience_that_makes_no_sense(self):
        for wrong in ({"poll": 0}, {"pause": 0}, {"pause": 2.0, "longest": 1.0}, {"poll": -1}):
            with self.assertRaises(ValueError):
                Patience(**wrong)

    def test_a_cancelled_call_does_not_wait(self):
        cancelled = threading.Event()
        cancelled.set()
        with self.assertRaises(Unreachable):
            patient("http://127.0.0.1:1").fetch_patiently("a", (0, 0, 0), patience=1000, cancel=cancelled)

    def test_who_has_no_place_does_not_wait_at_the_directory(self):
        server = self.serve(GET=[no(404), ok(b"x", Troupe_Incarnation="1")])
        places = threading.BoundedSemaphore(1)
        with places:
            steps = patient(server.url).fetch_steps("a", (0, 0, 0), places=places)
            next(steps)
        self.assertEqual(_directory.finish(steps), (b"x", 1))
        self.assertEqual(["wait" in query for _, _, query, _, _ in server.asked], [False, True])
        self.assertTrue(places.acquire(blocking=False))

    def test_the_last_start_that_is_known(self):
        server = self.serve(GET=[ok(b"{}", Troupe_Incarnation="9"), no(404, 8), no(404), no(503)])
        asked = [Directory(server.url).last_incarnation("a") for _ in range(3)]
        self.assertEqual(asked, [9, 8, 0])
        with self.assertRaises(DirectoryError):
            Directory(server.url).last_incarnation("a")

    def test_addresses(self):
        for url in ("127.0.0.1:18000", "ftp://a", "http://", "http://a?b=c"):
            with self.assertRaises(ValueError):
                Directory(url)


class Publishing(with_server):
    def publisher(self, server, ttl=0.09):
        one = Publisher(patient(server.url), "a", {(0, 0, 0): b"x", (0, 0, 1): b"y"}, (1, 1, 2), "hash", 7, ttl,
                        logging.getLogger("test")).start()
        self.addCleanup(one.end, withdraw=False)
        return one

    def until(self, holds):
        deadline = time.monotonic() + 30
        while not holds():
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.005)

    def test_all_ranks_then_signs_of_life_then_goodbye(self):
        server = self.serve(PUT=[ok()], POST=[WHOLE], DELETE=[(204, b"", {})])
        one = self.publisher(server)
        self.until(lambda: server.methods().count("POST") >= 3)
        one.end()
        self.assertEqual(server.methods()[:2], ["PUT", "PUT"])
        self.assertEqual(server.methods()[-1], "DELETE")
        _, path, query, body, headers = server.asked[1]
        self.assertEqual((path, body), ("/v1/handshake/a/ranks/0/0/1", b"y"))
        self.assertEqual(query, {"incarnation": ["7"], "dp_size": ["1"], "pp_size": ["1"], "tp_size": ["2"],
                                 "compat": ["hash"], "ttl": ["90ms"]})
        self.assertEqual(headers["Content-Type"], "application/octet-stream")

    def test_a_directory_that_forgot_is_notified_again(self):
        server = self.serve(PUT=[ok()], POST=[WHOLE, no(404), WHOLE], DELETE=[(204, b"", {})])
        self.publisher(server)
        self.until(lambda: server.methods().count("PUT") >= 4)

    def test_signs_of_life_keep_to_the_time_that_the_directory_grants(self):
        granted = ok(b'{"complete": true, "expires_in_ms": 60}')
        server = self.serve(PUT=[granted], POST=[granted], DELETE=[(204, b"", {})])
        self.publisher(server, ttl=3600.0)
        self.until(lambda: server.methods().count("POST") >= 3)

    def test_a_directory_that_has_a_part_is_notified_again(self):
        server = self.serve(PUT=[ok()], POST=[PART, WHOLE], DELETE=[(204, b"", {})])
        self.publisher(server)
        self.until(lambda: server.methods().count("PUT") >= 4)

    def test_a_directory_that_is_away_is_waited_for(self):
        server = self.serve(PUT=[no(503), no(503), ok()], POST=[WHOLE], DELETE=[(204, b"", {})])
        one = self.publisher(server)
        self.assertTrue(one.published.wait(30))

    def test_failures_of_signs_of_life_are_in_the_log(self):
        server = self.serve(PUT=[ok()], POST=[WHOLE, no(503), WHOLE], DELETE=[(204, b"", {})])
        with self.assertLogs("test", "WARNING") as said:
            self.publisher(server)
            self.until(lambda: server.methods().count("POST") >= 3)
        self.assertEqual(said.output, ["ERROR:test:cannot publish engine a: 503: no"])
        with self.assertLogs("test", "WARNING") as said:
            server.close()
            self.until(lambda: said.records)
        self.assertIn("does not answer", said.output[0])

    def test_a_later_start_has_the_last_word(self):
        server = self.serve(PUT=[ok()], POST=[no(410, 8)], DELETE=[(204, b"", {})])
        one = self.publisher(server)
        self.assertTrue(one.fenced.wait(30))
        one.end()
        self.assertNotIn("DELETE", server.methods())

    def test_a_start_that_never_was_published_says_so_and_what_helps(self):
        server = self.serve(PUT=[no(410, 8)], POST=[WHOLE], DELETE=[(204, b"", {})])
        with self.assertLogs("test", "ERROR") as said:
            one = self.publisher(server)
            self.assertTrue(one.fenced.wait(30))
        self.assertIn("the clock was set back", said.output[0])
        self.assertIn("incarnation 8, and this start is 7", said.output[0])
        self.assertNotIn("elsewhere", said.output[0])

    def test_signs_of_life_and_the_end_say_whose_they_are(self):
        server = self.serve(PUT=[ok()], POST=[WHOLE], DELETE=[(204, b"", {})])
        one = self.publisher(server)
        self.until(lambda: "POST" in server.methods())
        one.end()
        for method, _, query, _, _ in server.asked:
            self.assertEqual((method, query["incarnation"]), (method, ["7"]))


class Tokens(unittest.TestCase):
    def test_from_file_or_environment(self):
        import os
        import tempfile

        with tempfile.NamedTemporaryFile("w", suffix=".token") as file:
            file.write("from-a-file\n")
            file.flush()
            self.assertEqual(_directory.read_token(file.name), "from-a-file")
        with mock.patch.dict(os.environ, {"TROUPE_TOKEN": "from-outside"}):
            self.assertEqual(_directory.read_token(""), "from-outside")


if __name__ == "__main__":
    unittest.main()
