"""vLLM's NixlConnector with its handshakes in Troupe's directory, for 0.32 and newer.

    vllm serve MODEL --kv-transfer-config '{
        "kv_connector": "TroupeNixlConnector", "kv_connector_module_path": "troupe.nixl",
        "kv_role": "kv_producer",
        "kv_connector_extra_config": {"troupe.directory": "http://127.0.0.1:18000"}}'

No side channel is opened. The metadata that vLLM would serve there is published, and the metadata that it would request
from a peer is fetched; everything else, including the comparison of hashes, is vLLM's own code. docs/handshake.md is the
guide.
"""

import contextlib
import itertools
import threading
import time
import types

import msgspec
from vllm.distributed.kv_transfer.kv_connector.v1.base import KVConnectorRole
from vllm.distributed.kv_transfer.kv_connector.v1.nixl import NixlConnector, NixlHandshakePayload
from vllm.distributed.kv_transfer.kv_connector.v1.nixl.pull_scheduler import NixlPullConnectorScheduler
from vllm.distributed.kv_transfer.kv_connector.v1.nixl.pull_worker import NixlPullConnectorWorker
from vllm.logger import init_logger

from troupe import _directory

logger = init_logger("vllm.troupe")

# Key without "troupe.", and its default.
OPTIONS = {
    "directory": "",
    "token_file": "",
    "authorities": "",
    "certificate": "",
    "key": "",
    "request_timeout_seconds": 5.0,
    "handshake_seconds": 30.0,
    "ttl_seconds": 30.0,
    "parallel_handshakes": 8,
    "poll_seconds": 20.0,
    "retry_seconds": 0.1,
    "retry_longest_seconds": 3.0,
}

# Separates the address of an engine from its incarnation.
MARK = "#"

# The most digits of a 64-bit number.
INCARNATION_DIGITS = 20


def options_of(vllm_config):
    extra = vllm_config.kv_transfer_config.kv_connector_extra_config or {}
    said = {key[len("troupe."):]: value for key, value in extra.items() if key.startswith("troupe.")}
    for key in said:
        if key not in OPTIONS:
            raise ValueError(f"kv_connector_extra_config has the unknown key 'troupe.{key}'; known keys of troupe.nixl: "
                             f"{', '.join('troupe.' + known for known in OPTIONS)}")
    out = types.SimpleNamespace(**{key: type(default)(said.get(key, default)) for key, default in OPTIONS.items()})
    if not out.directory:
        raise ValueError("kv_connector_extra_config needs 'troupe.directory': http://HOST:PORT of a node")
    return out


def directory_of(options):
    return _directory.Directory(options.directory, _directory.read_token(options.token_file), options.authorities,
                                options.certificate, options.key, options.request_timeout_seconds,
                                _directory.Patience(options.poll_seconds, options.retry_seconds,
                                                    options.retry_longest_seconds))


def split_host(host):
    """The address, and the incarnation or 0. It comes with requests, so any text may follow the mark."""
    address, _, incarnation = host.partition(MARK)
    is_one = incarnation.isascii() and incarnation.isdigit() and len(incarnation) <= INCARNATION_DIGITS
    return address, int(incarnation) if is_one else 0


def first_incarnation(directory, engine_id):
    """The time, but above the last incarnation in the directory: the clock may have been set back since then."""
    now, known = time.time_ns(), 0
    try:
        known = directory.last_incarnation(engine_id)
    except (_directory.DirectoryError, _directory.Unreachable) as error:
        logger.info("cannot get the last incarnation of engine %s from the directory: %s", engine_id, error)
    if known >= now:
        logger.warning("the clock is behind the last incarnation of engine %s (%d): the new one is one higher",
                       engine_id, known)
    return max(now, known + 1)


