"""Puts mistakes into sources, one at a time behind one build, and says which layer of tests notices each."""

import argparse
import hashlib
import json
import os
import pathlib
import random
import re
import subprocess
import sys
import time

import report
from play import Player, tests_of
from sites import KINDS, find_sites
from tree import BuildFailed, Tree, files_of, load, save

ROOT = pathlib.Path(__file__).resolve().parents[2]
EQUIVALENT = pathlib.Path(__file__).with_name("equivalent.json")
NO_PRODUCT = ("tests/", "fuzz/", "bench/", "examples/")
SIMULATIONS = ("", "cluster-", "engine-", "events-", "group-", "handshake-", "lmcache-", "owner-")
TARGETS = {"unit": ["troupe-unit-tests"], "actors": ["troupe-actor-tests"],
           "simulation": [*(f"troupe-{each}simulation" for each in SIMULATIONS), "troupe-cluster-actors",
                          "troupe-lmcache-transfers"],
           "conformance": ["troupe-conformance-tests"], "integration": ["troupe-integration-tests"]}
USAGE = 2


class Refused(Exception):
    pass


def options_of(arguments):
    parser = argparse.ArgumentParser(prog="scripts/mutate", add_help=False)
    parser.add_argument("paths", nargs="*")
    parser.add_argument("--since")
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--kinds", default=",".join(KINDS))
    parser.add_argument("--layers", default="unit,actors,simulation")
    parser.add_argument("--tests", default="")
    parser.add_argument("--exclude", default=r"(simulation|transfers|actors): finds ")
    parser.add_argument("--targets", default=None)
    parser.add_argument("--preset", default="ci")
    parser.add_argument("--define", action="append", default=[])
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--patience", type=float, default=30)
    parser.add_argument("--at-least", type=float, default=0.97)
    parser.add_argument("--work", type=pathlib.Path, default=ROOT / "build" / "mutants")
    parser.add_argument("--json", type=pathlib.Path)
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--again", action="store_true")
    options = parser.parse_args(arguments)
    options.layers, options.kinds = options.layers.split(","), options.kinds.split(",")
    unknown = set(options.kinds) - set(KINDS)
    if unknown:
        raise Refused(f"no such kind: {', '.join(sorted(unknown))}; there are: {', '.join(KINDS)}")
    if options.targets is None and not set(options.layers) <= set(TARGETS):
        raise Refused(f"no such layer; there are: {', '.join(TARGETS)}")
    if options.count < 1 or options.jobs < 1:
        raise Refused("--count and --jobs take a number from 1 on")
    return options


def git(*arguments):
    done = subprocess.run(["git", *arguments], cwd=ROOT, text=True, check=False, stdout=subprocess.PIPE,
                          stderr=subprocess.DEVNULL)
    return done.stdout.splitlines() if done.returncode == 0 else None


def sources(options):
    """The C++ sources of the product that are meant."""
    names = [name for name in files_of(ROOT) if name.endswith(".cpp") and not name.startswith(NO_PRODUCT)]
    if options.paths:
        chosen = [pathlib.Path(os.path.abspath(path)) for path in options.paths]
        for path in chosen:
            if not any((ROOT / name).is_relative_to(path) for name in names):
                raise Refused(f"{path}: no source of the product")
        names = [name for name in names if any((ROOT / name).is_relative_to(path) for path in chosen)]
    if options.since:
        changed = git("diff", "--name-only", options.since, "--")
        if changed is None:
            changed = git("log", f"--since={options.since}", "--name-only", "--format=")
        names = [name for name in names if name in set(changed or [])]
    if not options.paths and not options.since:
        raise Refused("names no sources; give paths or --since, see scripts/mutate --help")
    return names


def digest(*parts):
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def choose(names, options):
    """Numbered sites that do not overlap, as many of each kind as of the others where there are enough. Their order by
    chance depends on the seed and on themselves alone, so that the others stay the same when sources change."""
    known = [{key: each[key] for key in ("path", "line", "before", "after")} for each in load(EQUIVALENT) or []]
    by_kind = {kind: [] for kind in options.kinds}
    for name in names:
        for site in find_sites(name, (ROOT / name).read_text(encoding="utf-8")):
            if site.kind in by_kind and site.key() not in known:
                by_kind[site.kind].append(site)
    for found in by_kind.values():
        found.sort(key=lambda site: digest(options.seed, site.key()))
    chosen, by_path = [], {}
    while len(chosen) < options.count and any(by_kind.values()):
        for found in by_kind.values():
            while found and len(chosen) < options.count:
                site = found.pop()
                if not any(site.overlaps(other) for other in by_path.get(site.path, [])):
                    by_path.setdefault(site.path, []).append(site)
                    chosen.append(site)
                    break
    chosen.sort(key=lambda site: (site.path, site.start))
    return dict(enumerate(chosen, 1))


