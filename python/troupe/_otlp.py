"""Exports spans to a collector: OTLP over HTTP, as JSON, with the standard library only.

A daemon thread takes spans from a bounded queue and sends them in batches. Nothing here makes the engine wait: where
the queue is full, a span is dropped and counted.
"""

import collections
import http.client
import json
import logging
import os
import ssl
import threading
import time
import urllib.parse

PATH = "/v1/traces"
# The default ports of OTLP over gRPC and over HTTP.
GRPC_PORT, HTTP_PORT = 4317, 4318

# Spans in the queue, spans of a request, and bytes of its body.
QUEUE_SPANS, BATCH_SPANS, BATCH_BYTES = 8192, 512, 1 << 20
# How long spans are collected; the limit of each step of a request; the longest pause after a failure; how long the end
# of the engine waits for the last spans.
COLLECT_SECONDS, REQUEST_SECONDS, PAUSE_SECONDS, CLOSE_SECONDS = 1.0, 5.0, 30.0, 3.0
# The pause between two pieces of work, and spans in one.
YIELD_SECONDS, SPANS_AT_ONCE = 0.0002, 4
# Characters of a text.
MOST_TEXT = 256
# Answers after which the same batch is sent again, as the protocol says.
RETRIED = (429, 502, 503, 504)

SPAN_KIND_INTERNAL, STATUS_ERROR = 1, 2
# Flags of a span: sampled, it is known whether the parent is remote, it is.
SAMPLED, KNOWS_PARENT, REMOTE_PARENT = 0x1, 0x100, 0x200


class Endpoint:
    """Where spans are sent. ValueError for what is no URL of HTTP."""

    def __init__(self, url, headers=None, authorities="", service=""):
        parts = urllib.parse.urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"'{url}' is no URL of a collector: write http://HOST:{HTTP_PORT} or https://HOST")
        if parts.username is not None or parts.password is not None:
            raise ValueError("the URL of the collector has a user or a password, which would be in logs: use \"auto\" "
                             "with OTEL_EXPORTER_OTLP_HEADERS")
        self.secure, self.host, self.port = parts.scheme == "https", parts.hostname, parts.port
        path = parts.path if parts.path not in ("", "/") else PATH
        self.path = path + (f"?{parts.query}" if parts.query else "")
        self.headers, self.authorities, self.service = dict(headers or {}), authorities, service

    def __str__(self):
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http{'s' if self.secure else ''}://{host}{f':{self.port}' if self.port else ''}{self.path}"

    def connect(self, limit_seconds):
        if not self.secure:
            return http.client.HTTPConnection(self.host, self.port, timeout=limit_seconds)
        context = ssl.create_default_context(cafile=self.authorities or None)
        return http.client.HTTPSConnection(self.host, self.port, timeout=limit_seconds, context=context)


def endpoint_of(wish, engine_endpoint, environment):
    """(`Endpoint`, "") for the option `troupe.traces`, or (None, why there is none). `engine_endpoint`: that of the
    engine itself, or None; `environment`: OpenTelemetry's variables, which count with "auto" only. ValueError for an
    option that is wrong."""
    if wish == "off":
        return None, ""
    if wish != "auto":
        try:
            return Endpoint(wish), ""
        except ValueError as error:
            raise ValueError(f"'troupe.traces' is none of \"off\", \"auto\" and a URL: {error}") from None
    try:
        return _automatic(engine_endpoint, environment)
    except ValueError as error:
        return None, str(error)


