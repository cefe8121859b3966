#pragma once

#include "lmcache/wire/versions.hpp"

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace troupe::lmcache::wire {

/// Which chunks of a sequence a request is about. Texts are those of the message: valid as long as its frames.
struct sequence_key {
  std::string_view model;
  std::uint32_t world_size = 0;
  /// None for what concerns all workers.
  std::optional<std::uint32_t> worker;
  std::uint32_t begin = 0;
  std::uint32_t end = 0;
  std::string_view request;
  std::string_view salt;
  /// How many workers will read each object; 0: the client did not say.
  std::uint32_t readers = 0;
  /// Those that write tokens in this way.
  version_set versions = version_set::all();
};

/// Longest text of a key that is looked at: models and requests have names, and salts have at most 128 bytes.
inline constexpr std::size_t text_max = 1024;
inline constexpr std::size_t salt_max = 128;

/// Reads a key and its tokens. False if it is not one: a field is missing or of another kind, chunks end before they
/// begin or behind the tokens, or the salt has a byte that salts have not. Fields that are not known are passed by.
bool read_key(byte_view frame, sequence_key& out, std::vector<std::uint32_t>& tokens);

/// Layers of a worker's KV cache that are alike, where it has several kinds of them.
struct group_layout {
  std::uint32_t layers = 0;
  std::uint32_t hidden = 0;
  std::string_view dtype;
  std::uint32_t block_tokens = 0;
  /// Tokens of a chunk that are stored; 0: all.
  std::uint32_t window_tokens = 0;
  /// 2: K and V apart, 1: one plane; 0: as the registration says.
  std::uint32_t planes = 0;
  /// Trailing chunks that a hit needs; 0: the whole prefix.
  std::uint32_t window_chunks = 0;
  /// Pages hold states of recurrent layers.
  bool recurrent = false;
};

inline constexpr std::uint32_t group_layouts_max = 64;

/// How a worker's KV cache is cut into chunks.
struct context_registration {
  std::int64_t instance = 0;
  std::string_view model;
  std::uint32_t world_size = 0;
  std::uint32_t block_tokens = 0;
  std::uint32_t layers = 0;
  std::uint32_t hidden = 0;
  std::string_view dtype;
  /// K and V are one plane.
  bool one_plane = false;
  /// Tokens of a chunk as they are stored; 0: the client did not say.
  std::uint32_t chunk_slots = 0;
  /// Empty where all layers are alike, as the fields above say. The order numbers the groups.
  std::vector<group_layout> groups;
  /// Those that have these fields.
  version_set versions = version_set::all();
};

bool read_registration(byte_view frame, context_registration& out);
/// Of one that cannot be read otherwise; nothing where that cannot be read either.
std::optional<std::int64_t> read_instance_of_registration(byte_view frame);

/// A frame that holds one value and nothing else; nothing where it does not.
std::optional<std::int64_t> read_integer(byte_view frame) noexcept;
std::optional<double> read_real(byte_view frame) noexcept;
std::optional<std::string_view> read_text(byte_view frame) noexcept;
/// Of a frame with nil: nothing inside.
std::optional<std::optional<std::int64_t>> read_integer_or_nil(byte_view frame) noexcept;

/// Chunks that a worker does not store: for each of its groups their positions, counted from the first of the request.
/// False if the frame holds anything else.
bool read_skipped_chunks(byte_view frame, std::vector<std::vector<std::uint32_t>>& out);

inline constexpr std::uint32_t ranges_max = 4096;

/// Ranges of tokens, each from its first to before its last. False if the frame holds anything else.
bool read_ranges(byte_view frame, std::vector<std::pair<std::uint32_t, std::uint32_t>>& out);

/// A place in the shared memory that a worker may copy one chunk to or from.
struct slot_place {
  std::uint64_t offset = 0;
  std::uint64_t length = 0;
};

/// The block of an engine that stands for one it does not have, as workers are told when they register.
inline constexpr std::uint32_t null_block = 0;

/// What every slot of a worker looks like.
struct slot_shape {
  std::vector<std::uint32_t> sizes;
  std::string dtype;
};

// -- answers: the third frame, which is left out for nil
// --------------------------------------------------------------------

std::string answer(bool x);
std::string answer(std::uint64_t x);
std::string answer_text(std::string_view x);
std::string answer_texts(std::span<const std::string_view> x);
/// (event handle, ok)
std::string answer_transfer(std::string_view event, bool ok);
std::string answer_registration(std::string_view shared_memory, std::uint64_t bytes);
/// Chunks are counted from the first one of the request.
std::string answer_prepared_store(std::span<const slot_place> slots, std::span<const std::uint32_t> chunks,
                                  const slot_shape& shape);
/// Nothing can be stored now.
std::string answer_no_store();
std::string answer_prepared_retrieve(std::span<const slot_place> slots, const slot_shape& shape);
std::string answer_no_retrieve();
/// That of `server_module_call`.
std::string answer_module_call(std::string_view why_not);

/// What a client is told that gets no more than no, in the way of the operation's type; nothing if its answer has no
/// third frame.
std::optional<std::string> refusal(operation x);

} // namespace troupe::lmcache::wire
