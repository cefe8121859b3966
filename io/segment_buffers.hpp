#pragma once

#include "io/page_buffers.hpp"
#include "io/page_store.hpp"
#include "io/segment.hpp"

/// Page buffers that node and client map, each from its own process on the same host.

namespace troupe::io {

/// What a client needs to map a segment of a node; `segment::map` says what it means.
struct segment_name {
  std::int32_t process = 0;
  std::int32_t descriptor = -1;
  std::vector<std::uint8_t> proof{};

  friend bool operator==(const segment_name&, const segment_name&) = default;
};

/// The two numbers in four bytes each, the lowest first, then the proof.
page_buffers_name encode(const segment_name& x);
/// `invalid_argument` if it is too short to be one.
result<segment_name> decode_segment_name(std::span<const std::uint8_t> text);

/// Makes a segment for each client and makes it known to one store of pages, which must outlive the source.
class segment_source final : public page_buffer_source {
public:
  explicit segment_source(page_store& transfers) : store_(transfers) {}

  result<loan> lend(std::uint64_t bytes, std::int32_t memory_node) override;
  void take_back(loan what) override;

private:
  page_store& store_;
};

/// Maps segments of nodes on this host.
class segment_finder final : public page_buffer_finder {
public:
  result<std::shared_ptr<page_buffers>> find(std::uint64_t bytes, std::span<const std::uint8_t> name) override;
};

} // namespace troupe::io
