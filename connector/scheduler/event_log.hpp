#pragma once

#include "base/error.hpp"
#include "base/identifiers.hpp"
#include "connector/types.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace troupe::connector {

/// Keeps what a scheduler half learns about the content of the cache until the engine takes it, in the order in which
/// it was learned: from saves, from lookups and from loads that failed. Where too much would be kept, everything is
/// replaced by one `all_cleared`, after which pages count as absent until an event says otherwise.
class event_log {
public:
  struct options {
    event_detail detail = event_detail::changes;
    /// Tokens of one key.
    std::uint32_t page_tokens = 0;
    /// The group of a model with several whose events stand for all with `event_detail::changes`.
    std::uint32_t lead_group = 0;
    std::size_t events_max = 65536;
    /// Keys in all events.
    std::size_t keys_max = std::size_t{1} << 20U;
  };

  /// The request that an event comes from, and a group of its layers.
  struct source {
    std::string_view request;
    std::span<const key_digest> keys;
    std::uint32_t group = 0;
  };

  explicit event_log(const options& how) : options_(how) {}

  bool wants_all() const noexcept { return options_.detail == event_detail::all; }

  /// A save of pages begins; `pages` are in order, maybe with gaps.
  void saving(const source& of, store_id save, std::span<const std::uint32_t> pages);
  /// It has ended, and `done` has a mark for each page. Needs no keys with `event_detail::all` and no request: what
  /// `saving` has named may have ended.
  void saved(const source& of, store_id save, std::span<const std::uint32_t> pages, std::span<const std::uint8_t> done);
  /// These pages could not be loaded.
  void not_loaded(const source& of, std::span<const std::uint32_t> pages);
  /// The answer to a lookup of pages from `first` on: a mark for each page that is in the cache, and for each that is
  /// on disk only, as far as that is known.
  void looked_up(const source& of, std::uint32_t first, std::span<const std::uint8_t> found,
                 std::span<const std::uint8_t> on_disk);
  /// A lookup has failed. Without a node nothing can be loaded.
  void lookup_failed(errc why);
  /// The lease of a group's lookup says to which attachment its answer belongs: after another one the node may have
  /// lost anything.
  void leased(std::uint32_t group, const ticket& lease);
  /// The engine does not find anything any more.
  void clear();

  std::vector<cache_event> take();

private:
  void add(cache_event::kind what, const source& of, store_id save, std::span<const std::uint32_t> pages);
  void push(cache_event event);
  bool leaves_out(std::uint32_t group) const noexcept;

  options options_;
  std::vector<cache_event> events_;
  std::size_t keys_ = 0;
  /// Whether there was an event since the last `all_cleared`.
  bool said_ = false;
  /// The owner of the last lease of each group.
  std::vector<owner_id> owners_;
};

} // namespace troupe::connector
