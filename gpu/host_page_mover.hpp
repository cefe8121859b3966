#pragma once

#include "gpu/page_mover.hpp"

#include <cstdint>
#include <memory>

namespace troupe {

struct host_mover_options {
  /// Whether a scatter verifies a page while it copies it, which takes half as long. Then a block whose page is
  /// `corrupt` may have been written: only for callers that do not use such a block. It applies where each layer of a
  /// block is contiguous and a multiple of 16 bytes.
  bool verify_while_copying = false;
  /// `page_mover::calls_at_once`; at least 1. Each call copies on its thread.
  std::uint32_t calls_at_once = 1;
  /// Whether `prepare` populates this process's mapping of shared memory, which its first use would do page by page.
  bool populate = false;
};

/// Makes a mover for KV caches in host memory that copies on the calling thread. Pieces that are adjacent on both sides
/// are merged once, at the construction, so that a layout with contiguous blocks costs at most one memcpy per layer and
/// part.
///
/// The tensors must outlive the mover. Errors: those of `validate(view)`.
result<std::unique_ptr<page_mover>> make_host_page_mover(kv_cache_view view, const host_mover_options& options = {});

} // namespace troupe
