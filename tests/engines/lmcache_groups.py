"""A node, and LMCache's own classes in the place of an engine with several KV cache groups, without vLLM: its scheduler's
adapter looks up, and its transfer context gathers from tensors and scatters into them.

Usage: python tests/engines/lmcache_groups.py --troupe PROGRAM --work DIRECTORY [--seed N] [--steps N]

Needs the Python of an environment with LMCache 0.5.7 (`scripts/engines lmcache --version 0.5.7rc2 --install-only`). The
test acts as the engine does: it has blocks of full attention, of two windows, of which one is shorter than a chunk, and
of states, which exist only where a step ended. What it has no block for is block 0, whose content is rubbish. Every
block that a hit needs is compared after each retrieve, and every other one must be as before.
"""

import argparse
import pathlib
import random
import shutil
import sys
import threading
import time

import msgspec
import torch
import zmq

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from node import node  # noqa: E402

from lmcache.integration.vllm.vllm_multi_process_adapter import LMCacheMPSchedulerAdapter, ParallelStrategy  # noqa: E402
from lmcache.v1.multiprocess.custom_types import IPCCacheServerKey  # noqa: E402
from lmcache.v1.multiprocess.group_view import EngineGroupInfo  # noqa: E402
from lmcache.v1.multiprocess.token_codec import pack_token_ids  # noqa: E402
from lmcache.v1.multiprocess.transfer_context.worker_transfer import EngineDrivenTransferContext  # noqa: E402
from lmcache.v1.multiprocess.transport.factory import RequestClientFactory  # noqa: E402

CHUNK, BLOCK, BLOCKS, CHUNKS_MAX = 64, 16, 160, 8
SECONDS = 60
MODEL = "a/hybrid"
COMPUTED = "lmcache.hint.engine_computed_tokens"


def require(is_right, why):
    if not is_right:
        raise AssertionError(why)


class group:
    """Layers with a block table of their own. `window`: tokens, 0 for all."""

    def __init__(self, name, layers, shape, block, window=0, state=False):
        self.layers = {f"{name}.{i}": torch.zeros(shape, dtype=torch.bfloat16) for i in range(layers)}
        self.block, self.window, self.state = block, window, state
        self.free = list(range(1, BLOCKS))

    def first_token_needed(self, tokens):
        """Of a prefix of this length, to go on behind it."""
        if self.state:
            return tokens - CHUNK
        return max(0, tokens - self.window) if self.window else 0

    def fill(self, block, value):
        """What a block holds is known by a number."""
        for i, tensor in enumerate(self.layers.values()):
            dice = torch.Generator().manual_seed((value * 7919 + i) % (1 << 62))
            tensor[block] = torch.randn(tensor[block].shape, generator=dice).to(torch.bfloat16)

    def holds(self, block, value):
        for i, tensor in enumerate(self.layers.values()):
            dice = torch.Generator().manual_seed((value * 7919 + i) % (1 << 62))
            if not torch.equal(tensor[block], torch.randn(tensor[block].shape, generator=dice).to(torch.bfloat16)):
                return False
        return True


