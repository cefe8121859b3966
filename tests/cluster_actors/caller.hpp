#pragma once

#include "tests/cluster_actors/host.hpp"
#include "tests/sim_main/asked_requests.hpp"
#include "tests/simulation/tap.hpp"

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace troupe::cluster_actors {

/// An engine beside a node: it saves pages there, and asks the node's `cluster` actor for those that are missing. Every
/// answer is judged.
class caller {
public:
  explicit caller(host& home);

  /// With each run of the node.
  void start();
  /// The process of the node ends, and all that it was asked with it.
  void forget();
  /// One thing, picked at random.
  void work();
  /// Has all keys of a chain fetched; true if all came.
  void fetch_chain(const namespace_id& ns, std::uint32_t chain, std::function<void(std::uint32_t)> then);
  void ask_for_stats(std::function<void(const cluster_stats&)> then);
  /// Requests whose time has passed; empty if there are none.
  std::string late() const;
  std::size_t waiting() const noexcept { return open_.size(); }

  static key_digest key(std::uint32_t chain, std::uint32_t position);
  void save(const namespace_id& ns, const std::vector<key_digest>& keys);

private:
  struct open_request {
    const char* what = "";
    timestamp begun{};
    timestamp due{};
    duration paused{};
  };

  template <class Reply>
  void ask(const char* what, duration limit, caf::message request, std::function<void(const result<Reply>&)> then);
  /// Ends and waits for nothing any more; another one takes its place.
  void leave();
  void fetch_prefix();
  void search();
  void on_search(const search_peers_request& wanted, const search_peers_reply& found, duration left);
  void judge_prefix(const namespace_id& ns, const std::vector<key_digest>& keys, std::uint32_t found, timestamp begun);
  const namespace_id& any_namespace();

  host& home_;
  fabric& world_;
  simulation::random_source random_;
  std::vector<namespace_id> namespaces_;
  caf::strong_actor_ptr asker_;
  std::map<std::uint64_t, open_request> open_;
  sim_main::asked_requests<std::uint64_t> waited_for_;
  std::uint64_t last_ = 0;
};

} // namespace troupe::cluster_actors
