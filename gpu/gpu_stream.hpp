#pragma once

#include "base/clock.hpp"
#include "base/error.hpp"
#include "gpu/gpu_memory.hpp"

#include <memory>
#include <span>

namespace troupe {

/// Work on an NVIDIA GPU that is done in order and some time later, as an engine puts it into a stream of its own: what
/// a model of an engine needs in order to be as late as a real one. Not made to be fast. In a build without CUDA,
/// `create` answers `unsupported`.
///
/// One thread.
class gpu_stream {
public:
  /// Errors: `unsupported` where there is no such GPU.
  static result<gpu_stream> create(int device);

  gpu_stream(gpu_stream&&) noexcept;
  gpu_stream& operator=(gpu_stream&&) noexcept;
  /// Waits for everything that was put into the stream.
  ~gpu_stream();

  /// What is put into the stream afterwards begins so much later.
  result<void> hold(duration time);

  /// The host's bytes may be changed when this returns; the GPU's change later. Errors: `out_of_range`, `device_error`.
  result<void> write(gpu_memory& to, std::span<const gpu_memory::piece> pieces);

  /// An event (`cudaEvent_t`) behind everything that was put into the stream so far. It is always the same one,
  /// recorded anew, and lives as long as this object.
  result<void*> record();

  /// Until everything is done.
  result<void> wait();

private:
  struct parts;
  explicit gpu_stream(std::unique_ptr<parts> own) noexcept;
  std::unique_ptr<parts> own_;
};

} // namespace troupe
