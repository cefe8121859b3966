"""SGLang in a process of its own for each run, as `engines` has vLLM."""

import http.client
import json
import os
import pathlib
import sys
import time

import engines
from node import free_port

HERE = pathlib.Path(__file__).resolve().parent
PAGE = 64
# Fewer tokens than the usual prompts have, so that the device's cache does not hold them all.
DEVICE_TOKENS = 1600


def prepare(library):
    """Before SGLang is imported."""
    paths = [str(HERE.parents[1] / "python"), str(HERE)]
    os.environ["PYTHONPATH"] = ":".join([*paths, os.environ.get("PYTHONPATH", "")])
    os.environ["TROUPE_LIBRARY"] = str(library)
    sys.path[:0] = paths
    import sglang_on_cpus

    sglang_on_cpus.prepare()


def settings(model, options, storage):
    """Arguments of SGLang's engine and server."""
    out = {"model_path": model, "device": "cpu", "attention_backend": "torch_native", "sampling_backend": "pytorch",
           "skip_tokenizer_init": True, "disable_overlap_schedule": True, "disable_cuda_graph": True,
           "mem_fraction_static": 0.3, "max_total_tokens": DEVICE_TOKENS, "max_running_requests": 4,
           "dtype": "bfloat16", "random_seed": 1, "page_size": PAGE, "enable_cache_report": True, "log_level": "info",
           **(storage or {"disable_radix_cache": True}), **options}
    extra = out.get("hicache_storage_backend_extra_config")
    if isinstance(extra, dict):
        out["hicache_storage_backend_extra_config"] = json.dumps(extra)
    return out


def sampling(generate):
    return {"temperature": 0, "max_new_tokens": generate, "ignore_eos": True}


def heard(output):
    said = output["meta_info"]
    return {"tokens": list(output["output_ids"]), "logprobs": [each[0] for each in said["output_token_logprobs"]],
            "finish": said["finish_reason"]["type"], "cached": said["cached_tokens"],
            "tiers": said.get("cached_tokens_details") or {}}


class server:
    """SGLang's HTTP server in a process of its own, with the methods of SGLang's engine that are used here."""

    def __init__(self, **arguments):
        self.port = free_port()
        if os.fork() == 0:
            try:
                from sglang.launch_server import run_server
                from sglang.srt.server_args import ServerArgs

                run_server(ServerArgs(host="127.0.0.1", port=self.port, skip_server_warmup=True, **arguments))
            finally:
                os._exit(1)
        deadline = time.monotonic() + engines.ENGINE_SECONDS
        while self.request("GET", "/health") is None:
            if time.monotonic() > deadline:
                raise RuntimeError("SGLang's server does not answer")
            time.sleep(0.5)

    def request(self, method, path, body=None):
        """The body of its answer; None if it does not answer with 200."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=engines.ENGINE_SECONDS)
        try:
            connection.request(method, path, body=json.dumps(body) if body is not None else None,
                               headers={"Content-Type": "application/json"})
            answer = connection.getresponse()
            text = answer.read().decode()
            return text if answer.status == 200 else None
        except (OSError, http.client.HTTPException):
            return None
        finally:
            connection.close()

    def generate(self, **body):
        answer = self.request("POST", "/generate", body)
        if answer is None:
            raise RuntimeError("SGLang's server does not answer a prompt")
        return json.loads(answer)

    def flush_cache(self):
        return self.request("POST", "/flush_cache")


class engine:
    """SGLang inside the forked process. `storage`: arguments for HiCache; without them there is no prefix cache. The
    option `server`: by HTTP."""

    def __init__(self, model, options, storage, pipe):
        import sglang

        self.pipe = pipe
        kind = server if options.pop("server", False) else sglang.Engine
        self.llm = kind(**settings(model, options, storage))

    def play(self, prompts, generate=16, **more):
        """One request after the other: matrices have the same shapes in each run."""
        return [heard(self.llm.generate(input_ids=list(prompt), sampling_params=sampling(generate), return_logprob=True,
                                        **more)) for prompt in prompts]

    def play_together(self, prompts, generate=16):
        """All requests at once."""
        return [heard(output) for output in self.llm.generate(
            input_ids=[list(prompt) for prompt in prompts], sampling_params=sampling(generate), return_logprob=True)]

    def play_and_cancel(self, prompts, generate, cancels, seconds=0.3):
        """Outputs of those requests, all at once, that are not cancelled: `cancels` says of which numbers that are, at
        different times."""
        import asyncio

        async def one(number, prompt):
            rid, name = f"request-{number}", "cancelled" if cancels(number) else "kept"
            asked = asyncio.ensure_future(self.llm.async_generate(
                input_ids=list(prompt), sampling_params=sampling(generate), return_logprob=True, rid=rid))
            if name == "cancelled":
                await asyncio.sleep(seconds * number / len(prompts))
                self.llm.tokenizer_manager.abort_request(rid)
            try:
                return name, await asked
            except ValueError:
                return name, None

        async def all_of_them():
            return await asyncio.gather(*(one(number, prompt) for number, prompt in enumerate(prompts)))

        outputs = self.llm.loop.run_until_complete(all_of_them())
        return [heard(output) for name, output in outputs if name == "kept" and output]

    def flush(self):
        """Empties the device's cache and the host tier."""
        self.llm.flush_cache()

    def shares_host_pool(self):
        """Whether one of its processes maps a host pool that others could map."""
        import psutil

        return any("sglang_host_pool" in each.path for process in psutil.Process().children(recursive=True)
                   for each in process.memory_maps())

    def wait(self):
        """Sends a remark to the experiment."""
        return self.pipe.recv()

    def say(self, what):
        self.pipe.send(what)

    def close(self):
        # Ends the processes that it has started, and this one with them.
        pass


class run(engines.run):
    engine = engine

    def __init__(self, work, log, model, options, storage, environment=None):
        # The cores of each rank, which SGLang wants to be named where there are fewer NUMA nodes than ranks.
        cores = {"SGLANG_CPU_OMP_THREADS_BIND": "|".join(["0"] * options.get("tp_size", 1))}
        super().__init__(work, log, model, options, storage, {**cores, **(environment or {})})
