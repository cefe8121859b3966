#include "connector/block_keys.hpp"

#include "base/hex.hpp"
#include "base/log.hpp"
#include "base/message_digest.hpp"

#include <algorithm>
#include <charconv>
#include <initializer_list>
#include <limits>
#include <optional>
#include <tuple>
#include <utility>

namespace troupe::connector {

namespace {

using digest256 = std::array<std::byte, 32>;
using byte_view = std::span<const std::byte>;

/// Parent of a request's first page. It has the length of every other parent, so that its end in the hashed text is
/// fixed.
constexpr digest256 rolling_root{};

/// Makes a digest for this thread; logs an error once where OpenSSL lacks the algorithm.
message_digest make_digest(const char* algorithm) {
  message_digest out{algorithm};
  if (!out.available())
    log::get("connector")->error("OpenSSL has no {}; no keys can be made, so nothing is loaded or saved", algorithm);
  return out;
}

message_digest& sha256() {
  thread_local message_digest x = make_digest("SHA256");
  return x;
}

message_digest& md5() {
  thread_local message_digest x = make_digest("MD5");
  return x;
}

byte_view bytes_of(std::string_view text) noexcept {
  return std::as_bytes(std::span(text));
}

/// Most significant byte first.
template <class Integer>
void put(Integer value, std::byte* out) noexcept {
  for (std::size_t i = 0; i < sizeof(Integer); ++i)
    out[i] = static_cast<std::byte>(value >> (8 * (sizeof(Integer) - 1 - i)));
}

std::uint64_t get(const std::byte* in) noexcept {
  std::uint64_t value = 0;
  for (std::size_t i = 0; i < sizeof(value); ++i)
    value = (value << 8U) | std::to_integer<std::uint64_t>(in[i]);
  return value;
}

bool roll(byte_view parent, std::span<const token_id> tokens, digest256& out) {
  auto& hash = sha256();
  if (!hash.begin() || !hash.add(parent))
    return false;
  std::array<std::byte, 1024> piece;
  constexpr auto piece_tokens = piece.size() / sizeof(token_id);
  while (!tokens.empty()) {
    const auto count = std::min(tokens.size(), piece_tokens);
    for (std::size_t i = 0; i < count; ++i)
      put(tokens[i], piece.data() + i * sizeof(token_id));
    if (!hash.add(byte_view(piece).first(count * sizeof(token_id))))
      return false;
    tokens = tokens.subspan(count);
  }
  return hash.end(out);
}

/// `text` is a work buffer. `out` has 32 hexadecimal digits.
bool chain_md5(std::string_view parent, std::span<const token_id> tokens, std::string& text, digest256& out) {
  text.assign(parent).append("_[");
  std::array<char, std::numeric_limits<token_id>::digits10 + 1> digits;
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    if (i > 0)
      text.append(", ");
    text.append(digits.data(), std::to_chars(digits.begin(), digits.end(), tokens[i]).ptr);
  }
  text.push_back(']');
  std::array<std::byte, 16> digest;
  if (!md5().digest({bytes_of(text)}, digest))
    return false;
  text.clear();
  append_hex(text, digest);
  std::ranges::copy(std::as_bytes(std::span(text)), out.begin());
  return true;
}

std::string_view text_of(const digest256& x) noexcept {
  return {reinterpret_cast<const char*>(x.data()), x.size()};
}

void append(std::string& out, std::string_view name, std::string_view value) {
  out.append(name).append("=").append(std::to_string(value.size())).append(":").append(value).append("\n");
}

/// An unambiguous text, whatever the values contain. Keys outlive the process: a change of the format makes every
/// lookup a miss.
std::string scope_text(key_source source, const key_scope& scope) {
  std::string out = "troupe key scope 1\n";
  append(out, "source", to_string(source));
  append(out, "namespace", to_string(scope.ns));
  append(out, "lora", scope.lora);
  append(out, "cache_salt", scope.cache_salt);
  append(out, "epoch", std::to_string(scope.epoch));
  return out;
}

/// The scope of all pages that end after `first_token`, up to the next item.
struct item_scope {
  std::uint32_t first_token = 0;
  digest256 scope{};
};

/// Folds the items into the scope one after the other, by position in the request. So the scope at a token depends only
/// on the items before it, and not on later ones or on the size of a page.
bool fold(const digest256& scope, std::span<const multimodal_item> items, std::vector<item_scope>& out) {
  std::vector<multimodal_item> sorted(items.begin(), items.end());
  std::ranges::sort(sorted, {}, [](const multimodal_item& x) { return std::tie(x.first_token, x.tokens, x.hash); });
  out.reserve(sorted.size());
  auto last = scope;
  for (const auto& item : sorted) {
    std::array<std::byte, 16> shape;
    put(item.first_token, shape.data());
    put(item.tokens, shape.data() + 4);
    put(std::uint64_t{item.hash.size()}, shape.data() + 8);
    if (!sha256().digest({last, shape, bytes_of(item.hash)}, last))
      return false;
    out.push_back({item.first_token, last});
  }
  return true;
}

/// The number of elements of a range of `size` from `first` on that are known already. None where there is a gap, or
/// where the range does not end within 32 bits.
std::optional<std::size_t> overlap(std::uint32_t first, std::size_t size, std::uint32_t known) noexcept {
  if (first > known || size > std::numeric_limits<std::uint32_t>::max() - first)
    return std::nullopt;
  return std::min<std::size_t>(known - first, size);
}

} // namespace

