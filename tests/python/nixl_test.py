"""Tests which threads of the NIXL connector use NIXL: one at a time, while all of them wait for the directory
together. Also tests what the scheduler publishes of which metadata. Objects stand in for vLLM and for NIXL, which
reports when two threads are inside it."""

import concurrent.futures
import contextlib
import logging
import pickle
import sys
import threading
import types
import unittest
from concurrent.futures import ThreadPoolExecutor

PATIENCE = 30

ENCODED = types.SimpleNamespace(decode=pickle.loads, encode=pickle.dumps, Encoder=lambda: ENCODED)


@contextlib.contextmanager
def zmq_ctx(*_):
    raise AssertionError("vLLM's side channel was asked")
    yield


class FakeNixl:
    """Not thread-safe: a thread that enters while another one is inside is recorded. The first one stays for a while,
    so that others would enter if they could."""

    def __init__(self, stay=0.3):
        self.stay, self.lock = stay, threading.Lock()
        self.inside, self.together, self.users, self.agents = 0, 0, set(), {}
        self.entered, self.second = threading.Event(), threading.Event()
        self.may_leave = None

    @contextlib.contextmanager
    def use(self):
        with self.lock:
            self.inside += 1
            self.together = max(self.together, self.inside)
            self.users.add(threading.current_thread().name)
            if self.inside > 1:
                self.second.set()
        self.entered.set()
        if self.may_leave is not None:
            self.may_leave.wait(PATIENCE)
        elif self.stay:
            self.second.wait(self.stay)
            self.stay = 0
        yield
        with self.lock:
            self.inside -= 1

    def add_remote_agent(self, engine, metadata):
        with self.use():
            self.agents[engine] = metadata

    def remove_remote_agent(self, engine):
        with self.use():
            self.agents.pop(engine, None)


class NixlPullConnectorScheduler:
    def __init__(self, vllm_config, engine_id, kv_cache_config):
        self.engine_id, self.side_channel_host, self.is_shut_down = engine_id, "host", False

    def shutdown(self):
        self.is_shut_down = True


class NixlHandshakePayload(types.SimpleNamespace):
    pass


class NixlPullConnectorWorker:
    """The part of vLLM's worker that uses NIXL."""

    def __init__(self, vllm_config, engine_id, kv_cache_config):
        self.nixl_wrapper = vllm_config.nixl
        self._handshake_initiation_executor = ThreadPoolExecutor(max_workers=1)
        self.transfer_topo = types.SimpleNamespace(handshake_target_ranks=lambda tp, dcp: [0])
        self.compat_hash, self.enforce_compat_hash = "hash", True
        self._remote_agents, self._recving_transfers, self._recving_metadata = {}, {}, {}
        self.read = []

    def _nixl_handshake(self, host, port, remote_tp_size, expected_engine_id, remote_dcp_size=1, remote_pp_size=1,
                        notif_agents_only=False):
        with zmq_ctx("tcp", host, port) as socket:
            socket.send(ENCODED.encode(("get_metadata", 0, 0)))
            payload, _ = socket.recv_multipart()
        self.nixl_wrapper.add_remote_agent(expected_engine_id, payload)
        self._remote_agents[expected_engine_id] = payload
        return {0: expected_engine_id}

    def _cleanup_remote_engine(self, engine_id, log_eviction=True):
        self.nixl_wrapper.remove_remote_agent(engine_id)
        del self._remote_agents[engine_id]

    def _read_blocks_for_req(self, req_id, meta):
        self.read.append(req_id)

    def shutdown(self):
        self._handshake_initiation_executor.shutdown()


