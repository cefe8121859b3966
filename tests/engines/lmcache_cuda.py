#!/usr/bin/env python3
"""Tests copies by a node of blocks in PyTorch tensors on a GPU, for workers of LMCache: all kinds of handles, both
kinds of events, three processes, each byte. Needs Python and PyTorch, but neither LMCache nor vLLM.

Usage: lmcache_cuda.py --troupe PROGRAM --work DIRECTORY [--device cpu]

`--device cpu` does the same with tensors in shared memory. Exits with 0 on success, with 1 on an error, and with 3
without a GPU or PyTorch. Takes a minute, and never more than --seconds.
"""

import argparse
import json
import mmap
import os
import pathlib
import select
import struct
import subprocess
import sys
import time

from lmcache_wire import CHUNK_SIZE, CLEAR, END_SESSION, LOOKUP, PING, REGISTER, RETRIEVE, STORE, UNREGISTER
from lmcache_wire import WAIT_STATUS, client, handle, key_of

LAYERS, BLOCKS, TOKENS, HEADS, CONTENT = 4, 64, 16, 8, 128
CHUNK, CHUNKS = 256, 3
PER_CHUNK = CHUNK // TOKENS
# The size of one plane of one layer.
ELEMENTS = TOKENS * HEADS * CONTENT

# Engines that lie as planes, blocks and as blocks, planes exchange pages. The last one has heads outside, and others.
ARRANGEMENTS = ("planes-blocks", "blocks-planes", "heads-tokens")
KINDS = ("cuda", "cuda_raw")
COUNTER_HEADER = 64


def arguments():
    out = argparse.ArgumentParser()
    out.add_argument("--troupe", required=True)
    out.add_argument("--work", required=True, type=pathlib.Path)
    out.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    out.add_argument("--seconds", type=float, default=240)
    out.add_argument("--worker", help=argparse.SUPPRESS)
    return out.parse_args()


# -- a worker, in a process of its own ---------------------------------------------------------------------------------


class shared_segment:
    """The place of tensors that are not on a GPU."""

    def __init__(self, size, number):
        self.name, self.size = f"/troupe_cuda_{os.getpid()}_{number}", size
        self.path = pathlib.Path("/dev/shm") / self.name[1:]
        with open(self.path, "wb") as file:
            file.truncate(size)
        with open(self.path, "r+b") as file:
            self.memory = mmap.mmap(file.fileno(), size)


