#pragma once

#include "base/digest.hpp"
#include "connector/types.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace troupe::connector {

/// Where the content address of a page comes from.
enum class key_source : std::uint8_t {
  /// The engine's hash of the page's last block, which is chained over everything before it.
  engine_hashes,
  /// vLLM's HF3FS connector: MD5 over the parent's hexadecimal digest and the text of the block's token ids; see
  /// `md5_block_hash`.
  md5_chain,
  /// LMCache: hash over the parent's hash and the page's tokens as big-endian 32-bit numbers; here with SHA-256.
  rolling_chunk_hash,
};

/// Names of `key_source` as configs write them: "engine_hashes", "md5_chain", "rolling_chunk_hash".
std::string_view to_string(key_source source) noexcept;

/// Everything besides tokens that must be equal for two requests to share KV. Keys of requests that differ in one of
/// these are different, whatever their tokens.
struct key_scope {
  /// Identity of the namespace: model, revision, dtype, layout, geometry, world size and the namespace's salt.
  namespace_id space;
  std::string_view lora{};
  std::string_view cache_salt{};
  /// Counts resets of the cache by this engine.
  std::uint64_t epoch = 0;
};

/// MD5 as HF3FS's connector computes it: lower-case hexadecimal digest of "<parent>_[1, 2, 3]", where `parent` is the
/// digest of the block before, or empty. Empty where OpenSSL refuses MD5, as it does in FIPS mode.
std::string md5_block_hash(std::string_view parent, std::span<const token_id> tokens);

/// One step of the rolling hash: SHA-256 of `parent` and the tokens as big-endian 32-bit numbers. A chain begins with a
/// parent of 32 zero bytes. Zeroes where OpenSSL has no SHA-256.
std::array<std::byte, 32> rolling_hash(std::span<const std::byte> parent, std::span<const token_id> tokens);

struct key_chain_options {
  key_source source = key_source::rolling_chunk_hash;
  /// Tokens of one block, as the engine's scheduler counts them. 0 counts as 1.
  std::uint32_t block_tokens = 16;
  /// Blocks of one key. 0 counts as 1.
  std::uint32_t blocks_per_page = 1;
};

/// The keys of one request's full pages, computed as tokens (or the engine's hashes) become known, each token once. A
/// page is the tokens of one key, in one block or several that follow each other; each rank stores its bytes of them.
///
/// key(i) = first 128 bits of SHA-256(scope(i) ‖ hash(i)), never null. SHA-256, because keys of different tenants lie
/// in one index, and what a tenant writes into a prompt must not let him choose a key. That holds as far as hash(i)
/// does: not with `md5_chain`, nor with engines that hash with something weaker, among tenants with the same
/// `cache_salt`.
///
/// hash(i) is what `key_source` says: the rolling hash of the page, or the engine's or MD5's (32 hexadecimal digits)
/// of the page's last block. So with the latter two, pages of four blocks have the keys of every fourth block.
///
/// scope(i) is a digest of the source's name and the `key_scope`, into which the multimodal items are folded that begin
/// before the end of page i: one after the other in the order of their positions, whatever order they are given in,
/// each with its position, length and hash. An item changes the keys of the page in which it begins, and all keys
/// behind. Its length counts although part of it may lie behind the page: tokens of an image may attend to all of it.
///
/// Where OpenSSL lacks an algorithm, which is logged, there are no keys, and nothing is cached.
///
/// Memory: 16 bytes per page, 36 per multimodal item, and the tokens of the one page that is not full. A chain that
/// was moved from can only be assigned to or destroyed. One thread at a time; chains share nothing.
class key_chain {
public:
  /// Keeps no view of its arguments.
  key_chain(const key_chain_options& options, const key_scope& scope, std::span<const multimodal_item> items);
  key_chain(key_chain&&) noexcept;
  key_chain& operator=(key_chain&&) noexcept;
  ~key_chain();

  /// Takes tokens that are not known yet; those that are known are not compared. False, and nothing is taken, where the
  /// range begins beyond those that are known or does not end within 32 bits. With `engine_hashes` tokens are only
  /// counted.
  bool add_tokens(const token_range& tokens);

  /// Likewise for the engine's hashes; with other sources they are ignored, and the answer is true.
  bool add_hashes(const hash_range& hashes);

  /// Tokens that were added.
  std::uint32_t known_tokens() const noexcept;

  /// Of all full pages: of those whose tokens were added or, with `engine_hashes`, whose hashes were, however many
  /// tokens were. Valid until more is added.
  std::span<const key_digest> keys() const noexcept;

private:
  struct state;
  std::unique_ptr<state> state_;
};

} // namespace troupe::connector
