#pragma once

#include "tests/conformance/slot_node.hpp"
#include "tests/unit/http_support.hpp"

#include <nlohmann/json.hpp>

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

/// vLLM's metadata service, behind one interface: as it is here, over HTTP, and as it was.

namespace troupe::test {

using page = std::int64_t;
using keys_t = std::vector<std::string>;
using pages_t = std::vector<page>;

/// An item of `allocate`: a key with the empty key before it; or a text where the pair should be.
struct wanted_key {
  std::string text;
  bool is_pair = true;
};

/// A client of vLLM's HF3FS protocol. Where an error is possible, `nullopt` stands for any.
class metadata_server {
public:
  virtual ~metadata_server() = default;

  /// The status codes of the protocol.
  virtual int initialize(std::uint32_t rank, page pages) = 0;
  virtual int confirm(std::uint32_t rank, const std::vector<std::pair<std::string, page>>& written,
                      const pages_t& released) = 0;
  virtual int clear() = 0;
  /// The same by a caller without a token.
  virtual int clear_as_stranger() = 0;

  using allocation = std::optional<std::vector<std::pair<std::string, page>>>;
  virtual allocation allocate_items(std::uint32_t rank, const std::vector<wanted_key>& items) = 0;
  /// With the rank as a string.
  virtual allocation allocate_by_text(const std::string& rank, const keys_t& keys) = 0;
  virtual std::vector<bool> exists(const keys_t& keys) = 0;
  virtual std::optional<std::vector<std::optional<page>>> locations(std::uint32_t rank, const keys_t& keys) = 0;

  /// The same server for another model, as far as it can tell them apart.
  virtual metadata_server& ns(const std::string& name) = 0;
  /// Lets a moment pass, where time means anything.
  virtual void wait() = 0;

  // Functions that follow from these.

  allocation allocate(std::uint32_t rank, const keys_t& keys);
  /// The page of one key; -1 if it gets none.
  page allocate_one(std::uint32_t rank, const std::string& key);
  /// Allocates and confirms; whether it could.
  bool save(std::uint32_t rank, const std::string& key);
  bool has(const std::string& key) { return exists({key}).at(0); }
  std::optional<page> where(std::uint32_t rank, const std::string& key);
  /// Tries `save` until it works or much time has passed.
  bool eventually_save(std::uint32_t rank, const std::string& key);
};

/// The service over HTTP.
class served_over_http final : public metadata_server {
public:
  /// `token` may be empty.
  served_over_http(std::uint16_t port, std::string token, std::string prefix = {});

  int initialize(std::uint32_t rank, page pages) override;
  int confirm(std::uint32_t rank, const std::vector<std::pair<std::string, page>>& written,
              const pages_t& released) override;
  int clear() override { return post("/clear", "{}").code; }
  int clear_as_stranger() override;
  allocation allocate_items(std::uint32_t rank, const std::vector<wanted_key>& items) override;
  allocation allocate_by_text(const std::string& rank, const keys_t& keys) override;
  std::vector<bool> exists(const keys_t& keys) override;
  std::optional<std::vector<std::optional<page>>> locations(std::uint32_t rank, const keys_t& keys) override;
  metadata_server& ns(const std::string& name) override;
  void wait() override;

  http::reply post(const std::string& path, const std::string& body);

private:
  allocation allocate_json(const nlohmann::json& rank, const nlohmann::json& keys);

  std::uint16_t port_;
  std::string token_;
  std::string prefix_;
  http::client client_;
  std::map<std::string, std::unique_ptr<served_over_http>> namespaces_;
};

/// The service as it was: its faults are what the tests of hazards look for.
class old_server final : public metadata_server {
public:
  int initialize(std::uint32_t rank, page pages) override;
  int confirm(std::uint32_t rank, const std::vector<std::pair<std::string, page>>& written,
              const pages_t& released) override;
  int clear() override;
  int clear_as_stranger() override { return clear(); }
  allocation allocate_items(std::uint32_t rank, const std::vector<wanted_key>& items) override;
  allocation allocate_by_text(const std::string&, const keys_t&) override { return std::nullopt; }
  std::vector<bool> exists(const keys_t& keys) override;
  std::optional<std::vector<std::optional<page>>> locations(std::uint32_t rank, const keys_t& keys) override;
  metadata_server& ns(const std::string&) override { return *this; }
  void wait() override {}

private:
  struct stored_key {
    std::map<std::uint32_t, page> pages;
    std::size_t ranks_at_first_confirm = 0;

    bool complete() const { return pages.size() == ranks_at_first_confirm; }
  };

  std::map<std::uint32_t, std::deque<page>> free_;
  std::map<std::string, stored_key> keys_;
};

} // namespace troupe::test
