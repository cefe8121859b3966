"""The directory of handshakes over HTTP, for engines: publishing with signs of life, and fetching with patience.

Needs nothing but Python. docs/handshake.md explains the directory.
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
    """How clients wait. A wait of more than `poll` seconds is made of several, so that a directory that goes away is
    noticed; after a failure, `pause` seconds go by, and twice as many after each that follows, up to `longest`."""

    def __init__(self, poll=20.0, pause=0.1, longest=3.0):
        if not (poll > 0 and 0 < pause <= longest):
            raise ValueError(f"a poll of {poll} s and pauses of {pause} to {longest} s make no sense: all of them have "
                             "to be above 0, and the first pause not above the longest")
        self.poll, self.pause, self.longest = poll, pause, longest

    def next_pause(self, pause):
        return min(2 * pause, self.longest)


class DirectoryError(Exception):
    """The directory has answered, and not with what was asked for."""

    def __init__(self, status, detail, incarnation=None):
        super().__init__(f"{status}: {detail}")
        self.status, self.detail, self.incarnation = status, detail, incarnation

    @property
    def passes(self):
        """Whether it may be another answer in a moment."""
        return self.status in (404, 429, 500, 502, 503, 504)


class Unreachable(Exception):
    """Nobody has answered."""


class Directory:
    """Where the directory is, and who asks. A connection for each request: handshakes are rare, and may take long."""

    def __init__(self, url, token="", authorities="", certificate="", key="", timeout=5.0,
                 patience=None):
        parts = urllib.parse.urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
            raise ValueError(f"the address of a directory is http://HOST:PORT or https://HOST:PORT, not {url!r}")
        self.host, self.port, self.patience = parts.hostname, parts.port, patience or Patience()
        self.prefix, self.token, self.timeout, self.tls = parts.path.rstrip("/"), token, timeout, None
        if parts.scheme == "https":
            self.tls = ssl.create_default_context(cafile=authorities or None)
            if certificate:
                self.tls.load_cert_chain(certificate, key or None)

    def publish(self, engine, rank, payload, incarnation, sizes, compat, ttl):
        """The seconds for which it is published, which may be fewer than were asked for."""
        dp, pp, tp = rank
        _, said = self._ask("PUT", self._path(engine, "ranks", dp, pp, tp), payload, incarnation=incarnation, dp_size=sizes[0],
                  pp_size=sizes[1], tp_size=sizes[2], compat=compat, ttl=_time(ttl))
        return _lives_for(json.loads(said), ttl)

    def heartbeat(self, engine, incarnation, ttl):
        """Whether all ranks of the engine are published, and the seconds for which they are."""
        _, said = self._ask("POST", self._path(engine, "heartbeat"), incarnation=incarnation, ttl=_time(ttl))
        said = json.loads(said)
        return bool(said.get("complete")), _lives_for(said, ttl)

    def withdraw(self, engine, incarnation):
        self._ask("DELETE", self._path(engine), incarnation=incarnation)

    def fetch(self, engine, rank, compat="", incarnation=0, wait=0.0):
        """The payload and the incarnation that it is of."""
        headers, body = self._ask("GET", self._path(engine, "ranks", *rank), patience=wait, compat=compat or None,
                                  incarnation=incarnation or None, wait=_time(wait) if wait > 0 else None)
        return body, int(headers["Troupe-Incarnation"])

    def last_incarnation(self, engine):
        """The last start of the engine that the directory knows of, whether it lives or not; 0: of none."""
        try:
            headers, _ = self._ask("GET", self._path(engine))
            return int(headers["Troupe-Incarnation"])
        except DirectoryError as error:
            if error.status == 404:
                return error.incarnation or 0
            raise

    def fetch_patiently(self, engine, rank, compat="", incarnation=0, patience=30.0, give_up=None):
        """The same, also where engine and directory start later, until `patience` is over. What another attempt cannot
        change is raised at once."""
        return finish(self.fetch_steps(engine, rank, compat, incarnation, patience, give_up))

    def fetch_steps(self, engine, rank, compat="", incarnation=0, patience=30.0, give_up=None, places=None):
        """The same as a generator that yields the seconds in which it has nothing to do. It waits at the directory only
        while it has one of `places`, so that those who find what they want at once come between."""
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
            if give_up is not None and give_up.is_set():
                raise Unreachable("given up")
            # Spread, so that those who lost the same directory do not come back to it at once.
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
    """Threads for what waits a lot. A function may have `steps`: a generator function of the same arguments, which
    yields the seconds in which it has nothing to do, and holds no thread meanwhile. What comes first has the first
    turn, and what has been tried before comes after what has not."""

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
            # Before all that has been tried already, whenever it is due.
            heapq.heappush(self._due, (0.0, next(self._order), future, run))
            self._changed.notify()
        return future

    def shutdown(self, wait=True, *, cancel_futures=False):
        """Nobody is waited for: threads end with what they are at, and what is left is cancelled."""
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
    """A directory has a longest time of its own."""
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
    """Of the file, else of the environment: a config is shown in logs."""
    if options_token_file:
        with open(options_token_file, encoding="utf-8") as file:
            return file.read().strip()
    return os.environ.get("TROUPE_TOKEN", "")


class Publisher:
    """Publishes what the ranks of an engine have, and says that it lives, until it is ended. One thread of its own.

    A directory that has forgotten, or that is another one, is told again. Of a later start of the same engine, it hears
    when it says something, and says nothing more."""

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
        """The engine goes away. At most as long as one request takes."""
        self._ended.set()
        self._thread.join(self.directory.timeout + 1)
        if withdraw and self.published.is_set() and not self.fenced.is_set():
            try:
                self.directory.withdraw(self.engine, self.incarnation)
            except (DirectoryError, Unreachable) as error:
                self.log.info("the directory was not told that the engine goes away: %s", error)

    def _run(self):
        patience = self.directory.patience
        pause = patience.pause
        while not self._ended.is_set() and not self.fenced.is_set():
            try:
                lives_for = self._say()
                pause = patience.pause
                # What was cut to nothing is no reason to ask without a pause.
                self._ended.wait(max(lives_for / 3, patience.pause))
                continue
            except DirectoryError as error:
                self._refused(error)
            except Unreachable as error:
                self.log.warning("%s", error)
            except Exception:  # a thread that dies in silence would let the engine expire
                self.log.exception("handshakes are not published")
            self._ended.wait(pause * random.uniform(0.5, 1.0))
            pause = patience.next_pause(pause)

    def _say(self):
        """The seconds for which it counts."""
        if self.published.is_set():
            is_complete, lives_for = self.directory.heartbeat(self.engine, self.incarnation, self.ttl)
            # Of an engine that was forgotten, a packet that comes late may bring back a part.
            if is_complete:
                return lives_for
        lives_for = self.ttl
        for rank, payload in self.payloads.items():
            lives_for = min(lives_for, self.directory.publish(self.engine, rank, payload, self.incarnation, self.sizes,
                                                              self.compat, self.ttl))
        self.published.set()
        self._was_published = True
        self.log.info("%d ranks of engine %s are published as incarnation %d", len(self.payloads), self.engine,
                      self.incarnation)
        if lives_for < 0.9 * self.ttl:
            self.log.info("the directory keeps engine %s for %.3f s without a sign of life, not for %.3f", self.engine,
                          lives_for, self.ttl)
        return lives_for

    def _refused(self, error):
        if error.status == 404:
            self.published.clear()
            self.log.info("the directory does not know engine %s any more: it is published again", self.engine)
        elif error.status == 410:
            self.fenced.set()
            if self._was_published:
                self.log.error("engine %s has started again elsewhere (incarnation %s): this one is not published any "
                               "more", self.engine, error.incarnation)
            else:
                # Which of the two started later, nobody can tell from here: to go on could put out one that lives.
                self.log.error("engine %s is not published: the directory knows it as incarnation %s, and this start is "
                               "%s. Another one with this name has started meanwhile, or the clock was set back while "
                               "the directory could not be asked; to start again helps, as an engine asks the "
                               "directory then", self.engine, error.incarnation, self.incarnation)
        else:
            self.log.error("engine %s is not published: %s", self.engine, error)
