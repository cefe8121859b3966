"""Client of the handshake directory over HTTP, for engines: publishing with heartbeats, and fetching with retries.

Needs only Python's standard library. docs/handshake.md explains the directory.
"""

import concurrent.futures
import heapq
import http.client
import itertools
import json
import os
import random
import ssl
import threading
import time
import urllib.parse


class Patience:
    """Parameters of waiting. A wait of more than `poll` seconds is split, so that the loss of the directory is detected;
    after a failure, a client pauses for `pause` seconds, which doubles with each further one, up to `longest`."""

    def __init__(self, poll=20.0, pause=0.1, longest=3.0):
        if not (poll > 0 and 0 < pause <= longest):
            raise ValueError(f"a poll of {poll} s and pauses of {pause} to {longest} s are invalid: all of them must be "
                             "above 0, and the first pause not above the longest")
        self.poll, self.pause, self.longest = poll, pause, longest

    def next_pause(self, pause):
        return min(2 * pause, self.longest)


class DirectoryError(Exception):
    """An answer of the directory with an error."""

    def __init__(self, status, detail, incarnation=None):
        super().__init__(f"{status}: {detail}")
        self.status, self.detail, self.incarnation = status, detail, incarnation

    @property
    def passes(self):
        """Whether a retry may succeed."""
        return self.status in (404, 429, 500, 502, 503, 504)


class Unreachable(Exception):
    """No answer came."""


class Directory:
    """The address of the directory, and the credentials of the client. Each request has a connection of its own, because
    handshakes are rare and may take long."""

    def __init__(self, url, token="", authorities="", certificate="", key="", timeout=5.0,
                 patience=None):
        parts = urllib.parse.urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
            raise ValueError(f"the address of a directory must be http://HOST:PORT or https://HOST:PORT, not {url!r}")
        self.host, self.port, self.patience = parts.hostname, parts.port, patience or Patience()
        self.prefix, self.token, self.timeout, self.tls = parts.path.rstrip("/"), token, timeout, None
        if parts.scheme == "https":
            self.tls = ssl.create_default_context(cafile=authorities or None)
            if certificate:
                self.tls.load_cert_chain(certificate, key or None)

    def publish(self, engine, rank, payload, incarnation, sizes, compat, ttl):
        """Returns the seconds for which it is published, which may be fewer than requested."""
        dp, pp, tp = rank
        _, said = self._ask("PUT", self._path(engine, "ranks", dp, pp, tp), payload, incarnation=incarnation, dp_size=sizes[0],
                  pp_size=sizes[1], tp_size=sizes[2], compat=compat, ttl=_time(ttl))
        return _lives_for(json.loads(said), ttl)

    def heartbeat(self, engine, incarnation, ttl):
        """Returns whether all ranks of the engine are published, and for how many seconds."""
        _, said = self._ask("POST", self._path(engine, "heartbeat"), incarnation=incarnation, ttl=_time(ttl))
        said = json.loads(said)
        return bool(said.get("complete")), _lives_for(said, ttl)

    def withdraw(self, engine, incarnation):
        self._ask("DELETE", self._path(engine), incarnation=incarnation)

    def fetch(self, engine, rank, compat="", incarnation=0, wait=0.0):
        """Returns the payload and its incarnation."""
        headers, body = self._ask("GET", self._path(engine, "ranks", *rank), patience=wait, compat=compat or None,
                                  incarnation=incarnation or None, wait=_time(wait) if wait > 0 else None)
        return body, int(headers["Troupe-Incarnation"])

    def last_incarnation(self, engine):
        """The last incarnation of the engine that the directory knows, live or not; 0: none."""
        try:
            headers, _ = self._ask("GET", self._path(engine))
            return int(headers["Troupe-Incarnation"])
        except DirectoryError as error:
            if error.status == 404:
                return error.incarnation or 0
            raise

    def fetch_patiently(self, engine, rank, compat="", incarnation=0, patience=30.0, cancel=None):
        """Fetches with retries for up to `patience` seconds, so that engine and directory may start later. Errors that a
        retry cannot change are raised at once."""
        return finish(self.fetch_steps(engine, rank, compat, incarnation, patience, cancel))

    def fetch_steps(self, engine, rank, compat="", incarnation=0, patience=30.0, cancel=None, places=None):
        """The same as a generator that yields the seconds of its pauses. It waits at the directory only with one of
        `places`, so that fetches of published engines are not delayed."""
        deadline, pause = time.monotonic() + patience, self.patience.pause
        while True:
            left = deadline - time.monotonic()
            may_wait = places is None or places.acquire(blocking=False)
            try:
                return self.fetch(engine, rank, compat, incarnation,
                                  max(0.0, min(left, self.patience.poll)) if may_wait else 0.0)
            except DirectoryError as error:
                if not error.passes or left <= 0:
                    raise
                if error.status == 404 and may_wait:
                    pause = self.patience.pause  # it has waited already
            except Unreachable:
                if left <= 0:
                    raise
            finally:
                if places is not None and may_wait:
                    places.release()
            if cancel is not None and cancel.is_set():
                raise Unreachable("cancelled")
            # Jitter, so that clients that lost the same directory do not all retry at once.
            yield min(pause * random.uniform(0.5, 1.0), max(0.0, deadline - time.monotonic()))
            pause = self.patience.next_pause(pause)

    def _path(self, engine, *rest):
        parts = ["v1", "handshake", urllib.parse.quote(engine, safe=""), *map(str, rest)]
        return self.prefix + "/" + "/".join(parts)

    def _ask(self, method, path, body=b"", patience=0.0, **query):
        query = {name: value for name, value in query.items() if value is not None}
        target = path + ("?" + urllib.parse.urlencode(query) if query else "")
        headers = {"Content-Type": "application/octet-stream"} if method == "PUT" else {}
        if self.token:
            headers["Authorization"] = f"Bearer {self.token}"
        timeout = self.timeout + patience
        if self.tls is not None:
            connection = http.client.HTTPSConnection(self.host, self.port, timeout=timeout, context=self.tls)
        else:
            connection = http.client.HTTPConnection(self.host, self.port, timeout=timeout)
        try:
            connection.request(method, target, body if method in ("PUT", "POST") else None, headers)
            answer = connection.getresponse()
            content = answer.read()
        except (OSError, http.client.HTTPException) as error:
            raise Unreachable(f"the directory at {self.host}:{self.port} does not answer: {error}") from error
        finally:
            connection.close()
        if answer.status >= 300:
            raise DirectoryError(answer.status, *_complaint(content))
        return answer.headers, content


