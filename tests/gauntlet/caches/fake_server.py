"""The server of the self-test's cache: pages in a memory that clients map, and behind it on a disk.

fake_server.py DIRECTORY SETTINGS, as a dict in Python's notation. `defect` names the one thing that it does wrong;
without one it is right, with no ambition beside that. Requests and answers are pickled tuples on DIRECTORY/socket.
"""

import ast
import collections
import fcntl
import itertools
import mmap
import multiprocessing.connection
import os
import pathlib
import pickle
import sys
import threading
import time
import zlib

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from facts import PAGE_BYTES  # noqa: E402

# The parts of an identity that it compares.
COMPARED = ("model", "revision", "dtype", "layout", "hash_algorithm", "salt", "world_size", "layers", "block_tokens",
            "page_bytes")
# Evictions after which it stalls or dies, if that is its defect.
STALL_AFTER = 50


class Entry:
    def __init__(self, checksum):
        self.memory = self.disk = None
        self.checksum, self.pins = checksum, {}


class Slots:
    """Numbers of slots, the free ones of which are handed out in turn."""

    def __init__(self, count):
        self.free = collections.deque(range(count))

    def take(self):
        return self.free.popleft() if self.free else None


class Store:
    def __init__(self, directory, settings):
        self.defect, self.lock = settings["defect"], threading.RLock()
        self.entries, self.worlds, self.evictions = collections.OrderedDict(), {}, 0
        self.tokens, self.instances, self.clock, self.leaked = itertools.count(), {}, time.time(), []
        self.memory_slots, self.disk_slots = Slots(settings["memory_pages"]), Slots(settings["disk_pages"])
        # A new file: clients of an earlier life may still map the old one.
        (directory / "memory").unlink(missing_ok=True)
        with open(directory / "memory", "wb") as file:
            file.truncate(settings["memory_pages"] * PAGE_BYTES)
        with open(directory / "memory", "r+b") as file:
            self.memory = mmap.mmap(file.fileno(), 0)
        self.folder = directory / "pages"
        self.folder.mkdir(exist_ok=True)
        self.guard = open(self.folder / "lock", "w")
        if self.defect != "no lock on the directory":
            fcntl.flock(self.guard, fcntl.LOCK_EX | fcntl.LOCK_NB)
        self.slab = os.open(self.folder / "slab", os.O_RDWR | os.O_CREAT, 0o600)
        self.journal = os.open(self.folder / "journal", os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
        self.recover(settings["disk_pages"])

    def recover(self, slots):
        """Reads the journal: the newest record about a slot is the one that holds."""
        by_slot = {}
        with open(self.folder / "journal", "rb") as file:
            while True:
                try:
                    key, world, slot, checksum = pickle.load(file)
                except Exception:
                    break
                by_slot.pop(slot, None)
                by_slot[slot] = key, world, checksum
        for slot, (key, world, checksum) in by_slot.items():
            if slot >= slots:
                continue
            if self.defect == "index off after a restart":
                slot, checksum = slot ^ 1, None
            entry = self.entries[key] = Entry(checksum)
            entry.disk, self.worlds[key[0]] = slot, world
            if slot in self.disk_slots.free:
                self.disk_slots.free.remove(slot)

    # --------------------------------------------------------------------------------------------------------- places

    def memory_slot(self):
        slot = self.memory_slots.take()
        if slot is not None:
            return slot
        if self.defect == "stalls when full" and self.evictions > STALL_AFTER:
            threading.Event().wait()
        if self.defect == "dies when full" and self.evictions > STALL_AFTER:
            os._exit(7)
        now = time.monotonic()
        for key, entry in self.entries.items():
            expired = self.defect == "expired leases" and all(end < now for end in entry.pins.values())
            if entry.memory is not None and (not entry.pins or expired):
                slot, entry.memory, self.evictions = entry.memory, None, self.evictions + 1
                if self.defect == "leaks":
                    self.leaked.append(b"x" * (1 << 18))
                if entry.disk is None:
                    del self.entries[key]
                return slot
        return None

    def disk_slot(self):
        slot = self.disk_slots.take()
        if slot is not None or not self.entries:
            return slot
        for key, entry in self.entries.items():
            if entry.disk is not None and not entry.pins:
                slot, entry.disk = entry.disk, None
                if entry.memory is None:
                    del self.entries[key]
                return slot
        return None

    def put(self, slot, content):
        self.memory[slot * PAGE_BYTES:slot * PAGE_BYTES + len(content)] = content

    def write(self, key, entry, content):
        """To the disk; a slot that was not written whole is not used."""
        slot = self.disk_slot()
        if slot is None:
            return
        try:
            written = os.pwrite(self.slab, content, slot * PAGE_BYTES)
            if written < len(content):
                raise OSError("a short write")
            os.write(self.journal, pickle.dumps((key, self.worlds[key[0]], slot, entry.checksum)))
            entry.disk = slot
        except OSError:
            if self.defect == "failed store visible":
                entry.disk, entry.checksum = slot, None
                if entry.memory is not None:
                    self.memory_slots.free.append(entry.memory)
                    entry.memory = None
                return
            self.disk_slots.free.append(slot)
            raise

    def read(self, entry):
        """From the disk to memory: whether that was possible."""
        slot = self.memory_slot()
        if slot is None:
            return False
        where = entry.disk + 1 if self.defect == "foreign page" and entry.disk % 8 == 3 else entry.disk
        content = os.pread(self.slab, PAGE_BYTES, where * PAGE_BYTES)
        self.put(slot, content.ljust(PAGE_BYTES, b"\0"))
        if where != entry.disk:
            entry.checksum = None
        entry.memory = slot
        return True

    # ------------------------------------------------------------------------------------------------------- requests

    def hello(self, instance, process):
        lives = self.instances.setdefault(instance, [])
        if process not in [known for known, _ in lives]:
            lives.append((process, []))
        return ("welcome",)

    def save(self, name, rank, world, content):
        if self.defect == "trusts the clock":
            while time.time() < self.clock:
                time.sleep(0.01)
            self.clock = time.time()
        if self.defect == "keeps nothing":
            return ("saved",)
        key = name, rank
        known = self.entries.get(key)
        if known is not None and (known.memory is not None or known.disk is not None):
            return ("saved",)
        if len(content) > PAGE_BYTES:
            return ("error", "a page larger than a slot")
        self.worlds[name] = world
        entry = Entry(None if self.defect == "no lock on the directory" else zlib.crc32(content))
        entry.memory = self.memory_slot()
        if entry.memory is None:
            return ("error", "no memory is free")
        self.put(entry.memory, content)
        self.entries[key] = entry
        if self.disk_slots.free or any(each.disk is not None for each in self.entries.values()):
            try:
                self.write(key, entry, content)
            except OSError as error:
                # It stays in memory, where it is whole.
                return ("saved", str(error))
        return ("saved",)

    def half(self, name, rank, world, content):
        """The first half of a page that is being saved."""
        if self.defect == "half saved pages" and (name, rank) not in self.entries:
            self.save(name, rank, world, content.ljust(PAGE_BYTES, b"\0"))
            if (name, rank) in self.entries:
                self.entries[name, rank].checksum = None
        return ("noted",)

    def whole(self, name, rank, world, content):
        if self.defect == "half saved pages" and (name, rank) in self.entries:
            entry = self.entries[name, rank]
            if entry.memory is not None:
                self.put(entry.memory, content)
            return ("saved",)
        return self.save(name, rank, world, content)

    def found(self, name):
        return ("yes",) if all((name, rank) in self.entries for rank in range(self.worlds.get(name, 1))) else ("no",)

    def pin(self, name, rank, instance, lease):
        """Where a page is in memory, until `unpin`."""
        entry = self.entries.get((name, rank))
        if entry is None:
            return ("miss", "not in the cache")
        if entry.memory is None and not self.read(entry):
            return ("error", "no memory is free")
        if entry.memory is None:
            return ("miss", "not in the cache")
        self.entries.move_to_end((name, rank))
        token = next(self.tokens)
        entry.pins[token] = time.monotonic() + lease
        at, life = entry.memory * PAGE_BYTES, self.instances.get(instance, [(0, [])])
        life[-1][1].append(at)
        earlier = [places for _, places in life[:-1] if places]
        if self.defect == "stale instance" and earlier:
            return ("slot", earlier[0][-1], None, token)
        return ("slot", at, entry.checksum, token)

    def unpin(self, name, rank, token):
        entry = self.entries.get((name, rank))
        if entry is not None:
            entry.pins.pop(token, None)
        return ("done",)

    def serve(self, link):
        """Requests are a name and a list of arguments for each page, answered by a list."""
        pinned = {}
        try:
            while True:
                what, pages = link.recv()
                if what == "pin" and self.defect == "one load at a time":
                    self.wait_for_others(*pages[0][:2])
                with self.lock:
                    answers = [getattr(self, what)(*page) for page in pages]
                    for page, answer in zip(pages, answers):
                        if what == "pin" and answer[0] == "slot":
                            pinned[answer[3]] = page[:2]
                        elif what == "unpin":
                            pinned.pop(page[2], None)
                link.send(answers)
        except (EOFError, OSError):
            with self.lock:
                for token, (name, rank) in pinned.items():
                    self.unpin(name, rank, token)

    def wait_for_others(self, name, rank):
        entry = self.entries.get((name, rank))
        while entry is not None and entry.pins:
            time.sleep(0.01)


def main():
    directory, settings = pathlib.Path(sys.argv[1]), ast.literal_eval(sys.argv[2])
    try:
        store = Store(directory, settings)
    except BlockingIOError:
        sys.exit("another server uses this directory")
    listener = multiprocessing.connection.Listener(str(directory / "socket.new"), backlog=64)
    os.rename(directory / "socket.new", directory / "socket")
    while True:
        link = listener.accept()
        threading.Thread(target=store.serve, args=(link,), daemon=True).start()


if __name__ == "__main__":
    main()
