"""What a cache did with a page that was asked of it, and what a case found."""

import collections

RIGHT, MISS, ERROR, HANG, CRASH, WRONG = "right", "miss", "error", "hang", "crash", "wrong"
# From the best to the worst: the verdict of a case is the worst that was seen.
ORDER = (RIGHT, MISS, ERROR, HANG, CRASH, WRONG)
# What no user of a cache may ever see. A miss or an error is computed again.
BAD = (HANG, CRASH, WRONG)

MEANING = {
    RIGHT: "every byte is the one that was saved",
    MISS: "the cache said that it does not have the page, or that what it has is damaged",
    ERROR: "the cache reported a failure",
    HANG: "a call did not return in time",
    CRASH: "a process ended, or used memory without limit",
    WRONG: "bytes that were not saved under this key were returned as a hit",
}

REMARKS = 6


class NotRun(Exception):
    """Why a case, or a part of it, cannot be run here."""


class Stop(Exception):
    """Ends a case whose verdict cannot get better or be continued."""


class Tally:
    """Verdicts of single pages and calls, with the first remarks about each kind."""

    def __init__(self):
        self.counts, self.remarks = collections.Counter(), {}

    def note(self, verdict, remark="", count=1):
        """Counts a verdict; `remark` says what was seen, as a sentence."""
        if verdict not in ORDER:
            raise ValueError(f"{verdict!r} is no verdict")
        if count:
            self.counts[verdict] += count
            known = self.remarks.setdefault(verdict, [])
            if remark and remark not in known and len(known) < REMARKS:
                known.append(remark)

    def add(self, other):
        for verdict, count in other.counts.items():
            self.counts[verdict] += count
            known = self.remarks.setdefault(verdict, [])
            known += [each for each in other.remarks.get(verdict, ()) if each not in known][:REMARKS - len(known)]

    def verdict(self):
        """The worst one; None if there is none."""
        return max(self.counts, key=ORDER.index, default=None)

    def of(self, verdict):
        return self.counts[verdict]
