#pragma once

#include "io/engine/engine_resources.hpp"
#include "io/engine/operation_table.hpp"

#include <cstdint>
#include <span>
#include <vector>

namespace troupe::io {

/// The rules for requests that are the same in every engine: which ones are accepted, and when and how each one ends.
/// Plain data without threads or clock. Not thread-safe.
///
/// Every row of the table waits or runs. `cancel`, `expire` and `stop` end a waiting one at once. A running one ends
/// only by its outcome, because until then the system may write into its memory: they note the reason and return the
/// row, so that the engine can cancel its transfer.
class request_rules {
public:
  using index = operation_table::index;

  explicit request_rules(const engine_options& options) : resources_(options.max_files, options.max_buffers) {}

  engine_resources& resources() noexcept { return resources_; }
  operation_table& table() noexcept { return table_; }

  /// Returns whether the request can be added to the table. Otherwise it is completed.
  bool accept(const request& what);

  std::vector<index> cancel(std::span<const std::uint64_t> tags);
  std::vector<index> expire(timestamp now);
  /// Cancels all requests; no further ones are accepted. Later calls do nothing.
  std::vector<index> stop();

  /// Takes the outcome of a transfer, bytes or -errno. Returns true if its request needs another one for the rest;
  /// otherwise the request has ended.
  bool advance(index i, std::int64_t outcome);

  /// Completes the request and frees its row. The system must no longer use its memory.
  void finish(index i, errc status, int system_errno);

  /// Completions for the sink; the engine removes them.
  std::vector<completion>& done() noexcept { return done_; }

  bool is_stopping() const noexcept { return stopping_; }
  bool is_idle() const noexcept { return table_.empty() && done_.empty(); }

private:
  void abandon(index i, errc why, std::vector<index>& running);

  engine_resources resources_;
  operation_table table_;
  std::vector<completion> done_;
  bool stopping_ = false;
};

} // namespace troupe::io
