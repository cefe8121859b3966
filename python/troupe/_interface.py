"""Declarations of the structs and functions of connector/capi/troupe.h for ctypes.

Pointers to numbers are plain addresses, as `array.buffer_info` returns them; texts and ids are bytes.
"""

import ctypes
from ctypes import POINTER, Structure, c_char, c_char_p, c_double, c_int32, c_size_t, c_uint32, c_uint64, c_void_p

# The version that this package needs: an older library is refused.
INTERFACE_VERSION = 8

KEYS_ENGINE_HASHES, KEYS_MD5_CHAIN, KEYS_ROLLING = 0, 1, 2
DISK_HITS_ALWAYS, DISK_HITS_WHEN_FASTER, DISK_HITS_NEVER = 0, 1, 2
GROUP_FULL, GROUP_WINDOW, GROUP_CHUNK, GROUP_STATE = 0, 1, 2, 3
NULL_BLOCK = 0xffffffff
EVENTS_CHANGES, EVENTS_NONE, EVENTS_ALL = 0, 1, 2
EVENT_STORED, EVENT_REMOVED, EVENT_ALL_CLEARED, EVENT_ON_DISK, EVENT_SAVING, EVENT_NOT_SAVED = range(6)
BUSY, TIMEOUT, UNREACHABLE, SHUTTING_DOWN = 3, 15, 17, 18


class Sized(Structure):
    """A struct that begins with its size, so that caller and library may be of different versions."""

    def __init__(self, *arguments, **members):
        super().__init__(ctypes.sizeof(type(self)), *arguments, **members)


class Error(Sized):
    _fields_ = [("size", c_uint32), ("code", c_int32), ("text", c_char * 1016)]


class Bytes(Structure):
    _fields_ = [("data", c_void_p), ("length", c_size_t)]


class IdsIn(Structure):
    _fields_ = [("data", c_char_p), ("length", c_size_t), ("count", c_size_t)]


class IdsOut(Structure):
    """The same for results: `c_char_p` would end at the first id."""

    _fields_ = [("data", c_void_p), ("length", c_size_t), ("count", c_size_t)]


class Blocks(Structure):
    _fields_ = [("data", c_void_p), ("count", c_size_t)]


class ConnectOptions(Sized):
    _fields_ = [("size", c_uint32), ("threads", c_uint32), ("address", c_char_p), ("certificate", c_char_p),
                ("key", c_char_p), ("authorities", c_char_p), ("client_name", c_char_p), ("window_bytes", c_uint64),
                ("wait_for_node_seconds", c_double), ("request_timeout_seconds", c_double), ("encoding", c_char_p)]


class Geometry(Sized):
    _fields_ = [("size", c_uint32), ("layers", c_uint32), ("parts", c_uint32), ("heads", c_uint32),
                ("head_size", c_uint32), ("element_bytes", c_uint32), ("page_tokens", c_uint32),
                ("reserved", c_uint32), ("opaque_block_bytes", c_uint64)]


class Namespace(Sized):
    _fields_ = [("size", c_uint32), ("world_size", c_uint32), ("name", c_char_p), ("model", c_char_p),
                ("revision", c_char_p), ("dtype", c_char_p), ("layout", c_char_p), ("hash_algorithm", c_char_p),
                ("salt", c_char_p), ("geometry", POINTER(Geometry))]


class Engine(Sized):
    _fields_ = [("size", c_uint32), ("tensor_parallel", c_uint32), ("pipeline_parallel", c_uint32),
                ("context_parallel", c_uint32), ("kv_replicated", c_uint32), ("block_tokens", c_uint32),
                ("keys", c_uint32), ("hash_bytes", c_uint32), ("prompts_only", c_uint32),
                ("synchronous_loads", c_uint32), ("min_load_tokens", c_uint32), ("disk_hits", c_uint32),
                ("synchronous_load_seconds", c_double), ("lease_seconds", c_double),
                ("lookup_patience_seconds", c_double), ("task_deadline_seconds", c_double), ("events", c_uint32),
                ("reserved", c_uint32)]


class Group(Sized):
    _fields_ = [("size", c_uint32), ("kind", c_uint32), ("tokens", c_uint32), ("extra_tokens", c_uint32),
                ("block_tokens", c_uint32), ("table_count", c_uint32), ("tables", c_void_p),
                ("ns", POINTER(Namespace)), ("stage", c_uint32), ("reserved", c_uint32)]


class Groups(Sized):
    _fields_ = [("size", c_uint32), ("page_tokens", c_uint32), ("groups", POINTER(Group)), ("count", c_size_t)]


class Multimodal(Structure):
    _fields_ = [("first_token", c_uint32), ("tokens", c_uint32), ("hash", c_char_p), ("hash_length", c_size_t)]


