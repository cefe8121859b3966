#!/usr/bin/env python3
"""Tests Troupe's handshake directory with vLLM itself: prefill and decode engines on the CPU, whose KV caches are
moved by NIXL. Compares tokens with those of one engine alone. Exits with 1 if an experiment fails.

nixl_pairs.py --troupe PROGRAM --nixl DIRECTORY --work DIRECTORY [--list] [EXPERIMENT…]

Runs in an environment with vLLM for CPUs, which scripts/engines makes; `--nixl` is where NIXL's wheel is unpacked.
"""

import argparse
import json
import os
import pathlib
import shutil
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

import tiny_model  # noqa: E402
import workplace  # noqa: E402
from experiments import collection, require, wrong  # noqa: E402
from node import free_port, node  # noqa: E402

BLOCK, PROMPT, GENERATED = 128, 700, 16
# The request to a prefill engine on behalf of another engine.
TO_DECODE = {"do_remote_decode": True, "do_remote_prefill": False, "remote_engine_id": None, "remote_block_ids": None,
             "remote_host": None, "remote_port": None}
# On a machine that does much else at once: how long a handshake may take, engines live without a sign of it, a prefill
# engine keeps blocks for another one, and an experiment waits for what must come.
HANDSHAKE_SECONDS, LIVE_SECONDS, LEASE_SECONDS, PATIENCE_SECONDS = 600.0, 60.0, 900, 900.0
# Two ranks of an engine, each with a process. They are forked, since a new interpreter imports for seconds. With the
# precision of float32, since they add in another order than one.
PRECISE = {"dtype": "float32"}
TWO_RANKS = {"tensor_parallel_size": 2, "multiprocessing": "fork", **PRECISE}

experiments, experiment = collection()


class directory(node):
    """A node that serves only the handshake directory, at a fixed address."""

    def __init__(self, program, place, tokens=""):
        super().__init__(program, place)
        config = json.loads(self.config.read_text())
        config["actors"] = {"socket": "off"}
        config["handshake"] = {"http": {"enabled": True, "port": self.port}}
        if tokens:
            file = self.directory / "tokens"
            file.write_text(tokens)
            file.chmod(0o600)
            config["handshake"]["http"]["tokens_file"] = str(file)
        self.config.write_text(json.dumps(config, indent=1))

    @property
    def url(self):
        return f"http://127.0.0.1:{self.port}"

    def counts(self):
        """Its handshake counters, by sample and labels."""
        return {name.removeprefix("troupe_handshake_"): int(value) for name, value in self.samples().items()
                if name.startswith("troupe_handshake_")}

    def require_counts(self, **wanted):
        """That the handshakes went through it, and how often: `engines`, `published`, `found`, `incompatible`."""
        counts = self.counts()
        names = {"engines": "engines", "published": 'publications_total{outcome="added"}',
                 "withdrawn": 'endings_total{reason="withdrawn"}', "replaced": 'endings_total{reason="replaced"}',
                 "found": 'fetches_total{outcome="found"}', "incompatible": 'fetches_total{outcome="incompatible"}'}
        said = {name: counts[names[name]] for name in wanted}
        require(said == wanted, f"the directory counts {said} in the place of {wanted}")
        print(f"    the directory: {', '.join(f'{number} {name}' for name, number in said.items())}", flush=True)


def generate(one, prompt, count, transfer=None):
    from vllm import SamplingParams

    sampling = SamplingParams(temperature=0, max_tokens=count, ignore_eos=True, detokenize=False,
                              extra_args={"kv_transfer_params": transfer} if transfer else None)
    return one.llm.generate([{"prompt_token_ids": prompt}], sampling, use_tqdm=False)[0]


def serve(one):
    """An engine that executes commands, and runs steps meanwhile, in which it is notified of its peers."""
    one.say("ready")
    while True:
        while not one.pipe.poll(0.2):
            generate(one, [5, 6, 7], 1)
        word = one.wait()
        if word == "end":
            return True
        prompt, count, transfer = word
        before = one.hits()
        out = generate(one, prompt, count, transfer)
        one.say({"tokens": list(out.outputs[0].token_ids), "finish": out.outputs[0].finish_reason,
                 "transfer": getattr(out, "kv_transfer_params", None), "loaded": one.hits() - before})