class TroupeNixlScheduler(NixlPullConnectorScheduler):
    """A scheduler half that publishes metadata instead of opening a listener."""

    def __init__(self, vllm_config, engine_id, kv_cache_config):
        super().__init__(vllm_config, engine_id, kv_cache_config)
        self.troupe_options = options_of(vllm_config)
        self.troupe_publisher = None
        # A later start of an engine has a higher number.
        self.troupe_incarnation = first_incarnation(directory_of(self.troupe_options), engine_id)
        # It is sent with each request, so that blocks of this start are not mistaken for those of an earlier one.
        self.side_channel_host = f"{self.side_channel_host}{MARK}{self.troupe_incarnation}"

    def set_xfer_handshake_metadata(self, metadata):
        if self.troupe_publisher is not None or not metadata:
            return
        missing = sorted(rank for rank, payload in metadata.items() if payload is None)
        if missing:
            logger.warning("ranks %s of engine %s have no handshake metadata: peers that need them will time out",
                           missing, self.engine_id)
        if len(missing) == len(metadata):
            return
        encode = msgspec.msgpack.Encoder().encode
        # Peers compute from it when leases of this process end. Their clocks must be roughly synchronized.
        clock = time.time() - time.perf_counter()
        payloads, hashes = {}, set()
        for (pp, tp), payload in metadata.items():
            if payload is None:
                continue
            if not isinstance(payload, NixlHandshakePayload):
                raise ValueError(f"rank {pp}, {tp} has {type(payload).__name__} instead of handshake metadata")
            payloads[(0, pp, tp)] = encode([encode(payload), clock])
            hashes.add(payload.compatibility_hash)
        if len(hashes) != 1:
            raise ValueError("ranks of one engine have different compatibility hashes")
        # For vLLM, each data parallel rank is an engine with a name of its own.
        sizes = (1, 1 + max(pp for pp, _ in metadata), 1 + max(tp for _, tp in metadata))
        self.troupe_publisher = _directory.Publisher(directory_of(self.troupe_options), self.engine_id, payloads, sizes,
                                                     hashes.pop(), self.troupe_incarnation,
                                                     self.troupe_options.ttl_seconds, logger).start()

    def shutdown(self):
        publisher, self.troupe_publisher = self.troupe_publisher, None
        if publisher is not None:
            publisher.end()
        super().shutdown()


class FetchedMetadata:
    """A replacement of the socket of vLLM's handshake, which has all answers already."""

    def __init__(self, fetched):
        self.fetched, self.asked = fetched, None

    def setsockopt(self, *_):
        pass

    def send(self, question):
        _, pp, tp = msgspec.msgpack.decode(question)
        self.asked = (pp, tp)

    def recv_multipart(self):
        payload, clock = self.fetched[self.asked]
        return [payload, msgspec.msgpack.encode(time.time() - clock)]


def with_other_channel(function, channel):
    """The same function with another `zmq_ctx`. vLLM's module is not changed."""
    other = types.FunctionType(function.__code__, {**function.__globals__, "zmq_ctx": channel}, function.__name__,
                               function.__defaults__, function.__closure__)
    other.__kwdefaults__ = function.__kwdefaults__
    return other


