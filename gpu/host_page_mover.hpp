#pragma once

#include "gpu/page_mover.hpp"

#include <memory>

namespace troupe {

/// A mover for KV caches in host memory: copies on the calling thread. Pieces that lie next to each other on both
/// sides are merged once, when the mover is made, so that a layout whose blocks are contiguous costs one memcpy per
/// layer and part, or fewer.
///
/// The tensors must outlive the mover. Errors: those of `validate(view)`.
result<std::unique_ptr<page_mover>> make_host_page_mover(kv_cache_view view);

} // namespace troupe
