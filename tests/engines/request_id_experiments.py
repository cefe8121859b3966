"""An experiment with vLLM's OpenAI server: `troupe explain` finds the lookups of a request by the id that the server has
returned to its client."""

import json
import os
import runpy
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request

import engines
import tiny_model
from experiments import BLOCK, PROMPT, experiment, require, wrong
from free_ports import free_port

PATIENCE_SECONDS = 300
BLOCKS = PROMPT // BLOCK
MODEL, END = "tiny", "</s>"


def word(token):
    return f"w{token}"


def write_tokenizer(directory):
    """A tokenizer with one word for each token, and a chat template that adds nothing."""
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import WhitespaceSplit

    words = {word(token): token for token in range(tiny_model.VOCABULARY) if token != 2}
    tokenizer = Tokenizer(WordLevel({**words, END: 2}, unk_token=word(0)))
    tokenizer.pre_tokenizer = WhitespaceSplit()
    tokenizer.save(f"{directory}/tokenizer.json")
    with open(f"{directory}/tokenizer_config.json", "w", encoding="utf-8") as file:
        json.dump({"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": END, "chat_template":
                   "{% for message in messages %}{{ message['content'] }} {% endfor %}"}, file)


class openai_server:
    """vLLM's OpenAI server inside the forked process."""

    def __init__(self, model, options, connector, pipe):
        os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "1"
        engines.fork_workers(False)
        self.words = ["api_server", "--model", model, "--served-model-name", MODEL, "--host", "127.0.0.1", "--port",
                      str(options["port"]), "--dtype", "bfloat16", "--seed", "0", "--enforce-eager", "--max-model-len",
                      "4096", "--max-num-seqs", "8", "--kv-transfer-config", json.dumps(connector)]

    def serve(self):
        sys.argv = self.words
        # The command `vllm` needs the package's metadata under another name than that of vLLM for CPUs.
        runpy.run_module("vllm.entrypoints.openai.api_server", run_name="__main__")

    def close(self):
        pass


class server(engines.run):
    """A started server of an engine with a connector. It ends with the nodes of the experiment."""

    engine = openai_server

    def __init__(self, lab, model, connector):
        port = free_port()
        self.url, self.directory = f"http://127.0.0.1:{port}", lab.directory / "server"
        # In this mode it has a request that empties its own prefix cache.
        super().__init__(openai_server.serve, lab.next_log(), model, {"port": port}, connector,
                         {"VLLM_SERVER_DEV_MODE": "1"})
        lab.nodes.append(self)
        wait_for(self._answers, "vLLM's server does not answer")

    def _answers(self):
        if self._ended():
            raise RuntimeError(f"an engine died; {self._tail()}")
        try:
            urllib.request.urlopen(f"{self.url}/health", timeout=10).close()
        except OSError:
            return False
        return True

    def post(self, path, body=None, headers=None):
        request = urllib.request.Request(self.url + path, json.dumps(body or {}).encode(),
                                         {"Content-Type": "application/json", **(headers or {})})
        with urllib.request.urlopen(request, timeout=PATIENCE_SECONDS) as answer:
            return answer.read()

    def complete(self, path, body, headers=None):
        """The id of the answer to a request."""
        asked = {"model": MODEL, "max_tokens": 4, "temperature": 0, "ignore_eos": True, **body}
        try:
            return json.loads(self.post(path, asked, headers))["id"]
        except urllib.error.HTTPError as error:
            raise wrong(f"vLLM's server answers {error.code}: {error.read()[:200]}") from None

    def chat(self, prompt, headers=None, **more):
        message = {"role": "user", "content": " ".join(map(word, prompt))}
        return self.complete("/v1/chat/completions", {"messages": [message], **more}, headers)

    def forget(self):
        """Empties vLLM's own prefix cache, once its requests have ended."""
        def reset():
            try:
                self.post("/reset_prefix_cache")
            except urllib.error.HTTPError:
                return False
            return True

        wait_for(reset, "vLLM's prefix cache cannot be emptied")

    def kill(self):
        if self.child is not None:
            os.killpg(self.child, signal.SIGKILL)
            os.waitpid(self.child, 0)
            self.child = None


def wait_for(what, sentence):
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not what():
        require(time.monotonic() < deadline, f"{sentence} in {PATIENCE_SECONDS} s")
        time.sleep(0.1)


def explain(lab, made, request, *more):
    """What `troupe explain` prints about the lookups of a request."""
    done = subprocess.run([lab.program, "explain", f"127.0.0.1:{made.metrics_port}", "--request", request, *more],
                          capture_output=True, text=True, check=False, timeout=PATIENCE_SECONDS)
    require(done.returncode == 0, f"troupe explain ends with {done.returncode}: {done.stderr.strip()}")
    return done.stdout


def require_lookups(lab, made, request, found):
    """Requires one lookup of a request for each number of found blocks, the newest first."""
    lookups = json.loads(explain(lab, made, request, "--json"))["lookups"]
    numbers = [each["found"] for each in lookups]
    require(numbers == found, f"explain --request {request} shows lookups that found {numbers} blocks, not {found}")
    for each in lookups:
        require(request in each["request"], f"{request} is shown as {each['request']}")
        require(each["asked"] == BLOCKS, f"{each['asked']} blocks of {BLOCKS} were looked up")
        reasons = [] if each["found"] == BLOCKS else ["never_saved"]
        require([end["reason"] for end in each["ends"]] == reasons, f"{each['ends']} is not {reasons}")


@experiment("vLLM's OpenAI server: `troupe explain` finds a request by the id that the client of the server has received")
def request_ids(lab):
    made = lab.node("request-ids").start()
    model = tiny_model.write(lab.directory / "tiny-chat")
    write_tokenizer(model)
    one = server(lab, model, lab.connector(made))
    prompt, *others = engines.random_prompts(21, 3, PROMPT)

    first = one.chat(prompt)
    wait_for(lambda: sum(ns["complete_keys"] for ns in made.namespaces()) >= BLOCKS, "the prompt is not saved")
    one.forget()
    second = one.chat(prompt)
    require(first.startswith("chatcmpl-") and second.startswith("chatcmpl-"), f"other ids: {first}, {second}")
    for name, found in ((first, 0), (second, BLOCKS)):
        require_lookups(lab, made, name, [found])
        require_lookups(lab, made, name[:-4], [found])
        require(f"found {found} of {BLOCKS} blocks" in explain(lab, made, name), f"{name}: another number is printed")
    require_lookups(lab, made, "chatcmpl-", [BLOCKS, 0])
    require_lookups(lab, made, f"{first}-none", [])

    # Names that clients choose.
    one.forget()
    named = one.chat(prompt, {"X-Request-Id": "named-by-its-client"})
    require(named == "chatcmpl-named-by-its-client", f"the client's name became {named}")
    require_lookups(lab, made, named, [BLOCKS])
    # Requests that vLLM makes several of: each choice has a number before the name, each prompt one behind it.
    one.forget()
    two = one.chat(prompt, n=2, temperature=1.0)
    require_lookups(lab, made, two, [BLOCKS, BLOCKS])
    for number in range(2):
        require_lookups(lab, made, f"{number}_{two}", [BLOCKS])
    both = one.complete("/v1/completions", {"prompt": others})
    require_lookups(lab, made, both, [0, 0])
    for number in range(2):
        require_lookups(lab, made, f"{both}-{number}", [0])
    return 4 * BLOCKS * BLOCK, "by id, by its beginning, by X-Request-Id; choices and prompts of one request"