class worker:
    def __init__(self, torch, port, instance, arrangement, kind, event_kind):
        self.torch, self.instance, self.arrangement, self.kind = torch, instance, arrangement, kind
        self.event_kind, self.events, self.shared = event_kind, [], []
        self.device = "cpu" if kind == "cpu_shm" else "cuda"
        self.cache = self.make_cache()
        self.number = None if kind == "cpu_shm" else torch.zeros(8, dtype=torch.int64, device="cuda")
        self.scheduler, self.client = client(port), client(port)
        assert self.client.call(CHUNK_SIZE) == CHUNK
        self.tokens = []

    def make_cache(self):
        torch, per_layer = self.torch, 2 * BLOCKS * ELEMENTS
        together = self.arrangement == "blocks-planes"
        pieces = 1 if together else LAYERS
        if self.kind == "cpu_shm":
            size = 2 * per_layer * LAYERS // pieces
            self.shared = [shared_segment(size, i) for i in range(pieces)]
            flat = [torch.frombuffer(x.memory, dtype=torch.int16) for x in self.shared]
        else:
            flat = [torch.zeros(per_layer * LAYERS // pieces, dtype=torch.int16, device="cuda") for _ in range(pieces)]
        if together:
            # Blocks outside of layers: each layer has room behind each of its blocks.
            block = 2 * ELEMENTS
            return [torch.as_strided(flat[0], (BLOCKS, 2, TOKENS, HEADS, CONTENT),
                                     (LAYERS * block, ELEMENTS, HEADS * CONTENT, CONTENT, 1), layer * block)
                    for layer in range(LAYERS)]
        if self.arrangement == "planes-blocks":
            return [x.view(2, BLOCKS, TOKENS, HEADS, CONTENT) for x in flat]
        return [x.view(BLOCKS, HEADS, TOKENS, 2 * CONTENT) for x in flat]

    # -- what is in it --

    def block(self, layer, block):
        """All parts of it in a layer: two planes, or as many elements."""
        cache = self.cache[layer]
        return cache[:, block] if self.arrangement == "planes-blocks" else cache[block]

    def expected(self, sequence, layer, index):
        torch = self.torch
        start = (sequence * 7919 + layer * 104729 + index * 1299709) % 30011
        out = (torch.arange(2 * ELEMENTS, device=self.device, dtype=torch.int64) * 31 + start) % 65521 - 32768
        return out.to(torch.int16)

    def fill(self, sequence, blocks):
        for index, block in enumerate(blocks):
            for layer in range(LAYERS):
                to = self.block(layer, block)
                to.copy_(self.expected(sequence, layer, index).view(to.shape))

    def wipe(self):
        for x in self.cache:
            x.fill_(-1)
        self.wait()

    def wait(self):
        if self.device == "cuda":
            self.torch.cuda.synchronize()

    def wrong_blocks(self, sequence, first, blocks):
        out = []
        for index, block in enumerate(blocks):
            for layer in range(LAYERS):
                has = self.block(layer, block).reshape(-1)
                if not self.torch.equal(has, self.expected(sequence, layer, first + index)):
                    out.append((layer, block))
        return out

    def wiped(self, block):
        return all(bool((self.block(layer, block) == -1).all()) for layer in range(LAYERS))

    # -- how it is named --

    def metadata(self, tensor, offset):
        uuid = "cpu" if self.device == "cpu" else str(self.torch.cuda.get_device_properties(0).uuid)
        return {"dtype": "bfloat16", "shape": list(tensor.shape), "stride": list(tensor.stride()),
                "storage_offset": offset, "device_uuid": uuid}

    def named(self, layer):
        tensor = self.cache[layer]
        offset = tensor.storage_offset()
        if self.kind == "cpu_shm":
            segment = self.shared[layer if len(self.shared) > 1 else 0]
            return handle({"type": "cpu_shm", "version": 1, "metadata": self.metadata(tensor, offset),
                           "shm_name": segment.name, "nbytes": segment.size})
        storage = tensor.untyped_storage()
        shared = storage._share_cuda_()
        if self.kind == "cuda":
            self.counters.append((shared[4], shared[5]))
            return handle({"type": "cuda", "version": 1, "metadata": self.metadata(tensor, offset),
                           "handle": list(shared)})
        span = 1 + sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride()))
        return handle({"type": "cuda_raw", "version": 1, "metadata": self.metadata(tensor, 0),
                       "ipc_handle": shared[1][-64:], "alloc_offset": shared[3] + 2 * offset, "nbytes": 2 * span})

    def register(self, handles=None):
        self.counters = []
        handles = handles or [self.named(layer) for layer in range(LAYERS)]
        group = {"engine_group_id": 0, "layer_indices": list(range(LAYERS)), "tokens_per_block": TOKENS,
                 "sw_size_tokens": -1, "extra_object_group_tag": 0, "recurrent_state": False}
        hint = "HND" if self.arrangement == "heads-tokens" else "NHD"
        return self.client.call(REGISTER, self.instance, handles, "a model", 1, "vllm", {"kv_layout": hint}, [group])

    def counter_values(self):
        out = []
        for name, index in self.counters:
            data = (pathlib.Path("/dev/shm") / name.decode().lstrip("/")).read_bytes()
            out.append(struct.unpack_from("<q", data, COUNTER_HEADER + 8 * index)[0])
        return out

    def event(self):
        """An event after the work put into the stream."""
        if self.device == "cpu":
            return b"stub"
        if self.event_kind == "counted":
            self.last = getattr(self, "last", 0) + 1
            self.number[3:4].fill_(self.last)
            shared = self.number.untyped_storage()._share_cuda_()
            return struct.pack("!B64sQQ", 1, shared[1][-64:], shared[3] + 3 * 8, self.last)
        event = self.torch.cuda.Event(interprocess=True)
        event.record()
        self.events.append(event)
        return event.ipc_handle()

    def delay(self):
        """Delays the stream: its next results are not there when the node receives the request."""
        if self.device == "cuda":
            self.torch.cuda._sleep(400_000_000)

    # -- what it asks --

    def key(self, sequence, begin, end, request):
        tokens = [sequence * 100003 + i for i in range(end * CHUNK)]
        return key_of(tokens, begin * CHUNK, end * CHUNK, request)

    def store(self, sequence, blocks):
        count = len(blocks) // PER_CHUNK
        return self.client.call(STORE, self.key(sequence, 0, count, "s"), self.instance, [list(blocks)], self.event())

    def retrieve(self, sequence, begin, blocks, skip=0, request="r"):
        end = begin + len(blocks) // PER_CHUNK
        return self.client.call(RETRIEVE, self.key(sequence, begin, end, request), self.instance, [list(blocks)],
                                self.event(), skip)

    def found(self, sequence, chunks, request):
        key = dict(self.key(sequence, 0, chunks, request), worker_id=None)
        assert self.scheduler.call(LOOKUP, key, 1) is None
        return self.scheduler.call(WAIT_STATUS, request, 10.0)