def finish(steps):
    """Runs a generator that yields pauses to its end, and returns what it returns."""
    while True:
        try:
            pause = next(steps)
        except StopIteration as end:
            return end.value
        time.sleep(pause)


class Turns(concurrent.futures.Executor):
    """An executor for functions that wait a lot. A function may have `steps`: a generator function of the same
    arguments, which yields the seconds of its pauses, and holds no thread meanwhile. New functions start in order of
    submission, and before those that continue after a pause."""

    def __init__(self, threads, name):
        self._due, self._order, self._ended = [], itertools.count(), False
        self._changed = threading.Condition()
        for number in range(threads):
            threading.Thread(target=self._run, name=f"{name}_{number}", daemon=True).start()

    def submit(self, function, /, *args, **kwargs):
        future = concurrent.futures.Future()
        steps = getattr(function, "steps", None)
        run = steps(function.__self__, *args, **kwargs) if steps else _as_steps(function, args, kwargs)
        with self._changed:
            if self._ended:
                raise RuntimeError("cannot submit after shutdown")
            # Before all functions that have started already.
            heapq.heappush(self._due, (0.0, next(self._order), future, run))
            self._changed.notify()
        return future

    def shutdown(self, wait=True, *, cancel_futures=False):
        """Returns at once: threads end after their current step, and the rest is cancelled."""
        with self._changed:
            self._ended = True
            left, self._due = self._due, []
            self._changed.notify_all()
        for _, _, future, run in left:
            run.close()
            if not future.cancel():
                future.set_exception(concurrent.futures.CancelledError())

    def _next(self):
        with self._changed:
            while not self._ended:
                left = self._due[0][0] - time.monotonic() if self._due else None
                if left is not None and left <= 0:
                    return heapq.heappop(self._due)
                self._changed.wait(left)
        return None

    def _run(self):
        while (task := self._next()) is not None:
            due, _, future, run = task
            if due == 0.0 and not future.set_running_or_notify_cancel():
                continue
            try:
                pause = next(run)
            except StopIteration as end:
                future.set_result(end.value)
            except BaseException as error:
                future.set_exception(error)
            else:
                self._again(time.monotonic() + pause, future, run)

    def _again(self, due, future, run):
        with self._changed:
            if not self._ended:
                heapq.heappush(self._due, (due, next(self._order), future, run))
                self._changed.notify()
                return
        run.close()
        future.set_exception(concurrent.futures.CancelledError())