def install():
    def module(name, **members):
        made = sys.modules.setdefault(name, types.ModuleType(name))
        vars(made).update(members)

    class some_base:
        def __init__(self, *_):
            pass

    base = "vllm.distributed.kv_transfer.kv_connector.v1"
    parts = base.split(".")
    for count in range(1, len(parts) + 1):
        module(".".join(parts[:count]))
    module(f"{base}.base", KVConnectorRole=types.SimpleNamespace(SCHEDULER=0, WORKER=1))
    module(f"{base}.nixl", NixlConnector=some_base, NixlHandshakePayload=NixlHandshakePayload)
    module(f"{base}.nixl.pull_scheduler", NixlPullConnectorScheduler=NixlPullConnectorScheduler)
    module(f"{base}.nixl.pull_worker", NixlPullConnectorWorker=NixlPullConnectorWorker)
    module("vllm.logger", init_logger=logging.getLogger)
    module("msgspec", msgpack=ENCODED)


install()

from troupe import nixl  # noqa: E402


class FakeDirectory:
    """Answers when `together` requests wait."""

    def __init__(self, together=1):
        self.barrier, self.incarnations = threading.Barrier(together), {}
        self.published, self.sizes, self.timeout = {}, set(), PATIENCE
        self.away, self.looks, self.lock, self.last_known = set(), {}, threading.Lock(), 0
        self.patience = nixl._directory.Patience()

    def fetch_steps(self, engine, rank, compat, incarnation, patience, cancel, places):
        while engine in self.away:
            with self.lock:
                self.looks[engine] = self.looks.get(engine, 0) + 1
            yield 0.01
        self.barrier.wait(PATIENCE)
        return ENCODED.encode((f"metadata of {engine}", 0.0)), self.incarnations.get(engine, 1)

    def last_incarnation(self, engine):
        if self.last_known is None:
            raise nixl._directory.Unreachable("unreachable")
        return self.last_known

    def publish(self, engine, rank, payload, incarnation, sizes, compat, ttl):
        self.published[rank] = ENCODED.decode(ENCODED.decode(payload)[0])
        self.sizes.add(sizes)
        return ttl

    def heartbeat(self, engine, incarnation, ttl):
        return True, ttl

    def withdraw(self, engine, incarnation):
        self.published.clear()


class Publishing(unittest.TestCase):
    def setUp(self):
        logging.getLogger("vllm.troupe").addHandler(logging.NullHandler())
        logging.getLogger("vllm.troupe").propagate = False
        config = types.SimpleNamespace(kv_transfer_config=types.SimpleNamespace(
            kv_connector_extra_config={"troupe.directory": "http://127.0.0.1:1"}))
        self.directory = FakeDirectory()
        self.make_directory = nixl.directory_of
        self.addCleanup(setattr, nixl, "directory_of", self.make_directory)
        nixl.directory_of = lambda _: self.directory
        self.scheduler = nixl.TroupeNixlScheduler(config, "own", None)

    def test_options_reach_the_client(self):
        extra = {"troupe.directory": "http://127.0.0.1:1", "troupe.poll_seconds": 7, "troupe.retry_seconds": 0.5,
                 "troupe.retry_longest_seconds": 9, "troupe.request_timeout_seconds": 3}
        made = self.make_directory(nixl.options_of(types.SimpleNamespace(
            kv_transfer_config=types.SimpleNamespace(kv_connector_extra_config=extra))))
        self.assertEqual((made.timeout, made.patience.poll, made.patience.pause, made.patience.longest),
                         (3.0, 7.0, 0.5, 9.0))

    def test_a_clock_that_was_set_back_does_not_matter(self):
        ahead = 2**63
        self.directory.last_known = ahead
        config = types.SimpleNamespace(kv_transfer_config=types.SimpleNamespace(
            kv_connector_extra_config={"troupe.directory": "http://127.0.0.1:1"}))
        with self.assertLogs("vllm.troupe", "WARNING"):
            made = nixl.TroupeNixlScheduler(config, "own", None)
        self.assertEqual(made.troupe_incarnation, ahead + 1)
        self.assertTrue(made.side_channel_host.endswith(str(ahead + 1)))
        for unknown in (None, 0, 5):
            self.directory.last_known = unknown
            made = nixl.TroupeNixlScheduler(config, "own", None)
            self.assertGreater(made.troupe_incarnation, self.scheduler.troupe_incarnation)
            self.assertLess(made.troupe_incarnation, ahead)

    def published(self):
        publisher = self.scheduler.troupe_publisher
        self.assertTrue(publisher.published.wait(PATIENCE))
        return self.directory.published

    def test_no_metadata_publishes_nothing_and_breaks_nothing(self):
        for nothing in (None, {}, {(0, 0): None, (0, 1): None}):
            self.scheduler.set_xfer_handshake_metadata(nothing)
            self.assertIsNone(self.scheduler.troupe_publisher)
        self.scheduler.shutdown()
        self.assertTrue(self.scheduler.is_shut_down)

    def test_metadata_that_comes_after_none_is_published(self):
        self.scheduler.set_xfer_handshake_metadata(None)
        payloads = {(0, tp): NixlHandshakePayload(compatibility_hash="hash", of=tp) for tp in range(2)}
        self.scheduler.set_xfer_handshake_metadata(payloads)
        self.assertEqual(self.published(), {(0, 0, tp): payloads[(0, tp)] for tp in range(2)})
        self.assertEqual(self.directory.sizes, {(1, 1, 2)})
        self.scheduler.shutdown()
        self.assertEqual((self.scheduler.is_shut_down, self.directory.published), (True, {}))

    def test_a_rank_without_metadata_is_left_out_and_missed(self):
        here = NixlHandshakePayload(compatibility_hash="hash", of=0)
        with self.assertLogs("vllm.troupe", "WARNING"):
            self.scheduler.set_xfer_handshake_metadata({(0, 0): here, (0, 1): None})
        self.assertEqual(self.published(), {(0, 0, 0): here})
        # Not complete: it must not be taken for an engine of one rank.
        self.assertEqual(self.directory.sizes, {(1, 1, 2)})
        self.scheduler.shutdown()