class engine:
    """A worker, and the scheduler of its engine."""

    last = 0

    def __init__(self, port, windows=(96, 32)):
        engine.last += 1
        self.instance, self.url = 1000 + engine.last, f"tcp://127.0.0.1:{port}"
        attention = (BLOCKS, 2, BLOCK, 2, 8)
        self.groups = [group("full", 2, attention, BLOCK)]
        for i, window in enumerate(windows):
            self.groups.append(group(f"window{i}", 3, attention, BLOCK, window=window))
        self.groups.append(group("state", 1, (BLOCKS, 2, CHUNK, 1, 24), CHUNK, state=True))
        self.context = zmq.Context()
        self.client = RequestClientFactory.create(self.url, context=self.context)
        self.caches = {name: tensor for each in self.groups for name, tensor in each.layers.items()}
        for each in self.groups:
            each.fill(0, 666)
        infos, first = [], 0
        for i, each in enumerate(self.groups):
            infos.append(EngineGroupInfo(i, tuple(range(first, first + len(each.layers))), each.block,
                                         each.window or (CHUNK if each.state else -1), recurrent_state=each.state))
            first += len(each.layers)
        self.worker = EngineDrivenTransferContext(self.instance, self.client)
        self.worker.register(self.caches, MODEL, 1, CHUNK // BLOCK, SECONDS, layout_hints={"kv_layout": "NHD"},
                             engine_group_infos=infos, lmcache_chunk_tokens=CHUNK)
        self.scheduler = LMCacheMPSchedulerAdapter([self.url], self.context, MODEL, BLOCK,
                                                   ParallelStrategy(False, 1, 0, 1, 1, 1), mq_timeout=SECONDS,
                                                   required_chunk_alignment=CHUNK)

    def close(self):
        self.scheduler.shutdown() if hasattr(self.scheduler, "shutdown") else None
        self.worker.close()
        self.client.close()

    def key(self, document, start, end, request):
        return IPCCacheServerKey.from_token_ids(MODEL, 1, 0, document.tokens, start=start * CHUNK, end=end * CHUNK,
                                                request_id=request)

    def look_up(self, document, request, computed=0, chunks=None):
        """The hit in chunks."""
        tokens = document.tokens[:chunks * CHUNK] if chunks else document.tokens
        self.scheduler.maybe_submit_lookup_request(request, pack_token_ids(tokens), start=computed // CHUNK * CHUNK,
                                                   request_configs={COMPUTED: computed})
        deadline = time.monotonic() + SECONDS
        while (found := self.scheduler.check_lookup_result(request)) is None:
            require(time.monotonic() < deadline, "a lookup has no answer")
            time.sleep(0.002)
        self.scheduler.cleanup_lookup_result(request)
        return found // CHUNK

    def end(self, request):
        self.scheduler.end_session(request)

    def blocks_of(self, document, first, last, of, missing):
        """Blocks for chunks, filled with what they hold; those that are missing are block 0."""
        out, own = [], self.groups[of]
        per = CHUNK // own.block
        for i in range(first * per, last * per):
            if missing(i):
                out.append(0)
                continue
            out.append(own.free[len(out)])
            own.fill(out[-1], document.value(of, i, own))
        return out

    def store(self, document, first, last, request, computed=0, states=()):
        """Stores what it has computed from token `computed` on: blocks of windows before that are those that its own
        cache had, and states those at the ends of these chunks."""
        tables = []
        for of, own in enumerate(self.groups):
            if own.state:
                tables.append(self.blocks_of(document, first, last, of, lambda i: i + 1 not in states))
                continue
            live = (computed - own.window + 1) // own.block if own.window and computed else 0
            tables.append(self.blocks_of(document, first, last, of, lambda i, live=live: i < live))
        done = self.worker.submit_store(request, self.key(document, first, last, request), self.caches, tables, None,
                                        CHUNK // BLOCK)
        return done.result(timeout=SECONDS)

    def retrieve(self, document, first, last, request):
        """Whether it has succeeded; all that a hit needs is compared."""
        tables, before = [], {name: tensor.clone() for name, tensor in self.caches.items()}
        for own in self.groups:
            ids = list(own.free)
            random.Random(request).shuffle(ids)
            tables.append(ids[:(last - first) * (CHUNK // own.block)])
        done = self.worker.submit_retrieve(request, self.key(document, first, last, request), self.caches, tables,
                                           None, CHUNK // BLOCK).result(timeout=SECONDS)
        for of, own in enumerate(self.groups):
            per = CHUNK // own.block
            needed = max(first * CHUNK, own.first_token_needed(last * CHUNK))
            for i in range(first * per, last * per):
                block = tables[of][i - first * per]
                if done and (i + 1) * own.block > needed:
                    require(own.holds(block, document.value(of, i, own)),
                            f"group {of}: block {i} of chunks {first} to {last} holds something else")
            written = set(tables[of])
            for name, tensor in own.layers.items():
                kept = [i for i in range(BLOCKS) if i not in written]
                require(torch.equal(tensor[kept], before[name][kept]), "a block of another request was written")
        return done


class document:
    """Tokens, whose prefixes others share."""

    def __init__(self, seed, chunks, shares=None, shared=0):
        dice = random.Random(seed)
        self.tokens = (shares.tokens[:shared * CHUNK] if shares else [])
        self.tokens = self.tokens + [dice.randrange(1 << 30) for _ in range(chunks * CHUNK - len(self.tokens))]

    def value(self, of, block, own):
        """What a block holds depends on all tokens up to its end."""
        return hash((of, own.window, tuple(self.tokens[:(block + 1) * own.block]))) & ((1 << 40) - 1)


def stored_and_found(made):
    one, other = engine(made.lmcache_port), engine(made.lmcache_port)
    text = document(1, 6)
    require(one.look_up(text, "a") == 0, "a hit in an empty cache")
    require(one.store(text, 0, 6, "a", states=(3, 6)), "a store failed")
    one.end("a")
    require(one.look_up(text, "again") == 6, "not all was found")
    one.end("again")
    for chunks, hit in ((6, 6), (5, 3), (3, 3), (2, 0)):
        found = other.look_up(text, f"b{chunks}", chunks=chunks)
        require(found == hit, f"a hit of {found} chunks and not of {hit}")
        if hit:
            require(other.retrieve(text, 0, hit, f"b{chunks}"), "a retrieve failed")
        other.end(f"b{chunks}")
    # The engine has the first chunks itself.
    require(other.look_up(text, "c", computed=3 * CHUNK) == 6, "not all was found behind what the engine has")
    require(other.retrieve(text, 3, 6, "c"), "a retrieve behind what the engine has failed")
    require(other.look_up(text, "d", computed=4 * CHUNK + 20, chunks=5) == 4, "what the engine has is no hit")
    require(other.look_up(text, "e", computed=6 * CHUNK, chunks=6) == 6, "what the engine has is no hit")
    return one, other, text


def blocks_that_are_missing(made):
    """An engine has lost the first blocks of a window in its own cache, and the node knows nothing of the prompt."""
    one = engine(made.lmcache_port)
    for computed in (CHUNK + 20, 2 * CHUNK, 5 * CHUNK + 40):
        for says in (True, False):
            text, request = document(100 * computed + says, 8), f"m{computed}{says}"
            if says:
                one.look_up(text, request, computed=computed)
            states = tuple(i for i in range(1, 9) if i * CHUNK > computed)
            require(one.store(text, 0, 8, request, computed=computed, states=states), "a store failed")
            one.end(request)
            for chunks in range(1, 9):
                request = f"m{computed}{says}{chunks}"
                found = one.look_up(text, request, chunks=chunks)
                require(found * CHUNK > computed or found == 0, f"a hit of {found} chunks behind {computed} tokens")
                require(chunks < 8 or found == 8, f"{found} of 8 chunks were found")
                require(found == 0 or one.retrieve(text, 0, found, request), "a retrieve failed")
                one.end(request)


def without_one_group(made):
    one = engine(made.lmcache_port)
    for of in range(4):
        text = document(50 + of, 4)
        one.look_up(text, f"x{of}")
        one.store(text, 0, 4, f"x{of}", states=(1, 2, 3, 4))
        one.end(f"x{of}")
        require(one.look_up(text, f"y{of}") == 4, "not all was found")
        one.end(f"y{of}")
        found = [x for x in made.namefound() if f"group {of}," in x["revision"]]
        require(len(found) == 1, f"{len(found)} namefound of group {of}")
        require(made.clear(found[0]["id"]) > 0, "there was nothing to clear")
        require(one.look_up(text, f"z{of}") == 0, f"a hit without group {of}")
        one.end(f"z{of}")


def registered_again(made):
    """A worker registers again with other groups, under the same number."""
    one, text = engine(made.lmcache_port), document(70, 3)
    one.look_up(text, "r")
    one.store(text, 0, 3, "r", states=(3,))
    require(one.look_up(text, "r2") == 3, "not all was found")
    one.end("r2")
    engine.last -= 1
    same = engine(made.lmcache_port)
    require(same.look_up(text, "r3") == 3, "not all was found after a registration")
    require(same.retrieve(text, 0, 3, "r3"), "a retrieve failed after a registration")
    one.worker.unregister().result(timeout=SECONDS)
    same.worker.unregister().result(timeout=SECONDS)
    other = engine(made.lmcache_port, windows=(CHUNK,))
    require(other.look_up(text, "r4") == 0, "a hit of other groups")
    require(not other.retrieve(text, 0, 3, "r4"), "pages of other groups")
    other.worker.unregister().result(timeout=SECONDS)


def events_of_groups(made):
    """The node's own endpoint publishes each group, and LMCache's workers get each chunk once."""
    published = zmq.Context.instance().socket(zmq.SUB)
    published.connect(made.events_endpoint)
    published.subscribe("")
    one, text = engine(made.lmcache_port), document(90, 3)
    records, stream = [], one.client.subscribe_kv_events(one.instance, MODEL, 0, 1000)
    threading.Thread(target=lambda: [records.extend(batch.events) for batch in stream], daemon=True).start()
    seen, deadline = set(), time.monotonic() + SECONDS
    one.look_up(text, "v")
    one.store(text, 0, 3, "v", states=(3,))
    one.end("v")
    wanted = {(of, tuple(text.tokens[i * CHUNK:(i + 1) * CHUNK])) for of in range(3) for i in range(3)}
    wanted.add((3, tuple(text.tokens[2 * CHUNK:])))
    kinds = {}
    while not wanted <= seen:
        require(time.monotonic() < deadline, f"{len(wanted - seen)} of {len(wanted)} pages were not published")
        if not published.poll(1000):
            continue
        for event in msgspec.msgpack.decode(published.recv_multipart()[2])[1]:
            if event.get("type") == "BlockStored" and "group_idx" in event:
                kinds[event["group_idx"]] = event["kv_cache_spec_kind"]
                for i in range(0, len(event["token_ids"]), CHUNK):
                    seen.add((event["group_idx"], tuple(event["token_ids"][i:i + CHUNK])))
    require(kinds == {0: "full_attention", 1: "sliding_window", 2: "sliding_window", 3: "mamba"}, f"kinds {kinds}")
    published.close()
    chunks = [tuple(text.tokens[i * CHUNK:(i + 1) * CHUNK]) for i in range(3)]

    def received():
        return [tuple(x.token_ids) for x in records if x.kind == "stored" and tuple(x.token_ids) in chunks]

    while set(received()) != set(chunks):
        require(time.monotonic() < deadline, "a worker was not notified of all chunks")
        time.sleep(0.1)
    require(sorted(received()) == sorted(chunks), "a worker was notified of a chunk twice")
    stream.close()


def at_random(made, seed, steps, damaged=False):
    dice, documents = random.Random(seed), []
    one, hits = engine(made.lmcache_port), 0
    for i in range(6):
        shares = dice.choice(documents) if documents and dice.random() < 0.6 else None
        documents.append(document(seed * 100 + i, CHUNKS_MAX, shares, dice.randrange(1, CHUNKS_MAX) if shares else 0))
    for step in range(steps):
        text, request = dice.choice(documents), f"s{seed}-{step}"
        chunks = dice.randrange(1, CHUNKS_MAX + 1)
        computed = dice.choice((0, 0, dice.randrange(chunks * CHUNK)))
        found = one.look_up(text, request, computed=computed, chunks=chunks)
        require(found >= computed // CHUNK and found <= chunks, f"{found} of {chunks} chunks, {computed} tokens known")
        first = computed // CHUNK
        if found > first:
            hits += found - first
            loaded = one.retrieve(text, first, found, request)
            require(loaded or damaged, "a retrieve failed")
            if not loaded or dice.random() < 0.2:  # as after a failed load: everything once more
                found = 0
        have = max(computed, found * CHUNK)
        states = tuple(i for i in range(1, chunks + 1) if i * CHUNK > have and (i == chunks or dice.random() < 0.4))
        if found < chunks:
            one.store(text, found, chunks, request, computed=have, states=states)
        if dice.random() < 0.9:
            one.end(request)
    return hits


def main():
    wanted = argparse.ArgumentParser()
    wanted.add_argument("--troupe", required=True)
    wanted.add_argument("--work", required=True)
    wanted.add_argument("--seed", type=int, default=1)
    wanted.add_argument("--steps", type=int, default=150)
    how = wanted.parse_args()
    shutil.rmtree(how.work, ignore_errors=True)
    made = node(how.troupe, how.work, lmcache=True, events=True, more={"lmcache.chunk_tokens": CHUNK}).start()
    try:
        _, other, text = stored_and_found(made)
        print("ok     stored and found")
        blocks_that_are_missing(made)
        print("ok     blocks that are missing")
        without_one_group(made)
        print("ok     without one group")
        registered_again(made)
        print("ok     registered again")
        events_of_groups(made)
        print("ok     events of groups")
        hits = at_random(made, how.seed, how.steps)
        require(hits > 0, "no hit at random")
        print(f"ok     at random, {hits} chunks found")
        made.kill()
        made.start()
        again = engine(made.lmcache_port)
        require(again.look_up(text, "after") in (0, 6), "a hit of a part after a restart")
        print("ok     killed and started again")
        damaged, pages = made.damage_pages(0.3)
        made.kill()
        made.start()
        at_random(made, how.seed, 30, damaged=True)
        print(f"ok     {damaged} of {pages} pages damaged")
    finally:
        print(made.log_tail()) if sys.exc_info()[0] else None
        made.kill()


main()
