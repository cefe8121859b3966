#pragma once

#include "tests/simulation/foreign_traffic.hpp"

#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <vector>

namespace troupe::simulation {

/// An engine that knows a page by key and slot number only: allocates, writes, confirms or gives back, looks up and
/// reads. Repeats what is not answered. Keeps to the times that it was promised, except for writers that fail: these
/// go on for as long as slots rest.
class foreign_client {
public:
  foreign_client(environment& world, network& net, foreign_node& serving, foreign_traffic& traffic,
                 const foreign_parameters& p, process_number process);

  process_number process() const noexcept { return process_; }
  bool running() const noexcept { return net_.up(process_); }
  connection_id connection() const noexcept { return connection_; }
  void start();
  void kill();

  /// Saves so many new keys one after the other, each of which has to get a slot before the time is over.
  void fill(std::uint32_t count, duration limit, std::function<void()> done);
  /// Whether it is one of those.
  bool has_filled(const key_digest& key) const { return filled_.contains(key); }

private:
  using keys = std::vector<key_digest>;

  struct save {
    rank_number rank = 0;
    keys what;
    keys parents;
    /// Nobody else ever asks for these keys.
    bool own = false;
    timestamp first_sent;
    /// The node's, at that time.
    std::uint64_t life = 0;
    std::vector<location> given;
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

  address self() const { return {process_, role::engine, 0}; }
  void next();
  keys make_path();
  key_digest new_key();
  void save_path();
  void save_own();
  void load_path();
  void erase_path();

  /// Asks the shards of the keys, again while there are tries and no answer, and puts the answers together. `make` is
  /// called with the positions of the shard's part.
  template <class Reply, class Item>
  void ask(std::vector<std::vector<std::uint32_t>> parts, std::size_t items, int tries,
           std::function<void(std::uint32_t, const std::vector<std::uint32_t>&, promise<Reply>)> serve,
           std::function<void(result<std::vector<Item>>)> then);
  std::vector<std::vector<std::uint32_t>> by_shard(const keys& what) const;

  void allocate(const save_ptr& s, std::function<void(bool)> then);
  void write(const save_ptr& s);
  void write_late(const save_ptr& s, std::size_t i);
  void page_ended(const save_ptr& s, std::size_t i, bool well);
  void finish(const save_ptr& s);
  void confirm(const save_ptr& s, std::vector<page_ref> pages,
               std::function<void(const std::vector<std::uint8_t>&)> then);
  void reclaim(rank_number rank, std::vector<slot_number> slots, std::function<void()> then);

  environment& world_;
  network& net_;
  foreign_node& node_;
  foreign_traffic& traffic_;
  const foreign_parameters& p_;
  random_source random_;
  process_number process_;
  connection_id connection_ = local;
  /// Of the process: what an earlier one began ends without it.
  std::uint64_t life_ = 0;
  std::uint64_t own_keys_ = 0;
  std::set<key_digest> filled_;
};

} // namespace troupe::simulation
