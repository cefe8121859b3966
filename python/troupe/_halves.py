"""Objects for the handles of the library: arrays and bytes in and out, without decisions."""

import ctypes
import json
import os
import threading
import weakref
from array import array

from troupe import _interface
from troupe._library import address, call, ids, load, taken, taken_blocks, taken_ids, text

_connections = weakref.WeakValueDictionary()
_connecting = threading.Lock()


class Handle:
    """A handle of the library that must be destroyed, in the process that created it."""

    destroyer = ""

    def __init__(self):
        self.handle, self._destroy = _interface.HANDLE(), getattr(load(), self.destroyer)

    def __del__(self):
        if getattr(self, "handle", None):
            self._destroy(self.handle)


class Connection(Handle):
    """The threads and sockets for one node; `connection` shares one between equal options."""

    destroyer = "troupe_connection_destroy"

    def __init__(self, options):
        super().__init__()
        call("troupe_connect", ctypes.byref(_interface.ConnectOptions(**options)), ctypes.byref(self.handle))


def connection(options):
    """`options`: members of `ConnectOptions`. One connection per process and options, while it is in use."""
    key = (os.getpid(), *sorted(options.items()))
    with _connecting:
        found = _connections.get(key)
        if found is None:
            found = _connections[key] = Connection(options)
        return found


class Namespace:
    """A namespace, with the data that its struct points at."""

    def __init__(self, geometry, **members):
        self.geometry = _interface.Geometry(**geometry)
        texts = {name: text(value) for name, value in members.items() if name != "world_size"}
        self.struct = _interface.Namespace(geometry=ctypes.pointer(self.geometry), **texts)
        self.struct.world_size = members.get("world_size", 0)

    def identity(self, engine=None):
        """Digest and name, which are the same in every process."""
        digest, name = (ctypes.c_char * 33)(), ctypes.c_char_p()
        call("troupe_namespace_identity", ctypes.byref(self.struct), engine and ctypes.byref(engine), digest,
             ctypes.byref(name))
        return digest.value.decode(), name.value.decode()


class Groups:
    """Groups of layers, with the data that their struct points at. `members`: (members of `Group`, tables, namespace)
    of each."""

    def __init__(self, page_tokens, members):
        self.namespaces = [ns for _, _, ns in members]
        self._tables = [array("I", tables) for _, tables, _ in members]
        self._groups = (_interface.Group * len(members))(
            *(_interface.Group(**numbers, table_count=len(tables), tables=address(held), ns=ctypes.pointer(ns.struct))
              for (numbers, tables, ns), held in zip(members, self._tables)))
        self.struct = _interface.Groups(page_tokens=page_tokens, groups=self._groups, count=len(members))

    def identity(self, engine):
        """Digest and name of the first group's namespace, which stands for all."""
        digest, name = (ctypes.c_char * 33)(), ctypes.c_char_p()
        call("troupe_group_identity", ctypes.byref(self.struct), ctypes.byref(engine), 0, digest, ctypes.byref(name))
        return digest.value.decode(), name.value.decode()


def create(kind, connected, ns, *arguments):
    """Calls the function that creates a half for a `Namespace` or for `Groups`."""
    grouped = "_groups" if isinstance(ns, Groups) else ""
    call(f"troupe_{kind}_create{grouped}", connected.handle, ctypes.byref(ns.struct), *arguments)


def layers(views):
    """Converts `views`, dicts of the members of `troupe_layer`, to an array of it."""
    return (_interface.Layer * len(views))(*(_interface.Layer(**view) for view in views))


def reason_for_absence(function, handle):
    """None if a node is attached, else why there is none yet."""
    from troupe._library import TroupeError
    try:
        call(function, handle)
    except TroupeError as error:
        return error
    return None


