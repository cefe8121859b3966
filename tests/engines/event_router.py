"""A router's view of the KV events of one engine or node, with vLLM's own decoder."""

import pathlib
import subprocess
import sys
import time

from experiments import BLOCK, require
from free_ports import free_port

HERE = pathlib.Path(__file__).resolve().parent

SILENCE_SECONDS = 1.0


class router:
    """A view of the blocks of one engine, or node: by medium and group, the hashes that are announced."""

    def __init__(self, lab, publish=None, of_node=None):
        """`publish`: an address at which the messages are published as well. `of_node`: whose events these are."""
        import msgspec
        from vllm.distributed import kv_events

        self.kinds = kv_events
        self.decode = msgspec.msgpack.Decoder(kv_events.KVEventBatch).decode
        self.endpoint = f"connect:{of_node.events_endpoint}" if of_node else f"tcp://127.0.0.1:{free_port()}"
        self.path = lab.next_log().with_suffix(".events")
        self.process = subprocess.Popen([sys.executable, str(HERE / "subscriber.py"), self.endpoint, str(self.path),
                                         *([publish] if publish else [])], stdout=subprocess.PIPE)
        self.process.stdout.readline()
        lab.nodes.append(self)  # its process ends with those of the nodes
        self.directory, self.read = self.path, 0
        self.blocks, self.said, self.ever = {}, {}, {}
        self.cleared = self.removed = 0
        # The numbers of a node begin with the time at which it has started.
        self.next = None if of_node else 0

    def kill(self):
        self.process.kill()
        self.process.wait()

    stop = kill

    def config(self):
        """Settings of the engine."""
        from vllm.config import KVEventsConfig

        return KVEventsConfig(enable_kv_cache_events=True, publisher="zmq", endpoint=self.endpoint)

    def listen(self):
        """Takes what has come, until nothing comes for a second."""
        quiet = time.monotonic() + SILENCE_SECONDS
        while time.monotonic() < quiet:
            for number, payload in self.messages():
                require(self.next in (number, None), f"batch {number} of events came in the place of {self.next}")
                self.next = number + 1
                for event in self.decode(payload).events:
                    self.take(event)
                quiet = time.monotonic() + SILENCE_SECONDS
            time.sleep(0.05)
        return self

    def messages(self):
        """Those that are complete."""
        data = self.path.read_bytes()
        while len(data) >= self.read + 12:
            number = int.from_bytes(data[self.read:self.read + 8], "big")
            end = self.read + 12 + int.from_bytes(data[self.read + 8:self.read + 12], "big")
            if len(data) < end:
                return
            yield number, data[self.read + 12:end]
            self.read = end

    def take(self, event):
        if isinstance(event, self.kinds.AllBlocksCleared):
            self.cleared += 1
            self.blocks.clear()
            return
        known = self.blocks.setdefault((event.medium, event.group_idx), set())
        if isinstance(event, self.kinds.BlockRemoved):
            if event.medium != "GPU":
                missing = [each for each in event.block_hashes if each not in known]
                require(not missing, f"{len(missing)} blocks are removed that were not announced")
                self.removed += len(event.block_hashes)
            known.difference_update(event.block_hashes)
            return
        size, parent = event.block_size, event.parent_block_hash
        require(event.medium == "GPU" or len(event.token_ids) == size * len(event.block_hashes),
                f"{len(event.token_ids)} tokens for {len(event.block_hashes)} blocks of {size}")
        extra_keys = event.extra_keys or [None] * len(event.block_hashes)
        for number, (each, extra) in enumerate(zip(event.block_hashes, extra_keys, strict=True)):
            if event.medium != "GPU":
                require(each not in known, "a block is announced twice")
            if len(event.token_ids) == size * len(event.block_hashes):
                said = (parent, tuple(event.token_ids[number * size:(number + 1) * size]), extra, size, event.lora_id,
                        event.lora_name, event.kv_cache_spec_kind, event.kv_cache_spec_sliding_window)
                self.said.setdefault((event.medium, event.group_idx), {})[each] = said
            known.add(each)
            self.ever.setdefault((event.medium, event.group_idx), set()).add(each)
            parent = each

    def there(self, group=0, media=("CPU", "STORAGE")):
        return set().union(*(self.blocks.get((medium, group), ()) for medium in media))

    def overlap(self, prompt, salt=None, media=("CPU", "STORAGE")):
        """Tokens of the longest prefix of a prompt that is there, found by tokens, parents and salt as routers do it.
        Of models with one group."""
        there, known = self.there(0, media), {}
        for medium in media:
            for each, (parent, tokens, extra, *_) in self.said.get((medium, 0), {}).items():
                known[parent, tokens, extra] = each
        found, parent, extra = 0, None, salt and (salt,)
        while (each := known.get((parent, tuple(prompt[found:found + BLOCK]), extra))) in there:
            found, parent, extra = found + BLOCK, each, None
        return found

    def require_as_on_gpu(self, groups=(0,)):
        """What Troupe has said of a block is what vLLM has said of it."""
        for group in groups:
            own, ours = self.said.get(("GPU", group), {}), {}
            for medium in ("CPU", "STORAGE"):
                ours.update(self.said.get((medium, group), {}))
            require(ours, f"no block of group {group} was announced")
            both = [each for each in ours if each in own]
            require(both, f"no announced block of group {group} is one of the GPU")
            for each in both:
                require(ours[each] == own[each], f"a block of group {group} is announced as {ours[each]}, and on the "
                                                 f"GPU as {own[each]}")
