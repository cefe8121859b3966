#pragma once

#include "actors/node/registry/registry_state.hpp"
#include "events/hub.hpp"
#include "tests/events_simulation/defect.hpp"
#include "tests/events_simulation/subscriber.hpp"
#include "tests/sim_main/asked_requests.hpp"
#include "tests/sim_main/sim_main.hpp"
#include "tests/simulation/random.hpp"

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

/// The shards of a node, the publisher of its events, and subscribers that connect, stall, lose batches and come back.
/// Engines save and describe pages; pages are evicted, erased, damaged, and move between memory and disk; the node
/// restarts. All of it in virtual time, from one seed. Whenever everything that is under way has arrived, each
/// subscriber knows exactly the pages that engines have described and that the shards have.

namespace troupe::events_simulation {

using sim_main::outcome;

class world {
public:
  world(std::uint64_t seed, std::uint64_t steps, defect built_in);

  outcome run();

private:
  using key_number = std::uint64_t;

  struct served_model {
    namespace_spec spec;
    namespace_id id;
    std::string topic;
    /// Those of the engine whose blocks lie in these pages.
    std::vector<described_group> groups;
    std::vector<std::shared_ptr<resident_slots>> resident;
    std::vector<slot_number> next_slot;
  };
  struct listener {
    subscriber state;
    bool connected = true;
    /// Batches that may wait for it.
    std::size_t room = 0;
    /// With `silent_drop`: how many numbers were left out, by topic.
    std::map<std::string, std::uint64_t> hidden{};
  };

  void start_node();
  void restart();
  void step();
  void save();
  void describe(std::size_t ns, std::vector<key_number> keys);
  void describe_some();
  void take_away();
  void change_tiers();
  void tick();
  /// Moves what a call has reported to the feed, and forgets in the ledger what is not complete any more.
  void report();
  void pass_to_hub();
  void publish();
  void use(listener& x);
  void send_requests(std::size_t which);
  void send_reply();
  void replayed(std::size_t which, const events::hub::reply& reply);
  /// Lets everything arrive, and compares.
  void settle();
  bool let_arrive();
  void compare();
  void broken(std::string property, std::string text);

  key_digest key_of(key_number n) const;
  std::uint64_t hash_of(std::size_t ns, key_number n) const;
  registry_state& shard_of_key(key_number n);
  bool in_memory(std::size_t ns, key_number n);
  std::string medium_of(std::size_t ns, key_number n);
  /// In how many of the page's groups a subscriber knows it.
  std::size_t known_groups(const subscriber& of, std::size_t ns, key_number n);
  void count(std::string_view what) { ++result_.counts.emplace(std::string(what), 0).first->second; }

  simulation::random_source random_;
  std::uint64_t steps_;
  defect defect_;
  outcome result_;

  timestamp now_ = timestamp{std::chrono::seconds(1000)};
  std::uint64_t first_number_ = 1000;
  std::uint64_t tickets_ = 0;
  std::size_t feed_bytes_;
  std::uint64_t details_max_;
  std::shared_ptr<events::counters> counts_ = std::make_shared<events::counters>();

  std::vector<served_model> models_;
  std::vector<std::unique_ptr<registry_state>> shards_;
  std::shared_ptr<page_residence> residence_;
  std::shared_ptr<events::feed> feed_;
  std::unique_ptr<events::hub> hub_;
  std::vector<listener> listeners_;
  /// Requests for missed batches, by subscriber.
  sim_main::asked_requests<std::size_t> requests_{[this](const std::string& name) { count(name); }};
  /// What engines have described, and the shards have.
  std::set<std::pair<std::size_t, key_number>> ledger_;
  bool overflowed_ = false;
};

} // namespace troupe::events_simulation
