#pragma once

#include "base/clock.hpp"
#include "base/error.hpp"
#include "base/identifiers.hpp"
#include "io/slab/page_store.hpp"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>

namespace troupe {

/// The memory of a rank's scrub, and the page that is in it. The page is first read, then verified.
///
/// It is no transfer of its slot: a fence does not wait for it, because the result is then ignored.
///
/// Invariant: a page is offered by `take_check` once, after its own read has succeeded.
class scrub_slot {
public:
  /// Reads go to this memory, which the store knows by that number.
  void set_memory(std::span<std::byte> memory, std::uint32_t buffer) noexcept;

  /// The request that reads the page. The previous page has been read, and verified if that succeeded.
  io::page_request read(const page_ref& page, std::uint64_t tag, timestamp deadline) noexcept;
  /// The request with this tag has ended. Returns whether it was the read; if it was and has succeeded, the page is to
  /// be verified.
  bool ended(std::uint64_t tag, errc status) noexcept;
  /// The page that should now be in the memory, once.
  std::optional<page_ref> take_check() noexcept { return std::exchange(check_, std::nullopt); }

  /// The page that was read last.
  const page_ref& page() const noexcept { return page_; }

private:
  std::span<std::byte> memory_;
  std::uint32_t buffer_ = 0;
  page_ref page_{};
  /// The tag of the read in progress; 0 if there is none.
  std::uint64_t tag_ = 0;
  std::optional<page_ref> check_;
};

} // namespace troupe
