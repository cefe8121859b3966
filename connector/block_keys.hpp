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

/// The source of a page's content address.
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

/// All inputs besides tokens that must be equal for two requests to share KV. If one of them differs, the keys differ,
/// whatever the tokens.
struct key_scope {
  /// Identity of the namespace: model, revision, dtype, layout, geometry, world size and the namespace's salt.
  namespace_id ns;
  std::string_view lora{};
  std::string_view cache_salt{};
  /// Counts resets of the cache by this engine.
  std::uint64_t epoch = 0;
};

/// MD5 as HF3FS's connector computes it: lower-case hexadecimal digest of "<parent>_[1, 2, 3]", where `parent` is the
/// digest of the block before, or empty. Empty where OpenSSL does not provide MD5, as in FIPS mode.
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
/// page is the tokens of one key, in one block or several consecutive ones; each rank stores its bytes of them.
///
/// key(i) = first 128 bits of SHA-256(scope(i) ‖ hash(i)), never null. SHA-256, because keys of different tenants are
/// in one index, and a tenant must not be able to choose a key by the text of a prompt. This is only as strong as
/// hash(i): it does not hold with `md5_chain`, or with engines whose hash is weaker, among tenants with the same
/// `cache_salt`.
///
/// hash(i) depends on `key_source`: the rolling hash of the page, or the engine's or MD5's hash (32 hexadecimal digits)
/// of the page's last block. So with the latter two, pages of four blocks have the keys of every fourth block.
///
/// scope(i) is a digest of the source's name and the `key_scope`, into which the multimodal items are folded that begin
/// before the end of page i: in the order of their positions, whatever order they are given in, each with its position,
/// length and hash. An item changes the keys of the page in which it begins, and all later keys. Its whole length
/// counts even if a part of it is after the page, because tokens of an image may attend to all of it.
///
/// Where OpenSSL lacks an algorithm, which is logged, there are no keys, and nothing is cached.
///
/// Memory: 16 bytes per page, 36 per multimodal item, and the tokens of the incomplete page. A chain that was moved
/// from can only be assigned to or destroyed. One thread at a time; chains share nothing.
class key_chain {
public:
  /// Keeps no view of its arguments.
  key_chain(const key_chain_options& options, const key_scope& scope, std::span<const multimodal_item> items);
  key_chain(key_chain&&) noexcept;
  key_chain& operator=(key_chain&&) noexcept;
  ~key_chain();

  /// Adds tokens that are not known yet; known ones are not compared. False, without any change, where the range begins
  /// after the known ones or does not end within 32 bits. With `engine_hashes` tokens are only counted.
  bool add_tokens(const token_range& tokens);

  /// The same for the engine's hashes; with other sources they are ignored, and the result is true.
  bool add_hashes(const hash_range& hashes);

  /// The number of tokens that were added.
  std::uint32_t known_tokens() const noexcept;

  /// The keys of all full pages: those whose tokens were added or, with `engine_hashes`, whose hashes were, whatever
  /// the number of tokens. Valid until more is added.
  std::span<const key_digest> keys() const noexcept;

private:
  struct state;
  std::unique_ptr<state> state_;
};

} // namespace troupe::connector
