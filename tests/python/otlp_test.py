"""The exporter of spans, with a collector: what it receives, and what happens where it is slow, refuses or is
unreachable.
"""

import logging
import shutil
import socket
import ssl
import subprocess
import tempfile
import threading
import unittest

from collector import Collector, wait_until
from troupe import _otlp, _spans

TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"


def span(name="troupe.lookup", own="", parent=PARENT, remote=False, start=10, end=20, attributes=None, error=""):
    return _spans.Span(name, TRACE, own, parent, remote, "a=b", start, end, attributes or {}, error)


class with_exporter(unittest.TestCase):
    def made(self, url, headers=None, authorities="", **options):
        options = {"collect_seconds": 0.02, "request_seconds": 20.0, **options}
        self.logger, self.numbers = logging.getLogger(self.id()), iter(range(1, 1 << 30))
        made = _otlp.Exporter(_otlp.Endpoint(url, headers, authorities), {"service.name": "engine", "process.pid": 7},
                              "0.1", lambda bits: next(self.numbers), self.logger, **options)
        self.addCleanup(made.close, 0.0)
        return made.start()


class sending(with_exporter):
    def test_spans_are_received_as_they_are(self):
        with Collector() as collector:
            exporter = self.made(collector.url)
            exporter.offer(span(start=1_700_000_000_000_000_001, end=1_700_000_000_000_000_002, attributes={
                "text": "ä\ud800", "number": 1 << 40, "yes": True, "long": "x" * 1000}, error="it has failed"))
            exporter.offer(span("troupe.request", own="00000000000000aa", remote=True))
            exporter.offer(span("troupe.request", own="00000000000000ab", parent=""))
            self.assertTrue(collector.wait(lambda x: len(x.spans) == 3))
            exporter.close()
        first, second, third = collector.spans
        self.assertEqual(first, {
            "name": "troupe.lookup", "trace": TRACE, "id": f"{1:016x}", "parent": PARENT, "state": "a=b",
            "start": 1_700_000_000_000_000_001, "end": 1_700_000_000_000_000_002, "flags": 0x101,
            "error": "it has failed", "attributes": {"text": "ä?", "number": 1 << 40, "yes": True, "long": "x" * 256}})
        self.assertEqual((second["id"], second["flags"]), ("00000000000000aa", 0x301))
        self.assertEqual((third["parent"], third["flags"]), ("", 0x101))
        self.assertEqual(collector.resources[0], {"service.name": "engine", "process.pid": 7})
        self.assertEqual(collector.faults, [])
        path, headers = collector.requests[0]
        self.assertEqual((path, headers["Content-Type"]), ("/v1/traces", "application/json"))
        self.assertEqual((exporter.sent, exporter.dropped), (3, 0))

    def test_many_spans_are_sent_in_batches_over_one_connection(self):
        with Collector() as collector:
            exporter = self.made(collector.url, collect_seconds=3600.0)
            for number in range(3 * _otlp.BATCH_SPANS):
                exporter.offer(span(start=number + 1, end=number + 2))
            exporter.close(60.0)
        self.assertEqual([x["start"] for x in collector.spans], list(range(1, 3 * _otlp.BATCH_SPANS + 1)))
        self.assertEqual(len({x["id"] for x in collector.spans}), 3 * _otlp.BATCH_SPANS)
        self.assertEqual((len(collector.requests), len(collector.connections)), (3, 1))

    def test_a_batch_has_a_limit_of_bytes(self):
        with Collector() as collector:
            exporter = self.made(collector.url)
            long = {f"key {number}": "x" * 256 for number in range(1000)}
            for _ in range(8):
                exporter.offer(span(attributes=long))
            self.assertTrue(collector.wait(lambda x: len(x.spans) == 8))
            self.assertTrue(all(int(headers["Content-Length"]) < 1.5 * _otlp.BATCH_BYTES
                                for _, headers in collector.requests))
            self.assertGreater(len(collector.requests), 1)

    def test_headers_and_path_of_the_endpoint(self):
        with Collector() as collector:
            exporter = self.made(collector.url + "/base/traces?a=b", headers={"Authorization": "Bearer x"})
            exporter.offer(span())
            self.assertTrue(collector.wait(lambda x: x.spans))
        path, headers = collector.requests[0]
        self.assertEqual((path, headers["Authorization"]), ("/base/traces?a=b", "Bearer x"))

    def test_the_end_sends_what_is_left(self):
        with Collector() as collector:
            exporter = self.made(collector.url, collect_seconds=3600.0)
            exporter.offer(span())
            exporter.close(60.0)
            self.assertEqual(len(collector.spans), 1)
            exporter.offer(span())
            self.assertEqual(exporter.dropped, 1)
            self.assertFalse(exporter._thread.is_alive())

    def test_what_feeds_the_thread_is_asked_before_it_sends_and_at_the_end(self):
        fed = []

        def feed():
            fed.append(1)
            exporter.offer(span(start=len(fed)))

        with Collector() as collector:
            exporter = self.made(collector.url, collect_seconds=3600.0, feed=feed)
            exporter.close(60.0)
        self.assertEqual([x["start"] for x in collector.spans], list(range(1, 1 + len(fed))))
        self.assertGreater(len(fed), 0)

    def test_a_connection_that_the_collector_has_closed_is_opened_again(self):
        with Collector(answers=[(200, b"{}", {"Connection": "close"})]) as collector:
            exporter = self.made(collector.url)
            for number in range(3):
                exporter.offer(span())
                self.assertTrue(wait_until(lambda wanted=number + 1: exporter.sent == wanted))
        self.assertEqual((len(collector.spans), exporter.dropped, len(collector.connections)), (3, 0, 2))

    def test_a_connection_that_ends_while_it_is_idle_costs_no_span(self):
        with socket.socket() as listener:
            listener.bind(("127.0.0.1", 0))
            listener.listen()
            ended = []

            def serve():
                for _ in range(2):
                    connection, _ = listener.accept()
                    connection.recv(65536)
                    connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")
                    connection.close()
                    ended.append(1)

            thread = threading.Thread(target=serve, daemon=True)
            thread.start()
            exporter = self.made(f"http://127.0.0.1:{listener.getsockname()[1]}")
            for number in range(2):
                exporter.offer(span())
                self.assertTrue(wait_until(lambda wanted=number + 1: exporter.sent + exporter.dropped == wanted
                                           and len(ended) == wanted))
            thread.join()
        self.assertEqual((exporter.sent, exporter.dropped), (2, 0))

    @unittest.skipUnless(shutil.which("openssl"), "there is no openssl")
    def test_tls(self):
        with tempfile.TemporaryDirectory() as place:
            made = subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj",
                                   "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1", "-keyout",
                                   f"{place}/key", "-out", f"{place}/certificate"], capture_output=True, check=False)
            self.assertEqual(made.returncode, 0, made.stderr)
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(f"{place}/certificate", f"{place}/key")
            with Collector(context=context) as collector:
                trusts = self.made(collector.url, authorities=f"{place}/certificate")
                trusts.offer(span())
                self.assertTrue(collector.wait(lambda x: x.spans))
                with self.assertLogs(self.id(), "WARNING") as logs:
                    distrusts = self.made(collector.url)
                    distrusts.offer(span())
                    self.assertTrue(wait_until(lambda: logs.output))
                self.assertIn("CERTIFICATE_VERIFY_FAILED", logs.output[0])
                self.assertEqual(len(collector.spans), 1)


