"""The decisions of experiments with real engines, without an engine: none of them passes where its subject is missing.
Uses stand-ins for engine and node; scripts/engines runs the real ones."""

import array
import contextlib
import hashlib
import io
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

import engines  # noqa: E402
import experiments  # noqa: E402
import hybrid_experiments  # noqa: E402
import speculative_experiments  # noqa: E402
import stage_experiments  # noqa: E402
import state_draft_experiments  # noqa: E402
import lmcache_experiments  # noqa: E402
import play  # noqa: E402
import workplace  # noqa: E402

BLOCK = experiments.BLOCK


class clock:
    """Continues when a test waits."""

    now = 0.0

    @classmethod
    def monotonic(cls):
        cls.now += 1.0
        return cls.now

    @classmethod
    def sleep(cls, seconds):
        cls.now += seconds


class world:
    """The shared state of a test's stand-ins: whether there are nodes, and their behaviour."""

    attached, keeps = True, True
    # Ends of the names of a node's namespaces.
    groups = (".full", ".window-256", ".state")


class fake_node:
    def __init__(self, program, directory, lmcache=False, **settings):
        self.directory, self.kept, self.lmcache_port = pathlib.Path(directory), set(), 1
        self.process = types.SimpleNamespace(pid=None)
        self.prompts = set()
        self.address = self.socket_path = self

    def start(self):
        return self

    stop = kill = lambda self: None

    def damage_pages(self, share, seed=1, most=None, namespace="", after=0):
        return most or int(share * 10), 10

    def namespaces(self):
        """Pages with states are one for each prompt."""
        if not world.attached:
            return []
        counts = [len(self.prompts) if group == ".state" else len(self.kept) for group in world.groups]
        return [{"name": f"engine{group}", "id": group, "keys": count, "complete_keys": count,
                 "ranks": [{"live": count}] * 2} for group, count in zip(world.groups, counts)]

    def clear(self, namespace):
        self.kept.clear()
        return 1

    def samples(self):
        return {}

    status = samples

    def log(self):
        return ""


class fake_engine:
    """Its output depends on model and prompt alone. What it plays is in its node then, and is found by others."""

    def __init__(self, pipe, model, connector):
        self.pipe, self.model, self.found, self.llm = pipe, model, 0, mock.MagicMock()
        extra = (connector or {}).get("kv_connector_extra_config", {})
        self.node, self.salt = extra.get("troupe.address"), extra.get("troupe.salt")
        self.piece = BLOCK
        if any(name in model for name in ("delta-net", "tiny-heads", "more-heads")):
            self.piece = 2 * BLOCK
        if "lmcache.mp.port" in extra:
            self.node, self.piece = world.lmcache, lmcache_experiments.CHUNK
        # The hits in its own prefix cache.
        self.own = set()
        self.llm.reset_prefix_cache = lambda: self.own.clear() or True

    def blocks(self, prompt):
        chain = hashlib.sha256(f"{self.model} {self.salt}".encode())
        for end in range(self.piece, len(prompt), self.piece):
            chain.update(array.array("I", prompt[end - self.piece:end]))
            yield chain.digest()

    def play(self, prompts, generate=24, limit=None):
        return [self.one(prompt, generate) for prompt in prompts]

    def one(self, prompt, generate):
        for block in self.blocks(prompt):
            if block in self.own:
                continue
            kept = self.node.kept if isinstance(self.node, fake_node) and world.attached and world.keeps else set()
            if block in kept:
                self.found += self.piece
            kept.add(block)
            if kept and isinstance(self.node, fake_node) and kept is self.node.kept:
                self.node.prompts.add(tuple(prompt))
            self.own.add(block)
        word = hashlib.sha256(self.model.encode() + array.array("I", prompt)).digest()
        tokens = list(word[:generate])
        return {"tokens": tokens, "logprobs": [-1.0] * generate, "likely": [{token: -1.0} for token in tokens],
                "finish": "length", "cached": 0}

    def hits(self):
        return self.found

    def metrics(self):
        # Its draft is worth less after a hit.
        out = {engines.HITS: self.found, "vllm:num_preemptions": 1, speculative_experiments.DRAFT: 10,
               speculative_experiments.ACCEPTED: 1 if self.found else 9}
        return {**out, "vllm:troupe_attached": 1} if world.attached else out

    def groups(self):
        """Several without a connector, and one with it."""
        return 3 if self.node is None else 1

    def idle_steps(self, count=20, pause=0.05):
        pass

    def wait(self):
        return self.pipe.get(timeout=60)

    steps_until_said = wait

    def say(self, what):
        self.pipe.said.put(what)


