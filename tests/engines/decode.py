"""Measures the generation rate of requests while others are computed, saved and loaded."""

import random
import time

import tiny_model


class crowd:
    """Inside an engine's process: requests that generate all the time, and documents that come one after the other."""

    def __init__(self, one, requests, context):
        from vllm import SamplingParams

        self.engine, self.dice = one.llm.llm_engine, random.Random(17)
        self.names = {f"generating-{i}": 0 for i in range(requests)}
        self.documents = 0
        self.once = SamplingParams(temperature=0, max_tokens=1, detokenize=False, ignore_eos=True)
        for_ever = SamplingParams(temperature=0, max_tokens=1 << 20, detokenize=False, ignore_eos=True)
        for name in self.names:
            self.engine.add_request(name, {"prompt_token_ids": self.tokens(context)}, for_ever)
        while min(self.names.values()) < 4:
            self.step()

    def tokens(self, count):
        return [self.dice.randrange(10, tiny_model.VOCABULARY) for _ in range(count)]

    def step(self):
        """The number of generated tokens, and the document that has its first one."""
        generated, document = 0, None
        for output in self.engine.step():
            if output.request_id in self.names:
                count = len(output.outputs[0].token_ids)
                generated += count - self.names[output.request_id]
                self.names[output.request_id] = count
            elif output.finished:
                document = output
        return generated, document

    def alone(self, steps):
        """Tokens per second."""
        began, generated = time.perf_counter(), 0
        for _ in range(steps):
            generated += self.step()[0]
        return generated / (time.perf_counter() - began)

    def beside(self, prompts):
        """Tokens per second while each of these prompts comes when the one before it has its first token; the seconds
        of each of them until then; and which part of their tokens was not computed."""
        generated, cached, seconds = 0, 0, []
        for prompt in prompts:
            began = time.perf_counter()
            self.documents += 1
            self.engine.add_request(f"document-{self.documents}", {"prompt_token_ids": prompt}, self.once)
            document = None
            while document is None:
                more, document = self.step()
                generated += more
            cached += document.num_cached_tokens or 0
            seconds.append(time.perf_counter() - began)
        return generated / sum(seconds), seconds, cached / sum(len(x) for x in prompts)

    def end(self):
        self.engine.abort_request(list(self.names))
        self.engine.step()


def rates(one, documents, document_tokens, requests=16, context=1024, steps=200):
    """By phase: tokens per second of the generating requests, seconds of each document, part that was not computed.

    The KV cache has to be too small for all documents, so that the second pass finds nothing in vLLM's own cache."""
    x = crowd(one, requests, context)
    prompts = [x.tokens(document_tokens) for _ in range(documents)]
    x.beside([x.tokens(document_tokens) for _ in range(2)])
    out = {"alone": (x.alone(steps), [], 0), "first pass": x.beside(prompts)}
    for _ in range(40):  # saves end
        x.step()
    out["second pass"] = x.beside(prompts)
    out["alone again"] = (x.alone(steps), [], 0)
    x.end()
    return out
