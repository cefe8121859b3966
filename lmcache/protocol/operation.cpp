#include "lmcache/protocol/operation.hpp"

#include <array>

namespace troupe::lmcache::protocol {

namespace {

struct operation_entry {
  std::string_view name;
  int number = -1;
};

/// In the order of the enumeration. The numbers are frozen: later operations have a name only.
constexpr std::array<operation_entry, operation_count> operations{{
    {"register_kv_cache", 1},
    {"unregister_kv_cache", 2},
    {"register_q_cache", 3},
    {"unregister_q_cache", 4},
    {"store_q", 5},
    {"store", 6},
    {"retrieve", 7},
    {"lookup", 8},
    {"query_prefetch_status", 9},
    {"wait_prefetch_status", 10},
    {"free_lookup_locks", 12},
    {"end_session", 13},
    {"register_kv_cache_engine_driven_context", 14},
    {"unregister_kv_cache_engine_driven_context", 15},
    {"prepare_store", 16},
    {"commit_store", 17},
    {"prepare_retrieve", 18},
    {"commit_retrieve", 19},
    {"clear", 20},
    {"get_chunk_size", 21},
    {"negotiate_chunk_size", -1},
    {"ping", 22},
    {"report_block_allocation", 23},
    {"noop", 24},
    {"cb_register_rope", 25},
    {"cb_unregister_rope", 26},
    {"cb_retrieve_pre_computed", 27},
    {"cb_unified_lookup", 28},
    {"p2p_lookup_and_lock", 29},
    {"p2p_query_lookup_results", 30},
    {"p2p_unlock_objects", 31},
    {"get_experimental", 32},
    {"cb_protocol_handshake", 33},
    {"cb_reorder_plan", -1},
    {"subscribe_kv_events", -1},
    {"server_module_call", -1},
    {"server_module_affinity_call", -1},
    {"unknown", -1},
}};

} // namespace

std::string_view to_string(operation x) noexcept {
  const auto i = static_cast<std::size_t>(x);
  return i < operations.size() ? operations[i].name : operations.back().name;
}

int number_of(operation x) noexcept {
  const auto i = static_cast<std::size_t>(x);
  return i < operations.size() ? operations[i].number : -1;
}

std::optional<operation> read_operation(byte_view frame) noexcept {
  msgpack_reader in(frame);
  const auto kind = in.next();
  std::int64_t number = -1;
  std::string_view name;
  if (kind == msgpack_reader::kind::integer)
    number = in.integer();
  else if (kind == msgpack_reader::kind::text)
    name = in.text();
  else
    return std::nullopt;
  if (!in.done())
    return std::nullopt;
  for (std::size_t i = 0; i + 1 < operations.size(); ++i)
    if (name.empty() ? number >= 0 && operations[i].number == number : operations[i].name == name)
      return static_cast<operation>(i);
  return operation::unknown;
}

} // namespace troupe::lmcache::protocol
