"""KV events in vLLM's form, out of what the library reports about pages.

Routers know blocks by the hashes, tokens and parents that vLLM itself publishes for the blocks of its GPU. A block is
announced once it is in the cache, and its removal when a lookup misses it, when it could not be loaded, when the node is
lost, and when more blocks would have to be remembered than `LIMIT`: by name, and not by `AllBlocksCleared`, which names
no medium, so that routers would forget the blocks of the GPU as well.
"""

from collections import OrderedDict
from dataclasses import dataclass
from itertools import islice

from troupe import _interface
from troupe._descriptions import Descriptions

# The most blocks that are remembered as announced, about 200 bytes each.
LIMIT = 1 << 19

# Hashes in one removal.
MOST_REMOVED = 4096

CPU, STORAGE = "CPU", "STORAGE"


@dataclass(frozen=True)
class Table:
    """One of vLLM's KV cache groups, whose blocks its events name."""

    group: int
    block_tokens: int
    kind: str | None = None
    window: int | None = None


class Format:
    """vLLM's event classes, of which not every version has all fields, and what it derives from a request."""

    def __init__(self, locality=None):
        from vllm.distributed import kv_events
        from vllm.v1.core import kv_cache_utils as utils

        self.stored_class, self.removed_class = kv_events.BlockStored, kv_events.BlockRemoved
        self._stored_fields = frozenset(kv_events.BlockStored.__struct_fields__)
        self._removed_fields = frozenset(kv_events.BlockRemoved.__struct_fields__)
        self._locality = locality
        self._extra_keys = utils.generate_block_hash_extra_keys
        self._published = getattr(utils, "to_event_extra_keys", list)
        # VLLM_KV_EVENTS_USE_INT_BLOCK_HASHES decides; asking for each hash takes microseconds.
        convert = utils.maybe_convert_block_hash
        self._whole = isinstance(convert(bytes(range(32))), bytes)

    def hashes(self, hashes):
        if self._whole:
            return list(hashes)
        number = int.from_bytes
        return [number(each[-8:], "big") for each in hashes]

    def extra_keys(self, request, block_tokens, first, last):
        """Of each block: what its hash covers besides tokens."""
        if not (request.lora_request or request.cache_salt or request.mm_features
                or request.prompt_embeds is not None):
            return [None] * (last - first)
        out, item = [], 0
        for block in range(first, last):
            keys, item = self._extra_keys(request, block * block_tokens, (block + 1) * block_tokens, item)
            out.append(keys)
        return self._published(out)

    def stored(self, run, table, medium, first, last):
        """`first` and `last`: blocks of the run."""
        lora = run.lora
        fields = {"block_hashes": run.hashes[first:last], "parent_block_hash": run.hashes[first - 1] if first
                  else run.parent, "token_ids": run.tokens[first * table.block_tokens:last * table.block_tokens],
                  "block_size": table.block_tokens, "lora_id": lora.adapter_id if lora else None,
                  "lora_name": lora.name if lora else None, "medium": medium,
                  "extra_keys": run.extra_keys[first:last], "group_idx": table.group, "kv_cache_spec_kind": table.kind,
                  "kv_cache_spec_sliding_window": table.window, "locality": self._locality, "session_id": run.session}
        return self.stored_class(**{name: value for name, value in fields.items() if name in self._stored_fields})

    def removed(self, table, medium, hashes):
        fields = {"block_hashes": hashes, "medium": medium, "group_idx": table.group, "locality": self._locality}
        return self.removed_class(**{name: value for name, value in fields.items() if name in self._removed_fields})

    def described(self, tables):
        """The groups that events of these tables name, as members of `DescribedGroup`; empty: they name none."""
        if "group_idx" not in self._stored_fields:
            return ()
        kinds = "kv_cache_spec_kind" in self._stored_fields
        windows = "kv_cache_spec_sliding_window" in self._stored_fields
        return tuple((table.group, table.window or 0 if windows else 0,
                      table.kind.encode() if kinds and table.kind else None) for table in tables)


