#include "io/segment_buffers.hpp"

#include <string>
#include <unistd.h>
#include <utility>

namespace troupe::io {

namespace {

constexpr std::size_t number_bytes = 4;

void append(page_buffers_name& out, std::int32_t number) {
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

page_buffers_name encode(const segment_name& x) {
  page_buffers_name out;
  append(out, x.process);
  append(out, x.descriptor);
  out.insert(out.end(), x.proof.begin(), x.proof.end());
  return out;
}

result<segment_name> decode_segment_name(std::span<const std::uint8_t> text) {
  if (text.size() < 2 * number_bytes)
    return fail(errc::invalid_argument, "the name of a segment has " + std::to_string(text.size()) +
                                            " bytes; it names a process and a descriptor in 8: is the node of this "
                                            "version?");
  const auto proof = text.subspan(2 * number_bytes);
  return segment_name{number_at(text, 0), number_at(text, number_bytes), {proof.begin(), proof.end()}};
}

result<page_buffer_source::loan> segment_source::lend(std::uint64_t bytes, std::int32_t memory_node) {
  auto made = segment::create(bytes, memory_node);
  if (!made)
    return tl::unexpected(std::move(made.error()));
  const auto at_store = store_.add_buffer((*made)->bytes());
  if (!at_store)
    return tl::unexpected(at_store.error());
  auto name = encode({::getpid(), (*made)->descriptor(), (*made)->proof()});
  return loan{std::move(*made), *at_store, std::move(name)};
}

void segment_source::take_back(loan what) {
  store_.remove_buffer(what.at_store);
}

result<std::shared_ptr<page_buffers>> segment_finder::find(std::uint64_t bytes, std::span<const std::uint8_t> name) {
  const auto where = decode_segment_name(name);
  if (!where)
    return tl::unexpected(where.error());
  auto mapped = segment::map(where->process, where->descriptor, bytes, where->proof);
  if (!mapped)
    return tl::unexpected(std::move(mapped.error()));
  return std::shared_ptr<page_buffers>(std::move(*mapped));
}

} // namespace troupe::io
