#pragma once

#include "base/error.hpp"

#include <cstddef>
#include <cstdint>
#include <cuda_runtime_api.h>
#include <memory>
#include <string_view>
#include <type_traits>

/// Owners of CUDA's handles, and conversion of its errors.

namespace troupe::cuda {

/// "what: name of the error: its text", as `device_error`; `limit_exceeded` where memory is short.
error to_error(cudaError_t code, std::string_view what);

/// Success, or the converted error.
result<void> check(cudaError_t code, std::string_view what);

/// While it lives, this thread may make calls that involve no stream although an engine's thread captures a graph:
/// otherwise such calls fail and end the capture. Their effects cannot become part of the graph.
class beside_captures {
public:
  beside_captures() noexcept { static_cast<void>(cudaThreadExchangeStreamCaptureMode(&mode_)); }
  beside_captures(const beside_captures&) = delete;
  beside_captures& operator=(const beside_captures&) = delete;
  ~beside_captures() { static_cast<void>(cudaThreadExchangeStreamCaptureMode(&mode_)); }

private:
  /// Holds the thread's own mode meanwhile.
  cudaStreamCaptureMode mode_ = cudaStreamCaptureModeRelaxed;
};

struct free_device {
  void operator()(void* p) const noexcept { cudaFree(p); }
};
struct free_host {
  void operator()(void* p) const noexcept { cudaFreeHost(p); }
};
struct destroy_stream {
  using pointer = cudaStream_t;
  void operator()(cudaStream_t x) const noexcept { cudaStreamDestroy(x); }
};
struct destroy_event {
  using pointer = cudaEvent_t;
  void operator()(cudaEvent_t x) const noexcept { cudaEventDestroy(x); }
};

template <class T>
using device_memory = std::unique_ptr<T[], free_device>;
/// Pinned memory that the device can access at the same address.
template <class T>
using pinned_memory = std::unique_ptr<T[], free_host>;
using stream = std::unique_ptr<cudaStream_t, destroy_stream>;
using event = std::unique_ptr<cudaEvent_t, destroy_event>;

/// Zeroes memory of the current device, and returns when that is done. Uses a stream of its own, which is the only
/// permitted way while an engine captures a graph.
result<void> zero(void* memory, std::size_t bytes);
/// Copies from the host to the current device in the same way.
result<void> upload(void* memory, const void* from, std::size_t bytes);
/// Whether the current device still works; a fault of the GPU ends its use in the process.
bool works();

/// Zeroed memory of the current device.
template <class T>
result<device_memory<T>> allocate_device(std::size_t count) {
  static_assert(std::is_trivially_copyable_v<T>);
  void* out = nullptr;
  if (auto ok = check(cudaMalloc(&out, count * sizeof(T)), "allocating device memory"); !ok)
    return tl::unexpected(ok.error());
  device_memory<T> owner(static_cast<T*>(out));
  if (auto ok = zero(out, count * sizeof(T)); !ok)
    return tl::unexpected(ok.error());
  return owner;
}

template <class T>
result<pinned_memory<T>> allocate_pinned(std::size_t count) {
  static_assert(std::is_trivially_copyable_v<T>);
  void* out = nullptr;
  if (auto ok = check(cudaHostAlloc(&out, count * sizeof(T), cudaHostAllocPortable | cudaHostAllocMapped),
                      "allocating locked memory");
      !ok)
    return tl::unexpected(ok.error());
  return pinned_memory<T>(static_cast<T*>(out));
}

/// The highest priority of the device, or the lowest.
enum class priority : std::uint8_t { high, low };
result<stream> make_stream(priority which);
/// What may wait for an event: other streams only, or also sleeping threads, for which the device raises an interrupt
/// that costs some microseconds.
enum class awaited_by : std::uint8_t { streams, threads };
result<event> make_event(awaited_by who);

} // namespace troupe::cuda
