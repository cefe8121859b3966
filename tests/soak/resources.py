"""What a node uses, and whether it uses more and more of it."""

import os
import pathlib
import statistics

from node import total

KIB, MIB = 1024, 1024 * 1024

# Name, what is divided by, how it is called. The bound on growth of each is an option of the soak.
RESOURCES = (("rss", MIB, "MiB of private memory"), ("disk", MIB, "MiB of disk"), ("fds", 1, "descriptors"),
             ("threads", 1, "threads"), ("leases", 1, "leases"), ("pinned", 1, "pinned frames"))
# What nothing may hold any more when all clients have left, by the beginning of the names of the samples.
HELD = ("troupe_disconnected_clients", "troupe_leases", "troupe_reservations",
        "troupe_withheld_slots", "troupe_transfers_in_flight", "troupe_memory_pinned_frames",
        'troupe_memory_frames{state="orphaned"')


def used(process, directory, samples):
    """What a node uses now. Memory that it shares with clients, its arena, is not counted as memory here: it has a
    fixed size and fills up."""
    status = pathlib.Path(f"/proc/{process.pid}/status").read_text(encoding="ascii")
    fields = dict(line.split(":", 1) for line in status.splitlines() if ":" in line)
    disk = 0
    for path in pathlib.Path(directory).rglob("*"):
        try:
            disk += path.stat().st_blocks * 512
        except FileNotFoundError:
            pass  # the store removes its files as it goes
    return {"rss": int(fields["RssAnon"].split()[0]) * KIB, "threads": int(fields["Threads"]),
            "fds": len(os.listdir(f"/proc/{process.pid}/fd")), "disk": disk,
            "leases": total(samples, "troupe_leases"), "pinned": total(samples, "troupe_memory_pinned_frames")}


def still_held(node):
    """Sentences about what is held though all clients have left. A node of a cluster is a client of itself, by whose
    attachments pages of other nodes come."""
    samples = node.samples()
    out = [f"'{each['name']}' is still attached" for each in node.status()["clients"]["list"]
           if not each["name"].endswith("(pages of other nodes)")]
    return out + [f"{name} is {total(samples, name):g} after all clients have left" for name in HELD
            if total(samples, name) != 0]


def growth(readings, name):
    """Between the first and the last quarter of what follows the warm-up; medians, because single readings depend on
    which clients are there and on what the store is doing."""
    quarter = max(1, len(readings) // 4)
    values = [each[name] for each in readings]
    return statistics.median(values[-quarter:]) - statistics.median(values[:quarter])
