#include "actors/node/supervisor/directory_options.hpp"

namespace troupe {

handshake::directory_options options_of_directory(const config::handshake_config& x) {
  handshake::directory_options out;
  out.payload_bytes_max = x.max_payload_bytes;
  out.ranks_max = x.max_ranks;
  out.engines_max = x.max_engines;
  out.bytes_max = x.memory_bytes;
  out.waiting_max = x.max_waiting;
  out.watches_max = x.max_watches;
  out.wait_max = x.max_wait;
  out.ttl_default = x.ttl_default;
  out.ttl_max = x.ttl_max;
  out.remember = x.remember;
  out.watch_patience = x.watch_patience;
  out.update_bytes = x.update_bytes;
  return out;
}

} // namespace troupe
