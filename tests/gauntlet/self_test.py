#!/usr/bin/env python3
"""Shows that each case can fail: plays it against a small cache that is right, which must pass; against one that keeps
nothing, with which nothing is shown; and with one defect after the other, each of which must get its verdict.

self_test.py [CASE…]
"""

import concurrent.futures
import pathlib
import shutil
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

from case import all_cases, chosen  # noqa: E402
from play import kind_of, play  # noqa: E402
from report import NOT_RUN  # noqa: E402
from verdicts import BAD  # noqa: E402

SEED = 20261129
KEEPS_NOTHING = "keeps nothing"
# For a cache without a defect: generous, for a busy machine. With one that hangs, this is how long it takes to see it.
PATIENCE, PATIENCE_OF_HANGS = 60.0, 6.0
AT_ONCE = 3


def outcomes(case, directory):
    """(defect, expected verdict, seen verdict, first remark) of each run of the case."""
    runs = [("", None), (KEEPS_NOTHING, NOT_RUN), *case.defects.items()]
    for defect, expected in runs:
        patience = PATIENCE_OF_HANGS if expected == "hang" else PATIENCE
        place = directory / f"{case.number}-{defect.replace(' ', '-') or 'right'}"
        trial, not_run, _ = play(case, kind_of("fake"), place, SEED, True, patience, {"defect": defect})
        seen = NOT_RUN if not_run else trial.tally.verdict()
        remarks = trial.tally.remarks.get(seen, [])
        yield defect, expected, seen, not_run or (remarks[0] if remarks else "")


def problems_of(case, directory):
    """Lines about the case, and whether something is not as it must be."""
    lines, failed = [], False
    for defect, expected, seen, remark in outcomes(case, directory):
        well = seen == expected if defect else seen not in (NOT_RUN, *BAD)
        failed |= not well
        what = f"with a defect ({defect}), expected {expected}" if defect else "right"
        lines.append(f"{'ok    ' if well else 'FAILED'} {case.number:2} {case.name:16} {what}: {seen}. {remark[:110]}")
    if not case.defects:
        lines.append(f"FAILED {case.number:2} {case.name} names no defect, so that it is not known whether it can fail")
        failed = True
    return lines, failed


def main():
    named = chosen(sys.argv[1:]) if sys.argv[1:] else all_cases().values()
    cases = [case for case in named if not case.engine]
    directory = pathlib.Path(tempfile.mkdtemp(prefix="troupe-gauntlet-"))
    all_well = True
    try:
        with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
            for lines, failed in pool.map(lambda case: problems_of(case, directory), cases):
                print("\n".join(lines), flush=True)
                all_well &= not failed
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    print("the self-test has passed" if all_well else "the self-test has FAILED")
    return 0 if all_well else 1


if __name__ == "__main__":
    sys.exit(main())
