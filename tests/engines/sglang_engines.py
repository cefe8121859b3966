"""SGLang in a process of its own for each run, as `engines` has vLLM."""

import json
import os
import pathlib
import sys

import engines

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
           "dtype": "bfloat16", "random_seed": 1, "page_size": PAGE, "enable_cache_report": True,
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


class engine:
    """SGLang inside the forked process. `storage`: arguments for HiCache; without them there is no prefix cache."""

    def __init__(self, model, options, storage, pipe):
        import sglang

        self.pipe = pipe
        self.llm = sglang.Engine(**settings(model, options, storage))

    def play(self, prompts, generate=16, **more):
        """One request after the other: matrices have the same shapes in each run."""
        return [heard(self.llm.generate(input_ids=list(prompt), sampling_params=sampling(generate), return_logprob=True,
                                        **more)) for prompt in prompts]

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
