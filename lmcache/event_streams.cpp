#include "lmcache/event_streams.hpp"

namespace troupe::lmcache {

bool event_streams::open(const request& x) {
  std::erase_if(streams_,
                [&](const auto& s) { return s.first.first == x->client && s.second.opened->instance == x->instance; });
  std::size_t of_client = 0;
  for (const auto& [key, s] : streams_)
    of_client += key.first == x->client ? 1 : 0;
  if (streams_.size() >= options_.streams_max || of_client >= options_.per_client_max)
    return false;
  streams_.insert_or_assign({x->client, x->number}, stream{x, x->events.cursor});
  return true;
}

void event_streams::confirmed(client_number client, const std::string& number) {
  if (const auto found = streams_.find({client, number}); found != streams_.end())
    found->second.waits = false;
}

void event_streams::cancelled(client_number client, const std::string& number) {
  streams_.erase({client, number});
}

void event_streams::client_disconnected(client_number client) {
  std::erase_if(streams_, [&](const auto& x) { return x.first.first == client; });
}

} // namespace troupe::lmcache