class Request(Sized):
    _fields_ = [("size", c_uint32), ("uncacheable", c_uint32), ("id", c_char_p), ("tokens", c_void_p),
                ("token_count", c_uint32), ("first_token", c_uint32), ("hashes", c_char_p), ("hash_count", c_uint32),
                ("first_hash", c_uint32), ("lora", c_char_p), ("cache_salt", c_char_p),
                ("multimodal", POINTER(Multimodal)), ("multimodal_count", c_size_t)]


class Matched(Sized):
    _fields_ = [("size", c_uint32), ("known", c_uint32), ("tokens", c_uint32), ("asynchronous", c_uint32)]


class HitSources(Sized):
    _fields_ = [("size", c_uint32), ("memory", c_uint32), ("disk", c_uint32), ("unknown", c_uint32)]


class FetchedPages(Sized):
    _fields_ = [("size", c_uint32), ("requests", c_uint32), ("pages", c_uint32), ("reserved", c_uint32),
                ("seconds", c_double)]


class Step(Sized):
    _fields_ = [("size", c_uint32), ("new_requests", c_uint32), ("requests", IdsIn), ("computed_tokens", c_void_p),
                ("scheduled_tokens", c_void_p), ("resumed", c_char_p), ("block_ends", c_void_p), ("blocks", Blocks),
                ("token_firsts", c_void_p), ("token_ends", c_void_p), ("tokens", c_void_p), ("token_count", c_size_t),
                ("hash_firsts", c_void_p), ("hash_ends", c_void_p), ("hashes", c_char_p), ("hash_count", c_size_t),
                ("preempted", IdsIn), ("tables", c_uint32), ("reserved", c_uint32), ("state_ends", c_void_p),
                ("states", c_void_p), ("state_count", c_size_t)]


class WorkerOutput(Sized):
    _fields_ = [("size", c_uint32), ("reserved", c_uint32), ("sent", IdsIn), ("received", IdsIn),
                ("failed", IdsIn), ("load_errors", Blocks), ("worker_meta", POINTER(Bytes)),
                ("worker_meta_count", c_size_t)]


class Events(Sized):
    _fields_ = [("size", c_uint32), ("page_tokens", c_uint32), ("count", c_size_t), ("kinds", c_void_p),
                ("requests", IdsOut), ("parents", c_void_p), ("key_ends", c_void_p), ("keys", c_void_p),
                ("key_count", c_size_t), ("first_pages", c_void_p), ("page_counts", c_void_p), ("groups", c_void_p),
                ("saves", c_void_p)]


class Layer(Structure):
    _fields_ = [("base", c_void_p), ("bytes", c_uint64), ("block_stride", c_uint64), ("part_stride", c_uint64),
                ("token_stride", c_uint64), ("head_stride", c_uint64)]


class Finished(Sized):
    _fields_ = [("size", c_uint32), ("reserved", c_uint32), ("sent", IdsOut), ("received", IdsOut),
                ("failed", IdsOut)]


class DescribedGroup(Structure):
    _fields_ = [("index", c_uint32), ("window", c_uint32), ("kind", c_char_p)]


class Descriptions(Sized):
    _fields_ = [("size", c_uint32), ("block_tokens", c_uint32), ("blocks_per_page", c_uint32), ("group_idx", c_int32),
                ("count", c_size_t), ("keys", c_void_p), ("hashes", c_void_p), ("parents", c_void_p),
                ("has_parent", c_void_p), ("tokens", c_void_p), ("lora", c_char_p), ("extra", c_void_p),
                ("extra_ends", c_void_p), ("groups", c_void_p), ("group_count", c_size_t), ("scheduler_group", c_uint32),
                ("reserved", c_uint32)]


class PagesOptions(Sized):
    _fields_ = [("size", c_uint32), ("rank", c_uint32), ("key_bytes", c_uint32), ("batch_pages", c_uint32),
                ("lease_seconds", c_double), ("copy_threads", c_uint32), ("device", c_uint32)]


HANDLE = c_void_p

