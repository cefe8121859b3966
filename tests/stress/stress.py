"""Runs the tests of a build several times on a machine that is kept busy, and prints how often each failed.

Usage: stress.py DIRECTORY --rounds N [--load L] [CTEST ARGUMENTS…]
"""

import argparse
import collections
import contextlib
import hashlib
import os
import pathlib
import re
import shutil
import subprocess
import sys
import time
import xml.etree.ElementTree as xml

PROCESSORS = len(os.sched_getaffinity(0))

# Both end by themselves when this process does, however it ends.
COMPUTES = """
import os
parent = os.getppid()
while os.getppid() == parent:
    for _ in range(1_000_000):
        pass
"""
WRITES = """
import os, sys
parent, block = os.getppid(), os.urandom(1 << 20)
while os.getppid() == parent:
    with open(sys.argv[1], "wb") as file:
        for _ in range(64):
            file.write(block)
            file.flush()
            os.fsync(file.fileno())
"""


@contextlib.contextmanager
def busy_machine(load, scratch):
    """`load` processes that compute, and one that writes to the disk of `scratch`; none if `load` is 0."""
    file = scratch / "written-by-load"
    programs = [[COMPUTES]] * load + [[WRITES, str(file)]] * bool(load)
    # In a session of their own: an interrupt from the terminal is for this process.
    running = [subprocess.Popen([sys.executable, "-c", *each], start_new_session=True) for each in programs]
    try:
        yield
    finally:
        for each in running:
            each.kill()
        for each in running:
            each.wait()
        file.unlink(missing_ok=True)


def results_of(report):
    """The tests that ctest ran, by name: None, or the output of one that failed. Skipped ones are left out."""
    out = {}
    for case in xml.parse(report).getroot().iter("testcase"):
        name, status, skipped = case.get("name"), case.get("status"), case.find("skipped")
        why = skipped.get("message", "") if skipped is not None else ""
        if status == "fail":
            out[name] = case.findtext("system-out") or ""
        elif status == "run":
            out[name] = None
        elif status == "notrun" and not why.startswith("SKIP_") and why != "Disabled":
            # Its program could not be started.
            out[name] = f"not run: {why}"
    return out


def file_name(test, number):
    plain = re.sub(r"[^A-Za-z0-9._-]+", "-", test)[:100]
    return f"{plain}-{hashlib.sha256(test.encode()).hexdigest()[:6]}.round-{number}.txt"


class NoTests(Exception):
    pass


def play(directory, report, arguments):
    """Runs ctest once. Raises NoTests with what ctest says if that is no result of tests."""
    log = report.with_suffix(".log")
    command = ["ctest", "--test-dir", directory, "--output-on-failure", "--no-tests=error", "--parallel",
               str(PROCESSORS), "--output-junit", report, *arguments]
    with open(log, "w") as file:
        code = subprocess.run(command, stdout=file, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
                              check=False).returncode
    results = results_of(report) if code in (0, 8) and report.exists() else {}
    # Status 8: some tests failed.
    if not results or (code == 8) != any(output is not None for output in results.values()):
        raise NoTests(f"stress: ctest ended with {code}; {log} has its output, which ends so:\n"
                      + "\n".join(log.read_text(errors="replace").splitlines()[-10:]))
    return results


def main():
    parser = argparse.ArgumentParser(usage="stress.py DIRECTORY --rounds N [--load L] [CTEST ARGUMENTS…]")
    parser.add_argument("directory", type=pathlib.Path)
    parser.add_argument("--rounds", type=int, required=True)
    parser.add_argument("--load", type=int, default=10 * PROCESSORS)
    options, arguments = parser.parse_known_args()
    if options.rounds < 1 or options.load < 0:
        sys.exit("stress: --stress takes a number from 1 on, and --load one from 0 on")
    place = options.directory.resolve() / "Testing" / "stress"
    # What earlier builds did is of no interest.
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    runs, failures, rounds = collections.Counter(), collections.Counter(), 0
    try:
        with busy_machine(options.load, place):
            for number in range(1, options.rounds + 1):
                began = time.monotonic()
                results = play(options.directory, place / f"round-{number}.xml", arguments)
                rounds += 1
                failed = {name: output for name, output in results.items() if output is not None}
                runs.update(results.keys())
                failures.update(failed.keys())
                for name, output in failed.items():
                    (place / file_name(name, number)).write_text(output)
                print(f"round {number} of {options.rounds}: {len(results)} tests in "
                      f"{(time.monotonic() - began) / 60:.0f} min, {len(failed)} failed", flush=True)
    except KeyboardInterrupt:
        print("interrupted", flush=True)
    except NoTests as why:
        print(why, flush=True)
    if not rounds:
        sys.exit(1)
    total, bad = sum(runs.values()), sum(failures.values())
    print(f"{rounds} rounds beside {options.load} busy processes: {total - bad} of {total} runs passed")
    for name, count in failures.most_common():
        print(f"  failed {count} of {runs[name]}: {name}")
    if failures:
        print(f"their output: {place}")
    sys.exit(1 if failures or rounds < options.rounds else 0)


if __name__ == "__main__":
    main()