class trouble(with_exporter):
    def test_a_collector_that_is_away_costs_spans_and_one_line(self):
        with socket.socket() as taken:
            # Bound, and not listening: connections are refused.
            taken.bind(("127.0.0.1", 0))
            with self.assertLogs(self.id(), "WARNING") as logs:
                exporter = self.made(f"http://127.0.0.1:{taken.getsockname()[1]}", queue_spans=10)
                for _ in range(25):
                    exporter.offer(span())
                self.assertEqual(exporter.dropped, 15)
                self.assertTrue(wait_until(lambda: logs.output))
                attempts = []
                exporter._post, post = lambda body: (attempts.append(1), post(body))[1], exporter._post
                self.assertTrue(wait_until(lambda: len(attempts) > 2))
                self.assertEqual(len(logs.output), 1)
                exporter.close(60.0)
        self.assertIn("refused", logs.output[0])
        self.assertIn("10 spans are kept", logs.output[0])
        self.assertIn("25 spans of traces were dropped in all", logs.output[-1])
        self.assertEqual((len(logs.output), exporter.dropped, exporter.sent), (2, 25, 0))

    def test_attempts_become_rarer(self):
        fed, attempts = [], []

        def refuse(body):
            attempts.append(body)
            raise _otlp.Refused("busy", True)

        exporter = _otlp.Exporter(_otlp.Endpoint("http://here"), {}, "0.1", lambda bits: 1, logging.getLogger(self.id()),
                                  feed=lambda: fed.append(1), collect_seconds=0.01)
        exporter._post = refuse
        exporter.offer(span())
        with self.assertLogs(self.id(), "WARNING"):
            exporter.start()
            self.addCleanup(exporter.close, 0.0)
            # The thread goes on taking notes meanwhile.
            self.assertTrue(wait_until(lambda: len(fed) >= 100))
        self.assertLess(len(attempts), 50)
        self.assertGreater(len(attempts), 1)

    def test_a_collector_that_comes_later_gets_what_is_kept(self):
        with socket.socket() as taken:
            taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            taken.bind(("127.0.0.1", 0))
            port = taken.getsockname()[1]
            with self.assertLogs(self.id(), "WARNING") as logs:
                exporter = self.made(f"http://127.0.0.1:{port}", queue_spans=10)
                for number in range(12):
                    exporter.offer(span(start=number + 1))
                self.assertTrue(wait_until(lambda: logs.output))
                taken.close()
                with Collector(port=port) as collector:
                    self.assertTrue(collector.wait(lambda x: len(x.spans) == 10))
                    self.assertTrue(wait_until(lambda: len(logs.output) == 2))
        self.assertEqual([x["start"] for x in collector.spans], list(range(1, 11)))
        self.assertIn("again; 2 spans were dropped", logs.output[1])

    def test_a_collector_that_hangs_does_not_hold_up_the_engine_nor_its_end(self):
        with Collector() as collector, collector.hanging():
            exporter = self.made(collector.url, queue_spans=600, request_seconds=3600.0)
            exporter.offer(span())
            self.assertTrue(wait_until(lambda: exporter._connection is not None and exporter._connection.sock))
            for _ in range(700):
                exporter.offer(span())
            self.assertEqual(exporter.dropped, 101)
            # The thread waits for the answer, and is left to itself.
            exporter.close(0.1)
            self.assertTrue(exporter._thread.is_alive() and exporter._thread.daemon)

    def test_a_request_that_is_not_answered_has_failed(self):
        with Collector() as collector, self.assertLogs(self.id(), "WARNING") as logs:
            with collector.hanging():
                exporter = self.made(collector.url, request_seconds=0.1)
                exporter.offer(span())
                self.assertTrue(wait_until(lambda: logs.output))
            self.assertIn("timed out", logs.output[0])
            self.assertTrue(wait_until(lambda: exporter.sent == 1))

    def test_answers_after_which_a_batch_is_sent_again(self):
        answers = [(status, b"busy", {"Retry-After": "0"}) for status in _otlp.RETRIED]
        with Collector(answers) as collector, self.assertLogs(self.id(), "WARNING") as logs:
            exporter = self.made(collector.url)
            exporter.offer(span())
            self.assertTrue(collector.wait(lambda x: x.spans))
            self.assertTrue(wait_until(lambda: len(logs.output) == 2))
        self.assertEqual((len(collector.requests), exporter.sent, exporter.dropped), (1 + len(answers), 1, 0))
        # The same batch, with the same ids.
        self.assertEqual(len(set(collector.bodies)), 1)
        self.assertIn("429", logs.output[0])

    def test_answers_after_which_it_is_dropped(self):
        for status in (400, 401, 404, 301, 500):
            with (Collector([(status, b"no such tenant", {})]) as collector,
                  self.assertLogs(self.id(), "WARNING") as logs):
                exporter = self.made(collector.url)
                exporter.offer(span())
                self.assertTrue(wait_until(lambda: exporter.dropped == 1))
                self.assertTrue(wait_until(lambda: logs.output))
                self.assertIn(f"{status}", logs.output[0])
                self.assertIn("no such tenant", logs.output[0])
                exporter.offer(span())
                self.assertTrue(wait_until(lambda: exporter.sent == 1))
            self.assertEqual(len(collector.requests), 2)

    def test_spans_that_the_collector_rejects_are_counted(self):
        answer = (200, b'{"partialSuccess":{"rejectedSpans":"2","errorMessage":"x"}}', {})
        with Collector([answer, answer]) as collector, self.assertLogs(self.id(), "WARNING") as logs:
            exporter = self.made(collector.url, collect_seconds=3600.0)
            for _ in range(_otlp.BATCH_SPANS + 1):
                exporter.offer(span())
            exporter.close(60.0)
        self.assertEqual((exporter.sent, exporter.dropped), (_otlp.BATCH_SPANS - 3, 4))
        self.assertEqual([line.partition("dropped")[0].rpartition("Troupe: ")[2] for line in logs.output],
                         ["spans of traces are ", "4 spans of traces were "])

    def test_an_answer_that_is_none(self):
        with socket.socket() as listener, self.assertLogs(self.id(), "WARNING") as logs:
            listener.bind(("127.0.0.1", 0))
            listener.listen()

            def answer():
                connection, _ = listener.accept()
                connection.recv(65536)
                connection.sendall(b"\0nonsense\r\n\r\n")
                connection.close()

            thread = threading.Thread(target=answer, daemon=True)
            thread.start()
            exporter = self.made(f"http://127.0.0.1:{listener.getsockname()[1]}")
            exporter.offer(span())
            self.assertTrue(wait_until(lambda: logs.output))
            thread.join()
        self.assertIn("nonsense", logs.output[0])

    def test_a_mistake_in_the_thread_ends_traces_alone(self):
        with Collector() as collector, self.assertLogs(self.id(), "ERROR"):
            exporter = self.made(collector.url)
            exporter.offer("no span")
            exporter._thread.join(60.0)
        exporter.offer(span())
        self.assertEqual((exporter.dropped, len(exporter._queue)), (2, 0))


