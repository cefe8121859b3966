#pragma once

#include "gpu/page_mover.hpp"

#include <memory>

namespace troupe {

/// Makes a mover for KV caches in host memory that copies on the calling thread. Pieces that are adjacent on both sides
/// are merged once, at the construction, so that a layout with contiguous blocks costs at most one memcpy per layer and
/// part.
///
/// The tensors must outlive the mover. Errors: those of `validate(view)`.
result<std::unique_ptr<page_mover>> make_host_page_mover(kv_cache_view view);

} // namespace troupe