std::string_view to_string(key_source source) noexcept {
  switch (source) {
  case key_source::engine_hashes:
    return "engine_hashes";
  case key_source::md5_chain:
    return "md5_chain";
  case key_source::rolling_chunk_hash:
    return "rolling_chunk_hash";
  }
  return "unknown";
}

std::string md5_block_hash(std::string_view parent, std::span<const token_id> tokens) {
  std::string text;
  digest256 out{};
  return chain_md5(parent, tokens, text, out) ? std::string{text_of(out)} : std::string{};
}

std::array<std::byte, 32> rolling_hash(std::span<const std::byte> parent, std::span<const token_id> tokens) {
  digest256 out{};
  return roll(parent, tokens, out) ? out : digest256{};
}

/// A step of the hash chain is a page with `rolling_chunk_hash`, a block with the others.
struct key_chain::state {
  state(const key_chain_options& options, const key_scope& key_scope, std::span<const multimodal_item> items)
      : source(options.source) {
    const std::uint64_t block_tokens = std::max(options.block_tokens, 1U);
    const std::uint64_t blocks_per_page = std::max(options.blocks_per_page, 1U);
    page_tokens = block_tokens * blocks_per_page;
    const auto rolling = source == key_source::rolling_chunk_hash;
    step_tokens = rolling ? page_tokens : block_tokens;
    steps_per_page = rolling ? 1 : blocks_per_page;
    usable = sha256().digest({bytes_of(scope_text(source, key_scope))}, scope) && fold(scope, items, items_ahead);
  }

  void take_tokens(std::span<const token_id> tokens) {
    if (!partial.empty()) {
      const auto count = std::min<std::uint64_t>(step_tokens - partial.size(), tokens.size());
      const auto head = tokens.first(count);
      partial.insert(partial.end(), head.begin(), head.end());
      tokens = tokens.subspan(count);
      if (partial.size() < step_tokens)
        return;
      take_step(partial);
    }
    while (tokens.size() >= step_tokens) {
      take_step(tokens.first(step_tokens));
      tokens = tokens.subspan(step_tokens);
    }
    partial.assign(tokens.begin(), tokens.end());
  }

  void take_step(std::span<const token_id> tokens) {
    const auto parent = steps == 0 ? std::string_view{} : text_of(hash);
    usable =
        usable && (source == key_source::md5_chain ? chain_md5(parent, tokens, text, hash) : roll(hash, tokens, hash));
    ++steps;
    end_step();
  }

  void take_hashes(std::span<const block_hash> hashes) {
    for (const auto& x : hashes) {
      hash = x;
      ++steps;
      end_step();
    }
  }

  void end_step() {
    // Without a hash there is no key, and no later page has one.
    if (usable && steps % steps_per_page == 0)
      add_key();
  }

  void add_key() {
    const auto end = page_tokens * (keys.size() + 1);
    for (; items_folded < items_ahead.size() && items_ahead[items_folded].first_token < end; ++items_folded)
      scope = items_ahead[items_folded].scope;
    digest256 out;
    usable = sha256().digest({scope, hash}, out);
    if (!usable)
      return;
    key_digest key{get(out.data()), get(out.data() + 8)};
    // Null means no key, so the one hash in 2^128 that is null is changed.
    if (key.is_null())
      key.lo = 1;
    keys.push_back(key);
  }

  key_source source;
  bool usable = true;
  std::uint64_t page_tokens = 0;
  std::uint64_t step_tokens = 0;
  std::uint64_t steps_per_page = 0;

  /// The scope of the last full page.
  digest256 scope{};
  std::vector<item_scope> items_ahead;
  std::size_t items_folded = 0;

  /// The hash of the last full step.
  digest256 hash = rolling_root;
  std::uint64_t steps = 0;
  /// Tokens of the incomplete step.
  std::vector<token_id> partial;
  std::string text;
  std::uint32_t known_tokens = 0;
  std::uint32_t known_hashes = 0;
  std::vector<key_digest> keys;
};

key_chain::key_chain(const key_chain_options& options, const key_scope& scope, std::span<const multimodal_item> items)
    : state_(std::make_unique<state>(options, scope, items)) {}

key_chain::key_chain(key_chain&&) noexcept = default;

key_chain& key_chain::operator=(key_chain&&) noexcept = default;

key_chain::~key_chain() = default;

bool key_chain::add_tokens(const token_range& tokens) {
  const auto known = overlap(tokens.first, tokens.tokens.size(), state_->known_tokens);
  if (!known)
    return false;
  const auto added = tokens.tokens.subspan(*known);
  if (state_->source != key_source::engine_hashes)
    state_->take_tokens(added);
  state_->known_tokens += static_cast<std::uint32_t>(added.size());
  return true;
}

bool key_chain::add_hashes(const hash_range& hashes) {
  if (state_->source != key_source::engine_hashes)
    return true;
  const auto known = overlap(hashes.first, hashes.hashes.size(), state_->known_hashes);
  if (!known)
    return false;
  const auto added = hashes.hashes.subspan(*known);
  state_->take_hashes(added);
  state_->known_hashes += static_cast<std::uint32_t>(added.size());
  return true;
}

std::uint32_t key_chain::known_tokens() const noexcept {
  return state_->known_tokens;
}

std::span<const key_digest> key_chain::keys() const noexcept {
  return state_->keys;
}

} // namespace troupe::connector