DONE, NOT_DONE = [b"", True], [b"", False]
FORWARD = [3 * i % BLOCKS for i in range(1, CHUNKS * PER_CHUNK + 1)]
BACKWARD = list(range(BLOCKS - 1, BLOCKS - 1 - CHUNKS * PER_CHUNK, -1))


def check(fine, what):
    if not fine:
        raise AssertionError(what)


def first_of_two(x, say, hear):
    """Stores pages and reads them back."""
    check(x.register() is None, "a registration is answered with a value")
    check(x.client.call(PING, x.instance) is True, "the node has refused the memory; see its log")
    x.wait()
    x.delay()
    x.fill(1, FORWARD)
    begin = time.monotonic()
    check(x.store(1, FORWARD) == DONE, "the store was not done")
    taken = time.monotonic() - begin
    check(x.store(1, FORWARD) == DONE, "what is there already is no error")
    check(x.found(1, CHUNKS + 1, "a") == CHUNKS, "not all chunks were found")
    x.wipe()
    begin = time.monotonic()
    check(x.retrieve(1, 0, BACKWARD, request="a") == DONE, "the retrieve was not done")
    back = time.monotonic() - begin
    wrong = x.wrong_blocks(1, 0, BACKWARD)
    check(not wrong, f"other bytes than were stored in {len(wrong)} blocks, first {wrong[:3]}")
    check(x.wiped(0), "a block was written that was not named")
    x.wipe()
    check(x.retrieve(1, 0, BACKWARD, skip=5 * TOKENS) == DONE, "the retrieve with a skip was not done")
    check(all(x.wiped(block) for block in BACKWARD[:5]), "a block was written that was to be left alone")
    check(not x.wrong_blocks(1, 5, BACKWARD[5:]), "other bytes than were stored, behind a skip")
    check(x.retrieve(2, 0, BACKWARD) == NOT_DONE, "what was never stored is found")
    check(x.store(3, [BLOCKS] * PER_CHUNK) == NOT_DONE, "a block that there is not is stored")
    megabytes = CHUNKS * PER_CHUNK * LAYERS * 2 * ELEMENTS * 2 / 1e6
    say({"said": "stored", "text": f"{megabytes:.0f} MB; store {taken * 1e3:.0f} ms with the delay of its event, "
                                   f"retrieve {back * 1e3:.1f} ms"})
    hear()
    check(x.client.call(UNREGISTER, x.instance) is None, "no end of a registration")
    check(x.store(4, FORWARD) == NOT_DONE, "a store of an unregistered worker")
    until = time.monotonic() + 10
    while x.counters and any(x.counter_values()) and time.monotonic() < until:
        time.sleep(0.05)
    check(not x.counters or not any(x.counter_values()), f"PyTorch still waits for its memory: {x.counter_values()}")


