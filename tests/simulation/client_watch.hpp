#pragma once

#include "actors/client/transfer/coordinator_core.hpp"
#include "base/clock.hpp"
#include "base/identifiers.hpp"
#include "messages/io_messages.hpp"
#include "messages/registry_messages.hpp"

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace troupe::simulation {

/// What a client's coordinators say to a node, held against what they have heard and been told to do. Each function
/// that returns a text says what is wrong, or nothing. All is forgotten when a coordinator is bound anew.

/// Loads: whoever reads holds a lease, for as long as the load may take.
class load_watch {
public:
  void clear();
  /// Tells replies of before `clear` from those of now.
  std::uint64_t epoch() const noexcept { return epoch_; }

  void begins(const ticket& token, timestamp deadline) { deadlines_.emplace(token, deadline); }
  std::string locates(const locate_request& x, duration lease_max, timestamp now) const;
  void located(std::uint32_t shard, const locate_request& x, const locate_reply& reply);
  void reads(const io_batch& batch);
  void has_read(std::uint64_t epoch, const io_batch& batch);
  std::string releases(std::uint32_t shard, const ticket& token);
  /// A token under which a slot of the batch was told.
  std::optional<std::pair<std::uint32_t, ticket>> holder_of(const io_batch& batch) const;

private:
  std::uint64_t epoch_ = 0;
  std::map<ticket, timestamp> deadlines_;
  /// Per lease, that is per shard and token: how often each slot was told under it.
  std::map<std::pair<ticket, std::uint32_t>, std::map<slot_ref, int>> told_;
  std::map<slot_ref, int> reading_;
};

/// Saves: what was answered is over.
class save_watch {
public:
  void clear() { tasks_.clear(), answered_.clear(); }
  void begins(const ticket& token, transfer::task_id task) { tasks_.emplace(token, task); }
  void answers(transfer::task_id task) { answered_.insert(task); }
  bool is_answered(const ticket& token) const;
  std::string commits(const ticket& token) const;

private:
  std::map<ticket, transfer::task_id> tasks_;
  std::set<transfer::task_id> answered_;
};

/// Lookups: nothing stays leased but what the answer says.
class lookup_watch {
public:
  void clear() { lookups_.clear(), names_.clear(); }
  void begins(std::uint64_t id, const ticket& lease, std::vector<key_digest> path);
  void answered(std::uint32_t shard, const match_request& x, std::uint32_t matched);
  void releases(std::uint32_t shard, const release_request& x);
  /// `matched` is 0 for a lookup that has failed.
  std::string ends(std::uint64_t id, std::uint32_t matched);

private:
  struct part {
    std::vector<key_digest> leased;
    std::optional<std::uint32_t> kept;
  };
  struct lookup {
    std::vector<key_digest> path;
    std::map<std::uint32_t, part> parts;
  };

  std::map<ticket, lookup> lookups_;
  std::map<std::uint64_t, ticket> names_;
};

} // namespace troupe::simulation