class Scheduler(Handle):
    destroyer = "troupe_scheduler_destroy"

    def __init__(self, connected, ns, engine):
        super().__init__()
        self.connection = connected
        self.request, self.matched = _interface.Request(), _interface.Matched()
        self.out, self.events = _interface.Bytes(), _interface.Events()
        self._hold, self._release = _interface.Blocks(), _interface.Blocks()
        create("scheduler", connected, ns, ctypes.byref(engine), ctypes.byref(self.handle))

    def absence(self):
        return reason_for_absence("troupe_scheduler_attached", self.handle)

    def _filled(self, name, tokens, hashes, lora, cache_salt, multimodal, uncacheable):
        """`tokens`: (position of the first, count, address); `hashes`: (position, count, bytes); `multimodal`:
        (first token, tokens, bytes) of each item."""
        request = self.request
        request.id, request.uncacheable = name, uncacheable
        request.first_token, request.token_count, request.tokens = tokens
        request.first_hash, request.hash_count, request.hashes = hashes
        request.lora, request.cache_salt = lora, cache_salt
        if multimodal:
            items = [(first, count, digest, len(digest)) for first, count, digest in multimodal]
            request.multimodal = (_interface.Multimodal * len(items))(*items)
        else:
            request.multimodal = None
        request.multimodal_count = len(multimodal)
        return ctypes.byref(request)

    def on_new_request(self, *request):
        call("troupe_scheduler_on_new_request", self.handle, self._filled(*request))

    def match(self, request, computed_tokens):
        """Tokens (None: not known yet), and whether they are loaded between steps."""
        call("troupe_scheduler_matched", self.handle, self._filled(*request), computed_tokens,
             ctypes.byref(self.matched))
        return self.matched.tokens if self.matched.known else None, bool(self.matched.asynchronous)

    def allocated(self, name, blocks, external_tokens):
        numbers = array("I", blocks)
        call("troupe_scheduler_allocated", self.handle, name, address(numbers), len(numbers), external_tokens)

    def allocated_tables(self, name, tables, external_tokens):
        """The same with several block tables, which are lists."""
        blocks, ends = array("I"), array("I")
        for table in tables:
            blocks.fromlist(table)
            ends.append(len(blocks))
        call("troupe_scheduler_allocated_tables", self.handle, name, address(blocks), len(blocks), address(ends),
             len(ends), external_tokens)

    def take_holds(self):
        """Blocks to hold, and blocks that need not be held any more."""
        call("troupe_scheduler_take_holds", self.handle, ctypes.byref(self._hold), ctypes.byref(self._release))
        return taken_blocks(self._hold), taken_blocks(self._release)

    def hit_sources(self, name, tokens):
        """Tokens in memory, on disk, and at an unknown place."""
        out = _interface.HitSources()
        call("troupe_scheduler_hit_sources", self.handle, name, tokens, ctypes.byref(out))
        return out.memory, out.disk, out.unknown

    def fetched_pages(self, name):
        """How often the last lookup asked other nodes, the pages that were fetched from them, and the seconds that it
        took."""
        out = _interface.FetchedPages()
        call("troupe_scheduler_fetched_pages", self.handle, name, ctypes.byref(out))
        return out.requests, out.pages, out.seconds

    def build_meta(self, step):
        call("troupe_scheduler_build_meta", self.handle, ctypes.byref(step), ctypes.byref(self.out))
        return taken(self.out)

    def finished(self, name):
        keep = ctypes.c_int32()
        call("troupe_scheduler_finished", self.handle, name, ctypes.byref(keep))
        return bool(keep.value)

    def worker_output(self, sent, received, failed, load_errors, metas):
        output, blocks = _interface.WorkerOutput(), array("I", load_errors)
        output.sent, output.received, output.failed = ids(sent), ids(received), ids(failed)
        output.load_errors = _interface.Blocks(address(blocks), len(blocks))
        held, output.worker_meta_count = pieces(metas), len(metas)
        output.worker_meta = held.structs
        call("troupe_scheduler_worker_output", self.handle, ctypes.byref(output))

    def take_events(self, with_keys=False):
        """(kind, request, group, first page, pages, save, keys) of each, and the tokens of one page. `with_keys`: 16 bytes
        for each page, where the library has them; without, none."""
        call("troupe_scheduler_take_events", self.handle, ctypes.byref(self.events))
        events, count = self.events, self.events.count
        if not count:
            return [], 0
        groups, firsts, pages = ((ctypes.c_uint32 * count).from_address(each)
                                 for each in (events.groups, events.first_pages, events.page_counts))
        saves = (ctypes.c_uint64 * count).from_address(events.saves)
        kinds, names = ctypes.string_at(events.kinds, count), taken_ids(events.requests)
        keys = self._keys(events) if with_keys else [b""] * count
        return list(zip(kinds, names, groups, firsts, pages, saves, keys)), events.page_tokens

    @staticmethod
    def _keys(events):
        """Of each event."""
        joined = ctypes.string_at(events.keys, 16 * events.key_count) if events.key_count else b""
        ends = (ctypes.c_uint32 * events.count).from_address(events.key_ends)
        return [joined[16 * first:16 * last] for first, last in zip([0, *ends], ends)]

    def wants_descriptions(self):
        """Whether the attached node publishes events."""
        wanted = ctypes.c_uint32()
        call("troupe_scheduler_wants_descriptions", self.handle, ctypes.byref(wanted))
        return bool(wanted.value)

    def describe(self, batch):
        """`batch`: a `_descriptions.Batch`."""
        groups = (_interface.DescribedGroup * len(batch.tables))(*batch.tables)
        call("troupe_scheduler_describe", self.handle, ctypes.byref(_interface.Descriptions(
            block_tokens=batch.block_tokens, blocks_per_page=batch.per_page, group_idx=-1,
            groups=ctypes.addressof(groups) if batch.tables else None, group_count=len(batch.tables),
            scheduler_group=batch.group, count=len(batch.parents), keys=address(batch.keys), hashes=address(batch.hashes),
            parents=address(batch.parents), has_parent=address(batch.has_parent), tokens=address(batch.tokens),
            lora=batch.lora, extra=address(batch.extra) if batch.extra else None,
            extra_ends=address(batch.extra_ends) if batch.extra else None)))

    def reset_cache(self):
        call("troupe_scheduler_reset_cache", self.handle)

    def finished_count(self):
        out = ctypes.c_uint32()
        call("troupe_scheduler_finished_count", self.handle, ctypes.byref(out))
        return out.value

    def tracked_requests(self):
        out = ctypes.c_size_t()
        call("troupe_scheduler_tracked_requests", self.handle, ctypes.byref(out))
        return out.value

    def stats(self):
        call("troupe_scheduler_stats", self.handle, ctypes.byref(self.out))
        return json.loads(taken(self.out) or b"{}")

    def shutdown(self):
        call("troupe_scheduler_shutdown", self.handle)


