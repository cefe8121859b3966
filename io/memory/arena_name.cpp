#include "io/memory/arena_name.hpp"

#include <string>
#include <utility>

namespace troupe::io {

namespace {

constexpr std::size_t number_bytes = 4;

void append(shared_memory_name& out, std::int32_t number) {
  const auto bits = static_cast<std::uint32_t>(number);
  for (std::size_t i = 0; i < number_bytes; ++i)
    out.push_back(static_cast<std::uint8_t>(bits >> (8 * i)));
}

std::int32_t number_at(std::span<const std::uint8_t> text, std::size_t at) {
  std::uint32_t bits = 0;
  for (std::size_t i = 0; i < number_bytes; ++i)
    bits |= std::uint32_t{text[at + i]} << (8 * i);
  return static_cast<std::int32_t>(bits);
}

} // namespace

shared_memory_name encode(const arena_name& x) {
  shared_memory_name out;
  for (const auto number : {x.process, x.descriptor, x.proof_descriptor})
    append(out, number);
  out.insert(out.end(), x.proof.begin(), x.proof.end());
  return out;
}

result<arena_name> decode_arena_name(std::span<const std::uint8_t> text) {
  if (text.size() < 3 * number_bytes)
    return fail(errc::invalid_argument, "the name of an arena has " + std::to_string(text.size()) +
                                            " bytes; it names a process and two descriptors in 12: is the node of "
                                            "this version?");
  const auto proof = text.subspan(3 * number_bytes);
  return arena_name{number_at(text, 0),
                    number_at(text, number_bytes),
                    number_at(text, 2 * number_bytes),
                    {proof.begin(), proof.end()}};
}

result<std::shared_ptr<shared_memory>> arena_finder::find(std::uint64_t bytes, std::span<const std::uint8_t> name) {
  const auto where = decode_arena_name(name);
  if (!where)
    return tl::unexpected(where.error());
  auto mapped = handed_ ? handed_->map(*where, bytes) : arena::map(*where, bytes);
  if (!mapped)
    return tl::unexpected(std::move(mapped.error()));
  return std::shared_ptr<shared_memory>(std::move(*mapped));
}

} // namespace troupe::io
