#include "messages/caf_error.hpp"

namespace troupe {

error from_caf(const caf::error& e) {
  if (!e)
    return {errc::internal, "an error without a code"};
  if (e.category() == caf::atom("troupe")) {
    std::string text;
    const auto& context = e.context();
    if (context.match_elements<std::string>())
      text = context.get_as<std::string>(0);
    return {errc_from_wire(e.code()), std::move(text)};
  }
  if (e.category() == caf::atom("system")) {
    switch (static_cast<caf::sec>(e.code())) {
    case caf::sec::request_timeout:
      return {errc::timeout, "no answer in time"};
    case caf::sec::request_receiver_down:
    case caf::sec::no_route_to_receiving_node:
    case caf::sec::cannot_connect_to_node:
    case caf::sec::remote_lookup_failed:
      return {errc::unreachable, "the other actor is unreachable"};
    default:
      return {errc::internal, "actor system: " + to_string(static_cast<caf::sec>(e.code()))};
    }
  }
  if (e.category() == caf::atom("exit"))
    return {errc::unreachable, "the other actor has ended"};
  return {errc::internal, "an error of category " + to_string(e.category())};
}

} // namespace troupe
