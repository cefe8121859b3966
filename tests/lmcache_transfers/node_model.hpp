#pragma once

#include "base/clock.hpp"
#include "base/identifiers.hpp"
#include "messages/io_messages.hpp"
#include "messages/registry_messages.hpp"

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace troupe::lmcache_transfers {

/// The content of a page or a block: a number. No two have the same by chance.
using content = std::uint64_t;

/// A namespace of a node as far as transfers need it: an index with reservations and leases, frames with pins, and
/// pages in them. What it is
/// asked for is done at once.
class node_model {
public:
  static constexpr std::uint64_t frame_bytes = 4096;

  struct frame {
    content holds = 0;
    /// The header: the owner of the page, and its checksum.
    page_ref page{};
    content sum = 0;
    std::uint32_t pins = 0;
  };
  struct entry {
    slot_ref where;
    /// The owner of its reservation; none when it is stored.
    std::optional<ticket> reserved;
    timestamp until;
    /// Where the page lies, once it is filled.
    std::optional<std::size_t> at;
  };

  explicit node_model(std::size_t frames) : frames_(frames) {}

  match_reply match(const match_request& x);
  void release(const release_request& x);
  /// The keys that a lease holds, or all leases.
  std::set<key_digest> held(const ticket& lease) const;
  bool is_held(const key_digest& key) const;
  bool has(const key_digest& key) const;
  /// Evicts the page of a key. False if it is not stored, or leased, or pinned.
  bool evict(const key_digest& key);

  reserve_reply reserve(const reserve_request& x, timestamp now);
  finish_reply commit(const finish_request& x, timestamp now);
  void abort(const finish_request& x);
  locate_reply locate(const locate_request& x) const;
  void invalidate(const invalidate_request& x);
  frame_reply place(owner_id owner, const frame_request& x);
  frame_reply fetch(owner_id owner, const frame_request& x);
  io_reply fill(const fill_request& x);
  void unpin(pin_number x);

  /// Its reservations end.
  void leave(owner_id owner);
  /// It does not access frames any more.
  void rest(owner_id owner);
  /// A pin that its owner has not ended; the oldest one.
  void drop_oldest_pin();

  frame& at(std::uint64_t offset) { return frames_.at(offset / frame_bytes); }
  bool is_pinned(owner_id owner, std::uint64_t offset) const;
  std::size_t pins_of(owner_id owner) const;
  /// Damages the page of one of the keys. False if none is stored.
  bool damage(const key_digest& key);
  const std::map<key_digest, entry>& index() const noexcept { return index_; }

private:
  struct pin {
    owner_id owner = 0;
    std::vector<std::optional<std::size_t>> frames;
    std::vector<page_ref> pages;
    bool fills = false;
  };

  std::optional<std::size_t> free_frame() const;
  void end(std::map<pin_number, pin>::iterator x);

  std::vector<frame> frames_;
  std::map<key_digest, entry> index_;
  std::map<pin_number, pin> pins_;
  std::map<ticket, std::set<key_digest>> leases_;
  pin_number last_pin_ = 0;
  generation_number last_generation_ = 0;
};

} // namespace troupe::lmcache_transfers
