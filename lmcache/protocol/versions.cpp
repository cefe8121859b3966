#include "lmcache/protocol/versions.hpp"

#include <algorithm>

namespace troupe::lmcache::protocol {

namespace {

/// The number of payloads of an operation in one version. `most` below `least`: the version has no such operation.
struct payload_range {
  std::uint8_t least = 0;
  std::uint8_t most = 0;
};

constexpr payload_range absent{1, 0};
/// The payloads of these are not read.
constexpr payload_range any{0, 255};

constexpr payload_range exactly(std::uint8_t count) noexcept {
  return {count, count};
}

struct operation_row {
  operation what = operation::unknown;
  /// In the order of `versions`.
  std::array<payload_range, versions.size()> payloads{};
};

/// The first of the two tables of differences. A range instead of a number is for clients before 0.5.6 that omit the
/// last payloads.
constexpr std::array<operation_row, operation_count> operation_rows{{
    {operation::register_kv_cache, {exactly(7), exactly(7)}},
    {operation::unregister_kv_cache, {exactly(1), exactly(1)}},
    {operation::register_q_cache, {any, any}},
    {operation::unregister_q_cache, {any, any}},
    {operation::store_q, {any, any}},
    {operation::store, {exactly(4), exactly(4)}},
    {operation::retrieve, {payload_range{4, 5}, exactly(5)}},
    {operation::lookup, {payload_range{1, 2}, exactly(2)}},
    {operation::query_prefetch_status, {exactly(1), exactly(1)}},
    {operation::wait_prefetch_status, {exactly(2), exactly(2)}},
    {operation::free_lookup_locks, {payload_range{1, 2}, exactly(3)}},
    {operation::end_session, {exactly(1), exactly(1)}},
    {operation::register_context, {exactly(1), exactly(1)}},
    {operation::unregister_context, {exactly(1), exactly(1)}},
    {operation::prepare_store, {exactly(2), exactly(3)}},
    {operation::commit_store, {exactly(3), exactly(3)}},
    {operation::prepare_retrieve, {exactly(2), exactly(2)}},
    {operation::commit_retrieve, {exactly(2), exactly(2)}},
    {operation::clear, {any, any}},
    {operation::get_chunk_size, {any, any}},
    {operation::negotiate_chunk_size, {absent, exactly(1)}},
    {operation::ping, {payload_range{0, 1}, exactly(1)}},
    {operation::report_block_allocation, {any, any}},
    {operation::noop, {any, any}},
    {operation::cb_register_rope, {any, any}},
    {operation::cb_unregister_rope, {any, any}},
    {operation::cb_retrieve_pre_computed, {any, any}},
    {operation::cb_unified_lookup, {any, any}},
    {operation::p2p_lookup_and_lock, {any, any}},
    {operation::p2p_query_lookup_results, {any, any}},
    {operation::p2p_unlock_objects, {any, any}},
    {operation::get_experimental, {any, any}},
    {operation::cb_protocol_handshake, {any, any}},
    {operation::cb_reorder_plan, {any, any}},
    {operation::subscribe_kv_events, {exactly(4), exactly(4)}},
    {operation::server_module_call, {any, any}},
    {operation::server_module_affinity_call, {absent, any}},
    {operation::unknown, {absent, absent}},
}};

struct field_row {
  versioned_field what = versioned_field::token_ids;
  std::string_view name;
  version_set with;
};

/// The second table.
constexpr std::array field_rows{
    field_row{versioned_field::token_ids, "token_ids", {version::v0_5_6}},
    field_row{versioned_field::token_bytes, "token_bytes", {version::v0_5_7}},
    field_row{versioned_field::group_layouts, "group_layouts", {version::v0_5_7}},
};

template <class Rows>
constexpr bool are_in_order(const Rows& rows) noexcept {
  for (std::size_t i = 0; i < rows.size(); ++i)
    if (static_cast<std::size_t>(rows[i].what) != i)
      return false;
  return true;
}

static_assert(are_in_order(operation_rows) && are_in_order(field_rows));

const operation_row& row_of(operation x) noexcept {
  return operation_rows[std::min(static_cast<std::size_t>(x), operation_count - 1)];
}

std::string count_text(payload_range x) {
  if (x.most < x.least)
    return "none";
  if (x.most == any.most)
    return "any";
  auto out = std::to_string(x.least);
  return x.least == x.most ? out : out + " to " + std::to_string(x.most);
}

} // namespace

std::string_view to_string(version x) noexcept {
  return x == version::v0_5_6 ? "0.5.6" : "0.5.7";
}

std::string to_string(version_set x) {
  std::string out;
  for (const auto each : versions)
    if (x.contains(each))
      out.append(out.empty() ? "" : " or ").append(to_string(each));
  return out.empty() ? "unknown" : out;
}

version_set versions_of(operation x, std::size_t payloads) noexcept {
  const auto& row = row_of(x);
  version_set out;
  for (std::size_t i = 0; i < versions.size(); ++i)
    if (payloads >= row.payloads[i].least && payloads <= row.payloads[i].most)
      out = out | version_set{versions[i]};
  return out;
}

std::string payload_counts(operation x) {
  const auto& row = row_of(x);
  std::string out;
  for (std::size_t i = 0; i < versions.size(); ++i)
    out.append(out.empty() ? "" : ", ")
        .append(count_text(row.payloads[i]))
        .append(" in ")
        .append(to_string(versions[i]));
  return out;
}

std::string_view name_of(versioned_field x) noexcept {
  return field_rows[static_cast<std::size_t>(x)].name;
}

version_set versions_of(versioned_field x) noexcept {
  return field_rows[static_cast<std::size_t>(x)].with;
}

} // namespace troupe::lmcache::protocol