class endpoints(unittest.TestCase):
    def place(self, wish="auto", engine=None, **variables):
        found, why = _otlp.endpoint_of(wish, engine, {f"OTEL_{key}": value for key, value in variables.items()})
        self.assertEqual(found is None, bool(why) or wish == "off")
        return str(found) if found else why

    def test_urls(self):
        for said, url in (("http://here:4318", "http://here:4318/v1/traces"),
                          ("https://here/", "https://here/v1/traces"),
                          ("https://here/otlp/v1/traces", "https://here/otlp/v1/traces"),
                          ("http://[::1]:4318", "http://[::1]:4318/v1/traces")):
            self.assertEqual(self.place(said), url)
        for wrong in ("here:4318", "on", "", "grpc://here:4317", "http://", "http://here:port", "http://a:b@here"):
            with self.assertRaisesRegex(ValueError, "troupe.traces"):
                str(_otlp.endpoint_of(wrong, None, {})[0])

    def test_the_environment_counts_with_auto_alone(self):
        said = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://other:4318", "OTEL_EXPORTER_OTLP_HEADERS": "a=b",
                "OTEL_SERVICE_NAME": "mine"}
        for wish, wanted in (("off", None), ("http://here:1", ("http://here:1/v1/traces", {}, "")),
                             ("auto", ("http://other:4318/v1/traces", {"a": "b"}, "mine"))):
            found, _ = _otlp.endpoint_of(wish, None, said)
            self.assertEqual(found and (str(found), found.headers, found.service), wanted)

    def test_variables_for_traces_come_first(self):
        self.assertEqual(self.place(EXPORTER_OTLP_ENDPOINT="http://a:1/x/"), "http://a:1/x/v1/traces")
        self.assertEqual(self.place(EXPORTER_OTLP_ENDPOINT="http://a:1",
                                    EXPORTER_OTLP_TRACES_ENDPOINT="http://b:2/here"), "http://b:2/here")
        found, _ = _otlp.endpoint_of("auto", None, {
            "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "https://b", "OTEL_EXPORTER_OTLP_HEADERS": "a=b",
            "OTEL_EXPORTER_OTLP_TRACES_HEADERS": "Authorization=Basic%20xy=,x = y,,z",
            "OTEL_EXPORTER_OTLP_CERTIFICATE": "/ca.pem"})
        self.assertEqual((found.headers, found.authorities), ({"Authorization": "Basic xy=", "x": "y"}, "/ca.pem"))

    def test_the_endpoint_of_the_engine(self):
        # Over gRPC unless set otherwise: the port over HTTP is known where that over gRPC is the usual one.
        self.assertEqual(self.place(engine="http://a:4317"), "http://a:4318/v1/traces")
        self.assertEqual(self.place(engine="grpc://a:4317"), "http://a:4318/v1/traces")
        self.assertEqual(self.place(engine="https://a:4317"), "https://a:4318/v1/traces")
        self.assertEqual(self.place(engine="[::1]:4317"), "http://[::1]:4318/v1/traces")
        self.assertIn("set \"troupe.traces\"", self.place(engine="http://a:9999"))
        self.assertEqual(self.place(engine="http://a:9999/x", EXPORTER_OTLP_TRACES_PROTOCOL="http/protobuf"),
                         "http://a:9999/x")
        # It comes back in the environment, which has no other one then.
        self.assertIn("over gRPC", self.place(engine="http://a:9999", EXPORTER_OTLP_TRACES_ENDPOINT="http://a:9999"))
        self.assertEqual(self.place(engine="http://a:4317", EXPORTER_OTLP_ENDPOINT="http://b:1"),
                         "http://b:1/v1/traces")

    def test_without_an_endpoint_there_is_a_reason(self):
        self.assertIn("names a collector", self.place())
        self.assertIn("over gRPC", self.place(EXPORTER_OTLP_ENDPOINT="http://a:1", EXPORTER_OTLP_PROTOCOL="grpc"))
        self.assertEqual(self.place(EXPORTER_OTLP_ENDPOINT="http://a:4317", EXPORTER_OTLP_PROTOCOL="grpc"),
                         "http://a:4318/v1/traces")
        # What the environment of an engine says wrongly does not keep it from starting.
        self.assertIn("no URL", self.place(EXPORTER_OTLP_ENDPOINT="nonsense"))


if __name__ == "__main__":
    unittest.main()
