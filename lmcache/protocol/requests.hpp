#pragma once

#include "lmcache/protocol/versions.hpp"

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace troupe::lmcache::protocol {

/// The chunks of a sequence in a request. Texts are views of the message: valid as long as its frames.
struct sequence_key {
  std::string_view model;
  std::uint32_t world_size = 0;
  /// None for requests of all workers.
  std::optional<std::uint32_t> worker;
  std::uint32_t begin = 0;
  std::uint32_t end = 0;
  std::string_view request;
  std::string_view salt;
  /// The number of workers that will read each object; 0: the client did not say.
  std::uint32_t readers = 0;
  /// For lookups: the tokens that the engine has in its own cache; none if the client did not say.
  std::optional<std::uint32_t> engine_tokens{};
  /// The versions that write tokens in this way.
  version_set versions = version_set::all();
};

/// Longest accepted text of a key: models and requests have names, and salts have at most 128 bytes.
inline constexpr std::size_t text_max = 1024;
inline constexpr std::size_t salt_max = 128;

/// Reads a key and its tokens. False if it is invalid: a field is missing or of another kind, chunks end before they
/// begin or after the tokens, or the salt has a byte that salts cannot have. Unknown fields are skipped.
bool read_key(byte_view frame, sequence_key& out, std::vector<std::uint32_t>& tokens);

/// Layers of a worker's KV cache of one kind, if it has several.
struct group_layout {
  std::uint32_t layers = 0;
  std::uint32_t hidden = 0;
  std::string_view dtype;
  std::uint32_t block_tokens = 0;
  /// Tokens of a chunk that are stored; 0: all.
  std::uint32_t window_tokens = 0;
  /// 2: K and V separate, 1: one plane; 0: as in the registration.
  std::uint32_t planes = 0;
  /// Trailing chunks that a hit needs; 0: the whole prefix.
  std::uint32_t window_chunks = 0;
  /// Pages contain states of recurrent layers.
  bool recurrent = false;
};

inline constexpr std::uint32_t group_layouts_max = 64;

/// The shape of the chunks of a worker's KV cache.
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
  /// Empty if all layers are alike, as in the fields above. The order numbers the groups.
  std::vector<group_layout> groups;
  /// The versions with these fields.
  version_set versions = version_set::all();
};

bool read_registration(byte_view frame, context_registration& out);
/// The instance of a registration that cannot be read otherwise; none if it cannot be read either.
std::optional<std::int64_t> read_instance_of_registration(byte_view frame);

/// A frame with a single value; none for any other.
std::optional<std::int64_t> read_integer(byte_view frame) noexcept;
std::optional<double> read_real(byte_view frame) noexcept;
std::optional<std::string_view> read_text(byte_view frame) noexcept;
/// For a frame with nil: an empty inner value.
std::optional<std::optional<std::int64_t>> read_integer_or_nil(byte_view frame) noexcept;

/// Chunks that a worker does not store: for each of its groups their positions, counted from the first of the request.
/// False if the frame contains anything else.
bool read_skipped_chunks(byte_view frame, std::vector<std::vector<std::uint32_t>>& out);

inline constexpr std::uint32_t ranges_max = 4096;

/// Ranges of tokens, each from its first to before its last. False if the frame contains anything else.
bool read_ranges(byte_view frame, std::vector<std::pair<std::uint32_t, std::uint32_t>>& out);

/// A location in the shared memory that a worker may copy one chunk of a group to or from.
struct slot_place {
  std::uint64_t offset = 0;
  std::uint64_t length = 0;
  /// Counted from the first chunk of the request.
  std::uint32_t chunk = 0;
  std::uint32_t group = 0;
};

/// The block number for a missing block of an engine, as workers learn when they register.
inline constexpr std::uint32_t null_block = 0;

/// The shape of every slot of a worker's group.
struct slot_shape {
  std::vector<std::uint32_t> sizes;
  std::string dtype;
};

// -- answers: the third frame, which is omitted for nil
// --------------------------------------------------------------------

std::string answer(bool x);
std::string answer(std::uint64_t x);
std::string answer_text(std::string_view x);
std::string answer_texts(std::span<const std::string_view> x);
/// (event handle, ok)
std::string answer_transfer(std::string_view event, bool ok);
std::string answer_registration(std::string_view shared_memory, std::uint64_t bytes);
/// `shapes`: one for each of the worker's groups. Only for several of them, the answer names the group of each slot.
std::string answer_prepared_store(std::span<const slot_place> slots, std::span<const slot_shape> shapes);
/// The answer that nothing can be stored now.
std::string answer_no_store();
std::string answer_prepared_retrieve(std::span<const slot_place> slots, std::span<const slot_shape> shapes);
std::string answer_no_retrieve();
/// The answer of `server_module_call`.
std::string answer_module_call(std::string_view why_not);

/// The rejection in the way of the operation's type; none if its answer has no third frame.
std::optional<std::string> refusal(operation x);

} // namespace troupe::lmcache::protocol
