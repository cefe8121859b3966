#pragma once

#include "base/unique_descriptor.hpp"
#include "io/engine/queued_engine.hpp"

#include <memory>
#include <string>

namespace troupe::io {

/// An engine on one io_uring. Its thread owns the ring and makes all calls on it; callers wake the thread through an
/// eventfd when it sleeps.
///
/// Where the kernel permits, completions are run only by that thread (SINGLE_ISSUER, DEFER_TASKRUN), and files and
/// buffers are registered, which saves reference counting and pinning per transfer. Each of these is optional.
class uring_engine final : public queued_engine {
public:
  /// Error: `unsupported` when this kernel or container has no usable io_uring; the text has the reason.
  static result<std::unique_ptr<engine>> start(const engine_options& options, completion_sink sink);

  ~uring_engine() override;

  std::string describe() const override { return description_; }

private:
  class loop;

  uring_engine(const engine_options& options, completion_sink sink);

  void wake() override;

  unique_descriptor wake_up_;
  /// Set before `start` returns, constant afterwards.
  std::string description_;
};

} // namespace troupe::io