def _as_steps(function, args, kwargs):
    return function(*args, **kwargs)
    yield


def _time(seconds):
    return f"{max(1, round(seconds * 1000))}ms"


def _lives_for(said, ttl):
    """The granted time to live: the directory has a maximum."""
    granted = said.get("expires_in_ms")
    return min(ttl, granted / 1000) if isinstance(granted, (int, float)) else ttl


def _complaint(content):
    try:
        said = json.loads(content)
        incarnation = said.get("incarnation")
        return str(said["detail"]), int(incarnation) if incarnation else None
    except (ValueError, KeyError, TypeError, AttributeError):
        return content[:200].decode(errors="replace"), None


def read_token(options_token_file):
    """The token of the file, else of the environment. It is not in the config, because configs are shown in logs."""
    if options_token_file:
        with open(options_token_file, encoding="utf-8") as file:
            return file.read().strip()
    return os.environ.get("TROUPE_TOKEN", "")


class Publisher:
    """Publishes the payloads of an engine's ranks, and sends heartbeats until `end`, in a thread of its own.

    Publishes again if the directory has lost the engine, or is another one. If the directory reports a later
    incarnation of the engine, the publisher stops."""

    def __init__(self, directory, engine, payloads, sizes, compat, incarnation, ttl, log):
        self.directory, self.engine, self.payloads, self.sizes = directory, engine, payloads, sizes
        self.compat, self.incarnation, self.ttl, self.log = compat, incarnation, ttl, log
        self.published, self.fenced = threading.Event(), threading.Event()
        self._was_published = False
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="troupe-handshakes", daemon=True)

    def start(self):
        self._thread.start()
        return self

    def end(self, withdraw=True):
        """Deregisters the engine. Takes at most as long as one request."""
        self._ended.set()
        self._thread.join(self.directory.timeout + 1)
        if withdraw and self.published.is_set() and not self.fenced.is_set():
            try:
                self.directory.withdraw(self.engine, self.incarnation)
            except (DirectoryError, Unreachable) as error:
                self.log.info("cannot deregister the engine from the directory: %s", error)

    def _run(self):
        patience = self.directory.patience
        pause = patience.pause
        while not self._ended.is_set() and not self.fenced.is_set():
            try:
                lives_for = self._say()
                pause = patience.pause
                # Even if the time was cut to almost nothing, there is a pause between requests.
                self._ended.wait(max(lives_for / 3, patience.pause))
                continue
            except DirectoryError as error:
                self._refused(error)
            except Unreachable as error:
                self.log.warning("%s", error)
            except Exception:  # if the thread ended silently, the engine would expire
                self.log.exception("cannot publish handshakes")
            self._ended.wait(pause * random.uniform(0.5, 1.0))
            pause = patience.next_pause(pause)

    def _say(self):
        """Returns the seconds until it expires."""
        if self.published.is_set():
            is_complete, lives_for = self.directory.heartbeat(self.engine, self.incarnation, self.ttl)
            # After the engine was removed, a late request may have published a part of it again.
            if is_complete:
                return lives_for
        lives_for = self.ttl
        for rank, payload in self.payloads.items():
            lives_for = min(lives_for, self.directory.publish(self.engine, rank, payload, self.incarnation, self.sizes,
                                                              self.compat, self.ttl))
        self.published.set()
        self._was_published = True
        self.log.info("published %d ranks of engine %s as incarnation %d", len(self.payloads), self.engine,
                      self.incarnation)
        if lives_for < 0.9 * self.ttl:
            self.log.info("the directory keeps engine %s for %.3f s without a heartbeat, not for %.3f", self.engine,
                          lives_for, self.ttl)
        return lives_for

    def _refused(self, error):
        if error.status == 404:
            self.published.clear()
            self.log.info("the directory has lost engine %s: publishing it again", self.engine)
        elif error.status == 410:
            self.fenced.set()
            if self._was_published:
                self.log.error("engine %s has started again elsewhere (incarnation %s): this one stops "
                               "publishing", self.engine, error.incarnation)
            else:
                # It is unknown which of the two started later: continuing could replace a live one.
                self.log.error("cannot publish engine %s: the directory has its incarnation %s, and this start is "
                               "%s. Another engine of this name has started meanwhile, or the clock was set back while "
                               "the directory was unreachable. Restart the engine: at its start, it reads the last "
                               "incarnation from the directory", self.engine, error.incarnation, self.incarnation)
        else:
            self.log.error("cannot publish engine %s: %s", self.engine, error)
