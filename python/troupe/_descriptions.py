"""What the events of a node say about pages, in arrays as `troupe_scheduler_describe` takes them."""

from array import array

# Pages in one call, and bytes of extra keys for one page.
MOST_PAGES, MOST_EXTRA = 4096, 4096

KEY_BYTES = 16


class Batch:
    """Pages of one group of the library and one adapter."""

    __slots__ = ("block_tokens", "per_page", "group", "tables", "lora", "keys", "hashes", "parents", "has_parent",
                 "tokens", "extra", "extra_ends")

    def __init__(self, block_tokens, per_page, group, tables, lora):
        """`tables`: vLLM's groups whose blocks lie in the pages, as members of `DescribedGroup`."""
        self.block_tokens, self.per_page, self.group, self.tables, self.lora = (block_tokens, per_page, group, tables,
                                                                                lora)
        self.keys, self.has_parent, self.extra = array("B"), array("B"), array("B")
        self.hashes, self.parents, self.tokens, self.extra_ends = array("Q"), array("Q"), array("I"), array("I")

    def add(self, keys, hashes, parent, tokens, extra):
        """Consecutive pages. `extra`: encoded, for one page; empty: none has any."""
        parents = [parent, *hashes[self.per_page - 1:-1:self.per_page]]
        self.keys.frombytes(keys)
        self.hashes.extend(hashes)
        self.parents.extend(each or 0 for each in parents)
        self.has_parent.extend(each is not None for each in parents)
        self.tokens.extend(tokens)
        self.extra.frombytes(extra)
        self.extra_ends.extend([len(self.extra)] * len(parents))


class Descriptions:
    """Pages to be described to the node, in the order in which they were stored or found."""

    def __init__(self):
        self._full, self._open = [], {}

    def take(self):
        out, self._full, self._open = [*self._full, *self._open.values()], [], {}
        return out

    def add(self, run, block_tokens, per_page, group, tables, first, last):
        """`group` and `tables`: as of a batch. `first` and `last`: pages of a `_events.Run`. Pages without a key or without all hashes are left out, and
        those that cannot be encoded: they are not published."""
        last = min(last, len(run.keys) // KEY_BYTES, len(run.hashes) // per_page)
        # Extra keys are encoded page by page.
        most = 1 if any(run.extra_keys[first * per_page:last * per_page]) else MOST_PAGES
        while first < last:
            batch = self._batch(block_tokens, per_page, group, tables, run.lora)
            end = min(last, first + most, first + MOST_PAGES - len(batch.parents))
            begin, blocks = first * per_page, slice(first * per_page, end * per_page)
            try:
                extra = encoded(run.extra_keys[blocks]) if most == 1 else b""
                tokens = array("I", run.tokens[begin * block_tokens:end * per_page * block_tokens])
            except (TypeError, ValueError, OverflowError):
                extra, tokens = None, None
            if tokens is not None and len(extra) <= MOST_EXTRA:
                parent = run.hashes[begin - 1] if begin else run.parent
                batch.add(run.keys[first * KEY_BYTES:end * KEY_BYTES], [number(each) for each in run.hashes[blocks]],
                          number(parent), tokens, extra)
            first = end

    def _batch(self, block_tokens, per_page, group, tables, lora):
        shape = block_tokens, per_page, group, tables, lora.name.encode(errors="replace") if lora else None
        batch = self._open.get(shape)
        if batch is not None and len(batch.parents) >= MOST_PAGES:
            self._full.append(batch)
            batch = None
        if batch is None:
            batch = self._open[shape] = Batch(*shape)
        return batch


def number(said):
    """The 64 bits of a hash that vLLM publishes by default; with VLLM_KV_EVENTS_USE_INT_BLOCK_HASHES=0 it publishes all
    bytes. None stays."""
    return int.from_bytes(said[-8:], "big") if isinstance(said, bytes) else said


def encoded(extra_keys):
    """As vLLM's publisher encodes them; empty if there are none."""
    if not any(extra_keys):
        return b""
    import msgspec

    return msgspec.msgpack.encode(extra_keys)
