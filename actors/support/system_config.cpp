#include "actors/support/system_config.hpp"

#include "actors/support/random_identity.hpp"
#include "base/threads.hpp"
#include "messages/messages.hpp"

#include <caf/defaults.hpp>
#include <caf/io/all.hpp>

#include <thread>

namespace troupe {

namespace {

caf::timespan span(duration x) {
  return std::chrono::duration_cast<caf::timespan>(x);
}

/// The number of polls of an idle worker before it sleeps. On hosts with many cores a worker stays awake for about as
/// long as one page takes through all actors, since waking it costs as much as its work.
std::size_t polls(std::uint32_t wanted) {
  constexpr std::size_t about_200_us = 8000;
  constexpr std::size_t as_caf_does = 100;
  if (wanted > 0)
    return wanted;
  return std::thread::hardware_concurrency() >= 8 ? about_200_us : as_caf_does;
}

} // namespace

system_config::system_config(const config::caf_config& options) {
  register_messages(*this);
  load<random_identity>();
  if (options.scheduler_threads > 0)
    set("scheduler.max-threads", std::size_t{options.scheduler_threads});
  set("scheduler.policy", caf::atom_from_string(options.scheduler_policy));
  set("scheduler.max-throughput", std::size_t{options.max_throughput});
  set("work-stealing.aggressive-poll-attempts", polls(options.aggressive_poll_attempts));
  set("work-stealing.moderate-poll-attempts", std::size_t{options.moderate_poll_attempts});
  set("middleman.heartbeat-interval", span(options.heartbeat_interval));
  set("middleman.connection-timeout", span(options.connection_timeout));
}

result<void> system_config::check_room(std::size_t more_threads) const {
  // The clock, the printer of actors, the multiplexer of connections, and the actor that opens connections.
  constexpr std::size_t threads_beside_workers = 4;
  // The multiplexer with its pipe, and files about the host that are read at start.
  constexpr std::size_t descriptors = 6;
  const auto workers = caf::get_or(*this, "scheduler.max-threads", caf::defaults::scheduler::max_threads);
  if (auto enough = check_threads(workers + threads_beside_workers + more_threads, "the actor system"); !enough)
    return enough;
  return check_descriptors(descriptors, "the actor system");
}

} // namespace troupe
