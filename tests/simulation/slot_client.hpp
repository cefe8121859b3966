#pragma once

#include "tests/simulation/slot_line.hpp"
#include "tests/simulation/slot_traffic.hpp"

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <vector>

namespace troupe::simulation {

/// An engine that knows a page by key and slot number only: allocates, writes, confirms or returns, looks up and reads.
/// Repeats unanswered requests, and registers its ranks when the node does not know them. Keeps to the times that it
/// was promised, except for writers that fail: these continue for as long as slots are quarantined.
class slot_client {
public:
  slot_client(environment& world, slot_node& node, slot_traffic& traffic, const slot_parameters& p,
              std::uint32_t number);

  bool running() const noexcept { return running_; }
  void start();
  void kill();
  /// Starts as an engine whose files have another number of pages: clears, registers its ranks, and begins.
  void start_anew();
  /// Its connections break.
  void cut() noexcept { line_.cut(); }

  /// Saves this number of new keys one after the other, each of which has to get a slot within the limit.
  void fill(std::uint32_t count, duration limit, std::function<void()> done);
  /// Whether it is one of those.
  bool has_filled(const key_digest& key) const { return filled_.contains(key); }

private:
  using keys = std::vector<key_digest>;
  using codes = metadata_service::codes;
  using locations = metadata_service::locations;

  struct save {
    rank_number rank = 0;
    keys what;
    keys parents;
    /// No other engine requests these keys.
    bool own = false;
    timestamp first_sent;
    /// The node's, at that time.
    std::uint64_t life = 0;
    locations given;
    std::vector<page_ref> written;
    std::vector<slot_number> failed;
    /// Requests that have confirmed something of it, repeated ones included.
    std::size_t confirmations = 0;
    std::size_t left = 0;
    std::function<void()> done;
  };
  using save_ptr = std::shared_ptr<save>;

  /// Tries until it has saved that key.
  void fill_one(const save_ptr& s, timestamp until, std::function<void()> done);

  void after(duration time, std::function<void()> run);
  void next();
  keys make_path();
  key_digest new_key();
  void save_path();
  void save_own();
  void load_path();
  void erase_path();

  /// Asks, and again while there are tries and no answer.
  template <class T>
  void ask(const char* name, int tries, slot_node::call<T> what, std::function<void(std::optional<T>)> then);
  /// Registers one rank after the other, in a namespace that is made if it is not there yet, as the HTTP server does it
  /// for an engine that initialises.
  void initialise(rank_number rank, std::function<void()> then);
  void register_anew(rank_number rank);

  void allocate(const save_ptr& s, std::function<void(bool)> then);
  void write(const save_ptr& s);
  void write_late(const save_ptr& s, std::size_t i);
  void page_ended(const save_ptr& s, std::size_t i, bool well);
  void finish(const save_ptr& s);
  void confirm(const save_ptr& s, std::vector<page_ref> pages, std::function<void(std::optional<codes>)> then);
  void reclaim(rank_number rank, std::vector<slot_number> slots, std::function<void()> then);

  environment& world_;
  slot_node& node_;
  slot_traffic& traffic_;
  const slot_parameters& p_;
  random_source random_;
  slot_line line_;
  std::uint32_t number_;
  bool running_ = false;
  /// The life of the engine: tasks of an earlier life end without it.
  std::uint64_t life_ = 0;
  std::uint64_t own_keys_ = 0;
  std::set<key_digest> filled_;
};

} // namespace troupe::simulation
