"""A folder for each run, so that parallel runs do not delete each other's files."""

import fcntl
import pathlib

# Runs at once; folders are used again, so that no more than this many are kept.
MOST = 16

# As long as this process or one that it has forked lives.
_locks = []


def take(directory):
    """A folder in `directory` that no other run uses. It may have files of an earlier run in it."""
    directory = pathlib.Path(directory)
    directory.mkdir(parents=True, exist_ok=True)
    for number in range(MOST):
        lock = open(directory / f"{number}.lock", "w")
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.close()
            continue
        _locks.append(lock)
        place = directory / str(number)
        place.mkdir(exist_ok=True)
        return place
    raise RuntimeError(f"{MOST} runs use {directory} already: wait for one of them, or name another folder")
