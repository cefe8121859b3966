"""The spans that a request has: rules without clock, sockets and objects of vLLM. Times are nanoseconds of the wall
clock, and arguments.

A request has a span `troupe.request` from the first hook about it to the last, whose parent is the span that the
engine's trace context names, and below it:

    troupe.lookup   from the announcement of the request, or its return to the queue, to the answer
    troupe.fetch    within it, as long as the node has waited for other nodes; from its begin on, since its own pages are
                    found in less than a millisecond
    troupe.wait     from the answer to the begin of the load: the engine's queue
    troupe.load     until all workers have reported
    troupe.save     from the end of the request until all workers have reported what was left to save
"""

import re

# Requests that are traced at once. Further ones have no spans.
MOST_REQUESTS = 65536

TRACEPARENT = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?\Z")
MOST_STATE = 512

ASKING, FOUND, LOADING, RUNNING = range(4)


def context_of(headers):
    """(trace id, id of the parent span, whether it is sampled, trace state) of W3C trace headers; None without valid
    ones."""
    said = headers.get("traceparent") if headers else None
    found = TRACEPARENT.match(said.strip()) if isinstance(said, str) else None
    if found is None:
        return None
    version, trace, parent, flags, more = found.groups()
    if version == "ff" or (version == "00" and more) or trace == "0" * 32 or parent == "0" * 16:
        return None
    state = headers.get("tracestate")
    if not isinstance(state, str) or len(state) > MOST_STATE or not (state.isascii() and state.isprintable()):
        state = ""
    return trace, parent, bool(int(flags, 16) & 1), state


