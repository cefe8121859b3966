"""Prints messages as LMCache's own client writes them, one a line: the operation, and each frame in hexadecimal.

Usage: python tests/engines/lmcache_record.py > tests/fixtures/lmcache/messages-VERSION.txt

Run it with the Python of an environment that has this version of LMCache (`scripts/engines lmcache --version VERSION
--install-only` makes one). tests/unit/lmcache_versions_test.cpp reads what is recorded.
"""

from lmcache.v1.multiprocess import custom_types as types
from lmcache.v1.multiprocess.rpc import get_rpc_spec
from lmcache.v1.multiprocess.transport import base
from lmcache.v1.multiprocess.transport.zmq_impl.mq import msgspec_encode
from lmcache.v1.multiprocess.transport.zmq_impl.wire import encode_operation

HAS_GROUPS = hasattr(types, "GroupLayout")
INSTANCE = 77
REGISTER = "register_kv_cache_engine_driven_context"


def key(start, end, worker=None):
    return types.IPCCacheServerKey.from_token_ids(
        "a/model", 2, worker, [1000 * i for i in range(9)], start=start, end=end, request_id="r-1", num_kv_readers=1)


def registration(**more):
    return types.RegisterEngineDrivenContextPayload(
        instance_id=1234567890123456789, model_name="a/model", world_size=2, block_size=2, num_layers=3,
        hidden_dim_size=8, dtype_str="bfloat16", use_mla=False, num_physical_slots=4, **more)


def common_calls():
    blocks = [[5, 6, 7, 8]]
    return [
        ("get_chunk_size",), ("ping", None), ("ping", INSTANCE), ("lookup", key(0, 8), 2),
        ("query_prefetch_status", "r-1"), ("wait_prefetch_status", "r-1", 0.5),
        ("free_lookup_locks", key(0, 8), 2), ("end_session", "r-1"), (REGISTER, registration()),
        ("unregister_kv_cache_engine_driven_context", INSTANCE), ("prepare_store", key(0, 8, 1), INSTANCE),
        ("commit_store", key(0, 8, 1), INSTANCE, b""), ("prepare_retrieve", key(4, 8, 1), INSTANCE),
        ("commit_retrieve", key(4, 8, 1), INSTANCE), ("store", key(0, 8, 1), INSTANCE, blocks, b"event"),
        ("retrieve", key(0, 8, 1), INSTANCE, blocks, b"event", 2), ("clear", False), ("noop",),
        ("get_experimental",),
    ]


def calls_with_groups():
    groups = [
        types.GroupLayout(3, 8, "bfloat16", 2, window_tokens=4, kv_size=2),
        types.GroupLayout(2, 8, "bfloat16", 2, window_tokens=4, kv_size=2, window_chunks=3),
        types.GroupLayout(1, 16, "float32", 4, window_tokens=4, kv_size=1, window_chunks=1, recurrent=True),
    ]
    return [
        ("negotiate_chunk_size", 16), ("free_lookup_locks", key(0, 8), 2, ((0, 4), (4, 8))),
        ("prepare_store", key(0, 8, 1), INSTANCE, ((), (0,))), (REGISTER, registration(group_layouts=groups)),
        ("store", key(0, 8, 1), INSTANCE, [[5, 6, 7, 8], [1, 2]], b"event"),
        ("server_module_affinity_call", base.ServerModuleCallRequest(method="m", payload=b"x")),
    ]


def main():
    for name, *arguments in common_calls() + (calls_with_groups() if HAS_GROUPS else []):
        spec = get_rpc_spec(name)
        payloads = spec.bind_payloads(tuple(arguments), {})
        frames = [msgspec_encode(7, cls=int), encode_operation(spec.operation)]
        frames += [msgspec_encode(x, cls=cls) for x, cls in zip(payloads, spec.payload_types)]
        print(name, *[x.hex() for x in frames])


main()
