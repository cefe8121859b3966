#pragma once

#include "actors/lmcache/lmcache_server.hpp"
#include "messages/answer_codes.hpp"

#include <cstddef>
#include <optional>
#include <utility>
#include <vector>

/// What stores and retrieves of LMCache's workers keep while they are under way, whoever copies.

namespace troupe {

/// How long a retrieve waits for pages to be read from the disk.
inline constexpr duration fetch_patience = std::chrono::seconds(20);

/// The part of the pages that begins there, as one request has them.
inline packed<page_ref> part_of(const std::vector<page_ref>& pages, std::size_t first, std::size_t count) {
  const auto from = pages.begin() + static_cast<std::ptrdiff_t>(first);
  return std::vector<page_ref>(from, from + static_cast<std::ptrdiff_t>(count));
}

/// A store of blocks that the node copies itself, some pages at a time.
struct lmcache_server::store_copy {
  request_ptr request;
  instance_ptr of;
  /// To be stored, counted from the first of the request; and those of them that were taken up.
  std::vector<std::uint32_t> chunks;
  std::size_t taken = 0;
};

/// A prepare_store, a commit_store or a store that is under way.
struct lmcache_server::store_run {
  request_ptr request;
  instance_ptr of;
  /// Of which this is a part, where the node copies.
  std::shared_ptr<store_copy> copy;
  ticket name;
  std::size_t waiting = 0;
  /// Of the chunks of the request: where the page goes, if it is to be stored.
  std::vector<std::optional<slot_ref>> where;
  /// Some could not be had.
  bool short_of = false;
  /// Of the pages: their chunk, counted from the first of the request.
  std::vector<std::uint32_t> chunks;
  /// What was reserved, and which of it has a frame.
  std::vector<page_ref> reserved;
  std::vector<std::optional<std::uint64_t>> offsets;
  std::vector<std::pair<std::size_t, frame_reply>> placed;
  open_pages job;
  /// Of `job`, where the node has filled the pages itself: else all are as they should be.
  std::vector<errc> gathered;
  bool committed = true;

  errc gathered_of(std::size_t page) const { return gathered.empty() ? errc::ok : gathered[page]; }

  rank_number rank() const { return *request->chunks.worker; }
};

/// Where a page that was fetched came from. What lies in memory is not looked at by who fetches it.
inline page_tier tier_of(const page_frame& x) {
  return x.promoted != 0 || x.code() != errc::ok ? page_tier::disk : page_tier::memory;
}

struct lmcache_server::retrieve_run {
  request_ptr request;
  instance_ptr of;
  std::size_t waiting = 0;
  bool failed = false;
  open_pages job;
  std::vector<errc> codes;
  /// Where the pages came from.
  std::vector<page_tier> tiers;
  /// Pages that have arrived in blocks, where the node copies.
  std::size_t arrived = 0;

  rank_number rank() const { return *request->chunks.worker; }
};

} // namespace troupe