class pair:
    """The shared state of the experiments: the model, the prompts, and the output of one engine alone."""

    def __init__(self, program, work):
        import engines

        self.engines, self.program, self.work = engines, program, pathlib.Path(work)
        self.model = tiny_model.write(self.work / "tiny-llama")
        self.prompts = engines.random_prompts(11, 3, PROMPT)
        self.logs, self.runs, self.current = self.work / "nixl-logs", 0, ""
        shutil.rmtree(self.logs, ignore_errors=True)
        self.logs.mkdir(parents=True)
        self.open, self.nodes, self.alone = [], [], {}

    def directory(self, **settings):
        place = self.work / "nodes" / self.current
        shutil.rmtree(place, ignore_errors=True)
        made = directory(self.program, place, **settings)
        self.nodes.append(made)
        return made

    def start(self, role, to, engine_id="", port=0, environment=None, policy="fail", **options):
        self.runs += 1
        connector = {"kv_connector": "TroupeNixlConnector", "kv_connector_module_path": "troupe.nixl",
                     "kv_role": "kv_both", "kv_buffer_device": "cpu", "kv_load_failure_policy": policy,
                     "kv_connector_extra_config": {"troupe.directory": to.url, "troupe.ttl_seconds": LIVE_SECONDS,
                                                   "troupe.request_timeout_seconds": 60.0,
                                                   "troupe.handshake_seconds": HANDSHAKE_SECONDS,
                                                   "kv_lease_duration": LEASE_SECONDS}}
        if engine_id:
            connector["engine_id"] = engine_id
        settings = {"VLLM_NIXL_SIDE_CHANNEL_HOST": "127.0.0.1",
                    "VLLM_NIXL_SIDE_CHANNEL_PORT": str(port or free_port()), **(environment or {})}
        log = self.logs / f"{self.runs:02}-{self.current}-{role}.log"
        one = self.engines.run(serve, log, self.model, {"enable_prefix_caching": False, **options}, connector, settings)
        self.open.append(one)
        require(one.hear() == "ready", "an engine did not start")
        return one

    @staticmethod
    def ask(one, prompt, count, transfer=None):
        one.say((prompt, count, transfer))
        return one.hear()

    def prefill(self, one, which=0):
        out = self.ask(one, self.prompts[which], 1, dict(TO_DECODE))
        require(out["transfer"] and out["transfer"].get("do_remote_prefill"), f"the prefill engine gave {out}")
        return out["transfer"]

    def decode(self, one, transfer, which=0):
        return self.ask(one, self.prompts[which], GENERATED, transfer)

    def require_as_alone(self, out, which=0, loaded=True, **options):
        require(out["finish"] == "length", f"the request ended with {out['finish']!r}")
        require(out["tokens"] == self.baseline(**options)[which], "tokens are not those of an engine alone")
        if loaded:
            require(out["loaded"] >= PROMPT // BLOCK * BLOCK, f"{out['loaded']} tokens came from the prefill engine")

    def baseline(self, dtype="bfloat16"):
        if dtype not in self.alone:
            def play(one):
                return [list(generate(one, prompt, GENERATED).outputs[0].token_ids) for prompt in self.prompts]

            log = self.logs / f"00-alone-{dtype}.log"
            options = {"enable_prefix_caching": False, "dtype": dtype}
            self.alone[dtype] = self.engines.run(play, log, self.model, options, None).result()
        return self.alone[dtype]

    def end(self):
        for one in self.open:
            if one.child is not None:
                os.killpg(one.child, 9)
                os.waitpid(one.child, 0)
        for each in self.nodes:
            each.kill()
        self.open, self.nodes = [], []

    @staticmethod
    def kill(one):
        """Dies like a machine: without a notification of its peers."""
        os.killpg(one.child, 9)
        os.waitpid(one.child, 0)
        one.child = None

    @staticmethod
    def log_of(one):
        return one.log.read_text(errors="replace")

    @staticmethod
    def require_in_log(one, text):
        """Waits for the line: the output of an engine reaches its log with a delay."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while text not in pair.log_of(one):
            require(time.monotonic() < deadline, f"the log of an engine never says {text!r}")
            time.sleep(0.2)


@experiment("decode started before prefill; three requests through one handshake; goes away when it ends")
def decode_first(lab):
    to = lab.directory().start()
    decode = lab.start("decode", to)
    prefill = lab.start("prefill", to)
    for which in range(3):
        lab.require_as_alone(lab.decode(decode, lab.prefill(prefill, which), which), which)
    require("nixl_handshake_listener" not in lab.log_of(prefill), "a side channel was opened")
    to.require_counts(engines=2, published=2, found=1)
    prefill.say("end")
    prefill.result()
    to.require_counts(engines=1, withdrawn=1)


@experiment("prefill killed and started again with the same name on the same port")
def prefill_restarted(lab):
    to = lab.directory().start()
    port = free_port()
    prefill = lab.start("prefill", to, "the-prefill-engine", port)
    decode = lab.start("decode", to, policy="recompute")
    lab.require_as_alone(lab.decode(decode, lab.prefill(prefill)))
    lost = lab.prefill(prefill, 1)
    lab.kill(prefill)
    again = lab.start("prefill-again", to, "the-prefill-engine", port)
    fresh = lab.prefill(again, 2)
    require(fresh["remote_engine_id"] == lost["remote_engine_id"], "the name is another one")
    require(fresh["remote_host"] != lost["remote_host"], "the two starts cannot be told apart")
    lab.require_as_alone(lab.decode(decode, fresh, 2), 2)
    lab.require_in_log(decode, "has started again")
    # The memory of the first start is lost and is not looked up in that of the second one.
    late = lab.decode(decode, lost, 1)
    lab.require_as_alone(late, 1, loaded=False)
    lab.require_as_alone(lab.decode(decode, lab.prefill(again, 0), 0))
    # Both starts were met, once each; and the second one has looked what the name had before, so as to come after it.
    to.require_counts(published=3, replaced=1, found=3)


@experiment("directory killed before the engines meet and started again; and killed when they have met")
def directory_killed(lab):
    to = lab.directory().start()
    prefill = lab.start("prefill", to)
    decode = lab.start("decode", to)
    transfer = lab.prefill(prefill)
    to.kill()
    decode.say((lab.prompts[0], GENERATED, transfer))
    # It has found no peer there and retries.
    time.sleep(3)
    to.start()
    lab.require_as_alone(decode.hear())
    to.require_counts(found=1)
    to.kill()
    lab.require_as_alone(lab.decode(decode, lab.prefill(prefill, 1), 1), 1)
    # Without its index, the contents are published to it again.
    shutil.rmtree(to.directory / "data")
    to.start()
    other = lab.start("second-decode", to)
    lab.require_as_alone(lab.decode(other, lab.prefill(prefill, 2), 2), 2)


@experiment("a decode engine with a wrong token gets nothing, and says so")
def wrong_token(lab):
    to = lab.directory(tokens="write engines-engines-engines\n").start()
    prefill = lab.start("prefill", to, environment={"TROUPE_TOKEN": "engines-engines-engines"})
    stranger = lab.start("stranger", to, environment={"TROUPE_TOKEN": "strangers-strangers-strangers"})
    out = lab.decode(stranger, lab.prefill(prefill))
    require(out["finish"] == "error", f"the request ended with {out['finish']!r}")
    lab.require_in_log(stranger, "401")
    # The stranger published nothing, and found nothing.
    to.require_counts(engines=1, published=1, found=0)
    friend = lab.start("friend", to, environment={"TROUPE_TOKEN": "engines-engines-engines"})
    lab.require_as_alone(lab.decode(friend, lab.prefill(prefill, 1), 1), 1)
    to.require_counts(engines=2, published=2, found=1)


@experiment("a decode engine of another dtype is refused before it sees the payload")
def wrong_hash(lab):
    to = lab.directory().start()
    prefill = lab.start("prefill", to)
    other = lab.start("other-dtype", to, dtype="float32", policy="recompute")
    out = lab.decode(other, lab.prefill(prefill))
    require(out["finish"] == "length", f"the request ended with {out['finish']!r}")
    lab.require_in_log(other, "409")
    lab.require_in_log(other, "compatibility hash")
    require(to.counts()['fetches_total{outcome="incompatible"}'] >= 1, "it was not the directory that refused")
    to.require_counts(found=0)
    fits = lab.start("decode", to)
    lab.require_as_alone(lab.decode(fits, lab.prefill(prefill, 1), 1), 1)
    to.require_counts(engines=3, found=1)


@experiment("two ranks in the prefill engine, two in the decode engine: each rank meets its own")
def two_ranks(lab):
    to = lab.directory().start()
    decode = lab.start("decode", to, **TWO_RANKS)
    prefill = lab.start("prefill", to, **TWO_RANKS)
    for which in range(2):
        lab.require_as_alone(lab.decode(decode, lab.prefill(prefill, which), which), which, **PRECISE)
    # Four ranks are published, and each of the decode engine's has fetched one of the prefill engine's.
    to.require_counts(engines=2, published=4, found=2)


@experiment("one rank in the prefill engine, two in the decode engine: both meet the same")
def one_rank_to_two(lab):
    to = lab.directory().start()
    prefill = lab.start("prefill", to, **PRECISE)
    decode = lab.start("decode", to, **TWO_RANKS)
    for which in range(2):
        lab.require_as_alone(lab.decode(decode, lab.prefill(prefill, which), which), which, **PRECISE)
    to.require_counts(engines=2, published=3, found=2)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--troupe", help="the program troupe")
    parser.add_argument("--nixl", help="where NIXL's wheel is unpacked")
    parser.add_argument("--work", help="where model, nodes and logs of engines lie")
    parser.add_argument("--list", action="store_true", help="say what there is, and do nothing")
    parser.add_argument("experiments", nargs="*", help="all, if none is named")
    arguments = parser.parse_args()
    if arguments.list:
        for name, (what, _) in experiments.items():
            print(f"{name:20} {what}")
        return 0
    for name in arguments.experiments:
        if name not in experiments:
            parser.error(f"there is no experiment {name}; --list says which there are")
    for name in ("troupe", "nixl"):
        path = getattr(arguments, name)
        if not path or not os.path.exists(path):
            parser.error(f"--{name} is {path}, and there is no such thing")
    if not arguments.work:
        parser.error("--work is missing")
    # NIXL's own UCX, over what every machine has.
    os.environ.setdefault("UCX_TLS", "tcp,sm,self")
    nixl = str(pathlib.Path(arguments.nixl).resolve())
    os.environ["PYTHONPATH"] = ":".join([nixl, os.environ.get("PYTHONPATH", "")])
    sys.path.append(nixl)
    began = time.monotonic()
    import engines

    engines.prepare("")
    import vllm

    lab = pair(str(pathlib.Path(arguments.troupe).resolve()), workplace.take(arguments.work))
    print(f"vLLM {vllm.__version__}, imported in {time.monotonic() - began:.0f} s; logs in {lab.logs}", flush=True)
    failed = []
    for name in arguments.experiments or experiments:
        what, function = experiments[name]
        lab.current, started, result, remark = name, time.monotonic(), "yes", what
        try:
            function(lab)
        except (wrong, RuntimeError) as error:
            result, remark = "FAILED", str(error)
            failed.append(name)
        finally:
            lab.end()
        print(f"{name:20} {result:6} {time.monotonic() - started:7.1f} s  {remark}", flush=True)
    print(f"{len(failed)} failed; {lab.runs} engines in {time.monotonic() - began:.0f} s", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
