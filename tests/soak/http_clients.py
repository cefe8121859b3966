"""Clients of the HTTP protocols: namespaces that are created, used and removed, and one that stays and is full."""

import http.client
import json
import random
import threading
import time


class wrong_answer(Exception):
    pass


class connection:
    """A persistent connection, like that of a client."""

    def __init__(self, port):
        self.http = http.client.HTTPConnection("127.0.0.1", port, timeout=60)

    def ask(self, method, path, body=None, wanted=(200, 201, 204)):
        text = None if body is None else json.dumps(body)
        self.http.request(method, path, text, {"Content-Type": "application/json"})
        answer = self.http.getresponse()
        content = answer.read()
        if answer.status not in wanted:
            raise wrong_answer(f"{method} {path} answers {answer.status}: {content[:300]!r}")
        return json.loads(content) if content and answer.status != 204 else None


def expect(what, got, wanted):
    if got != wanted:
        raise wrong_answer(f"{what}: got {got!r}, expected {wanted!r}")


def native_life(ask, name, draw):
    """The life of a namespace of the native API."""
    slots = draw.choice([10, 100, 1000])
    ask("POST", "/v1/namespaces", {"name": name, "model": name, "world_size": 2})
    path = f"/v1/namespaces/{name}"
    for rank in (0, 1):
        ask("POST", f"{path}/ranks", {"rank": rank, "slots": slots})
    keys = [f"{name} {i}" for i in range(min(slots // 2, draw.randint(1, 64)))]
    parents = [None, *keys[:-1]]
    for rank in (0, 1):
        given = ask("POST", f"{path}/reserve", {"rank": rank, "keys": keys, "parents": parents})
        pages = [{"key": key, "slot": x["slot"], "generation": x["generation"]}
                 for key, x in zip(keys, given["results"])]
        # The last one is cancelled.
        done = ask("POST", f"{path}/commit", {"rank": rank, "token": given["token"], "pages": pages[:-1]})
        expect("commit", {x["status"] for x in done["results"]} - {"ok"}, set())
        ask("POST", f"{path}/abort", {"rank": rank, "token": given["token"]})
    found = ask("POST", f"{path}/match", {"keys": keys, "lease_for_ms": 20000})
    expect("matched", found["matched"], len(keys) - 1)
    if found["matched"] > 0:
        where = ask("POST", f"{path}/locate", {"rank": 1, "keys": keys[:-1], "lease": found["lease"]})
        expect("located", {x["status"] for x in where["results"]}, {"ok"})
        ask("POST", f"{path}/renew", {"lease": found["lease"], "lease_for_ms": 30000})
        if draw.random() < 0.5:
            ask("POST", f"{path}/release", {"lease": found["lease"]})
        ask("GET", f"{path}/keys/{keys[0].replace(' ', '%20')}")
        ask("POST", f"{path}/erase", {"keys": keys[:2]})
    if draw.random() < 0.5:
        ask("POST", f"{path}/clear")
    ask("DELETE", f"{path}?force=true")


def hf3fs_life(ask, name, draw):
    """A namespace of vLLM's HF3FS protocol."""
    pages = draw.choice([10, 100, 1000])
    for rank in (0, 1):
        ask("POST", f"/hf3fs/{name}/rank/{rank}/initialize", {"num_pages": pages})
    keys = [f"{name} {i}" for i in range(min(pages // 2, draw.randint(1, 64)))]
    for rank in (0, 1):
        given = ask("POST", f"/hf3fs/{name}/keys/batch_allocate", {"rank": rank, "keys": [[x, ""] for x in keys]})
        ask("POST", f"/hf3fs/{name}/keys/confirm_write",
            {"rank": rank, "confirmations": given["results"], "pages_to_release": []})
    expect("exists", ask("POST", f"/hf3fs/{name}/keys/batch_exists", {"keys": keys})["exists"], [True] * len(keys))
    notified = ask("POST", f"/hf3fs/{name}/keys/get_locations", {"rank": 0, "keys": [*keys, "nothing"]})["locations"]
    expect("a page for each", (notified[-1], None in notified[:-1]), (None, False))
    if draw.random() < 0.5:
        ask("POST", f"/hf3fs/{name}/clear")
    ask("DELETE", f"/v1/namespaces/hf3fs-{name}?force=true")


def sglang_life(ask, name, draw):
    """A namespace of SGLang's HF3FS protocol."""
    more = {"namespace": name}
    ask("POST", "/0/initialize", {"num_pages": draw.choice([10, 100, 1000]), **more})
    keys = [f"{name} {i}" for i in range(draw.randint(1, 5))]
    given = ask("POST", "/0/reserve_and_allocate_page_indices", {"keys": [[x, ""] for x in keys], **more})["indices"]
    ask("POST", "/0/confirm_write", {"written_keys_to_confirm": [[key, page] for key, (_, page) in zip(keys, given)],
                                     "pages_to_release": [], **more})
    expect("exists", ask("POST", "/0/exists", {"keys": keys, **more})["exists"], [True] * len(keys))
    ask("POST", "/0/delete_keys", {"keys": keys[:1], **more})
    ask("DELETE", f"/v1/namespaces/sglang-{name}?force=true")


class HttpClients:
    """Threads that use the node until they are stopped, and the first error of one of them."""

    def __init__(self, port, seed, threads, pace):
        self.port, self.seed, self.pace = port, seed, pace
        self.over = threading.Event()
        self.failure = None
        self.lives = [0] * threads
        self.batches = 0
        self.threads = [threading.Thread(target=self.guarded, args=(self.churn, i)) for i in range(threads)]
        self.threads.append(threading.Thread(target=self.guarded, args=(self.stay, threads)))

    def guarded(self, what, number):
        try:
            what(connection(self.port).ask, number)
        except Exception as e:  # noqa: BLE001  whatever it is, it ends the run and is printed
            if not self.over.is_set() or isinstance(e, wrong_answer):
                self.failure = self.failure or f"{type(e).__name__}: {e}"
            self.over.set()

    def churn(self, ask, number):
        draw = random.Random(f"{self.seed} {number}")
        while not self.over.wait(self.pace):
            life = (native_life, hf3fs_life, sglang_life)[self.lives[number] % 3]
            life(ask, f"soak-{number}-{self.lives[number]}", draw)
            self.lives[number] += 1

    def stay(self, ask, _):
        """Saves more keys than fit: the oldest are evicted, the newest are found."""
        pages = 5000
        ask("POST", "/hf3fs/stays/rank/0/initialize", {"num_pages": pages})
        while not self.over.wait(self.pace):
            first, began = self.batches * 64, time.monotonic()
            keys = [f"stays {i}" for i in range(first, first + 64)]
            given = ask("POST", "/hf3fs/stays/keys/batch_allocate", {"rank": 0, "keys": [[x, ""] for x in keys]})
            good = [[key, page] for key, page in given["results"] if page >= 0]
            ask("POST", "/hf3fs/stays/keys/confirm_write",
                {"rank": 0, "confirmations": good, "pages_to_release": []})
            there = ask("POST", "/hf3fs/stays/keys/batch_exists", {"keys": [key for key, _ in good]})["exists"]
            missing = [key for (key, _), exists in zip(good, there) if not exists]
            if missing:
                seconds = time.monotonic() - began
                raise wrong_answer(f"{len(missing)} of {len(good)} keys do not exist when they were just confirmed, in "
                                   f"batch {self.batches}, after {seconds:.1f} s: {missing[:4]}")
            self.batches += 1
