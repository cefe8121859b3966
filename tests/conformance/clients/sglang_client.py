"""Checks with a client that speaks as SGLang's HF3FS backend does: one namespace per pool, one rank per file."""

import random

import requests


def expect(what, got, wanted):
    if got != wanted:
        raise AssertionError(f"{what}: got {got!r}, expected {wanted!r}")


class rank_client:
    def __init__(self, port, rank, namespace=None, model=None):
        url = f"http://127.0.0.1:{port}" + (f"/sglang/{model}" if model else "")
        self.base = f"{url}/{rank}"
        self.session = requests.Session()
        self.more = {} if namespace is None else {"namespace": namespace}

    def post(self, what, body):
        return self.session.post(f"{self.base}/{what}", json={**body, **self.more}, timeout=30)

    def ask(self, what, body):
        answer = self.post(what, body)
        if answer.status_code not in (200, 204):
            raise AssertionError(f"{what}: {answer.status_code} {answer.text}")
        return answer.json() if answer.status_code == 200 else None

    def initialize(self, pages):
        expect("initialize", self.ask("initialize", {"num_pages": pages}), None)

    def exists(self, keys):
        return self.ask("exists", {"keys": keys})["exists"]

    def reserve(self, keys):
        return self.ask("reserve_and_allocate_page_indices", {"keys": [(key, "") for key in keys]})["indices"]

    def confirm(self, written, released=()):
        self.ask("confirm_write", {"written_keys_to_confirm": written, "pages_to_release": list(released)})

    def indices(self, keys):
        return self.ask("get_page_indices", {"keys": keys})["indices"]

    def delete(self, keys):
        self.ask("delete_keys", {"keys": keys})

    def clear(self):
        self.ask("clear", {})

    def set(self, keys):
        """Stores a batch as the backend does: writes missing pages, confirms written ones."""
        given = self.reserve(keys)
        expect("one answer per key", len(given), len(keys))
        new = [(key, page) for key, (there, page) in zip(keys, given) if not there and page >= 0]
        self.confirm(new)
        return given


def check_usual_course(port):
    first, second = rank_client(port, 0), rank_client(port, 1, "kv")
    expect("an unknown rank", first.post("exists", {"keys": ["a"]}).status_code, 404)
    first.initialize(6)
    first.initialize(6)
    second.initialize(6)
    # K and V are two objects.
    keys = [f"{block}-{part}" for block in ("a", "b") for part in ("k", "v")]
    given = first.set(keys)
    expect("new", [there for there, _ in given], [False] * 4)
    expect("stored", first.exists([*keys, "c-k"]), [True] * 4 + [False])
    expect("per rank", second.exists(keys), [False] * 4)
    expect("told", first.indices(keys), [page for _, page in given])
    expect("again", first.reserve(keys), [[True, page] for _, page in given])
    expect("missing", second.indices(keys), [None] * 4)
    first.delete(keys[:1])
    expect("deleted", first.exists(keys), [False, True, True, True])
    mamba = rank_client(port, 0, "mamba")
    mamba.initialize(2)
    mamba.set(["state"])
    expect("another pool", (mamba.exists(["state", keys[1]]), first.exists(["state"])), ([True, False], [False]))
    first.clear()
    expect("cleared", first.exists(keys), [False] * 4)
    expect("not cleared", mamba.exists(["state"]), [True])


def check_many_pools(port):
    """Each pool of an engine is a namespace, up to 23 of them; and two engines share a server."""
    for engine in ("one", "two"):
        for pool in range(23):
            client = rank_client(port, 0, f"{engine}-pool-{pool}")
            client.initialize(2)
            client.set(["page"])
    expect("all pools", [rank_client(port, 0, f"{engine}-pool-{pool}").exists(["page"])
                         for engine in ("one", "two") for pool in range(23)], [[True]] * 46)


def check_two_models(port):
    """Engines of two models that save the same prefix: keys do not have the model in them, base URLs do."""
    models = [[rank_client(port, 0, pool, model) for pool in (None, "mamba")] for model in ("first", "second")]
    for clients, pages in zip(models, (4, 8)):
        for client in clients:
            client.initialize(pages)
    models[0][0].set(["prefix"])
    models[1][1].set(["prefix"])
    expect("pages of its own model only", [[client.exists(["prefix"]) for client in clients] for clients in models],
           [[[True], [False]], [[False], [True]]])
    expect("told", [[client.indices(["prefix"])[0] is None for client in clients] for clients in models],
           [[False, True], [True, False]])
    models[0][0].clear()
    expect("cleared alone", (models[0][0].exists(["prefix"]), models[1][1].exists(["prefix"])), ([False], [True]))


def check_random_course(port, seed, pages):
    print(f"seed {seed}")
    draw = random.Random(seed)
    client = rank_client(port, seed, "random")
    client.initialize(pages)
    stored = {}
    for _ in range(150):
        keys = [f"k{draw.randrange(30)}" for _ in range(draw.randint(1, 5))]
        choice = draw.random()
        if choice < 0.5:
            for key, (there, page) in zip(keys, client.set(keys)):
                if there:
                    expect(f"page of {key}", page, stored[key])
                elif page >= 0:
                    stored[key] = page
        elif choice < 0.8:
            for key, page in zip(keys, client.indices(keys)):
                if page is not None:
                    expect(f"page of {key}", page, stored[key])
        else:
            client.delete(keys)
            expect("deleted", client.exists(keys), [False] * len(keys))
            for key in keys:
                stored.pop(key, None)
    notified = [x for x in client.indices([f"k{i}" for i in range(30)]) if x is not None]
    expect("pages found at the end", len(notified), len(set(notified)))


def check(port, pages):
    check_usual_course(port)
    for seed in (1, 2):
        check_random_course(port, seed, pages)
    check_two_models(port)
    check_many_pools(port)
