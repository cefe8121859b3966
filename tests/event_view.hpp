#pragma once

#include "lmcache/protocol/msgpack_reader.hpp"

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

namespace troupe::test {

/// What a subscriber knows of a stream of events: a reader of batches that is independent of their writer, and expects
/// the fields that vLLM's own decoder expects.
class event_view {
public:
  /// Medium, group (-1: none), hash.
  using name = std::tuple<std::string, std::int64_t, std::uint64_t>;
  struct block {
    std::optional<std::uint64_t> parent;
    std::vector<std::uint32_t> tokens;
    std::string lora;
    std::string extra;
    std::string kind;
    std::uint64_t window = 0;
  };

  std::map<name, block> blocks;
  /// Counted over all batches.
  std::uint64_t stored = 0;
  std::uint64_t removed = 0;
  std::uint64_t cleared = 0;
  /// Stored blocks, and removed ones, that were there, or not there, already.
  std::uint64_t repeated = 0;
  std::uint64_t unknown = 0;
  /// The events of the last batch, by type.
  std::vector<std::string> last;

  /// What is wrong with the batch, or an empty text.
  std::string apply(std::string_view text) {
    last.clear();
    reader in(std::as_bytes(std::span(text)));
    if (in.array() != 3)
      return "a batch is no array of three";
    if (in.real() < 0)
      return "the time is negative";
    const auto count = in.array();
    for (std::uint32_t i = 0; i < count; ++i)
      if (auto bad = event(in); !bad.empty())
        return bad;
    in.natural();
    return in.done() ? std::string() : "a batch is damaged, or has more than it says";
  }

private:
  using reader = lmcache::protocol::msgpack_reader;

  struct fields {
    std::string type;
    std::vector<std::uint64_t> hashes;
    std::optional<std::uint64_t> parent;
    std::vector<std::uint32_t> tokens;
    std::uint64_t block_size = 0;
    std::string medium;
    std::string lora;
    std::int64_t group = -1;
    std::string kind;
    std::uint64_t window = 0;
    std::vector<bool> extra;
    bool has_extra = false;
  };

  void read(reader& in, std::string_view key, fields& x) {
    if (key == "type") {
      x.type = in.text();
    } else if (key == "block_hashes") {
      const auto n = in.array();
      for (std::uint32_t i = 0; i < n && in.ok(); ++i)
        x.hashes.push_back(in.natural());
    } else if (key == "parent_block_hash") {
      if (!in.take_nil())
        x.parent = in.natural();
    } else if (key == "token_ids") {
      in.numbers(x.tokens);
    } else if (key == "block_size") {
      x.block_size = in.natural();
    } else if (key == "medium") {
      x.medium = in.text();
    } else if (key == "lora_name") {
      if (!in.take_nil())
        x.lora = in.text();
    } else if (key == "group_idx") {
      x.group = in.integer();
    } else if (key == "kv_cache_spec_kind") {
      x.kind = in.text();
    } else if (key == "kv_cache_spec_sliding_window") {
      x.window = in.natural();
    } else if (key == "extra_keys") {
      x.has_extra = true;
      const auto n = in.array();
      for (std::uint32_t i = 0; i < n && in.ok(); ++i) {
        const bool is_nil = in.next() == reader::kind::nil;
        in.skip();
        x.extra.push_back(!is_nil);
      }
    } else {
      in.skip();
    }
  }

  /// In the order of vLLM's classes.
  static std::vector<std::string> positions_of(const std::string& type) {
    if (type == "BlockStored")
      return {"block_hashes",
              "parent_block_hash",
              "token_ids",
              "block_size",
              "lora_id",
              "medium",
              "lora_name",
              "extra_keys",
              "group_idx",
              "kv_cache_spec_kind",
              "kv_cache_spec_sliding_window"};
    return type == "BlockRemoved" ? std::vector<std::string>{"block_hashes", "medium", "group_idx"}
                                  : std::vector<std::string>{};
  }

  void read_array(reader& in, fields& x) {
    const auto count = in.array();
    x.type = in.text();
    const auto names = positions_of(x.type);
    for (std::uint32_t i = 0; i + 1 < count && in.ok(); ++i)
      if (i >= names.size())
        in.skip();
      else if (names[i] == "parent_block_hash" || names[i] == "lora_name" || !in.take_nil())
        read(in, names[i], x);
  }

  std::string event(reader& in) {
    fields x;
    if (in.next() == reader::kind::array) {
      read_array(in, x);
    } else {
      const auto pairs = in.map();
      for (std::uint32_t i = 0; i < pairs && in.ok(); ++i) {
        const std::string key(in.text());
        read(in, key, x);
      }
    }
    if (!in.ok())
      return "an event is no map or array with the known fields";
    last.push_back(x.type);
    if (x.type == "AllBlocksCleared") {
      blocks.clear();
      ++cleared;
      return {};
    }
    if (x.hashes.empty() || (x.medium != "CPU" && x.medium != "STORAGE"))
      return x.type + " without hashes, or with an unknown medium";
    return x.type == "BlockStored" ? store(x) : x.type == "BlockRemoved" ? remove(x) : "unknown event " + x.type;
  }

  std::string store(const fields& x) {
    if (!x.tokens.empty() && x.tokens.size() != x.hashes.size() * x.block_size)
      return "a stored event has " + std::to_string(x.tokens.size()) + " tokens for its blocks";
    if (x.has_extra && x.extra.size() != x.hashes.size())
      return "a stored event has extra keys for another number of blocks";
    auto parent = x.parent;
    for (std::size_t i = 0; i < x.hashes.size(); ++i) {
      block b{parent, {}, x.lora, x.has_extra && x.extra[i] ? "extra" : "", x.kind, x.window};
      const auto first = x.tokens.begin() + static_cast<std::ptrdiff_t>(x.tokens.empty() ? 0 : i * x.block_size);
      b.tokens.assign(first, first + static_cast<std::ptrdiff_t>(x.tokens.empty() ? 0 : x.block_size));
      repeated += blocks.insert_or_assign({x.medium, x.group, x.hashes[i]}, std::move(b)).second ? 0 : 1;
      parent = x.hashes[i];
      ++stored;
    }
    return {};
  }

  std::string remove(const fields& x) {
    for (const auto hash : x.hashes) {
      unknown += blocks.erase({x.medium, x.group, hash}) == 1 ? 0 : 1;
      ++removed;
    }
    return {};
  }
};

} // namespace troupe::test