class Worker(Handle):
    destroyer = "troupe_worker_destroy"

    def __init__(self, connected, ns, engine, number, gpu):
        super().__init__()
        self.connection = connected
        self.out, self.blocks, self.ended = _interface.Bytes(), _interface.Blocks(), _interface.Finished()
        create("worker", connected, ns, ctypes.byref(engine), number, gpu, ctypes.byref(self.handle))

    def absence(self):
        return reason_for_absence("troupe_worker_attached", self.handle)

    def register(self, views, blocks):
        call("troupe_worker_register", self.handle, layers(views), len(views), blocks)

    def unregister(self):
        call("troupe_worker_unregister", self.handle)

    def handle_preemptions(self, meta):
        call("troupe_worker_handle_preemptions", self.handle, meta, len(meta))

    def bind(self, meta):
        call("troupe_worker_bind", self.handle, meta, len(meta))

    def clear(self):
        call("troupe_worker_clear", self.handle)

    def start_load(self, event):
        call("troupe_worker_start_load", self.handle, event)

    def save(self, event):
        call("troupe_worker_save", self.handle, event)

    def get_finished(self, names):
        """Sent requests, received requests, and those of the latter that have failed."""
        call("troupe_worker_get_finished", self.handle, ctypes.byref(ids(names)) if names else None,
             ctypes.byref(self.ended))
        return taken_ids(self.ended.sent), taken_ids(self.ended.received), taken_ids(self.ended.failed)

    def load_errors(self):
        call("troupe_worker_load_errors", self.handle, ctypes.byref(self.blocks))
        return taken_blocks(self.blocks)

    def meta(self):
        call("troupe_worker_meta", self.handle, ctypes.byref(self.out))
        return taken(self.out)

    def stats(self):
        """As JSON; empty if no transfer has ended."""
        call("troupe_worker_stats", self.handle, ctypes.byref(self.out))
        return taken(self.out)

    def shutdown(self):
        call("troupe_worker_shutdown", self.handle)