class TroupeNixlWorker(NixlPullConnectorWorker):
    """A worker half that fetches metadata from the directory instead of a peer."""

    def __init__(self, vllm_config, engine_id, kv_cache_config):
        super().__init__(vllm_config, engine_id, kv_cache_config)
        self.troupe_options = options_of(vllm_config)
        self.troupe_directory = directory_of(self.troupe_options)
        # The incarnation of each engine's agents.
        self.troupe_incarnations = {}
        self.troupe_ended = threading.Event()
        # vLLM has one thread, since NIXL is not guaranteed to be thread-safe: so an unreachable peer delays all others.
        # Here only calls of NIXL are serialized, and a handshake that waits for an unreachable peer releases its thread:
        # half of the threads may wait at the directory, so that the others serve reachable peers.
        self.troupe_adding = threading.Lock()
        self._handshake_initiation_executor.shutdown(wait=False)
        threads = max(2, self.troupe_options.parallel_handshakes)
        self.troupe_waiting = threading.BoundedSemaphore(threads // 2)
        self._handshake_initiation_executor = _directory.Turns(threads, "troupe-handshake")

    def _handshake_steps(self, host, port, remote_tp_size, expected_engine_id, remote_dcp_size=1, remote_pp_size=1,
                         notif_agents_only=False):
        address, incarnation = split_host(host)
        ranks = list(itertools.product(range(remote_pp_size),
                                       self.transfer_topo.handshake_target_ranks(remote_tp_size, remote_dcp_size)))
        compat = self.compat_hash if self.enforce_compat_hash else ""
        fetched, deadline = {}, time.monotonic() + self.troupe_options.handshake_seconds
        for pp, tp in ranks:
            # All ranks must be of the incarnation of the first one.
            content, incarnation = yield from self.troupe_directory.fetch_steps(
                expected_engine_id, (0, pp, tp), compat, incarnation, deadline - time.monotonic(), self.troupe_ended,
                self.troupe_waiting)
            fetched[(pp, tp)] = msgspec.msgpack.decode(content)

        @contextlib.contextmanager
        def channel(*_):
            yield FetchedMetadata(fetched)

        with self.troupe_adding:
            out = with_other_channel(NixlPullConnectorWorker._nixl_handshake, channel)(
                self, address, port, remote_tp_size, expected_engine_id, remote_dcp_size, remote_pp_size,
                notif_agents_only)
            self.troupe_incarnations[expected_engine_id] = incarnation
        return out

    def _nixl_handshake(self, *args, **kwargs):
        return _directory.finish(self._handshake_steps(*args, **kwargs))

    # For the executor above: functions that vLLM submits run in steps.
    _nixl_handshake.steps = _handshake_steps

    def _read_blocks_for_req(self, req_id, meta):
        engine_id = meta.remote.engine_id
        _, wanted = split_host(meta.remote.host)
        known = self.troupe_incarnations.get(engine_id, 0) if engine_id in self._remote_agents else 0
        if wanted and known and wanted != known:
            if wanted < known:
                # Its blocks were lost with the earlier start.
                logger.warning("request %s is of an earlier start of engine %s: not loaded", req_id, engine_id)
                return self._handle_failed_transfer(req_id, None, self._recv_failures, record_failed_transfer=False)
            logger.info("engine %s has started again: dropping its old metadata", engine_id)
            if engine_id in self._engines_reading_but(req_id):
                # vLLM drops it when its last transfer has ended; until then, its requests fail.
                self._mark_remote_engine_invalid(engine_id, time.perf_counter())
            else:
                with self.troupe_adding:
                    self._cleanup_remote_engine(engine_id, log_eviction=False)
        return super()._read_blocks_for_req(req_id, meta)

    def _engines_reading_but(self, req_id):
        """Engines with transfers in progress, except that of this request."""
        return {self._recving_metadata[other].remote.engine_id for other in self._recving_transfers
                if other != req_id and other in self._recving_metadata}

    def _track_remote_engine_replacement(self, engine_id, host, port):
        super()._track_remote_engine_replacement(engine_id, split_host(host)[0], port)

    def shutdown(self):
        if hasattr(self, "troupe_ended"):
            self.troupe_ended.set()
        super().shutdown()


class TroupeNixlConnector(NixlConnector):
    """The connector, one object per half, as vLLM requires."""

    def __init__(self, vllm_config, role, kv_cache_config):
        super(NixlConnector, self).__init__(vllm_config, role, kv_cache_config)
        options_of(vllm_config)
        if role == KVConnectorRole.SCHEDULER:
            self.connector_scheduler = TroupeNixlScheduler(vllm_config, self.engine_id, kv_cache_config)
        else:
            self.connector_worker = TroupeNixlWorker(vllm_config, self.engine_id, kv_cache_config)
