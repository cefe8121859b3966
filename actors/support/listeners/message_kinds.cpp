#include "actors/support/listeners/message_kinds.hpp"

#include "messages/messages.hpp"

#include <caf/all.hpp>

#include <cstddef>
#include <cstdint>
#include <set>

namespace troupe {

namespace {

/// A message as CAF serializes it; empty if that fails.
std::string bytes_of(caf::actor_system& system, const caf::message& x) {
  std::vector<char> out;
  caf::binary_serializer sink(system, out);
  std::vector<caf::strong_actor_ptr> no_stages;
  caf::message content = x;
  if (sink(no_stages, content))
    return {};
  return {out.begin(), out.end()};
}

/// The first bytes of a message with these types, up to the end of their names.
std::string beginning_of(caf::actor_system& system, const caf::message& x) {
  const auto bytes = bytes_of(system, x);
  // The bytes are: no stages, no type number, then a string: its length, 7 bits per byte, and its characters.
  std::size_t at = 3;
  std::size_t length = 0;
  for (unsigned shift = 0; at < bytes.size(); shift += 7) {
    const auto byte = static_cast<unsigned char>(bytes[at++]);
    length |= std::size_t{byte & 0x7fU} << shift;
    if ((byte & 0x80U) == 0) // the high bit marks that another length byte follows
      break;
  }
  return bytes.substr(0, at + length);
}

template <class... Inputs, class Outputs>
caf::message example_of(caf::typed_mpi<caf::detail::type_list<Inputs...>, Outputs>) {
  return caf::make_message(Inputs{}...);
}

template <class... Signatures>
void add_kinds(caf::actor_system& system, std::set<std::string>& to, caf::detail::type_list<Signatures...>) {
  (to.insert(beginning_of(system, example_of(Signatures{}))), ...);
}

/// Derived from the interfaces, so that a message that is added there passes.
template <class... Handles>
std::vector<std::string> kinds_of(caf::actor_system& system) {
  std::set<std::string> out;
  (add_kinds(system, out, typename Handles::signatures{}), ...);
  return {out.begin(), out.end()};
}

} // namespace

std::vector<std::string> kinds_of_client_messages(caf::actor_system& system) {
  return kinds_of<reception_actor, client_shard_actor, client_worker_actor, client_cluster_actor,
                  handshake_proxy_actor>(system);
}

} // namespace troupe