def second_of_two(x, say, hear):
    """Finds pages that another process has stored."""
    x.wipe()
    check(x.register() is None, "a registration is answered with a value")
    check(x.found(1, CHUNKS, "b") == CHUNKS, "not all chunks of the other process were found")
    blocks = BACKWARD[:2 * PER_CHUNK]
    x.delay()
    check(x.retrieve(1, 1, blocks, request="b") == DONE, "the retrieve was not done")
    wrong = x.wrong_blocks(1, PER_CHUNK, blocks)
    check(not wrong, f"other bytes than the other process has stored in {len(wrong)} blocks, first {wrong[:3]}")
    x.scheduler.call(END_SESSION, "b")
    check(x.scheduler.call(CLEAR, True) is None, "clear is answered with a value")
    check(x.retrieve(1, 0, BACKWARD) == NOT_DONE, "what was cleared is found")
    # Memory that cannot be opened is refused at once, without a wait.
    stranger = worker(x.torch, x.port, x.instance + 1000, x.arrangement, x.kind, x.event_kind)
    strange = [x.named(layer) for layer in range(LAYERS)]
    for each in strange:
        each.value["type"] = "cuda_vmm"
    check(stranger.register(strange) is None, "a refusal is answered with a value")
    check(stranger.store(5, FORWARD) == NOT_DONE, "a store without memory")
    check(stranger.client.call(PING, stranger.instance) is False, "a ping of a refused worker")
    if x.device == "cuda":
        check(x.client.call(STORE, x.key(6, 0, CHUNKS, "s"), x.instance, [FORWARD], b"x" * 64) == NOT_DONE,
              "a store after an event that there is not")
    x.fill(7, FORWARD)
    check(x.store(7, FORWARD) == DONE, "a store after all that")
    say({"said": "found", "text": ""})


def victim(x, say, hear):
    """A worker that is killed while it stores and retrieves."""
    check(x.register() is None, "a registration is answered with a value")
    x.fill(9, FORWARD)
    x.wait()
    say({"said": "busy", "text": ""})
    for sequence in range(1 << 30):
        for _ in range(4):
            x.client.send(STORE, x.key(100 + sequence % 20, 0, CHUNKS, "v"), x.instance, [FORWARD], x.event())
            x.client.send(RETRIEVE, x.key(100 + sequence % 20, 0, CHUNKS, "v"), x.instance, [BACKWARD], x.event(), 0)
        for _ in range(8):
            x.client.receive()


ROLES = {"first": first_of_two, "second": second_of_two, "victim": victim}


def be_worker(what):
    import torch

    made = worker(torch, what["port"], what["instance"], what["arrangement"], what["kind"], what["event"])
    made.port = what["port"]

    def say(line):
        print(json.dumps(line), flush=True)

    try:
        ROLES[what["role"]](made, say, sys.stdin.readline)
        say({"said": "done", "text": ""})
    except Exception as wrong:  # noqa: BLE001
        say({"said": "wrong", "text": f"{type(wrong).__name__}: {wrong}"})
    finally:
        for segment in made.shared:
            segment.path.unlink(missing_ok=True)
    sys.stdout.flush()
    # PyTorch says at the end what it thinks of memory that was shared.
    os._exit(0)


# -- the parent --------------------------------------------------------------------------------------------------------


