#include "actors/support/system_config.hpp"

#include "messages/messages.hpp"

#include <caf/io/all.hpp>

namespace troupe {

namespace {

caf::timespan span(duration x) {
  return std::chrono::duration_cast<caf::timespan>(x);
}

} // namespace

system_config::system_config(const config::caf_config& options) {
  register_messages(*this);
  load<caf::io::middleman>();
  if (options.scheduler_threads > 0)
    set("scheduler.max-threads", std::size_t{options.scheduler_threads});
  set("scheduler.policy", caf::atom_from_string(options.scheduler_policy));
  set("scheduler.max-throughput", std::size_t{options.max_throughput});
  set("work-stealing.moderate-poll-attempts", std::size_t{options.moderate_poll_attempts});
  set("middleman.heartbeat-interval", span(options.heartbeat_interval));
  set("middleman.connection-timeout", span(options.connection_timeout));
}

} // namespace troupe
