"""How pages lie in the pools of SGLang's device: arithmetic, without SGLang and without input and output.

A pool is what SGLang calls an entry: `components` of buffers, each with one row per token or per page, and
`layer_mapping`, which names the buffers of each layer. Its pages are stored in one or more parts, each of which has
the same layers of all pools, so that a forward pass can begin with the first part.
"""


from troupe._kv_shape import DoesNotFit


def ranges(layers, parts):
    """The layers of each part, as ranges: as many parts as asked for, but none without a layer. The first one is half
    as large as the others, as SGLang's scheduler waits for it."""
    parts = max(1, min(parts, layers))
    ends = [max(layers * (2 * number - 1) // (2 * parts - 1), number) for number in range(1, parts + 1)]
    return [range(first, end) for first, end in zip([0, *ends], ends)]


def rows_of_page(pool):
    """Rows that a page has in each buffer: its tokens, or one."""
    buffer, (_, _, size) = pool.components[0][0], pool.buffer_meta[0][0]
    return size // (buffer.nbytes // buffer.shape[0])


def pages_of(pool):
    """The number of whole pages that all buffers have."""
    return min(buffer.shape[0] for buffers in pool.components for buffer in buffers) // rows_of_page(pool)


def buffers_of(pool, layers):
    """(component, number) of each buffer of these layers, in an order that is the same in every engine."""
    out = []
    for layer in layers:
        named = pool.layer_mapping.get(layer)
        numbers = () if named is None else (named,) if isinstance(named, int) else tuple(named)
        out += [(component, number) for component in range(len(pool.components)) for number in numbers]
    return out


def views_by_size(pool, layers):
    """{bytes of a page in a buffer: views of such buffers}, as `troupe_layer` has them. Buffers of different sizes are
    stored apart."""
    rows, pages, out = rows_of_page(pool), pages_of(pool), {}
    for component, number in buffers_of(pool, layers):
        base, row_bytes, size = pool.buffer_meta[component][number]
        if rows > 1 and row_bytes * rows != size:
            raise DoesNotFit(f"tokens of a page are not adjacent in SGLang's pool {pool.name}: start SGLang with its "
                             "usual layout of the KV cache, or without the linker")
        step = row_bytes * rows
        out.setdefault(size, []).append({"base": base, "bytes": (pages - 1) * step + size, "block_stride": step})
    return dict(sorted(out.items()))


def require_all_buffers(pool, layers):
    """A buffer that no layer names would be lost."""
    named, there = len(set(buffers_of(pool, range(layers)))), sum(len(buffers) for buffers in pool.components)
    if named != there:
        raise DoesNotFit(f"SGLang's pool {pool.name} has {there} buffers, of which its layers name {named}: start "
                         "SGLang without the linker")


def page_numbers(pool, indices):
    """The pages of places in the pool. `prepare_locations`, of SGLang, refuses places that are not whole pages."""
    rows = rows_of_page(pool)
    return [row // rows for row in pool.prepare_locations(indices)]


class Patience:
    """Whether a node that has not answered in time is asked again: not for some seconds, in which an engine would wait
    again for each request."""

    PAUSE_SECONDS = 10.0

    def __init__(self, clock):
        self._clock, self._until = clock, None

    def asks(self):
        return self._until is None or self._clock() >= self._until

    def took(self, seconds, limit):
        """After a call with this limit."""
        if seconds >= limit:
            self._until = self._clock() + self.PAUSE_SECONDS


class Seldom:
    """Counts what happens, and says so at most once a minute."""

    SECONDS = 60.0

    def __init__(self, clock):
        self._clock, self._said, self._count = clock, None, 0

    def count(self, number):
        """The number since it was said last, if it is to be said now; else None."""
        self._count += number
        if self._said is not None and self._clock() < self._said + self.SECONDS:
            return None
        self._said, counted, self._count = self._clock(), self._count, 0
        return counted


class Answers:
    """Answers of lookups, for as long as they are used again: SGLang looks a waiting request up whenever it schedules.
    Keys are chained, so the last one stands for all."""

    SECONDS, MOST = 1.0, 1024

    def __init__(self, clock):
        self._clock, self._known = clock, {}

    def get(self, rid, keys):
        """What was found a moment ago; None: it is not known."""
        asked, at, found = self._known.get(rid, (None, 0.0, None))
        return found if asked == (len(keys), keys[-1]) and self._clock() < at + self.SECONDS else None

    def put(self, rid, keys, found):
        self._known.pop(rid, None)
        self._known[rid] = (len(keys), keys[-1]), self._clock(), found
        if len(self._known) > self.MOST:
            del self._known[next(iter(self._known))]

    def forget(self, rid):
        self._known.pop(rid, None)

    def clear(self):
        self._known.clear()
