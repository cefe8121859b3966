#include "fuzz/engine_metadata.hpp"

#include "connector/wire.hpp"
#include "fuzz/check.hpp"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace troupe::fuzz {

namespace {

using connector::encode;

template <class Decode>
int check_wire(std::span<const std::uint8_t> bytes, Decode decode) {
  const auto read = decode(bytes);
  if (!read) {
    demand(!read.error().text.empty() && read.error().code != errc::ok, "a refusal without a reason");
    return 0;
  }
  std::vector<std::uint8_t> again;
  encode(*read, again);
  demand(again.size() == bytes.size(), "something that changes its length when it is written again");
  const auto back = decode(std::span<const std::uint8_t>(again));
  demand(back.has_value() && *back == *read, "something that changes when it is written again");
  return 1;
}

int check_wires(std::span<const std::uint8_t> bytes) {
  return check_wire(bytes, connector::decode_metadata) + check_wire(bytes, connector::decode_outcomes);
}

} // namespace

int read_engine_metadata(std::string_view text) {
  // Exactly of the required length, so that a sanitizer detects a read beyond the end.
  const auto bytes = std::make_unique<std::uint8_t[]>(text.size());
  std::copy(text.begin(), text.end(), bytes.get());
  const auto as_it_is = check_wires({bytes.get(), text.size()});
  connector::seal_wire({bytes.get(), text.size()});
  return as_it_is + check_wires({bytes.get(), text.size()});
}

} // namespace troupe::fuzz