class started:
    """A started worker and its output."""

    all = []

    def __init__(self, until, **what):
        self.until = until
        self.process = subprocess.Popen([sys.executable, __file__, "--troupe", "-", "--work", ".", "--worker",
                                         json.dumps(what)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.all.append(self)

    def heard(self, wanted):
        while True:
            left = max(0.0, self.until - time.monotonic())
            if not select.select([self.process.stdout], [], [], left)[0]:
                raise RuntimeError(f"a worker has not said '{wanted}' in time")
            line = self.process.stdout.readline()
            if not line:
                raise RuntimeError(f"a worker has ended with {self.process.wait()} before it said '{wanted}'")
            if not line.startswith("{"):
                continue
            said = json.loads(line)
            if said["said"] == "wrong":
                raise RuntimeError(said["text"])
            if said["said"] == wanted:
                return said["text"]

    def go_on(self):
        self.process.stdin.write("go on\n")
        self.process.stdin.flush()

    def kill(self):
        self.process.kill()
        self.process.wait()


def node_of(arguments):
    from node import node

    made = node(str(pathlib.Path(arguments.troupe).resolve()), arguments.work / "node", memory="512 MiB",
                disk="1 GiB", durability="none", lmcache=True)
    # A bundle has its libraries beside it; they are for the node alone.
    beside = pathlib.Path(arguments.troupe).resolve().parent / "lib"
    before = os.environ.get("LD_LIBRARY_PATH")
    if beside.is_dir():
        os.environ["LD_LIBRARY_PATH"] = str(beside) + (":" + before if before else "")
    made.start()
    if beside.is_dir():
        os.environ.pop("LD_LIBRARY_PATH")
        if before is not None:
            os.environ["LD_LIBRARY_PATH"] = before
    return made


def play_pair(until, port, number, first, second):
    """`first` and `second`: arrangement, kind of handle, kind of event."""
    one = started(until, role="first", port=port, instance=10 * number, arrangement=first[0], kind=first[1],
                  event=first[2])
    text = one.heard("stored")
    two = started(until, role="second", port=port, instance=10 * number + 1, arrangement=second[0], kind=second[1],
                  event=second[2])
    two.heard("done")
    one.go_on()
    one.heard("done")
    return text


def main():
    wanted = arguments()
    if wanted.worker:
        return be_worker(json.loads(wanted.worker))
    try:
        import torch
    except ImportError:
        print("nothing was played: there is no PyTorch", file=sys.stderr)
        return 3
    if wanted.device == "cuda" and not torch.cuda.is_available():
        print("nothing was played: PyTorch sees no GPU", file=sys.stderr)
        return 3
    wanted.work.mkdir(parents=True, exist_ok=True)
    until = time.monotonic() + wanted.seconds
    split, mixed, outside = ARRANGEMENTS
    one, other = KINDS if wanted.device == "cuda" else ("cpu_shm", "cpu_shm")
    pairs = [((split, one, "event"), (mixed, other, "counted")), ((mixed, other, "counted"), (split, one, "event")),
             ((outside, one, "event"), (outside, other, "event"))]
    made, failed = node_of(wanted), 0
    try:
        for number, (first, second) in enumerate(pairs, 1):
            name = " -> ".join(f"{x[0]}, {x[1]}, {x[2]}" for x in (first, second))
            try:
                print(f"ok     {name}: {play_pair(until, made.lmcache_port, number, first, second)}", flush=True)
            except RuntimeError as wrong:
                failed += 1
                print(f"WRONG  {name}: {wrong}", flush=True)
        try:
            for number in range(2):
                dying = started(until, role="victim", port=made.lmcache_port, instance=900 + number, arrangement=split,
                                kind=one, event="event")
                dying.heard("busy")
                time.sleep(1)
                dying.kill()
            play_pair(until, made.lmcache_port, 95, pairs[0][0], pairs[0][1])
            print("ok     workers that were killed under copies, and then the first pair once more", flush=True)
        except RuntimeError as wrong:
            failed += 1
            print(f"WRONG  after workers that were killed: {wrong}", flush=True)
        if made.process.poll() is not None:
            failed += 1
            print(f"WRONG  the node has ended with {made.process.poll()}", flush=True)
    finally:
        for each in started.all:
            if each.process.poll() is None:
                each.kill()
        for left in pathlib.Path("/dev/shm").glob("troupe_cuda_*"):
            left.unlink(missing_ok=True)
        if failed:
            print(made.log_tail(), file=sys.stderr)
        try:
            made.stop()
        except subprocess.TimeoutExpired:
            made.kill()
    print(f"{failed} failed", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