class Hosts(unittest.TestCase):
    def test_what_a_request_says_may_be_anything(self):
        self.assertEqual(nixl.split_host("host#17"), ("host", 17))
        self.assertEqual(nixl.split_host("host"), ("host", 0))
        for odd in ("", "x", "-1", "\u00b2", "\u0663", "1#2", "1" * 21, "9" * 5000):
            self.assertEqual(nixl.split_host(f"host#{odd}"), ("host", 0), odd)


class UsingNixl(unittest.TestCase):
    def setUp(self):
        logging.getLogger("vllm.troupe").addHandler(logging.NullHandler())

    def worker(self, fake, directory):
        config = types.SimpleNamespace(nixl=fake, kv_transfer_config=types.SimpleNamespace(
            kv_connector_extra_config={"troupe.directory": "http://127.0.0.1:1"}))
        made = nixl.TroupeNixlWorker(config, "own", None)
        made.troupe_directory = directory
        self.addCleanup(made.shutdown)
        return made

    def all_handshakes(self, worker, engines):
        begun = [worker._handshake_initiation_executor.submit(worker._nixl_handshake, f"host#{n + 1}", 5600, 1, engine)
                 for n, engine in enumerate(engines)]
        return [each.result(PATIENCE) for each in begun]

    def test_handshakes_wait_together_and_use_nixl_one_after_the_other(self):
        fake, engines = FakeNixl(), [f"engine {n}" for n in range(8)]
        # None of them would get an answer if one waited for another.
        worker = self.worker(fake, FakeDirectory(together=len(engines)))
        self.assertEqual(self.all_handshakes(worker, engines), [{0: engine} for engine in engines])
        self.assertEqual(fake.together, 1)
        self.assertEqual(fake.agents, {engine: f"metadata of {engine}" for engine in engines})
        self.assertEqual(set(worker.troupe_incarnations), set(engines))
        self.assertTrue(all(name.startswith("troupe-handshake") for name in fake.users), fake.users)

    def test_many_peers_that_are_away_cost_others_nothing(self):
        fake, directory = FakeNixl(stay=0), FakeDirectory()
        worker = self.worker(fake, directory)
        away = [f"away {n}" for n in range(40)]
        directory.away = set(away)
        submit = worker._handshake_initiation_executor.submit
        waiting = [submit(worker._nixl_handshake, "host#1", 5600, 1, engine) for engine in away]
        for n in range(5):
            self.assertEqual(submit(worker._nixl_handshake, "host#1", 5600, 1, f"live {n}").result(PATIENCE),
                             {0: f"live {n}"})
        self.assertFalse(any(each.done() for each in waiting))
        directory.away = set()
        self.assertEqual([each.result(PATIENCE) for each in waiting], [{0: engine} for engine in away])
        # Each of them had its turns, and all ran in the threads there are.
        self.assertEqual(set(directory.looks), set(away))

    def test_a_waiting_fetch_is_answered_when_the_worker_ends(self):
        directory = FakeDirectory()
        worker = self.worker(FakeNixl(stay=0), directory)
        directory.away = {"unreachable"}
        waiting = worker._handshake_initiation_executor.submit(worker._nixl_handshake, "host#1", 5600, 1, "unreachable")
        worker.shutdown()
        with self.assertRaises(concurrent.futures.CancelledError):
            waiting.result(PATIENCE)

    def test_engines_that_say_the_same_address_are_met_by_their_names(self):
        fake, engines = FakeNixl(stay=0), ["first", "second"]
        worker = self.worker(fake, FakeDirectory())
        for engine in engines:
            worker._handshake_initiation_executor.submit(
                worker._nixl_handshake, f"localhost{nixl.MARK}1", 5600, 1, engine).result(PATIENCE)
        self.assertEqual(fake.agents, {engine: f"metadata of {engine}" for engine in engines})

    def test_without_the_lock_this_test_finds_two(self):
        fake, engines = FakeNixl(stay=PATIENCE), [f"engine {n}" for n in range(8)]
        worker = self.worker(fake, FakeDirectory(together=len(engines)))
        worker.troupe_adding = contextlib.nullcontext()
        self.all_handshakes(worker, engines)
        self.assertGreater(fake.together, 1)

    def test_an_engine_is_let_go_when_no_handshake_uses_nixl(self):
        fake = FakeNixl(stay=0)
        directory = FakeDirectory()
        worker = self.worker(fake, directory)
        self.all_handshakes(worker, ["first"])
        # Another handshake is inside NIXL, and stays there.
        fake.entered.clear()
        fake.may_leave = threading.Event()
        other = worker._handshake_initiation_executor.submit(worker._nixl_handshake, "host", 5600, 1, "second")
        self.assertTrue(fake.entered.wait(PATIENCE))
        # The first engine has started again.
        remote = types.SimpleNamespace(engine_id="first", host=f"host{nixl.MARK}2")
        step = threading.Thread(target=worker._read_blocks_for_req, args=("r", types.SimpleNamespace(remote=remote)))
        step.start()
        self.assertFalse(fake.second.wait(0.2))
        self.assertTrue(step.is_alive())
        fake.may_leave.set()
        step.join(PATIENCE)
        other.result(PATIENCE)
        self.assertEqual((fake.together, set(fake.agents), worker.read), (1, {"second"}, ["r"]))

    def test_what_is_of_an_earlier_start_uses_nothing(self):
        fake = FakeNixl(stay=0)
        directory = FakeDirectory()
        directory.incarnations["first"] = 7
        worker = self.worker(fake, directory)
        self.all_handshakes(worker, ["first"])
        failed = []
        worker._recv_failures = None
        worker._handle_failed_transfer = lambda req_id, *_, **__: failed.append(req_id)
        fake.users.clear()
        remote = types.SimpleNamespace(engine_id="first", host=f"host{nixl.MARK}6")
        worker._read_blocks_for_req("r", types.SimpleNamespace(remote=remote))
        self.assertEqual((failed, worker.read, fake.users), (["r"], [], set()))


if __name__ == "__main__":
    unittest.main()