# Each function that returns a code, with its arguments except the last one, which is the error.
CALLS = {
    "troupe_connect": [POINTER(ConnectOptions), POINTER(HANDLE)],
    "troupe_set_log_level": [c_char_p],
    "troupe_namespace_identity": [POINTER(Namespace), POINTER(Engine), c_char * 33, POINTER(c_char_p)],
    "troupe_group_identity": [POINTER(Groups), POINTER(Engine), c_size_t, c_char * 33, POINTER(c_char_p)],
    "troupe_scheduler_create": [HANDLE, POINTER(Namespace), POINTER(Engine), POINTER(HANDLE)],
    "troupe_scheduler_create_groups": [HANDLE, POINTER(Groups), POINTER(Engine), POINTER(HANDLE)],
    "troupe_scheduler_shutdown": [HANDLE],
    "troupe_scheduler_attached": [HANDLE],
    "troupe_scheduler_on_new_request": [HANDLE, POINTER(Request)],
    "troupe_scheduler_matched": [HANDLE, POINTER(Request), c_uint32, POINTER(Matched)],
    "troupe_scheduler_allocated": [HANDLE, c_char_p, c_void_p, c_size_t, c_uint32],
    "troupe_scheduler_allocated_tables": [HANDLE, c_char_p, c_void_p, c_size_t, c_void_p, c_size_t, c_uint32],
    "troupe_scheduler_take_holds": [HANDLE, POINTER(Blocks), POINTER(Blocks)],
    "troupe_scheduler_build_meta": [HANDLE, POINTER(Step), POINTER(Bytes)],
    "troupe_scheduler_finished": [HANDLE, c_char_p, POINTER(c_int32)],
    "troupe_scheduler_worker_output": [HANDLE, POINTER(WorkerOutput)],
    "troupe_scheduler_take_events": [HANDLE, POINTER(Events)],
    "troupe_scheduler_wants_descriptions": [HANDLE, POINTER(c_uint32)],
    "troupe_scheduler_describe": [HANDLE, POINTER(Descriptions)],
    "troupe_scheduler_reset_cache": [HANDLE],
    "troupe_scheduler_finished_count": [HANDLE, POINTER(c_uint32)],
    "troupe_scheduler_tracked_requests": [HANDLE, POINTER(c_size_t)],
    "troupe_scheduler_hit_sources": [HANDLE, c_char_p, c_uint32, POINTER(HitSources)],
    "troupe_scheduler_fetched_pages": [HANDLE, c_char_p, POINTER(FetchedPages)],
    "troupe_scheduler_stats": [HANDLE, POINTER(Bytes)],
    "troupe_worker_create": [HANDLE, POINTER(Namespace), POINTER(Engine), c_uint32, c_int32, POINTER(HANDLE)],
    "troupe_worker_create_groups": [HANDLE, POINTER(Groups), POINTER(Engine), c_uint32, c_int32, POINTER(HANDLE)],
    "troupe_worker_register": [HANDLE, POINTER(Layer), c_size_t, c_uint32],
    "troupe_worker_unregister": [HANDLE],
    "troupe_worker_attached": [HANDLE],
    "troupe_worker_handle_preemptions": [HANDLE, c_char_p, c_size_t],
    "troupe_worker_bind": [HANDLE, c_char_p, c_size_t],
    "troupe_worker_clear": [HANDLE],
    "troupe_worker_start_load": [HANDLE, c_void_p],
    "troupe_worker_save": [HANDLE, c_void_p],
    "troupe_worker_get_finished": [HANDLE, POINTER(IdsIn), POINTER(Finished)],
    "troupe_worker_load_errors": [HANDLE, POINTER(Blocks)],
    "troupe_worker_meta": [HANDLE, POINTER(Bytes)],
    "troupe_worker_stats": [HANDLE, POINTER(Bytes)],
    "troupe_worker_shutdown": [HANDLE],
    "troupe_pages_create": [HANDLE, POINTER(Namespace), POINTER(PagesOptions), POINTER(Layer), c_size_t, c_uint32,
                            POINTER(HANDLE)],
    "troupe_pages_attached": [HANDLE],
    "troupe_pages_exist": [HANDLE, c_char_p, c_size_t, c_double, POINTER(c_size_t)],
    "troupe_pages_exist_each": [HANDLE, c_char_p, c_size_t, c_double, c_void_p],
    "troupe_pages_get": [HANDLE, c_char_p, c_void_p, c_size_t, c_double, c_void_p, POINTER(c_size_t)],
    "troupe_pages_put": [HANDLE, c_char_p, c_void_p, c_size_t, c_double, c_void_p, POINTER(c_size_t)],
    "troupe_pages_wants_descriptions": [HANDLE, POINTER(c_uint32)],
    "troupe_pages_describe": [HANDLE, POINTER(Descriptions)],
    "troupe_pages_stats": [HANDLE, POINTER(Bytes)],
    "troupe_pages_shutdown": [HANDLE],
    "troupe_metric_descriptions": [POINTER(Bytes)],
    "troupe_stats_aggregate": [POINTER(Bytes), c_size_t, POINTER(Bytes)],
    "troupe_stats_reduce": [c_char_p, c_size_t, POINTER(Bytes)],
}

DESTROYERS = ("troupe_connection_destroy", "troupe_scheduler_destroy", "troupe_worker_destroy",
              "troupe_pages_destroy")


def declare(library):
    """Declares every function to ctypes. AttributeError if the library lacks one of them."""
    for name, arguments in CALLS.items():
        function = getattr(library, name)
        function.argtypes, function.restype = [*arguments, POINTER(Error)], c_int32
    for name in DESTROYERS:
        function = getattr(library, name)
        function.argtypes, function.restype = [HANDLE], None
    library.troupe_interface_version.argtypes, library.troupe_interface_version.restype = [], c_uint32
    library.troupe_library_version.argtypes, library.troupe_library_version.restype = [], c_char_p
    library.troupe_code_name.argtypes, library.troupe_code_name.restype = [c_int32], c_char_p
