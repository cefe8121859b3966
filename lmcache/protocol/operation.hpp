#pragma once

#include "lmcache/protocol/msgpack_reader.hpp"

#include <cstdint>
#include <optional>
#include <string_view>

namespace troupe::lmcache::protocol {

/// The operations of LMCache's multi-process mode. The older ones have a number in the protocol, and each has a name; a
/// client sends either.
enum class operation : std::uint8_t {
  register_kv_cache,
  unregister_kv_cache,
  register_q_cache,
  unregister_q_cache,
  store_q,
  store,
  retrieve,
  lookup,
  query_prefetch_status,
  wait_prefetch_status,
  free_lookup_locks,
  end_session,
  register_context,
  unregister_context,
  prepare_store,
  commit_store,
  prepare_retrieve,
  commit_retrieve,
  clear,
  get_chunk_size,
  negotiate_chunk_size,
  ping,
  report_block_allocation,
  noop,
  cb_register_rope,
  cb_unregister_rope,
  cb_retrieve_pre_computed,
  cb_unified_lookup,
  p2p_lookup_and_lock,
  p2p_query_lookup_results,
  p2p_unlock_objects,
  get_experimental,
  cb_protocol_handshake,
  cb_reorder_plan,
  subscribe_kv_events,
  server_module_call,
  server_module_affinity_call,
  /// None of these.
  unknown,
};

inline constexpr std::size_t operation_count = static_cast<std::size_t>(operation::unknown) + 1;

/// Whether a worker registers or unregisters by it.
constexpr bool changes_registration(operation x) noexcept {
  return x == operation::register_context || x == operation::register_kv_cache || x == operation::unregister_context ||
         x == operation::unregister_kv_cache;
}

/// The name in the protocol; for logs and metrics.
std::string_view to_string(operation x) noexcept;

/// Its number in the protocol, or -1 if it has none.
int number_of(operation x) noexcept;

/// Reads the frame with the operation: `unknown` for an unknown name or number, none if it is neither.
std::optional<operation> read_operation(byte_view frame) noexcept;

} // namespace troupe::lmcache::protocol
