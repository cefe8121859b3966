"""A linker for control experiments, which corrupts the pages that it loads."""

import ctypes
import os

from troupe import _device_pools
from troupe.sglang_linker import TroupeLinker


class SpoilingLinker(TroupeLinker):
    """Changes every loaded page, after its checksum was compared and before SGLang reads it. The environment's
    SPOILT_POOL names the only pool in which it does so."""

    def _move(self, direction, plan, part, clock):
        well = super()._move(direction, plan, part, clock)
        for pool, _, numbers in plan if direction == "get" and well else ():
            if str(pool.entry.name) == os.environ.get("SPOILT_POOL", str(pool.entry.name)):
                for size, views in _device_pools.views_by_size(pool.entry, self.ranges[part]).items():
                    for view in views:
                        for number in numbers:
                            ctypes.memset(view["base"] + number * view["block_stride"], 0x3F, size // 2)
        return well
