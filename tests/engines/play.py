#!/usr/bin/env python3
"""Tests Troupe's plug-ins with vLLM or SGLang itself: runs experiments, and prints the hits of each and whether tokens
and logprobs are those of a run without Troupe ("logprobs": the largest difference, see ROUNDING in experiments.py).
Exits with 1 if one of them fails.

play.py --troupe PROGRAM --library LIBTROUPE.SO --work DIRECTORY [--with sglang | --with lmcache [--beside PACKAGES]]
        [--list] [EXPERIMENT…]

Runs in an environment with the engine for CPUs, which scripts/engines makes.
"""

import argparse
import os
import pathlib
import re
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))


def played_with(version, first, end):
    """Whether a version, by its first two numbers, is not before the first one and before the end; None: no limit."""
    number, first, end = ([int(x) for x in re.findall(r"\d+", text or "")[:2]] for text in (version, first, end))
    return first <= number and (not end or number < end)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--troupe", help="the program troupe")
    parser.add_argument("--library", help="libtroupe.so")
    parser.add_argument("--work", help="where models, nodes and logs of engines lie, in a folder for each run")
    parser.add_argument("--with", dest="which", choices=("troupe", "lmcache", "sglang"), default="troupe",
                        help="the plug-in: Troupe's connector for vLLM, LMCache's own, Troupe's storage for SGLang")
    parser.add_argument("--beside", type=pathlib.Path,
                        help="site-packages with a second version of LMCache, for the experiments with two")
    parser.add_argument("--list", action="store_true", help="say what there is, and do nothing")
    parser.add_argument("experiments", nargs="*", help="all, if none is named")
    arguments = parser.parse_args()
    if arguments.which == "lmcache":
        import lmcache_event_experiments  # noqa: F401
        import lmcache_group_experiments  # noqa: F401
        from lmcache_experiments import experiments, gaps, lab, prepare, wrong
        versions = {}
    elif arguments.which == "sglang":
        import sglang_linker_experiments  # noqa: F401
        from sglang_experiments import experiments, gaps, lab, wrong
        versions = {}
    else:
        import dynamo_experiments  # noqa: F401
        import event_experiments  # noqa: F401
        import hybrid_experiments  # noqa: F401
        import hybrid_peer_experiments  # noqa: F401
        import request_id_experiments  # noqa: F401
        import speculative_experiments  # noqa: F401
        import stage_experiments  # noqa: F401
        import state_draft_experiments  # noqa: F401
        import trace_experiments  # noqa: F401
        import vllm_router_experiments  # noqa: F401
        from experiments import experiments, gaps, lab, versions, wrong

    if arguments.list:
        for name, (what, _) in experiments.items():
            print(f"{name:28} {what}")
        return 0
    for name in arguments.experiments:
        if name not in experiments:
            parser.error(f"there is no experiment {name}; --list says which there are")
    for name in ("troupe",) if arguments.which == "lmcache" else ("troupe", "library"):
        path = getattr(arguments, name)
        if not path or not os.path.exists(path):
            parser.error(f"--{name} is {path}, and there is no such file")
    if not arguments.work:
        parser.error("--work is missing")

    import engines
    import workplace
    from experiments import missing

    began, library = time.monotonic(), pathlib.Path(arguments.library or "").resolve()
    if arguments.which == "sglang":
        import sglang_engines
        sglang_engines.prepare(library)
        import sglang
        engine, version = "SGLang", sglang.__version__
    else:
        engines.prepare(library)
        import vllm
        engine, version = "vLLM", vllm.__version__
    if arguments.which == "lmcache":
        prepare()
    one = lab(str(pathlib.Path(arguments.troupe).resolve()), workplace.take(arguments.work))
    if arguments.beside:
        one.beside = arguments.beside.resolve()
    print(f"{engine} {version}, imported in {time.monotonic() - began:.0f} s; logs in {one.directory}/logs",
          flush=True)
    print(f"{'experiment':28} {'external hits':>13}  equal   logprobs  seconds", flush=True)
    failed = []
    for name in arguments.experiments or experiments:
        what, function = experiments[name]
        if not played_with(version, *versions.get(name, (None, None))):
            print(f"{name:28} {'-':>13}  not for this version of {engine}", flush=True)
            continue
        one.current, started = name, time.monotonic()
        gaps.clear()
        try:
            hits, remark = function(one)
            result, remark = ("no" if name.endswith("control") else "yes"), remark
        except missing as error:
            print(f"{name:28} {'-':>13}  not played: {error}", flush=True)
            continue
        except (wrong, RuntimeError) as error:
            hits, result, remark = "-", "FAILED", str(error)
            failed.append(name)
        finally:
            one.end_nodes()
        gap = f"{max(gaps):.0e}" if any(gaps) else "same"
        print(f"{name:28} {hits:>13}  {result:6} {gap:>9} {time.monotonic() - started:8.1f}  {remark}", flush=True)
    one.end_nodes(all_of_them=True)
    print(f"{len(failed)} failed; {one.runs} engines in {time.monotonic() - began:.0f} s", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