class Pages(Handle):
    """Pages of a pool by key."""

    destroyer = "troupe_pages_destroy"

    def __init__(self, connected, ns, options, views, blocks):
        super().__init__()
        self.connection = connected
        call("troupe_pages_create", connected.handle, ctypes.byref(ns.struct),
             ctypes.byref(_interface.PagesOptions(**options)), layers(views), len(views), blocks,
             ctypes.byref(self.handle))

    def absence(self):
        return reason_for_absence("troupe_pages_attached", self.handle)

    def exist(self, keys, count, limit_seconds):
        """The number of leading keys that exist. `keys`: all of them, concatenated."""
        found = ctypes.c_size_t()
        call("troupe_pages_exist", self.handle, keys, count, limit_seconds, ctypes.byref(found))
        return found.value

    def exist_each(self, keys, count, limit_seconds):
        """For each key whether it exists."""
        found = ctypes.create_string_buffer(max(count, 1))
        call("troupe_pages_exist_each", self.handle, keys, count, limit_seconds, found)
        return [each != 0 for each in found.raw[:count]]

    def get(self, keys, blocks, limit_seconds):
        """A code for each page: 0 if it was read."""
        return self._move("troupe_pages_get", keys, blocks, limit_seconds)

    def put(self, keys, blocks, limit_seconds):
        return self._move("troupe_pages_put", keys, blocks, limit_seconds)

    def _move(self, function, keys, blocks, limit_seconds):
        numbers, results, done = array("I", blocks), array("i", bytes(4 * len(blocks))), ctypes.c_size_t()
        call(function, self.handle, keys, address(numbers), len(numbers), limit_seconds, address(results),
             ctypes.byref(done))
        return list(results)

    def stats(self):
        out = _interface.Bytes()
        call("troupe_pages_stats", self.handle, ctypes.byref(out))
        return taken(out)

    def shutdown(self):
        call("troupe_pages_shutdown", self.handle)


class pieces:
    """Several byte strings as `troupe_bytes`, which are valid while this is held."""

    def __init__(self, parts):
        self.buffers = [ctypes.create_string_buffer(part, len(part)) for part in parts]
        self.structs = (_interface.Bytes * len(parts))(
            *(_interface.Bytes(ctypes.addressof(buffer), len(buffer)) for buffer in self.buffers))


def metric_descriptions():
    out = _interface.Bytes()
    call("troupe_metric_descriptions", ctypes.byref(out))
    return json.loads(taken(out))


def aggregate(parts):
    """Statistics of several workers or steps as one: dicts in and out."""
    held, out = pieces([json.dumps(part).encode() for part in parts]), _interface.Bytes()
    call("troupe_stats_aggregate", held.structs, len(parts), ctypes.byref(out))
    return json.loads(taken(out))


def reduce(statistics):
    """Statistics as people read them."""
    encoded, out = json.dumps(statistics).encode(), _interface.Bytes()
    call("troupe_stats_reduce", encoded, len(encoded), ctypes.byref(out))
    return json.loads(taken(out))
