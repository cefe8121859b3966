#pragma once

#include "base/namespace_spec.hpp"
#include "tests/cluster_actors/defect.hpp"
#include "tests/sim_main/asked_requests.hpp"
#include "tests/simulation/environment.hpp"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace troupe::cluster_actors {

class host;

/// The choices of a seed.
struct parameters {
  std::uint32_t hosts = 3;
  /// Whether the last one is of another cluster.
  bool stranger = false;
  /// Two hosts have the same name.
  bool same_names = false;
  /// The seeds of all configs are one name, instead of addresses.
  bool by_name = false;
  std::uint32_t ranks = 1;
  std::uint32_t shards = 1;
  std::vector<namespace_spec> namespaces;
  /// Of a staging buffer.
  std::uint32_t blocks = 4;
  std::uint32_t batch_keys = 16;
  std::uint32_t chunk_keys = 16;
  std::uint32_t chains = 3;
  std::uint32_t chain_length = 10;
  /// Whether frames stand in for blocks.
  bool redirects = true;
  bool keep_copies = true;
  duration hello_interval{};
  duration ask_time{};
  duration fetch_time{};
  duration task_deadline{};
  duration backoff_max{};
  duration network_delay{};
  duration page_time{};
  duration notice_max{};
  duration work_interval{};
  duration nemesis_interval{};

  static parameters of(simulation::random_source& random);
  std::string describe() const;
  std::size_t page_bytes() const { return namespaces[0].geometry.page_bytes(); }
};

/// What the hosts of a world share: time, the choices of the seed, and the network between them.
///
/// A message arrives after a delay of its own, unless the connection has been lost since. Both sides notice a loss
/// some time later. A host that is paused takes messages when it goes on.
class fabric {
public:
  fabric(std::uint64_t seed, defect built_in, bool verbose);
  ~fabric();

  bool has(defect which) const noexcept { return built_in_ == which; }
  timestamp now() const noexcept { return env.now(); }
  /// A delay of one message.
  duration delay() { return random.skewed_time(std::chrono::microseconds(20), p.network_delay); }

  /// Counts the connections between two hosts. A number is used for one connection.
  std::uint64_t connection(std::size_t a, std::size_t b) { return between(a, b).number; }
  bool is_blocked(std::size_t a, std::size_t b) { return between(a, b).blocked_until > now(); }
  /// Loses the connection with everything that is in transit.
  void cut(std::size_t a, std::size_t b);
  /// The same, and there is no other one for this time.
  void block(std::size_t a, std::size_t b, duration time);
  /// No message arrives for this time, and none is lost.
  void silence(std::size_t a, std::size_t b, duration time);
  void cut_all(std::size_t of);
  /// Ends all of these.
  void heal();
  /// Runs `what` at the other host when the message arrives. It must not refer to actors.
  void send(std::size_t from, std::size_t to, std::uint64_t connection, std::function<void(host&)> what);

  simulation::environment env;
  simulation::random_source random;
  const parameters p;
  /// What has reached a host from another one, by the number of that one and of its call.
  sim_main::asked_requests<std::pair<std::size_t, std::uint64_t>> requests{
      [this](const std::string& name) { env.count(name); }};
  std::vector<std::unique_ptr<host>> hosts;

private:
  struct line {
    std::uint64_t number = 1;
    timestamp blocked_until{};
    timestamp silent_until{};
  };
  line& between(std::size_t a, std::size_t b) { return lines_[std::minmax(a, b)]; }

  defect built_in_;
  std::map<std::pair<std::size_t, std::size_t>, line> lines_;
};

} // namespace troupe::cluster_actors
