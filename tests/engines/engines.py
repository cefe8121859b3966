"""vLLM, imported once, and an engine in a process of its own for each run: a restart takes seconds.

An experiment describes the work of an engine as a function of it, which runs in a forked process.
"""

import ctypes
import multiprocessing
import os
import pathlib
import pickle
import random
import signal
import sys
import time
import traceback

import moved_states
import tiny_model

HERE = pathlib.Path(__file__).resolve().parent

ENVIRONMENT = {
    # Two pinned OpenMP threads wait for each other behind whatever else runs on two cores.
    "OMP_NUM_THREADS": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_ENABLE_V1_MULTIPROCESSING": "0", "VLLM_HOST_IP": "127.0.0.1",
    "HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1",
}

# How long an engine may be silent. On a busy machine it takes minutes for the work of seconds, so this only ends
# engines that hang.
ENGINE_SECONDS, SETTLE_SECONDS = 900, 1
# Tokens besides the chosen one whose logprobs are compared where rounding may choose another one.
ALTERNATIVES = 4
HITS = "vllm:external_prefix_cache_hits"


def prepare(library):
    """Before vLLM is imported. Engines of other processes find the package and the experiments' connector, too."""
    for name, value in ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    paths = [str(HERE.parents[1] / "python"), str(HERE)]
    os.environ["PYTHONPATH"] = ":".join([*paths, os.environ.get("PYTHONPATH", "")])
    os.environ["TROUPE_LIBRARY"] = str(library)
    sys.path[:0] = paths
    import vllm  # noqa: F401
    from vllm import LLM, SamplingParams  # noqa: F401


def random_prompts(seed, count, tokens):
    dice = random.Random(seed)
    return [[dice.randrange(10, tiny_model.VOCABULARY) for _ in range(tokens)] for _ in range(count)]