class Sizes:
    """Tokens of a page, and bytes of a token in all workers: when it is loaded, and when it is saved. 0: not known."""

    def __init__(self, page_tokens, loaded_bytes=0, saved_bytes=0):
        self.page_tokens, self.loaded_bytes, self.saved_bytes = page_tokens, loaded_bytes, saved_bytes

    def pages(self, tokens):
        return -(-tokens // self.page_tokens)


class Span:
    """A part of a trace that has ended. `own_id` is empty for spans that nothing refers to."""

    __slots__ = ("name", "trace_id", "own_id", "parent_id", "remote", "state", "start", "end", "attributes", "error")

    def __init__(self, name, trace_id, own_id, parent_id, remote, state, start, end, attributes, error):
        self.name, self.trace_id, self.own_id, self.parent_id = name, trace_id, own_id, parent_id
        self.remote, self.state, self.attributes, self.error = remote, state, attributes, error
        # The wall clock may be set back.
        self.start, self.end = start, max(start, end)


class Request:
    """The state of a traced request."""

    __slots__ = ("name", "trace_id", "own_id", "parent_id", "state", "tokens", "began", "phase", "since", "lookups",
                 "found", "computed", "load", "loaded", "finished")

    def __init__(self, name, context, own_id, tokens, now):
        self.name, self.own_id, self.tokens = name, own_id, tokens
        self.trace_id, self.parent_id, _, self.state = context
        self.began = self.since = now
        self.phase, self.lookups, self.found, self.computed, self.loaded = ASKING, 1, 0, 0, 0
        self.load, self.finished = None, False


class Traces:
    """The traced requests of a scheduler. `emit` takes a span; `bits(n)` are n random bits; `ratio`: the share of
    requests without a trace context that are traced. One thread at a time."""

    def __init__(self, emit, bits, sizes, ratio=1.0, most=MOST_REQUESTS):
        self._emit, self._bits, self._sizes, self._most = emit, bits, sizes, most
        self._below = int(ratio * (1 << 32))
        # Requests that the engine has, None for those without spans; and finished ones whose blocks are being saved.
        self._open, self._saving = {}, {}
        # Requests whose load ends with the step that it belongs to.
        self._in_step = []

    def traced(self):
        """The number of requests with state here."""
        return len(self._open) + len(self._saving)

    def arrived(self, name, headers, tokens, now):
        """The engine has a request with a prompt of `tokens` tokens. Repetitions have no effect."""
        open_requests = self._open
        if name in open_requests:
            before = open_requests[name]
            if before is None or not before.finished:
                return
            self._end(before, now)
        context = self._context(headers)
        if context is None or self.traced() >= self._most:
            open_requests[name] = None
        else:
            open_requests[name] = Request(name, context, f"{self._bits(64) or 1:016x}", tokens, now)

    def _context(self, headers):
        """Of a request that is to be traced; else None."""
        context = context_of(headers)
        if context is not None:
            return context if context[2] else None
        return (f"{self._bits(128) or 1:032x}", "", True, "") if self._bits(32) < self._below else None

    def answered(self, name, computed, tokens, reason, now, fetched=None):
        """A lookup has found `tokens` tokens beyond the `computed` ones that the engine has; None: that is not known
        yet. Repetitions of an answer need not be named. `reason`: why it is nothing. `fetched`: how often other nodes
        were asked, how many pages came from them, and in how many seconds."""
        x = self._open.get(name)
        if x is None or x.phase == LOADING:
            return
        if x.phase == RUNNING or (x.phase == FOUND and tokens is None):
            # It was preempted, its load has failed, or what was found had to be looked up again.
            x.phase, x.since = ASKING, now
            x.lookups += 1
        if tokens is None:
            return
        x.found, x.computed = tokens, computed
        if x.phase == ASKING:
            if fetched and fetched[0]:
                self._fetched(x, *fetched, now)
            self._looked_up(x, reason, now)
            x.phase, x.since = FOUND, now

    def allocated(self, name, tokens, tiers, blocks, synchronous, now):
        """The engine has blocks for a request, into which `tokens` tokens are loaded. `tiers`: of these the ones in
        memory, on disk, and at an unknown place, or nothing; read when the load has ended. `blocks`: their numbers,
        empty where they are not named in failures."""
        x = self._open.get(name)
        if x is None or x.phase == LOADING:
            return
        if x.phase == FOUND and x.found:
            self._waited(x, "" if tokens else "not_used", now)
        if not tokens:
            x.phase = RUNNING
            return
        x.phase, x.since, x.load = LOADING, now, (tokens, tiers, blocks, bool(synchronous))
        if synchronous:
            self._in_step.append(x)

    def reported(self, sent, received, failed, invalid, now):
        """The reports of all workers in a step: names of requests, and numbers of blocks that were not filled."""
        if self._in_step:
            ended, self._in_step = self._in_step, []
            for x in ended:
                if x.phase == LOADING:
                    self._loaded(x, failed, invalid, now)
        for name in received or ():
            x = self._open.get(name)
            if x is not None and x.phase == LOADING:
                self._loaded(x, failed, invalid, now)
        for name in sent or ():
            x = self._saving.pop(name, None)
            if x is not None:
                self._saved(x, x.load, True, now)
                self._end(x, now)

    def finished(self, name, computed, keeps, saves, now):
        """The engine has ended a request, `computed` tokens of which are in its blocks. `keeps`: its blocks are kept
        until workers have reported; `saves`: whether there is a node that saves."""
        x = self._open.get(name)
        if x is None:
            self._open.pop(name, None)
            return
        if x.phase == LOADING:
            if keeps:
                x.finished = True
                return
            self._loaded(x, None, None, now, "cancelled")
        elif x.phase == ASKING:
            self._looked_up(x, "cancelled", now)
        elif x.phase == FOUND and x.found:
            self._waited(x, "cancelled", now)
        del self._open[name]
        if x.phase == RUNNING and saves:
            pages = computed // self._sizes.page_tokens - self._sizes.pages(x.loaded)
            if keeps:
                x.since, x.load = now, pages
                self._saving[name] = x
                return
            if pages > 0:
                x.since = now
                self._saved(x, pages, False, now)
        self._end(x, now)

    def forget(self):
        """Something was not noted: what is known of requests may be wrong, so those in progress have no more spans."""
        self._open, self._saving, self._in_step = {}, {}, []

    def close(self, now):
        """Ends what has not ended, so that no span lacks its parent."""
        for x in self._open.values():
            if x is not None:
                self._end(x, now, "shutdown")
        for x in self._saving.values():
            self._saved(x, x.load, True, now, "shutdown")
            self._end(x, now, "shutdown")
        self._open, self._saving, self._in_step = {}, {}, []

    def _part(self, x, name, end, attributes, error=""):
        self._emit(Span(name, x.trace_id, "", x.own_id, False, x.state, x.since, end, attributes, error))

    def _looked_up(self, x, reason, now):
        attributes = {"troupe.lookup.prompt_tokens": x.tokens, "troupe.lookup.engine_tokens": x.computed,
                      "troupe.lookup.found_tokens": x.found, "troupe.lookup.found_pages": self._sizes.pages(x.found),
                      "troupe.lookup.number": x.lookups}
        if reason:
            attributes["troupe.lookup.reason"] = reason
        self._part(x, "troupe.lookup", now, attributes)

    def _fetched(self, x, requests, pages, seconds, now):
        attributes = {"troupe.fetch.requests": requests, "troupe.fetch.pages": pages}
        if self._sizes.loaded_bytes:
            attributes["troupe.fetch.bytes"] = pages * self._sizes.page_tokens * self._sizes.loaded_bytes
        if not pages:
            attributes["troupe.fetch.reason"] = "not_found"
        self._part(x, "troupe.fetch", min(now, x.since + int(seconds * 1e9)), attributes)

    def _waited(self, x, reason, now):
        self._part(x, "troupe.wait", now, {"troupe.wait.reason": reason} if reason else {})

    def _loaded(self, x, failed, invalid, now, reason=""):
        tokens, tiers, blocks, synchronous = x.load
        size, attributes = self._sizes.loaded_bytes, {
            "troupe.load.tokens": tokens, "troupe.load.pages": self._sizes.pages(tokens),
            "troupe.load.synchronous": synchronous}
        if size:
            attributes["troupe.load.bytes"] = tokens * size
        for tier, count in zip(("memory", "disk", "unknown"), tiers):
            if count:
                attributes[f"troupe.load.{tier}_tokens"] = count
                if size:
                    attributes[f"troupe.load.{tier}_bytes"] = count * size
        error = ""
        bad = sum(block in invalid for block in blocks) if invalid else 0
        if bad:
            attributes["troupe.load.failed_blocks"] = bad
            error = f"{bad} blocks could not be loaded; the engine computes them"
        elif failed and x.name in failed:
            error = "the load has failed; the engine looks the request up again"
        if error:
            reason = "failed"
        if reason:
            attributes["troupe.load.reason"] = reason
        self._part(x, "troupe.load", now, attributes, error)
        x.phase, x.load, x.loaded = RUNNING, None, 0 if reason else tokens
        if x.finished:
            del self._open[x.name]
            self._end(x, now)

    def _saved(self, x, pages, kept, now, reason=""):
        attributes = {"troupe.save.computed_pages": max(pages, 0), "troupe.save.blocks_kept": kept}
        if self._sizes.saved_bytes:
            attributes["troupe.save.computed_bytes"] = (max(pages, 0) * self._sizes.page_tokens
                                                        * self._sizes.saved_bytes)
        if reason:
            attributes["troupe.save.reason"] = reason
        self._part(x, "troupe.save", now, attributes)

    def _end(self, x, now, reason=""):
        attributes = {"troupe.request.id": x.name, "troupe.request.prompt_tokens": x.tokens}
        if reason:
            attributes["troupe.request.reason"] = reason
        self._emit(Span("troupe.request", x.trace_id, x.own_id, x.parent_id, bool(x.parent_id), x.state, x.began, now,
                        attributes, ""))
