#include "workload/replay/fixed_sequence.hpp"
#include "workload/replay/numbers.hpp"
#include "workload/replay/trace.hpp"

#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <array>
#include <utility>

namespace troupe::replay {

namespace {

constexpr std::string_view form = "loogle:GROUPS,PREFIX_TOKENS,QUERIES,QUERY_TOKENS (any trailing part may be left "
                                  "out; default loogle:100,20480,20,128)";

/// The upper limit of every number in a spec.
constexpr std::uint64_t number_max = std::uint64_t{1} << 32;

constexpr std::uint64_t blocks_max = std::uint64_t{1} << 28;

constexpr std::size_t groups_in_use = 16;

struct open_group {
  std::uint64_t group;
  std::uint64_t asked;
};

} // namespace

result<loogle_spec> parse_loogle(std::string_view text) {
  loogle_spec spec;
  const std::array<std::uint64_t*, 4> fields{&spec.groups, &spec.prefix_tokens, &spec.queries, &spec.query_tokens};
  if (auto bad = parse_numbers(text, "loogle", form, fields, number_max))
    return tl::unexpected<error>(std::move(*bad));
  if (spec.groups == 0 || spec.queries == 0)
    return fail(errc::invalid_argument,
                fmt::format("{}: there must be at least 1 group and 1 query; the form is {}", text, form));
  return spec;
}

result<std::vector<trace_request>> make_loogle(const loogle_spec& spec, std::uint32_t block_tokens,
                                               std::optional<std::size_t> limit) {
  if (block_tokens == 0)
    return fail(errc::invalid_argument, "a trace cannot be generated for blocks of 0 tokens");
  const auto tokens = spec.prefix_tokens + spec.query_tokens;
  const auto shared = spec.prefix_tokens / block_tokens;
  const auto blocks = tokens / block_tokens;
  if (blocks == 0)
    return fail(errc::invalid_argument,
                fmt::format("a request of {} tokens has no full block of {} tokens", tokens, block_tokens));
  // Each factor is checked before the product, which could wrap; with fewer than 2^28 requests no id wraps either.
  const auto all = std::max(spec.groups, spec.queries) > blocks_max ? blocks_max + 1 : spec.groups * spec.queries;
  const auto count = limit ? std::min<std::uint64_t>(*limit, all) : all;
  if (all > blocks_max || count > blocks_max / blocks)
    return fail(errc::limit_exceeded,
                fmt::format("{} requests of {} blocks exceed the limit of this generator ({} blocks in all)", count,
                            blocks, blocks_max));
  // Ids are consecutive: first the prefixes of all groups, then the requests' own blocks.
  const auto own = blocks - shared;
  std::vector<trace_request> requests;
  requests.reserve(count);
  std::vector<open_group> in_use;
  std::uint64_t next_group = 0;
  fixed_sequence sequence;
  while (requests.size() < count) {
    while (in_use.size() < groups_in_use && next_group < spec.groups)
      in_use.push_back({next_group++, 0});
    const auto chosen = sequence.below(in_use.size());
    auto& [group, asked] = in_use[chosen];
    auto& request = requests.emplace_back();
    request.timestamp_ms = requests.size() - 1;
    request.input_length = tokens;
    request.hash_ids.reserve(blocks);
    for (std::uint64_t i = 0; i < shared; ++i)
      request.hash_ids.push_back(group * shared + i);
    for (std::uint64_t i = 0; i < own; ++i)
      request.hash_ids.push_back(spec.groups * shared + (group * spec.queries + asked) * own + i);
    if (++asked == spec.queries)
      in_use.erase(in_use.begin() + static_cast<std::ptrdiff_t>(chosen));
  }
  return requests;
}

} // namespace troupe::replay