def prompts_with_shared_prefixes(seed, count, longest):
    """Prompts that share prefixes with some of the others."""
    dice = random.Random(seed)
    stems = random_prompts(seed + 1, 8, longest)
    out = []
    for _ in range(count):
        stem = dice.choice(stems)
        kept = dice.randrange(0, longest * 3 // 4)
        out.append(stem[:kept] + [dice.randrange(10, tiny_model.VOCABULARY) for _ in range(dice.randrange(8, 48))])
    return out


class engine:
    """vLLM inside the forked process."""

    def __init__(self, model, options, connector, pipe):
        from vllm import LLM
        from vllm.config import KVTransferConfig

        self.pipe, self.multiprocessing = pipe, options.pop("multiprocessing", None)
        if options.pop("cut_prefills", False):
            cut_prefills()
        if tokens := options.pop("kernel_block", None):
            split_blocks(tokens)
        if options.get("pipeline_parallel_size", 1) > 1:
            make_room_between_stages()
        if options.get("speculative_config") and on_cpus():
            moved_states.move_states()
        foreseen = options.pop("foreseen", None)
        if self.multiprocessing:
            os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "1"
            if self.multiprocessing == "fork":
                fork_workers(options.get("async_scheduling", False))
        settings = {"model": model, "skip_tokenizer_init": True, "dtype": "bfloat16", "seed": 0, "enforce_eager": True,
                    "max_model_len": 4096, "max_num_seqs": 8, "max_num_batched_tokens": 2048,
                    "disable_log_stats": False, **options}
        if connector:
            settings["kv_transfer_config"] = KVTransferConfig(**connector)
        self.llm = LLM(**settings)
        if foreseen:
            draft_foreseen(foreseen)

    def play(self, prompts, generate=24, limit=None, alternatives=ALTERNATIVES):
        """Tokens, their logprobs and how each request ended; `limit`: requests that are there at once."""
        from vllm import SamplingParams

        sampling = SamplingParams(temperature=0, max_tokens=generate, ignore_eos=True, detokenize=False,
                                  logprobs=1 + alternatives)
        requests, outputs = [{"prompt_token_ids": prompt} for prompt in prompts], []
        for first in range(0, len(requests), limit or len(requests) or 1):
            outputs += self.llm.generate(requests[first:first + (limit or len(requests))], sampling, use_tqdm=False)
        return [self.heard(output) for output in outputs]

    @staticmethod
    def heard(output):
        said = output.outputs[0]
        logprobs = [step[token].logprob for token, step in zip(said.token_ids, said.logprobs or ())]
        likely = [{token: one.logprob for token, one in step.items()} for step in said.logprobs or ()]
        return {"tokens": list(said.token_ids), "logprobs": logprobs, "likely": likely, "finish": said.finish_reason,
                "cached": output.num_cached_tokens}

    def metrics(self):
        """The sums of counters over their labels."""
        out, transferred = {}, 0
        for metric in self.llm.get_metrics():
            value = getattr(metric, "value", None)
            if value is not None:
                out[metric.name] = out.get(metric.name, 0) + value
                if "external_kv_transfer" in metric.labels.values():
                    transferred += value
        # vLLM 0.24 counts hits when it writes to its log, and what a prompt was made of when the request ends.
        out[HITS] = max(out.get(HITS, 0), transferred)
        return out

    def hits(self):
        return int(self.metrics()[HITS])

    def idle_steps(self, count=20, pause=0.05):
        """Runs steps without a request, in which workers report the results of saves."""
        for _ in range(count):
            self.llm.llm_engine.step()
            time.sleep(pause)

    def wait(self):
        """Sends a remark to the experiment."""
        return self.pipe.recv()

    def steps_until_said(self):
        """Runs steps without a request until the experiment says something."""
        while not self.pipe.poll():
            self.idle_steps(1, 0.1)
        return self.wait()

    def say(self, what):
        self.pipe.send(what)

    def close(self):
        if self.multiprocessing:
            # Its processes are killed soon after the request to stop, even if they are saving.
            time.sleep(SETTLE_SECONDS)
        self.llm.llm_engine.engine_core.shutdown()


def on_cpus():
    from vllm.platforms import current_platform

    return current_platform.is_cpu()


def cut_prefills():
    """Lets the scheduler end a prefill's piece where a state is kept, as it does for other layers with states. Mamba 2
    layers ask to keep it inside of a piece instead, which their kernels for CPUs do not do: vLLM 0.32 and 0.33 end with
    an IndexError."""
    from vllm.model_executor.layers.mamba.mamba_mixer2 import MambaMixer2

    if "get_kv_cache_spec" in vars(MambaMixer2):
        del MambaMixer2.get_kv_cache_spec


def split_blocks(tokens):
    """Lets vLLM's kernels for CPUs have blocks of so many tokens in the place of the scheduler's, as some on GPUs have.
    Their heads are apart, too."""
    from troupe import _groups
    from vllm.v1.attention.backends.cpu_attn import CPUAttentionBackend

    CPUAttentionBackend.get_supported_kernel_block_sizes = staticmethod(lambda kv_cache_spec=None: [tokens])
    asked = _groups.splits_heads
    _groups.splits_heads = lambda kv_cache_config, vllm_config, on_cpu: asked(kv_cache_config, vllm_config, False)


def draft_foreseen(outputs):
    """Lets vLLM's lookup in prompts draft what was generated before, with mistakes: `outputs` are prompts, and their
    tokens. Output of models with random weights repeats nothing that a lookup could find."""
    from vllm.v1.spec_decode.ngram_proposer import NgramProposer

    known = {tuple(prompt): tokens for prompt, tokens in outputs}

    def propose(self, count, sampled, lengths, tokens, slot_mappings=None):
        out = []
        for request, ids in enumerate(sampled):
            length = int(lengths[request])
            now = tokens[request, :length].tolist()
            prompt = next((prompt for prompt in known if tuple(now[:len(prompt)]) == prompt), now)
            drafts = list(known.get(tuple(prompt), ())[length - len(prompt):][:count]) if ids else []
            # Of three steps, one has a mistake behind its first draft; of seven, one has it there.
            for place, every, rest in ((1, 3, 1), (0, 7, 2)):
                if place < len(drafts) and length % every == rest:
                    drafts[place] = 10 + drafts[place] % 100
            out.append(drafts)
        return out

    NgramProposer.propose = propose


def make_room_between_stages():
    """Lets the workers of later pipeline stages make the tensors that they receive into when they need them. vLLM makes
    them in its profiling run, which its CPU platform leaves out with eager mode: vLLM 0.32 and 0.33 end with an
    AssertionError."""
    from vllm.v1.worker.gpu_model_runner import GPUModelRunner

    gather = GPUModelRunner.sync_and_gather_intermediate_tensors

    def make_and_gather(self, *arguments, **named):
        if self.intermediate_tensors is None:
            self.intermediate_tensors = self.model.make_empty_intermediate_tensors(
                batch_size=self.max_num_tokens, dtype=self.model_config.dtype, device=self.device)
        return gather(self, *arguments, **named)

    GPUModelRunner.sync_and_gather_intermediate_tensors = make_and_gather


def fork_workers(ahead):
    """vLLM's CPU platform wants new interpreters for its processes, each of which imports for seconds. `ahead`: whether
    scheduling is asynchronous."""
    from vllm.platforms import cpu

    check = cpu.CpuPlatform.check_and_update_config.__func__

    def check_and_fork(cls, config):
        check(cls, config)
        # It turns this off, also for those who ask for it, as "not required on CPU".
        config.scheduler_config.async_scheduling = ahead
        os.environ["VLLM_WORKER_MULTIPROC_METHOD"] = "fork"

    cpu.CpuPlatform.check_and_update_config = classmethod(check_and_fork)


def leave_process_namespace():
    """Continues in a child in a PID namespace of its own, like a process on another host: its process numbers have no
    meaning to others. Its parent ends with the same exit code."""
    new_mounts, new_processes, recursive, private = 0x20000, 0x20000000, 0x4000, 0x40000
    system = ctypes.CDLL(None, use_errno=True)

    def call(what):
        if what != 0:
            raise OSError(ctypes.get_errno(), "cannot make a process namespace")

    call(system.unshare(new_mounts | new_processes))
    child = os.fork()
    if child != 0:
        _, status = os.waitpid(child, 0)
        os._exit(os.waitstatus_to_exitcode(status) & 0xFF)
    call(system.mount(b"none", b"/", None, recursive | private, None))
    call(system.mount(b"proc", b"/proc", b"proc", 0, None))


class run:
    """A started engine and its output."""

    engine = engine

    def __init__(self, work, log, model, options, connector, environment=None):
        self.log, self.code = log, None
        self.pipe, theirs = multiprocessing.Pipe()
        self.out = log.with_suffix(".result")
        self.out.unlink(missing_ok=True)
        sys.stdout.flush()
        self.process = self.child = os.fork()
        if self.child == 0:
            self._live(work, model, dict(options), connector, theirs, environment or {})
        theirs.close()

    def _live(self, work, model, options, connector, pipe, environment):
        code = 1
        try:
            os.setsid()
            descriptor = os.open(self.log, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o644)
            os.dup2(descriptor, 1)
            os.dup2(descriptor, 2)
            os.environ.update(environment)
            if options.pop("elsewhere", False):
                leave_process_namespace()
            if packages := options.pop("packages", None):
                # Before those of this environment: vLLM is the same, and what comes with it.
                sys.path.insert(0, str(packages))
            one = self.engine(model, options, connector, pipe)
            result = work(one)
            one.close()
            self.out.with_suffix(".part").write_bytes(pickle.dumps(result))
            self.out.with_suffix(".part").rename(self.out)
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)

    def say(self, what):
        self.pipe.send(what)

    def hear(self):
        deadline = time.monotonic() + ENGINE_SECONDS
        while not self.pipe.poll(0.2):
            if self._ended() or time.monotonic() > deadline:
                raise RuntimeError(f"an engine said nothing; {self._tail()}")
        try:
            return self.pipe.recv()
        except EOFError:
            raise RuntimeError(f"an engine died; {self._tail()}") from None

    def _ended(self):
        pid, status = os.waitpid(self.child, os.WNOHANG)
        if pid:
            self._sweep()
            self.child, self.code = None, os.waitstatus_to_exitcode(status)
        return pid != 0

    def _sweep(self):
        """Processes that vLLM has started, some of which outlive it."""
        try:
            os.killpg(self.child, 9)
        except ProcessLookupError:
            pass

    def _wait_for_end(self):
        deadline = time.monotonic() + ENGINE_SECONDS
        while self.child is not None and not self._ended():
            if time.monotonic() > deadline:
                self._sweep()
                os.waitpid(self.child, 0)
                self.child = None
                raise RuntimeError(f"an engine did not end in {ENGINE_SECONDS} s; {self._tail()}")
            time.sleep(0.05)

    def killed(self):
        """Waits for an engine that kills itself: whether it did."""
        self._wait_for_end()
        return self.code == -signal.SIGKILL

    def result(self):
        self._wait_for_end()
        if not self.out.exists():
            raise RuntimeError(f"an engine died; {self._tail()}")
        return pickle.loads(self.out.read_bytes())

    def _tail(self):
        lines = self.log.read_text(errors="replace").splitlines()
        return f"the end of {self.log}:\n    " + "\n    ".join(lines[-12:])