class Run:
    """Consecutive blocks of a request in one table: all that an event says of them, without the request."""

    __slots__ = ("first", "hashes", "parent", "tokens", "extra_keys", "lora", "session", "keys")

    def __init__(self, form, request, table, hash_tokens, first, last, keys):
        """`keys`: the library's, 16 bytes for each page, or none."""
        step, tokens = table.block_tokens // hash_tokens, table.block_tokens
        # Of blocks without a hash, as without prefix caching, there is nothing that a router could find.
        hashes = form.hashes(request.block_hashes[(first + 1) * step - 1:last * step:step])
        self.first, self.hashes = first, hashes
        self.parent = form.hashes([request.block_hashes[first * step - 1]])[0] if first and hashes else None
        self.tokens = list(request.all_token_ids[first * tokens:(first + len(hashes)) * tokens])
        self.extra_keys = form.extra_keys(request, tokens, first, first + len(hashes))
        self.lora, self.session = request.lora_request, getattr(request, "session_id", None)
        self.keys = keys


class Events:
    """What was announced to routers, and what follows from the library's events. Bounded: by `limit` for blocks that were
    announced, and by the engine's own blocks for those that are being saved."""

    def __init__(self, form, groups, hash_tokens, limit=LIMIT, describes=False):
        """`groups`: tables of each group of the library. `describes`: whether pages are described to the node. With pipeline stages some groups have the same tables: what the first of them has
        is announced, and what any of them lacks is withdrawn."""
        announcing, first = [], {}
        for group, tables in enumerate(groups):
            new = tuple(table for table in tables if table.group not in first)
            first.update((table.group, (group, number)) for number, table in enumerate(new))
            announcing.append(new)
        # Where the tables of each group are announced.
        self._places = [[first[table.group] for table in tables] for tables in groups]
        self._form, self._groups, self._hash_tokens = form, announcing, hash_tokens
        self._limit = max(1, limit // sum(map(len, announcing)))
        # Of each table: the medium of each block, by hash; the one to be forgotten first is the first.
        self._announced = [[OrderedDict() for _ in tables] for tables in announcing]
        # Of each save that is in progress: its runs by first page, and pages without a result.
        self._saving = {}
        self._descriptions = Descriptions() if describes else None
        # What descriptions say about the pages of each group. The tables of a group have the same blocks.
        self._described = [form.described(tables) for tables in announcing]

    def describes(self):
        return self._descriptions is not None

    def describe_nothing(self):
        self._descriptions = None

    def take_descriptions(self):
        """Batches of pages that were stored or found since the last call."""
        return self._descriptions.take() if self._descriptions is not None else ()

    def announced(self):
        return sum(len(known) for tables in self._announced for known in tables)

    def saving(self):
        return len(self._saving)

    def forget(self):
        """Routers do not know any block any more. What lookups find is announced again."""
        for tables in self._announced:
            for known in tables:
                known.clear()

    def take(self, events, page_tokens, request_of):
        """`events`: (kind, request, group, first page, pages, save, keys) of each. `request_of`: the request of a name,
        or None."""
        out = []
        for kind, name, group, first, pages, save, keys in events:
            if kind == _interface.EVENT_ALL_CLEARED:
                self._forget_all(out)
            elif kind == _interface.EVENT_SAVING:
                request = request_of(name)
                if request is not None:
                    self._begin(request, group, first, pages, save, page_tokens, keys)
            elif save:
                self._end(kind, group, first, pages, save, page_tokens, out)
            else:
                request = request_of(name)
                if request is not None:
                    self._learn(kind, request, group, first, pages, page_tokens, keys, out)
        return out

    def _run(self, request, table, first, pages, page_tokens, keys):
        per_page = page_tokens // table.block_tokens
        return Run(self._form, request, table, self._hash_tokens, first * per_page, (first + pages) * per_page, keys)

    def _begin(self, request, group, first, pages, save, page_tokens, keys):
        runs = [self._run(request, table, first, pages, page_tokens, keys) for table in self._groups[group]]
        entry = self._saving.setdefault(save, [[], 0])
        entry[0].append((first, first + pages, runs))
        entry[1] += pages

    def _end(self, kind, group, first, pages, save, page_tokens, out):
        entry = self._saving.get(save)
        if entry is None:
            return
        if kind == _interface.EVENT_STORED:
            for begin, end, runs in entry[0]:
                low, high = max(first, begin), min(first + pages, end)
                if low >= high:
                    continue
                for number, (table, run) in enumerate(zip(self._groups[group], runs)):
                    per_page = page_tokens // table.block_tokens
                    if number == 0:
                        self._describe(group, run, table, per_page, low - begin, high - begin)
                    self._announce(group, number, run, (low - begin) * per_page, (high - begin) * per_page, CPU, out,
                                   move=False)
        entry[1] -= pages
        if entry[1] <= 0:
            del self._saving[save]

    def _learn(self, kind, request, group, first, pages, page_tokens, keys, out):
        if kind == _interface.EVENT_REMOVED:
            for group, number in self._places[group]:
                if self._announced[group][number]:
                    hashes = self._hashes(request, self._groups[group][number], first, pages, page_tokens)
                    self._withdraw(group, number, hashes, out)
            return
        for number, table in enumerate(self._groups[group]):
            known = self._announced[group][number]
            medium = STORAGE if kind == _interface.EVENT_ON_DISK else CPU
            hashes = self._hashes(request, table, first, pages, page_tokens)
            if all(known.get(each) == medium for each in hashes):  # as after each lookup of a known prefix
                self._refresh(known, hashes)
                continue
            run = self._run(request, table, first, pages, page_tokens, keys)
            if number == 0:
                self._describe(group, run, table, page_tokens // table.block_tokens, 0, pages)
            self._announce(group, number, run, 0, len(run.hashes), medium, out, move=True)

    def _hashes(self, request, table, first, pages, page_tokens):
        step, per_page = table.block_tokens // self._hash_tokens, page_tokens // table.block_tokens
        return self._form.hashes(request.block_hashes[(first * per_page + 1) * step - 1:
                                                      (first + pages) * per_page * step:step])

    @staticmethod
    def _refresh(known, hashes):
        # The last block first: of a prefix that is not used any more, its end goes first.
        for each in reversed(hashes):
            known.move_to_end(each)

    def _describe(self, group, run, table, per_page, first, last):
        """`first` and `last`: pages of the run."""
        if self._descriptions is not None:
            self._descriptions.add(run, table.block_tokens, per_page, group, self._described[group], first, last)

    def _announce(self, group, number, run, first, last, medium, out, move):
        """`move`: whether the medium of blocks that were announced is known to be another one now."""
        known, table = self._announced[group][number], self._groups[group][number]
        last = min(last, len(run.hashes))
        if first >= last:
            return
        hashes = run.hashes
        if move:
            self._withdraw(group, number, [each for each in hashes[first:last] if known.get(each, medium) != medium],
                           out)
        begin = first
        for block in range(first, last + 1):
            if block == last or hashes[block] in known:
                if begin < block:
                    out.append(self._form.stored(run, table, medium, begin, block))
                begin = block + 1
        for each in reversed(hashes[first:last]):
            if each in known:
                known.move_to_end(each)
            else:
                known[each] = medium
        if len(known) > self._limit:
            self._withdraw(group, number, list(islice(known, len(known) - self._limit)), out)

    def _withdraw(self, group, number, hashes, out):
        known, table = self._announced[group][number], self._groups[group][number]
        media = {}
        for each in hashes:
            medium = known.pop(each, None)
            if medium is not None:
                media.setdefault(medium, []).append(each)
        for medium, gone in media.items():
            for first in range(0, len(gone), MOST_REMOVED):
                out.append(self._form.removed(table, medium, gone[first:first + MOST_REMOVED]))

    def _forget_all(self, out):
        self._saving.clear()
        for group, tables in enumerate(self._announced):
            for number, known in enumerate(tables):
                self._withdraw(group, number, list(known), out)


def wanted(vllm_config):
    """Whether vLLM publishes KV events."""
    config = getattr(vllm_config, "kv_events_config", None)
    return bool(config and config.enable_kv_cache_events)


def tables(kv_cache_config, groups):
    """`groups`: numbers of vLLM's KV cache groups and tokens of a block, of each group of the library."""
    try:
        from vllm.v1.kv_cache_interface import get_kv_cache_spec_kind as kind_of
        from vllm.v1.kv_cache_interface import get_kv_cache_spec_sliding_window as window_of
    except ImportError:  # events do not name them
        return [tuple(Table(number, tokens) for number in numbers) for numbers, tokens in groups]
    specs = [group.kv_cache_spec for group in kv_cache_config.kv_cache_groups]
    return [tuple(Table(number, tokens, kind_of(specs[number]).value, window_of(specs[number])) for number in numbers)
            for numbers, tokens in groups]


def locality(address):
    """Of a node at this address: nothing is said of one that is named by host and port, which may be this host's."""
    return "LOCAL" if "/" in address or ":" not in address else None