class fake_run:
    """An engine in a thread. Ends like an engine's process whose result is wrong."""

    def __init__(self, work, log, model, options, connector, environment=None):
        self.log, self.error, self.out, self.process = log, None, None, 0
        log.write_text("")
        self.pipe = queue.Queue()
        self.pipe.said = queue.Queue()
        self.thread = threading.Thread(target=self._live, args=(work, fake_engine(self.pipe, model, connector)),
                                       daemon=True)
        self.thread.start()

    def _live(self, work, one):
        try:
            self.out = work(one)
        except BaseException as error:  # noqa: B902
            self.error = error

    def say(self, what):
        self.pipe.put(what)

    def hear(self):
        while True:
            try:
                return self.pipe.said.get(timeout=0.05)
            except queue.Empty:
                if not self.thread.is_alive() and self.pipe.said.empty():
                    self._raise()
                    raise RuntimeError("an engine said nothing") from None

    def _raise(self):
        if isinstance(self.error, experiments.wrong):
            raise RuntimeError(f"an engine died: {self.error}")
        if self.error is not None:
            raise self.error

    def result(self):
        self.thread.join()
        self._raise()
        return self.out

    def killed(self):
        self.thread.join()
        return True


def no_handle():
    half = mock.MagicMock()
    half.absence.side_effect = lambda: None if world.attached else "nobody answers"
    half.tracked_requests.return_value = 0
    return half


