#pragma once

#include "http_client/connection.hpp"
#include "http_client/endpoint.hpp"

#include <nlohmann/json.hpp>

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <vector>

/// Engines that write their own slab files, and know by their own book-keeping what lies in them, whatever the node
/// says.

namespace troupe::test {

/// Talks HTTP to a node that may be killed at any moment.
class node_caller {
public:
  explicit node_caller(int port);

  struct reply {
    unsigned status = 0;
    nlohmann::json body;

    bool ok() const noexcept { return status >= 200 && status < 300; }
  };

  /// No value when the node has died.
  std::optional<reply> post(const std::string& path, const nlohmann::json& body) { return call("POST", path, &body); }
  std::optional<reply> call(std::string_view method, const std::string& path, const nlohmann::json* body = nullptr);

  /// The last answer, in words.
  const std::string& last() const noexcept { return last_; }

private:
  client_detail::endpoint where_;
  std::string last_;
  std::unique_ptr<client_detail::connection> open_;
};

/// The settings of a node's start, which decide what it has to know afterwards.
struct node_settings {
  std::string durability = "strict";
  /// `hf3fs.namespace`.
  std::string ns = "hf3fs";
  bool vllm = true;
  bool sglang = true;
  /// A namespace of the config with slabs of the node.
  bool own = true;

  bool durable() const noexcept { return durability != "none"; }
  std::string describe() const;
};

/// One engine with its files. For one thread at a time.
class crash_engine {
public:
  crash_engine(std::string name, std::uint32_t ranks);
  virtual ~crash_engine() = default;

  const std::string& name() const noexcept { return name_; }

  /// The name of its namespace on a node of these settings; empty if it does not reach one.
  virtual std::string place(const node_settings& now) const = 0;
  /// Whether commits to a node of the settings before must exist in one of these.
  bool kept(const node_settings& before, const node_settings& now) const;

  /// After a start: the contradictions in the node's answers, as text, or empty. Records the existing pages.
  std::string check(node_caller& node, bool kept);

  /// Saves, erases and starts over until the node dies.
  void work(node_caller& node, std::mt19937& random);

  std::uint64_t found() const noexcept { return found_; }
  std::uint64_t committed() const noexcept { return committed_; }
  std::uint64_t remade() const noexcept { return remade_; }

protected:
  using keys = std::vector<std::string>;
  /// Per key: its slot, if it has one.
  using places = std::vector<std::optional<std::uint32_t>>;

  struct page {
    std::string key;
    std::uint32_t slot = 0;
    std::uint32_t generation = 0;
  };

  static constexpr std::uint32_t slots = 96;
  static constexpr std::size_t key_count = 48;

  /// Registers; false when the node has died. Nothing is registered twice with other settings.
  virtual bool prepare(node_caller& node) = 0;
  /// The pages to write, or no value when the node has died.
  virtual std::optional<std::vector<page>> reserve(node_caller& node, std::uint32_t rank, const keys& wanted) = 0;
  /// Which of the pages are committed; of the others nothing is known.
  virtual std::optional<std::vector<bool>> commit(node_caller& node, std::uint32_t rank,
                                                  const std::vector<page>& written) = 0;
  virtual std::optional<places> locate(node_caller& node, std::uint32_t rank, const keys& wanted) = 0;
  /// Keys are found only if all ranks have them.
  virtual bool whole_keys() const { return false; }
  /// How many keys may be erased in one run. Slots of erased keys may be reserved for a while, and if there are too few
  /// others, committed keys are evicted: then the expected content would be unknown.
  virtual std::size_t most_erased() const { return 0; }
  virtual bool erase(node_caller&, const keys&) { return false; }
  virtual bool can_begin_anew() const { return false; }
  /// Removes the namespace and makes it again, with other options.
  virtual bool begin_anew(node_caller&) { return false; }

  std::uint32_t ranks() const noexcept { return static_cast<std::uint32_t>(files_.size()); }

private:
  enum class belief : std::uint8_t { absent, committed, unknown };

  keys all_keys() const;
  bool save(node_caller& node, const keys& wanted);
  void believe(const std::string& key, std::uint32_t rank, belief what) { beliefs_[{key, rank}] = what; }
  void believe_all(belief what);
  belief of(const std::string& key, std::uint32_t rank) const;
  bool must_be_found(const std::string& key, std::uint32_t rank) const;
  std::string check_rank(node_caller& node, std::uint32_t rank, bool kept);

  std::string name_;
  /// Per rank and slot: whose bytes were written there last.
  std::vector<std::vector<std::string>> files_;
  std::map<std::pair<std::string, std::uint32_t>, belief> beliefs_;
  /// The node has answered that it knows this engine.
  bool known_ = false;
  std::uint64_t found_ = 0;
  std::uint64_t committed_ = 0;
  std::uint64_t remade_ = 0;
};

/// One engine for each way there is to make a namespace over HTTP.
std::vector<std::unique_ptr<crash_engine>> all_crash_engines();

} // namespace troupe::test
