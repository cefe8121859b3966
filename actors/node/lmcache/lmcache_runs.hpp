#pragma once

#include "actors/node/lmcache/lmcache_server.hpp"

#include <cstddef>
#include <optional>
#include <utility>
#include <vector>

/// What stores and retrieves of LMCache's workers keep while they are under way, whoever copies.

namespace troupe {

inline errc code_of(const packed<std::uint8_t>& answers, std::size_t i) noexcept {
  return i < answers.size() && answers[i] < errc_count ? static_cast<errc>(answers[i]) : errc::internal;
}

/// A prepare_store, a commit_store or a store that is under way.
struct lmcache_server::store_run {
  request_ptr request;
  instance_ptr of;
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

struct lmcache_server::retrieve_run {
  request_ptr request;
  instance_ptr of;
  std::size_t waiting = 0;
  bool failed = false;
  open_pages job;
  std::vector<errc> codes;

  rank_number rank() const { return *request->chunks.worker; }
};

} // namespace troupe
