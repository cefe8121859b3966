"""The decisions of the experiments with SGLang, without an engine: none of them passes where its subject is missing.
Uses stand-ins for engine and node; scripts/engines runs the real ones."""

import array
import hashlib
import pathlib
import queue
import shutil
import sys
import tempfile
import threading
import types
import unittest
from unittest import mock

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "engines"))

import experiments  # noqa: E402
import experiments_test  # noqa: E402
import sglang_engines  # noqa: E402
import sglang_experiments  # noqa: E402

PAGE = sglang_experiments.PAGE


class world:
    """The shared state of a test's stand-ins."""

    attached, keeps, attachments = True, True, 1


class fake_node(experiments_test.fake_node):
    def namespaces(self):
        return [{"complete_keys": len(self.kept)}]

    def keep(self, page):
        if world.attached and world.keeps:
            self.kept.add(page)

    def has(self, page):
        return world.attached and page in self.kept


class files:
    """SGLang's own storage."""

    def __init__(self, directory):
        self.directory = pathlib.Path(directory)

    def keep(self, page):
        (self.directory / page.hex()).touch()

    def has(self, page):
        return (self.directory / page.hex()).exists()


class fake_engine:
    """Its output depends on model and prompt alone. What it plays is in its storage then, and is found by others."""

    def __init__(self, pipe, model, options, hicache, environment):
        self.pipe, self.model, self.host, self.store = pipe, model, set(), None
        self.extra, self.hicache = (hicache or {}).get("hicache_storage_backend_extra_config", {}), hicache or {}
        if self.hicache.get("hicache_storage_backend") == "file":
            self.store = files(environment["SGLANG_HICACHE_FILE_BACKEND_STORAGE_DIR"])
        elif self.hicache:
            self.store = self.extra["troupe.address"]
        self.ranks = options.get("tp_size", 1)
        self.llm = types.SimpleNamespace(request=lambda *_: "")

    def pages(self, tokens, count, salt):
        # Layouts share nothing, and SGLang's files hold the pages of each rank.
        names = [self.model, self.extra.get("troupe.salt"), salt, self.hicache.get("hicache_mem_layout")]
        chain = hashlib.sha256(str(names).encode())
        for number in range(count):
            chain.update(array.array("I", tokens[number * PAGE:(number + 1) * PAGE]))
            yield chain.digest()

    def play(self, prompts, generate=16, cache_salt=None, lora_path=None):
        return [self.one(list(prompt), generate, cache_salt, lora_path) for prompt in prompts]

    play_together = play

    def one(self, prompt, generate, salt, adapter):
        salt, model = f"{salt} {adapter}", f"{self.model} {adapter}"
        said = list(hashlib.sha256(model.encode() + array.array("I", prompt)).digest()[:generate])
        tiers = {"device": 0, "host": 0, "storage": 0}
        if self.store is not None:
            pages = list(self.pages(prompt + said, (len(prompt) + generate - 1) // PAGE, salt))
            tier = "host" if pages[0] in self.host else "storage"
            long = len(prompt) >= self.extra.get("prefetch_threshold", 256)
            for page in pages[:(len(prompt) - 1) // PAGE]:
                if page not in self.host and not (tier == "storage" and long and self.store.has(page)):
                    break
                tiers[tier] += PAGE
            if "buffer_only" not in self.hicache.values():
                self.host.update(pages)
            for page in pages:
                self.store.keep(page)
            for page in pages[-5:] if "mellum" in self.model else ():
                self.store.keep(b"window" + page)
            for page in pages:
                for rank in range(1, self.ranks if isinstance(self.store, files) else 1):
                    self.store.keep(bytes([rank]) + page)
        return {"tokens": said, "logprobs": [-1.0] * generate, "finish": "length", "cached": sum(tiers.values()),
                "tiers": tiers}

    def flush(self):
        self.host.clear()

    def shares_host_pool(self):
        return False

    def wait(self):
        return self.pipe.get(timeout=60)

    def say(self, what):
        self.pipe.said.put(what)


class fake_run(experiments_test.fake_run):
    def __init__(self, work, log, model, options, storage, environment=None):
        self.log, self.error, self.out = log, None, None
        attached = world.attachments * options.get("tp_size", 1) if world.attached else 0
        log.write_text("Troupe: pool kv attached to a node\nTroupe: pool swa attached to a node\n" * attached)
        self.pipe = queue.Queue()
        self.pipe.said = queue.Queue()
        one = fake_engine(self.pipe, model, options, storage, environment or {})
        self.thread = threading.Thread(target=self._live, args=(work, one), daemon=True)
        self.thread.start()


class Experiments(unittest.TestCase):
    def setUp(self):
        self.directory = pathlib.Path(tempfile.mkdtemp(prefix="troupe-experiments-"))
        self.addCleanup(shutil.rmtree, self.directory)
        world.attached, world.keeps, world.attachments = True, True, 1
        clock = experiments_test.clock
        for patch in (mock.patch.object(sglang_engines, "run", fake_run),
                      mock.patch.object(experiments, "node", fake_node),
                      mock.patch.object(sglang_experiments, "time", clock),
                      *(mock.patch.object(experiments.tiny_model, name, lambda directory, *_, **__: str(directory))
                        for name in ("write", "write_adapter"))):
            patch.start()
            self.addCleanup(patch.stop)

    def outcome(self, name):
        """The reason of its failure; None if it passes."""
        lab = sglang_experiments.lab("troupe", self.directory)
        lab.current = name
        try:
            sglang_experiments.experiments[name][1](lab)
        except (experiments.wrong, RuntimeError) as error:
            return str(error)
        finally:
            shutil.rmtree(self.directory / "files", ignore_errors=True)
        return None

    def test_none_passes_without_a_node(self):
        world.attached = False
        for name in sglang_experiments.experiments:
            self.assertIsNotNone(self.outcome(name), name)

    def test_none_passes_with_a_node_that_keeps_nothing(self):
        world.keeps = False
        for name in sglang_experiments.experiments:
            self.assertIsNotNone(self.outcome(name), name)

    def test_those_about_hits_alone_pass_with_a_node_that_keeps_everything(self):
        for name in ("cold-and-restarted", "layer-first", "page-first-direct", "tensor-parallel", "buffer-only",
                     "policies", "threshold", "another-model", "request-salts", "adapters", "node-killed-between",
                     "two-engines", "many-prompts"):
            self.assertIsNone(self.outcome(name), name)

    def test_a_pool_is_attached_once(self):
        world.attachments = 2
        self.assertIn("attachments by 1 ranks: {'kv': 2}", self.outcome("cold-and-restarted"))

    def test_what_else_they_are_about_must_have_happened(self):
        for name, reason in (("control", "only 0 of 3 outputs differ"),
                             ("damaged-pages", "1920 of 1920 tokens were found"),
                             ("eviction", "some should have left"),
                             ("http-server", "pages are left after the storage was cleared"),
                             ("node-killed", "tokens from HiCache's tier"),
                             ("node-absent", "did not say that there is no node"),
                             ("shared-memory", "not in shared memory"),
                             ("sliding-windows", "only 0 of 3 outputs differ with spoilt pages of pool kv")):
            self.assertIn(reason, self.outcome(name) or "it passes", name)


if __name__ == "__main__":
    unittest.main()
