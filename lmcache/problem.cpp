#include "lmcache/problem.hpp"

#include "lmcache/protocol/requests.hpp"

#include <algorithm>
#include <array>

namespace troupe::lmcache {

namespace {

using protocol::byte_view;
using protocol::msgpack_reader;
using protocol::operation;
using protocol::versioned_field;

constexpr std::array<std::string_view, problem_count> problem_names{"none", "envelope", "operation", "payload_count",
                                                                    "key",  "payload",  "groups"};

constexpr std::size_t shown_bytes_max = 64;
/// Limit of the fields of a map that are named.
constexpr std::size_t shown_fields_max = 24;

std::string quoted(std::string_view x) {
  std::string out = "'";
  for (const char c : x.substr(0, shown_bytes_max))
    out.push_back(c >= ' ' && c <= '~' ? c : '?');
  return out + (x.size() > shown_bytes_max ? "…'" : "'");
}

std::string fields_of(byte_view frame) {
  msgpack_reader in(frame);
  std::string out;
  auto left = in.map();
  for (std::size_t i = 0; left > 0 && in.ok() && i < shown_fields_max; --left, ++i) {
    const auto name = in.text();
    in.skip();
    if (in.ok())
      out.append(out.empty() ? "" : ", ").append(quoted(name));
  }
  return in.ok() ? out : std::string();
}

std::string versioned(versioned_field x) {
  return std::string(protocol::name_of(x)) + " (" + protocol::to_string(protocol::versions_of(x)) + ")";
}

std::string describe_key(std::string_view name, byte_view frame) {
  std::string of = "the key of " + std::string(name);
  const auto fields = fields_of(frame);
  if (fields.empty())
    return of + " is not a map of fields";
  protocol::sequence_key key;
  std::vector<std::uint32_t> tokens;
  if (protocol::read_key(frame, key, tokens))
    return of + " does not fit the operation: tokens " + std::to_string(key.begin) + " to " + std::to_string(key.end) +
           " of " + std::to_string(tokens.size()) + ", worker " +
           (key.worker ? std::to_string(*key.worker) : std::string("none")) + " of " + std::to_string(key.world_size);
  return of + " has fields or values that no version has; tokens are in " + versioned(versioned_field::token_ids) +
         " or " + versioned(versioned_field::token_bytes) + ", and its fields are " + fields;
}

std::string operation_text(byte_view frame, operation what) {
  if (what != operation::unknown)
    return std::string(protocol::to_string(what));
  msgpack_reader in(frame);
  const auto kind = in.next();
  if (kind == msgpack_reader::kind::text)
    return quoted(in.text());
  return kind == msgpack_reader::kind::integer ? std::to_string(in.integer()) : std::string("an invalid name");
}

} // namespace

std::string_view to_string(problem x) noexcept {
  return problem_names[std::min(static_cast<std::size_t>(x), problem_count - 1)];
}

std::string difference_of(problem what, std::span<const byte_view> frames) {
  if (what == problem::envelope || frames.size() < 2)
    return "a message of " + std::to_string(frames.size()) + " frames without a request number or an operation";
  const auto asked = protocol::read_operation(frames[1]).value_or(operation::unknown);
  const auto name = operation_text(frames[1], asked);
  const auto payloads = frames.subspan(2);
  switch (what) {
  case problem::operation:
    return "an operation " + name + " is in no version";
  case problem::payload_count:
    return name + " with " + std::to_string(payloads.size()) + " payloads; valid are " +
           protocol::payload_counts(asked);
  case problem::key:
    return describe_key(name, payloads.empty() ? byte_view{} : payloads[0]);
  case problem::groups:
    return name +
           " for several groups of KV caches, between which this node does not copy: with lmcache.mp.mp_transfer_mode "
           "\"engine_driven\" workers copy themselves";
  default:
    return name + " with a payload that no version has" +
           (payloads.size() == 1 && !fields_of(payloads[0]).empty() ? "; its fields are " + fields_of(payloads[0])
                                                                    : std::string());
  }
}

} // namespace troupe::lmcache
