#pragma once

#include "base/clock.hpp"
#include "base/error.hpp"
#include "gpu/gpu_memory.hpp"

#include <memory>
#include <span>

namespace troupe {

/// A stream of work on an NVIDIA GPU that runs in order and later, like an engine's own stream: a model of an engine
/// needs it to be as late as a real one. Not optimised for speed. In a build without CUDA, `create` returns
/// `unsupported`.
///
/// Used by one thread.
class gpu_stream {
public:
  /// Errors: `unsupported` where there is no such GPU.
  static result<gpu_stream> create(int device);

  gpu_stream(gpu_stream&&) noexcept;
  gpu_stream& operator=(gpu_stream&&) noexcept;
  /// Waits for all work in the stream.
  ~gpu_stream();

  /// Delays all work that is added afterwards.
  result<void> hold(duration time);

  /// The host's bytes may be changed when this returns; the GPU's bytes change later. Errors: `out_of_range`,
  /// `device_error`.
  result<void> write(gpu_memory& to, std::span<const gpu_memory::piece> pieces);

  /// An event (`cudaEvent_t`) after all work in the stream so far. It is always the same one, recorded anew, and lives
  /// as long as this object.
  result<void*> record();

  /// Waits for all work.
  result<void> wait();

private:
  struct parts;
  explicit gpu_stream(std::unique_ptr<parts> own) noexcept;
  std::unique_ptr<parts> own_;
};

} // namespace troupe