def say(words):
    print(f"{time.strftime('%H:%M:%S')}  {words}", file=sys.stderr, flush=True)


class Run:
    """What an interrupted run has found already is in `state.json`: it counts as long as sources and sites are the
    same."""

    def __init__(self, options, sites):
        self.options, self.sites = options, sites
        options.work.mkdir(parents=True, exist_ok=True)
        self.place = options.work / "state.json"
        plan = digest(options.preset, options.define, [[site.key(), site.start] for site in sites.values()])
        tests = digest([options.layers, options.tests, options.exclude],
                       [[name, hashlib.sha256((ROOT / name).read_bytes()).hexdigest()] for name in files_of(ROOT)])
        state = load(self.place)
        if state is None or state["plan"] != plan:
            state = {"plan": plan, "tests": "", "left": None, "recorded": None, "results": {}}
        if state["tests"] != tests:
            kept = {number: each for number, each in state["results"].items()
                    if options.again and each["result"] == report.NOTICED}
            state.update(tests=tests, recorded=None, results=kept)
        self.state = state
        if state["left"] is not None:
            self.sites = {number: sites[number] for number in state["left"]}

    def save(self):
        save(self.place, self.state)

    def build(self):
        options = self.options
        tree = Tree(ROOT, options.work.resolve() / "tree", options.preset, options.define)
        tree.jobs = options.jobs
        targets = options.targets.split(",") if options.targets else \
            [target for layer in options.layers for target in TARGETS[layer]]
        say(f"building a copy with {len(self.sites)} mistakes: {tree.place}")
        self.sites = tree.build_with(self.sites, targets, options.work / "build.log", say)
        self.state["left"] = sorted(self.sites)
        self.save()
        return tree

    def play(self, tree):
        options = self.options
        tests = tests_of(tree.build, options.layers, options.tests, options.exclude)
        if not tests:
            raise Refused("no test is left to run")
        player = Player(tests, options.layers, options.jobs, options.patience)
        if not player.restore(self.state["recorded"]):
            say(f"recording which of them {len(tests)} tests reach")
            player.record(say)
            self.state["recorded"] = player.to_save()
            self.save()
        if player.left_out:
            say(f"{len(player.left_out)} tests fail in the copy without a mistake and are left out:")
            for name in player.left_out:
                say(f"  {name}")
        if not player.reached:
            raise Refused("no test passes without a mistake")
        left = [number for number in self.sites if str(number) not in self.state["results"]]
        total = len(self.sites)

        def done(number, result):
            self.state["results"][str(number)] = result
            self.save()
            site = self.sites[number]
            by = f": {result['test']} ({result['how']})" if result["result"] == report.NOTICED else ""
            say(f"{len(self.state['results'])} of {total}  {site.path}:{site.first_line} {site.kind}: "
                f"{result['result']}{by}")

        player.judge_all(left, done)
        return player

    def results(self):
        return [{"number": number, **site.key(), "kind": site.kind, "first_line": site.first_line,
                 **self.state["results"][str(number)]} for number, site in self.sites.items()]


def main(arguments):
    options = options_of(arguments)
    if options.seed is None:
        options.seed = random.SystemRandom().randrange(1_000_000)
    sites = choose(sources(options), options)
    if not sites:
        raise Refused("no place for a mistake there")
    if options.list:
        for number, site in sites.items():
            print(f"{number:5}  {site.path}:{site.first_line}  {site.kind}  {site.before}  ->  {site.after}")
        return 0
    say(f"seed {options.seed}")
    run = Run(options, sites)
    player = run.play(run.build())
    results = run.results()
    print(report.text_of(results, options.layers))
    save(options.json or options.work / "report.json",
         {"seed": options.seed, "sources": sorted({site.path for site in sites.values()}), "chosen": len(sites),
          "do_not_compile": len(sites) - len(results), "layers": options.layers, "left_out": player.left_out,
          "share": report.share(results), "results": results})
    print(f"\n{100 * report.share(results):.1f} % of {len(results)} mistakes noticed (seed {options.seed}; "
          f"{len(sites) - len(results)} more do not compile)")
    return 0 if report.share(results) >= options.at_least else 1


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except (Refused, BuildFailed, subprocess.CalledProcessError) as why:
        print(f"mutate: {why}", file=sys.stderr)
        sys.exit(USAGE)
    except KeyboardInterrupt:
        print("mutate: interrupted; the same command continues", file=sys.stderr)
        sys.exit(130)
