"""A linker that notes when what it does begins and ends, for measurements."""

import json
import os
import time

from sglang.srt.mem_cache.unified_cache.unified_cache_linker import LayerWiseLoadCounter
from troupe.sglang_linker import TroupeLinker

# Of the request that loads now, of which there is one at a time: (milliseconds since its lookup began, what).
_noted, _began = [], [0.0]


def note(what):
    _noted.append((round((time.perf_counter() - _began[0]) * 1e3, 2), what))


class TimedCounter(LayerWiseLoadCounter):
    def set_consumer(self, index):
        super().set_consumer(index)
        if index >= 0:
            note("forward pass begins")

    def wait_until(self, threshold):
        future = self.futures.get(self.consumer_index)
        if future is None:
            return
        ready = future[threshold].done()
        if not ready:
            note(f"waits for layer {threshold}")
        super().wait_until(threshold)
        note(f"launches layer {threshold}" + ("" if ready else ", which is there now"))

    def finish(self, index):
        note("forward pass launched")
        return super().finish(index)


class TimedLinker(TroupeLinker):
    """Writes a line of JSON for each load to the file that the environment's LINKER_TIMES names."""

    def __init__(self, *arguments, **named):
        super().__init__(*arguments, **named)
        self.layer_done_counter.__class__ = TimedCounter

    def lookup(self, rid, transfers):
        _noted.clear()
        _began[0] = time.perf_counter()
        found = super().lookup(rid, transfers)
        note(f"looked up: {max(found, default=0)} pages")
        return found

    def load(self, rid, transfers):
        note("load begins")
        well = super().load(rid, transfers)
        note("first part is there")
        return well

    def _move(self, direction, plan, part, clock):
        if direction == "get":
            note(f"part {part} begins")
        well = super()._move(direction, plan, part, clock)
        if direction == "get":
            note(f"part {part} is there")
        return well

    def finish_layer_wise_loading(self, counter_index):
        well = super().finish_layer_wise_loading(counter_index)
        note("all is there")
        with open(os.environ["LINKER_TIMES"], "a") as file:
            file.write(json.dumps(_noted) + "\n")
        return well
