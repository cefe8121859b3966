#!/usr/bin/env python3
"""Plays cases of the gauntlet against a cache, and prints the verdict of each.

play.py [--against CACHE] [--safest] [--seed N] [--short] [--json FILE] [--patience SECONDS] [--complete] [--list]
        [CASE…]

Ends with 0 if no case has seen a hang, a crash or a wrong byte, with 1 if one has, and with 3 if no case could be run.
"""

import argparse
import importlib
import pathlib
import random
import shutil
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

from case import all_cases, chosen  # noqa: E402
from report import NOT_RUN, Report  # noqa: E402
from trial import Trial  # noqa: E402

# By name: the module of the cache, and its class there.
CACHES = {"troupe": ("troupe_node", "Cache"), "lmcache": ("lmcache_server", "Cache"),
          "mooncake": ("mooncake_store", "Cache"), "offloading": ("offloading", "Cache"),
          "simple": ("offloading", "Simple"), "hicache": ("hicache_files", "Cache"), "fake": ("fake", "Cache")}
PATIENCE = 120.0


def kind_of(name):
    module, kind = CACHES[name]
    return getattr(importlib.import_module(f"caches.{module}"), kind)


def play(case, kind, directory, seed, short, patience, settings=None):
    """(trial, why it was not run, seconds) of one case."""
    began = time.monotonic()
    trial = Trial(kind, directory / f"{case.number:02}-{case.name}", f"{seed}/{case.number}", short, patience, settings)
    not_run = trial.play(case)
    return trial, not_run, time.monotonic() - began


def list_cases():
    for case in all_cases().values():
        print(f"{case.number:3} {case.name:16} {case.title} ({', '.join(case.reports)})")


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--against", choices=sorted(CACHES), default="troupe", help="the cache; troupe by default")
    parser.add_argument("--seed", type=int, help="of everything that is random; printed, and different without it")
    parser.add_argument("--short", action="store_true", help="seconds for each case, not minutes and an hour")
    parser.add_argument("--json", type=pathlib.Path, help="a file for the report")
    parser.add_argument("--patience", type=float, default=PATIENCE, help="seconds after which a call hangs")
    parser.add_argument("--work", type=pathlib.Path,
                        help="a directory for servers, logs and pages, which is kept; otherwise one that is removed")
    parser.add_argument("--safest", action="store_true", help="the cache's safest settings instead of its defaults")
    parser.add_argument("--complete", action="store_true", help="fail as well if a case was not run")
    parser.add_argument("--list", action="store_true", help="print the cases, and run none")
    parser.add_argument("cases", nargs="*", metavar="CASE", help="numbers or names; all, if none is named")
    return parser


def main():
    parser = arguments()
    wanted = parser.parse_args()
    if wanted.list:
        list_cases()
        return 0
    try:
        cases = chosen(wanted.cases)
    except ValueError as error:
        parser.error(str(error))
    kind, seed = kind_of(wanted.against), random.randrange(10 ** 6) if wanted.seed is None else wanted.seed
    kind.safest = wanted.safest
    work = wanted.work or pathlib.Path(tempfile.mkdtemp(prefix="troupe-gauntlet-"))
    report = Report(kind.title, kind.version(), seed, wanted.short)
    print(report.heading(), flush=True)
    missing = kind.missing()
    for case in cases:
        if missing:
            trial, not_run, seconds = Trial(kind, work / "none", seed, True, 1), missing, 0.0
        else:
            trial, not_run, seconds = play(case, kind, work, seed, wanted.short, wanted.patience)
        result = report.add(case, trial.tally, seconds, trial.used, trial.remarks, not_run)
        print(report.line(result), flush=True)
    print(report.summary(), flush=True)
    if wanted.json:
        report.write(wanted.json)
    if wanted.work is None:
        shutil.rmtree(work, ignore_errors=True)
    if report.bad():
        return 1
    if wanted.complete and report.not_run():
        return 1
    return 3 if all(each["verdict"] == NOT_RUN for each in report.results) else 0


if __name__ == "__main__":
    sys.exit(main())
