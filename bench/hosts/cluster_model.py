"""Plain LRU for a trace that is split over the nodes of a cluster: the reference of a measurement.

Requests come one after the other, in the order of the trace, and each node evicts the least recently used page. A
lookup fetches the longest prefix that a peer has, and continues from there, with local and fetched pages. `copies` says
what happens to the two copies of a page after a fetch:

- `both`: they are pages as any other
- `here`: the peer evicts its copy first, until it is used there (`cluster.keep_copies`)
- `home`: the node that has fetched evicts its copy first, also when it is used
- `owner`: there are no copies: each key has an owner, by its hash, where it is saved and from where all nodes load it
"""

import collections
import zlib


class Cache:
    """A node: pages that are evicted first, and others, both from the oldest to the newest."""

    def __init__(self, slots):
        self.slots = slots
        self.others = collections.OrderedDict()
        self.first = collections.OrderedDict()

    def __contains__(self, key):
        return key in self.others or key in self.first

    def leading(self, keys, first):
        """The number of consecutive keys from there on that it has."""
        last = first
        while last < len(keys) and keys[last] in self:
            last += 1
        return last - first

    # The last key of a prefix is the oldest, and is evicted first.

    def use(self, keys, evict_first=False):
        for key in reversed(keys):
            if key in self.others:
                self.others.move_to_end(key)
            elif key in self.first and evict_first:
                self.first.move_to_end(key)
            elif key in self.first:
                del self.first[key]
                self.others[key] = True

    def put(self, keys, evict_first=False):
        for key in reversed(keys):
            if key not in self:
                (self.first if evict_first else self.others)[key] = True
        while len(self.others) + len(self.first) > self.slots:
            (self.first or self.others).popitem(last=False)

    def evict_before_others(self, keys):
        for key in reversed(keys):
            if self.others.pop(key, None):
                self.first[key] = True


def owner_of(key, nodes):
    return zlib.crc32(str(key).encode()) % nodes


def fetch(nodes, here, keys, found, copies):
    """Fetches the next keys; returns how many are here then, and how many pages were fetched."""
    came = 0
    asked_before = None
    while found < len(keys):
        best, source = 0, None
        for peer in nodes:
            if peer is here or peer is asked_before:
                continue
            count = peer.leading(keys, found)
            peer.use(keys[found:found + count])
            if count > best:
                best, source = count, peer
        if not best:
            break
        new = [key for key in keys[found:found + best] if key not in here]
        here.put(new, copies == "home")
        if copies == "here":
            source.evict_before_others(new)
        came += len(new)
        found += best
        asked_before = source
        if more := here.leading(keys, found):
            found += more
            asked_before = None
    return found, came


def play(parts, slots, copies):
    """Plays each part of a trace, a list of (number, keys), at its node: hits, and pages moved for loads and
    for saves, all as shares of the requested blocks."""
    nodes = [Cache(slots // len(parts)) for _ in parts]
    requests = sorted((number, at, keys) for at, part in enumerate(parts) for number, keys in part)
    blocks = hits = loaded = saved = 0
    for _, at, keys in requests:
        here = nodes[at]
        blocks += len(keys)
        if copies == "owner":
            owners = [owner_of(key, len(nodes)) for key in keys]
            found = 0
            while found < len(keys) and keys[found] in nodes[owners[found]]:
                found += 1
            loaded += sum(owner != at for owner in owners[:found])
            saved += sum(owner != at for owner in owners[found:])
            for number, node in enumerate(nodes):
                own = [key for key, owner in zip(keys, owners) if owner == number]
                node.use(own)
                node.put(own)
        else:
            found = here.leading(keys, 0)
            found, came = fetch(nodes, here, keys, found, copies)
            loaded += came
            here.use(keys[:found], copies == "home")
            here.put(keys[found:])
            here.use(keys, copies == "home")
        hits += found
    return hits / blocks, loaded / blocks, saved / blocks
