#pragma once

#include "lmcache/chunk_keys.hpp"
#include "lmcache/context.hpp"
#include "lmcache/open_context.hpp"
#include "lmcache/problem.hpp"
#include "lmcache/session_table.hpp"

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace troupe::lmcache {

/// Chunks of a sequence that a request is about.
struct chunk_range {
  std::string model;
  std::uint32_t world_size = 0;
  std::optional<std::uint32_t> worker;
  std::string request;
  std::uint32_t readers = 0;
  /// The first chunk that is meant, and the one behind the last; parts of a chunk do not count at the end.
  std::uint32_t begin = 0;
  std::uint32_t end = 0;
  /// Both were whole chunks.
  bool aligned = false;
  /// Of all chunks up to `end`.
  std::vector<key_digest> keys;
};

/// A request as it came in, with nothing of the message left in it but what the answer has to repeat.
struct incoming {
  client_number client = 0;
  /// To be repeated, byte for byte.
  std::string number;
  std::string operation_frame;
  wire::operation what = wire::operation::unknown;
  /// It is answered with a refusal: `why` is not `none`.
  bool malformed = false;
  problem why = problem::none;
  /// Those in which the message can be written like this; none where it is malformed.
  wire::version_set versions = wire::version_set::all();

  chunk_range chunks;
  std::optional<std::int64_t> instance;
  /// Why not, where it is refused.
  result<context> registration;
  /// Of registrations of memory that the node is to copy to and from: why not, where it is refused.
  result<open_context> opened;
  /// Of `store` and `retrieve`: the engine's blocks, in the order of the chunks; the event in front of the copy; tokens
  /// that are not to be written.
  std::vector<std::uint32_t> blocks;
  std::string event;
  std::uint32_t skip_tokens = 0;
  /// Of `negotiate_chunk_size`: what the number of tokens of a chunk has to be a multiple of.
  std::uint32_t alignment = 0;
  /// Of `commit_store`: it carries tensors, since the worker has not found the shared memory. Nobody has written into
  /// the slots that it was given.
  bool carries_tensors = false;
  /// Of status requests and `end_session`.
  std::string request;
  duration patience{};
  /// The process at the other end of a registration, 0 if that is not known.
  std::int32_t process = 0;
  /// What it takes of memory until it is answered, about.
  std::uint64_t bytes = 0;
};

/// Reads a message without the frame that names its client. Nothing if there is nothing to answer: not even a number
/// and an operation. Everything that the message may lack is found here: what is not `malformed` has what its operation
/// needs, and as many payloads as a version has.
std::optional<incoming> read_message(std::span<const wire::byte_view> frames, std::uint32_t chunk_tokens);

} // namespace troupe::lmcache
