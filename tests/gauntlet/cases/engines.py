"""Cases of reports about engines: experiments with vLLM itself on CPUs (tests/engines), in which every token and
logprob is compared with those of a run without a cache. Each case plays a control as well, which must differ."""

import re
import subprocess
import time

from case import Case
from processes import environment
from verdicts import CRASH, ERROR, HANG, RIGHT, WRONG, NotRun

SECONDS = 3600
GAP = r"logprobs of request \d+ differ by ([0-9.]+(?:e-?[0-9]+)?)"
# Experiments allow less, which on a busy machine is not enough: requests then meet in other batches, whose sums are
# rounded in another order. Damaged pages change tokens, as the controls show.
ROUNDING = 1e-3
# What tests/engines prints about a failed experiment, and what it means to a user.
MEANINGS = ((r"differs? from token|logprobs of request|tokens of another|spoilt blocks make no difference", WRONG),
            (r"did not end in|said nothing|is not ready after", HANG), (r"an engine died", CRASH))


def experiments(*names, short=1, also=""):
    """A case that plays experiments; `short`: how many of them where the length is reduced. `also`: a remark."""

    def run(trial):
        chosen = names[:short] if trial.short else names
        if also:
            trial.remark(also)
        command, more = trial.kind.engine_command(trial.directory / "engines")
        seconds = SECONDS * len(chosen) // 4
        began = time.monotonic()
        try:
            done = subprocess.run([*command, *chosen], env=environment(more), capture_output=True, text=True,
                                  check=False, timeout=seconds)
        except subprocess.TimeoutExpired:
            trial.tally.note(HANG, f"{', '.join(chosen)}: no end within {seconds} s")
            return
        for name in chosen:
            note(trial, name, done.stdout)
        trial.used = {"engine": done.stdout.partition(",")[0], "experiments": list(chosen)}
        if not trial.tally.counts:
            raise NotRun(f"the experiments ended with {done.returncode} after {time.monotonic() - began:.0f} s: "
                         f"{(done.stderr.strip() or done.stdout.strip())[-200:]}")

    return run


def note(trial, name, printed):
    """Notes what was printed about one experiment."""
    line = re.search(rf"^{re.escape(name)} .*$", printed, re.M)
    if line is None:
        return
    if re.search(r"not played|not for this version", line.group()):
        trial.remark(f"{name}: not run, {line.group().split('  ')[-1].strip()}")
    elif (gap := re.search(GAP, line.group())) and float(gap[1]) < ROUNDING:
        trial.tally.note(RIGHT)
        trial.remark(f"{' '.join(line.group().split())}; tokens are the same, and this is rounding")
    elif " FAILED " in line.group():
        meaning = next((verdict for pattern, verdict in MEANINGS if re.search(pattern, line.group())), ERROR)
        trial.tally.note(meaning, " ".join(line.group().split()))
    else:
        trial.tally.note(RIGHT)
        trial.remark(" ".join(line.group().split()))


CASES = (
    Case(9, "failed-loads", "failed loads of both kinds under recompute and under vLLM's default policy",
         ("vllm#49250", "LMCache#3388", "dynamo#15079"),
         experiments("damaged-pages", "control", "default-failure-policy", "node-killed", "synchronous-loads", short=2,
                     also="vLLM's second model runner: not run, it is for GPUs; troupe.vllm refuses it where it would "
                          "compute from a wrong position"),
         needs=("engine",), engine=True),
    Case(10, "preemption", "preemption, aborts and prompts in pieces, at each step", ("vllm#45704", "vllm#31210"),
         experiments("preemption", "control", "abort", "chunked-prefill", "eviction", "shared-prefixes", short=2),
         needs=("engine",), engine=True),
    Case(13, "speculative", "speculative decoding with a draft model: hits, and what is accepted after a hit",
         ("vllm#52735", "vllm#55503", "LMCache#4984"), experiments("speculative-decoding", "control", short=2),
         needs=("engine",), engine=True),
    Case(18, "hybrid-models", "windows and states: groups evicted, erased and damaged apart",
         ("LMCache#3945", "LMCache#4984", "vllm#53569", "vllm#57216", "sglang#38031", "vllm#50687"),
         experiments("windows-restarted", "windows-control", "windows-damaged-pages", "windows-erased-group",
                     "windows-eviction", "windows-preemption", "delta-net-restarted", "delta-net-damaged-pages",
                     "mamba2-restarted", "delta-net-control", short=2),
         needs=("engine",), engine=True),
)
