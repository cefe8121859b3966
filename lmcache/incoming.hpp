#pragma once

#include "lmcache/chunk_keys.hpp"
#include "lmcache/context.hpp"
#include "lmcache/open_context.hpp"
#include "lmcache/problem.hpp"
#include "lmcache/protocol/event_batches.hpp"
#include "lmcache/session_table.hpp"

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace troupe::lmcache {

/// The chunks of a sequence in a request.
struct chunk_range {
  std::string model;
  std::uint32_t world_size = 0;
  std::optional<std::uint32_t> worker;
  std::string request;
  std::uint32_t readers = 0;
  /// The first chunk, and the one after the last; an incomplete chunk at the end does not count.
  std::uint32_t begin = 0;
  std::uint32_t end = 0;
  /// Both ends were on chunk boundaries.
  bool aligned = false;
  /// For lookups: the whole chunks that the engine has in its own cache; none if the client did not say.
  std::optional<std::uint32_t> engine_chunks{};
  /// Keys of all chunks up to `end`.
  std::vector<key_digest> keys;
  /// The tokens of the chunks from `begin` on, where they are kept: for events about chunks without a salt, which
  /// events do not name.
  std::vector<std::uint32_t> tokens;
};

/// A received request, reduced to what is needed for its execution and its answer.
struct incoming {
  client_number client = 0;
  /// To be repeated in the answer, byte for byte.
  std::string number;
  std::string operation_frame;
  protocol::operation what = protocol::operation::unknown;
  /// It is answered with a rejection: `why` is not `none`.
  bool malformed = false;
  problem why = problem::none;
  /// The versions in which the message has this form; none if it is malformed.
  protocol::version_set versions = protocol::version_set::all();

  chunk_range chunks;
  std::optional<std::int64_t> instance;
  /// For `register_context`: the context, or why it is rejected.
  result<context> registration;
  /// For registrations of memory that the node copies to and from: the context, or why it is rejected.
  result<open_context> opened;
  /// For `prepare_store` of a worker with several groups: the chunks of each group that it does not have, counted from
  /// the first of the request; empty if it has all.
  std::vector<std::vector<std::uint32_t>> skipped;
  /// For `store` and `retrieve`: the engine's blocks, in the order of the chunks; the event before the copy; tokens
  /// that are not to be written.
  std::vector<std::uint32_t> blocks;
  std::string event;
  std::uint32_t skip_tokens = 0;
  /// For `negotiate_chunk_size`: the number of tokens of a chunk must be a multiple of this.
  std::uint32_t alignment = 0;
  /// For `commit_store`: it carries tensors, since the worker has not found the shared memory. The assigned slots were
  /// not written.
  bool carries_tensors = false;
  /// For `subscribe_kv_events`: the model, the change up to which the client knows, and the most changes of a batch. Or
  /// a message about a subscription, which is not answered.
  struct event_request {
    std::string model;
    std::uint64_t cursor = 0;
    std::uint32_t most = 0;
    protocol::stream_control control = protocol::stream_control::none;
  };
  event_request events;
  /// For status requests and `end_session`.
  std::string request;
  duration patience{};
  /// For registrations: the process of the peer, 0 if it is not known.
  std::int32_t process = 0;
  /// Estimated memory until it is answered.
  std::uint64_t bytes = 0;
};

/// Parses a message without the frame that names its client. None if no answer is possible: number or operation are
/// missing. All defects of the message are found here: a request that is not `malformed` has all that its operation
/// needs, and the number of payloads of some version. `keeps_tokens`: those of chunks that are stored.
std::optional<incoming> read_message(std::span<const protocol::byte_view> frames, std::uint32_t chunk_tokens,
                                     bool keeps_tokens = false);

} // namespace troupe::lmcache