def _automatic(engine_endpoint, environment):
    def said(name):
        return (environment.get(f"OTEL_EXPORTER_OTLP_TRACES_{name}") or environment.get(f"OTEL_EXPORTER_OTLP_{name}")
                or "")

    own = environment.get("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
    both = environment.get("OTEL_EXPORTER_OTLP_ENDPOINT")
    speaks_http = (said("PROTOCOL") or "http").startswith("http")
    places = [(own, speaks_http), (both and both.rstrip("/") + PATH, speaks_http)]
    if engine_endpoint:
        # The engine exports over gRPC by default, and puts its own endpoint into the environment of its processes.
        protocol = environment.get("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL") or "grpc"
        places = [(engine_endpoint, protocol.startswith("http")), *(x for x in places if x[0] != engine_endpoint)]
    places = [(url, over_http) for url, over_http in places if url]
    if not places:
        return None, ("neither --otlp-traces-endpoint nor OTEL_EXPORTER_OTLP_TRACES_ENDPOINT nor "
                      "OTEL_EXPORTER_OTLP_ENDPOINT names a collector")
    url = next((url for url, over_http in places if over_http), None) or _beside_grpc(places[0][0])
    if url is None:
        return None, (f"{places[0][0]} is an endpoint over gRPC, and spans are sent over HTTP: set \"troupe.traces\" "
                      f"to the collector's URL, as http://HOST:{HTTP_PORT}")
    return Endpoint(url, _headers(said("HEADERS")), said("CERTIFICATE"),
                    environment.get("OTEL_SERVICE_NAME") or ""), ""


def _beside_grpc(url):
    """The URL over HTTP of a collector whose endpoint over gRPC has the default port."""
    parts = urllib.parse.urlsplit(url if "://" in url else f"grpc://{url}")
    if parts.port != GRPC_PORT or not parts.hostname:
        return None
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    return f"http{'s' if parts.scheme == 'https' else ''}://{host}:{HTTP_PORT}{PATH}"


def _headers(text):
    """Of "name=value,name=value", whose values are quoted as in URLs."""
    pairs = (part.partition("=") for part in text.split(","))
    return {name.strip(): urllib.parse.unquote(value.strip())
            for name, equals, value in pairs if equals and name.strip()}


def attribute(key, value):
    """An attribute as JSON. Keys are the plug-in's own, and need no quoting. The engine's thread cannot run while this
    one encodes, so it is quicker than json.dumps of a dict."""
    kind = type(value)
    if kind is int:
        return f'{{"key":"{key}","value":{{"intValue":"{value}"}}}}'
    if kind is bool:
        return f'{{"key":"{key}","value":{{"boolValue":{"true" if value else "false"}}}}}'
    # Names that users choose may have halves of characters, which no collector takes.
    text = json.dumps(str(value)[:MOST_TEXT].encode("utf-8", "replace").decode())
    return f'{{"key":"{key}","value":{{"stringValue":{text}}}}}'


def attributes(values):
    return ",".join([attribute(key, value) for key, value in values.items()])


def encoded(span):
    """A span of `_spans`, which has an id, as OTLP's JSON."""
    flags = SAMPLED | KNOWS_PARENT | (REMOTE_PARENT if span.remote else 0)
    more = f',"parentSpanId":"{span.parent_id}"' if span.parent_id else ""
    if span.state:
        more += f',"traceState":{json.dumps(span.state)}'
    if span.error:
        more += f',"status":{{"code":{STATUS_ERROR},"message":{json.dumps(span.error)}}}'
    return (f'{{"traceId":"{span.trace_id}","spanId":"{span.own_id}","name":"{span.name}",'
            f'"kind":{SPAN_KIND_INTERNAL},"startTimeUnixNano":"{span.start}","endTimeUnixNano":"{span.end}",'
            f'"flags":{flags}{more},"attributes":[{attributes(span.attributes)}]}}').encode()


class Refused(Exception):
    """A batch that the collector did not take. `again`: it may be sent again, after `pause` seconds if that is set."""

    def __init__(self, text, again, pause=0.0):
        super().__init__(text)
        self.again, self.pause = again, pause


class Exporter:
    """Sends spans to an `Endpoint`. `resource`: attributes of all spans; `bits(n)`: n random bits; `feed`: is called by
    the thread before it sends, and offers spans."""

    def __init__(self, endpoint, resource, version, bits, logger=None, feed=None, collect_seconds=COLLECT_SECONDS,
                 request_seconds=REQUEST_SECONDS, queue_spans=QUEUE_SPANS):
        self.endpoint, self.dropped, self.sent = endpoint, 0, 0
        self._bits, self._logger = bits, logger or logging.getLogger("troupe")
        self._collect, self._limit, self._most = collect_seconds, request_seconds, queue_spans
        self._queue, self._ends, self._closed = collections.deque(), None, False
        self._feed, self._over = feed or (lambda: None), threading.Event()
        self._connection, self._fails, self._said_dropped, self._noted = None, False, False, 0
        self._head = (f'{{"resourceSpans":[{{"resource":{{"attributes":[{attributes(resource)}]}},"scopeSpans":['
                      f'{{"scope":{{"name":"troupe","version":{json.dumps(version)}}},"spans":[').encode()
        self._thread = threading.Thread(target=self._run, name="troupe-traces", daemon=True)

    def start(self):
        """Starts the thread."""
        self._thread.start()
        return self

    def offer(self, span):
        """Takes a span, or drops it where the queue is full. Never waits."""
        if len(self._queue) >= self._most or self._closed:
            self.dropped += 1
        else:
            self._queue.append(span)

    def rest(self):
        """Called by the thread between pieces of work, so that the engine's thread gets Python's lock."""
        if self._ends is None:
            time.sleep(YIELD_SECONDS)

    def close(self, limit_seconds=None):
        """Sends what is left, for at most `limit_seconds`."""
        limit_seconds = CLOSE_SECONDS if limit_seconds is None else limit_seconds
        if self._ends is None:
            self._ends = time.monotonic() + limit_seconds
            self._over.set()
        self._thread.join(limit_seconds)

    def _run(self):
        try:
            pause = next_attempt = 0.0
            while self._ends is None:
                self._over.wait(self._collect)
                self._feed()
                if time.monotonic() >= next_attempt and self._ends is None:
                    pause = self._send_all(pause)
                    next_attempt = time.monotonic() + pause if pause else 0.0
            self._feed()
            if not pause:
                self._send_all(0.0)
        except Exception:
            self._logger.exception("Troupe: traces have ended because of a mistake in the plug-in.")
        self._closed = True
        self.dropped += len(self._queue)
        self._queue.clear()
        self._disconnect()
        if self.dropped:
            self._logger.warning("Troupe: %d spans of traces were dropped in all.", self.dropped)

    def _send_all(self, pause):
        """Sends what is in the queue. Returns the seconds until the next attempt; 0: all was sent."""
        while self._queue and (self._ends is None or time.monotonic() < self._ends):
            body, count = self._batch()
            try:
                rejected = self._post(body)
            except Refused as error:
                kept = error.again and self._ends is None
                if not kept:
                    self.dropped += count
                    self._forget(count)
                self._note_failure(error, kept)
                return min(max(error.pause, 2 * pause, self._collect), PAUSE_SECONDS)
            self._forget(count)
            self.sent += count - rejected
            self.dropped += rejected
            self._note_success(rejected)
            pause = 0.0
        return 0.0

    def _forget(self, count):
        for _ in range(count):
            self._queue.popleft()

    def _batch(self):
        """The body of a request with the first spans of the queue, and their number. They stay in the queue until they
        are sent, so that its limit holds for all."""
        parts, size = [], len(self._head)
        for number in range(min(len(self._queue), BATCH_SPANS)):
            span = self._queue[number]
            # Once: a batch that is sent again has the same spans, so that a collector may recognize them.
            span.own_id = span.own_id or f"{self._bits(64) or 1:016x}"
            part = encoded(span)
            if parts and size + len(part) > BATCH_BYTES:
                break
            parts.append(part)
            size += len(part) + 1
            if number % SPANS_AT_ONCE == SPANS_AT_ONCE - 1:
                self.rest()
        return self._head + b",".join(parts) + b"]}]}]}", len(parts)

    def _post(self, body):
        """Sends a request. Returns the number of spans that the collector has rejected."""
        limit = self._limit
        if self._ends is not None:
            limit = min(limit, max(0.05, self._ends - time.monotonic()))
        fresh = self._connection is None
        try:
            answer, text = self._exchange(body, limit)
        except (http.client.RemoteDisconnected, ConnectionResetError, BrokenPipeError) as error:
            self._disconnect()
            if fresh:
                raise Refused(str(error) or type(error).__name__, True) from None
            # The collector has closed a connection that was idle.
            return self._post(body)
        except (OSError, http.client.HTTPException, ValueError) as error:
            self._disconnect()
            raise Refused(str(error) or type(error).__name__, True) from None
        if answer.status // 100 != 2:
            self._disconnect()
            said = text[:200].decode(errors="replace").strip()
            raise Refused(f"it answers {answer.status} {answer.reason} {said}".strip(), answer.status in RETRIED,
                          _seconds(answer.headers.get("Retry-After")))
        return _rejected(text)

    def _exchange(self, body, limit):
        if self._connection is None:
            self._connection = self.endpoint.connect(limit)
        connection = self._connection
        connection.timeout = limit
        if connection.sock is not None:
            connection.sock.settimeout(limit)
        connection.request("POST", self.endpoint.path, body, {
            **self.endpoint.headers, "Content-Type": "application/json", "User-Agent": "troupe"})
        answer = connection.getresponse()
        text = answer.read(65536)
        if not answer.isclosed():
            self._disconnect()
        return answer, text

    def _disconnect(self):
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _note_failure(self, error, kept):
        if not self._fails:
            self._fails = True
            then = (f"{self._most} spans are kept for a retry, and further ones are dropped" if kept
                    else "these spans are dropped")
            self._logger.warning("Troupe: traces cannot be sent to %s (%s); %s.", self.endpoint, error, then)

    def _note_success(self, rejected):
        if self._fails:
            self._fails, self._noted = False, self.dropped
            self._logger.warning("Troupe: traces are sent to %s again; %d spans were dropped so far.", self.endpoint,
                                 self.dropped)
        elif self.dropped > self._noted and not self._said_dropped:
            self._said_dropped = True
            why = "the collector rejects some" if rejected else f"more than {self._most} of them wait for the collector"
            self._logger.warning("Troupe: spans of traces are dropped (%s); the end of the engine says how many.", why)


def _seconds(text):
    try:
        return min(max(float(text), 0.0), PAUSE_SECONDS)
    except (TypeError, ValueError):
        return 0.0


def _rejected(text):
    """Of an answer to a batch that was taken in part."""
    try:
        return int(json.loads(text)["partialSuccess"]["rejectedSpans"])
    except (ValueError, KeyError, TypeError):
        return 0


def environment():
    """OpenTelemetry's variables."""
    return {name: value for name, value in os.environ.items() if name.startswith("OTEL_")}
