#include "actors/support/system_config.hpp"

#include "actors/support/random_identity.hpp"
#include "base/processors.hpp"
#include "base/threads.hpp"
#include "messages/messages.hpp"

#include <caf/defaults.hpp>
#include <caf/io/all.hpp>

namespace troupe {

namespace {

caf::timespan span(duration x) {
  return std::chrono::duration_cast<caf::timespan>(x);
}

/// CAF's own default counts the host's processors, also where a container may use two of them.
std::size_t workers(std::uint32_t wanted) {
  constexpr std::size_t fewest = 4;
  return wanted > 0 ? wanted : std::max<std::size_t>(usable_processors(), fewest);
}

/// The number of polls of an idle worker before it sleeps. On hosts with many cores a worker stays awake for about as
/// long as one page takes through all actors, since waking it costs as much as its work.
std::size_t polls(std::uint32_t wanted) {
  constexpr std::size_t about_200_us = 8000;
  constexpr std::size_t as_caf_does = 100;
  if (wanted > 0)
    return wanted;
  return usable_processors() >= 8 ? about_200_us : as_caf_does;
}

} // namespace

system_config::system_config(const config::caf_config& options) {
  register_messages(*this);
  load<random_identity>();
  set("scheduler.max-threads", workers(options.scheduler_threads));
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
  const auto scheduler = caf::get_or(*this, "scheduler.max-threads", caf::defaults::scheduler::max_threads);
  if (auto enough = check_threads(scheduler + threads_beside_workers + more_threads, "the actor system"); !enough)
    return enough;
  return check_descriptors(descriptors, "the actor system");
}

} // namespace troupe
