#pragma once

#include "base/namespace_spec.hpp"

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

namespace troupe::events {

/// A change of one page, as readers of a log get it.
struct logged_change {
  enum class kind : std::uint8_t { stored, removed };
  kind what = kind::stored;
  /// Ascending without a gap over all models.
  std::uint64_t number = 0;
  /// Never null.
  std::shared_ptr<const std::string> model;
  /// The engine's hash of the page, and of the one before it. The rest is of a stored page only.
  std::uint64_t hash = 0;
  std::uint64_t parent = 0;
  bool has_parent = false;
  std::vector<std::uint32_t> tokens{};
};

struct page_log_options {
  /// The namespaces whose pages are logged.
  std::function<bool(const namespace_spec&)> logs = [](const namespace_spec&) { return true; };
  /// Differs from that of an earlier run of the node.
  std::uint64_t incarnation = 0;
  std::size_t changes_max = 32768;
  std::size_t bytes_max = std::size_t{64} << 20U;
};

/// The last changes of pages, for readers that name the change up to which they know: the publisher of events appends,
/// and the server of LMCache's clients reads. The oldest changes are dropped beyond the limits, so readers never hold
/// up the publisher. Thread-safe.
class page_log {
public:
  explicit page_log(page_log_options options) : options_(std::move(options)) {}

  bool logs(const namespace_spec& x) const { return options_.logs(x); }
  std::uint64_t incarnation() const noexcept { return options_.incarnation; }

  /// Called by `notify` when there is something new, in the thread of the publisher; null to end that.
  void wake_with(std::function<void()> wake);

  /// Its number is set here.
  void append(logged_change x);
  /// Changes were lost: whatever a reader knows may be wrong.
  void lose();
  /// To be called after some changes were appended.
  void notify();

  struct part {
    /// Changes after the cursor are missing, so the reader forgets what it knows, and then applies the changes.
    bool lost = false;
    /// Where to continue.
    std::uint64_t next = 0;
    std::vector<logged_change> changes{};
  };
  /// The changes of a model after change number `after`: at most `most`, and no more once they have `bytes`.
  part read(std::string_view model, std::uint64_t after, std::size_t most, std::size_t bytes) const;

private:
  static std::size_t bytes_of(const logged_change& x) noexcept {
    return sizeof x + x.tokens.size() * sizeof(std::uint32_t);
  }

  page_log_options options_;
  mutable std::mutex mutex_;
  std::function<void()> wake_;
  std::deque<logged_change> changes_;
  std::size_t bytes_ = 0;
  std::uint64_t last_ = 0;
  bool is_new_ = false;
};

} // namespace troupe::events