class Experiments(unittest.TestCase):
    groups = world.groups

    def setUp(self):
        self.directory = pathlib.Path(tempfile.mkdtemp(prefix="troupe-experiments-"))
        self.addCleanup(shutil.rmtree, self.directory)
        world.attached = world.keeps = True
        world.groups = type(self).groups
        vllm = types.SimpleNamespace(SamplingParams=mock.MagicMock())
        for patch in (mock.patch.object(engines, "run", fake_run), mock.patch.object(experiments, "node", fake_node),
                      mock.patch.object(experiments, "time", clock),
                      mock.patch.object(lmcache_experiments, "time", clock),
                      mock.patch.object(lmcache_experiments, "die_while_storing", lambda *_: None),
                      mock.patch.object(lmcache_experiments.lab, "beside", "packages"),
                      mock.patch.object(hybrid_experiments, "time", clock),
                      mock.patch.object(stage_experiments, "time", clock),
                      mock.patch.object(state_draft_experiments, "time", clock),
                      mock.patch.object(experiments, "halves", lambda one: (no_handle(), no_handle())),
                      mock.patch.object(experiments, "groups_of", lambda one: one.groups()),
                      mock.patch.object(hybrid_experiments, "groups_of", lambda one: 3),
                      mock.patch.object(experiments.tiny_model, "write", self.model),
                      mock.patch.object(experiments.tiny_model, "write_config", self.model),
                      mock.patch.dict(sys.modules, {"vllm": vllm})):
            patch.start()
            self.addCleanup(patch.stop)

    @staticmethod
    def model(directory, *_, **changes):
        return f"{directory} {sorted(changes)}"

    def outcome(self, module, name):
        """The reason of its failure; None if it passes."""
        lab = module.lab("troupe", self.directory)
        lab.current = name
        make = lab.node

        def note(*arguments, **settings):
            world.lmcache = make(*arguments, **settings)
            return world.lmcache

        lab.node = note
        try:
            module.experiments[name][1](lab)
        except (experiments.wrong, RuntimeError) as error:
            return str(error)
        return None

    def all_of_them(self):
        for module in (experiments, lmcache_experiments):
            for name in module.experiments:
                yield module, name

    def test_none_passes_without_a_node(self):
        world.attached = False
        for module, name in self.all_of_them():
            self.assertIsNotNone(self.outcome(module, name), name)

    def test_none_passes_with_a_node_that_keeps_nothing(self):
        world.keeps = False
        for module, name in self.all_of_them():
            self.assertIsNotNone(self.outcome(module, name), name)

    def test_those_about_hits_alone_pass_with_a_node_that_keeps_everything(self):
        for name in ("cold-and-restarted", "two-engines", "preemption", "tensor-parallel", "node-absent",
                     "chunked-prefill", "another-model", "windows", "one-group"):
            self.assertIsNone(self.outcome(experiments, name), name)
        for kind in hybrid_experiments.KINDS:
            for name in ("restarted", "two-engines", "chunked-prefill", "erased-group"):
                self.assertIsNone(self.outcome(experiments, f"{kind.name}-{name}"), f"{kind.name}-{name}")
        for name in ("windows", "delta-net", "mamba2", "more-heads"):
            self.assertIsNone(self.outcome(experiments, f"{name}-tensor-parallel"), name)
        self.assertIsNone(self.outcome(lmcache_experiments, "many-prompts"))

    def test_none_with_several_groups_passes_with_pages_of_one(self):
        for groups in (("",), (".full",)):
            world.groups = groups
            for name in experiments.versions:
                # It has no more than that.
                right = groups == (".full",) and name.startswith(f"{hybrid_experiments.SEVERAL_SHAPES.name}-")
                if experiments.versions[name] == (experiments.SEVERAL_GROUPS, None) and not right:
                    self.assertIsNotNone(self.outcome(experiments, name), name)

    def test_only_a_token_that_was_as_likely_may_differ(self):
        wanted = {"finish": "length", "tokens": [5, 6, 7], "logprobs": [-1.0, -2.0, -3.0],
                  "likely": [{5: -1.0, 8: -4.0}, {6: -2.0, 9: -2.05}, {7: -3.0}]}

        def compared(tokens, logprobs, finish="length"):
            return hybrid_experiments.tokens_like(0, {"finish": finish, "tokens": tokens, "logprobs": logprobs}, wanted)

        self.assertEqual(compared([5, 6, 7], [-1.0, -2.04, -3.0]), 3)
        # What follows another token cannot be compared.
        self.assertEqual(compared([5, 9, 1], [-1.0, -2.0, -9.0]), 1)
        for tokens, logprobs in (([5, 6, 7], [-1.0, -2.2, -3.0]), ([8, 6, 7], [-1.0, -2.0, -3.0]),
                                 ([5, 4, 7], [-1.0, -2.0, -3.0])):
            with self.assertRaisesRegex(experiments.wrong, "differs from token"):
                compared(tokens, logprobs)
        with self.assertRaisesRegex(experiments.wrong, "ended with"):
            compared([5, 6, 7], [-1.0, -2.0, -3.0], "error")
        delta_net = hybrid_experiments.KINDS[1]
        early = {**wanted, "tokens": [5, 9, 7], "logprobs": [-1.0, -2.0, -3.0]}
        with self.assertRaisesRegex(experiments.wrong, "only 1 of 3 tokens could be compared"):
            hybrid_experiments.require_like(delta_net, [early], [wanted])

    def test_experiments_for_some_versions_of_vllm(self):
        several, one = (experiments.versions[name] for name in ("windows-restarted", "state-layers"))
        for version, has_several in (("0.24.0", False), ("0.31.2+cpu", False), ("0.32.0", True), ("0.33.0rc1", True),
                                     ("1.0", True)):
            self.assertEqual(play.played_with(version, *several), has_several, version)
            self.assertEqual(play.played_with(version, *one), not has_several, version)
            self.assertTrue(play.played_with(version, None, None))

    def test_those_for_other_versions_of_vllm_are_named_and_not_played(self):
        for version, other, played in (("0.31.2", "windows-restarted", "windows"),
                                       ("0.32.0", "windows", "windows-restarted")):
            sys.modules["vllm"].__version__ = version
            arguments = ["play.py", "--troupe", __file__, "--library", __file__, "--work", "here", other, played]
            out = io.StringIO()
            with mock.patch.object(sys, "argv", arguments), mock.patch.object(engines, "prepare"), \
                    mock.patch.object(workplace, "take", lambda _: self.directory), contextlib.redirect_stdout(out):
                self.assertEqual(play.main(), 0, out.getvalue())
            self.assertRegex(out.getvalue(), rf"(?m)^{other} +-  not for this version of vLLM$")
            self.assertRegex(out.getvalue(), rf"(?m)^{played} +[0-9]+  yes ")
            self.assertNotRegex(out.getvalue(), rf"(?m)^{played} .*not for this version")

    def test_what_else_they_are_about_must_have_happened(self):
        for module, name, reason in (
                (experiments, "damaged-pages", "damage was not met"),
                (experiments, "default-failure-policy", "no request has failed"),
                (experiments, "elsewhere", "pages went over TCP"),
                (experiments, "eviction", "some should have left"),
                (experiments, "control", "make no difference"),
                (experiments, "latent-attention", "has started"),
                (experiments, "state-layers", "has started"),
                (experiments, "own-process", "front-end's process"),
                (experiments, "synchronous-loads", "beside forward passes"),
                (experiments, "speculative-decoding", "of the draft is accepted after a hit"),
                *((experiments, f"{kind.name}-{name}", reason) for kind in hybrid_experiments.KINDS for name, reason in (
                    ("damaged-pages", "damage was not met"),
                    ("abort", "has begun to load"),
                    ("preemption", "has loaded anything"),
                    ("own-process", "front-end's process"),
                    ("eviction", "no page of the group 'full' has left"),
                    ("node-killed", "the node was killed in [0, 0] steps"),
                    ("control", "make no difference"),
                    ("naive-control", "make no difference"))),
                (experiments, "delta-net-retention-interval", "with the option None"),
                (experiments, "shapes-layer-control", "KV cache groups of this model"),
                (experiments, "delta-net-drafts", "in the place of 2304 were found"),
                (experiments, "delta-net-drafts-control", "the states of what it generates"),
                (experiments, "delta-net-mtp", "in the place of 768 were found"),
                (experiments, "delta-net-mtp-ahead", "in a process of its own"),
                (experiments, "delta-net-mtp-control", "1536 tokens were found"),
                (experiments, "stages-refusal", "has started"),
                (lmcache_experiments, "node-copies", "got no request to copy"),
                (lmcache_experiments, "damaged-pages", "damage was not met"),
                (lmcache_experiments, "versions", "clients of no version"),
                (lmcache_experiments, "versions-copies", "clients of no version"),
                (lmcache_experiments, "versions-killed", "no worker was killed while it stored"),
                (lmcache_experiments, "versions-killed-copies", "no worker was killed while it stored")):
            self.assertIn(reason, self.outcome(module, name) or "it passes", name)


if __name__ == "__main__":
    unittest.main()
