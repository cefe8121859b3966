#include "gpu/cuda/cuda_handles.hpp"

#include <spdlog/fmt/fmt.h>

namespace troupe::cuda {

error to_error(cudaError_t code, std::string_view what) {
  const auto kind = code == cudaErrorMemoryAllocation ? errc::limit_exceeded
                    : code == cudaErrorNoDevice || code == cudaErrorInvalidDevice || code == cudaErrorInsufficientDriver
                        ? errc::unsupported
                        : errc::device_error;
  return {kind, fmt::format("{}: {}: {}", what, cudaGetErrorName(code), cudaGetErrorString(code))};
}

result<void> check(cudaError_t code, std::string_view what) {
  if (code == cudaSuccess)
    return {};
  // Clears the error: the next launch would report it again otherwise.
  static_cast<void>(cudaGetLastError());
  return tl::unexpected(to_error(code, what));
}

namespace {

/// Starts `f(stream)` and returns when its work is done.
template <class F>
result<void> on_own_stream(std::string_view what, F f) {
  auto own = make_stream(priority::low);
  if (!own)
    return tl::unexpected(std::move(own.error()));
  if (auto ok = check(f(own->get()), what); !ok)
    return ok;
  return check(cudaStreamSynchronize(own->get()), what);
}

} // namespace

result<void> zero(void* memory, std::size_t bytes) {
  return on_own_stream("zeroing device memory", [&](cudaStream_t x) { return cudaMemsetAsync(memory, 0, bytes, x); });
}

result<void> upload(void* memory, const void* from, std::size_t bytes) {
  return on_own_stream("copying to device memory",
                       [&](cudaStream_t x) { return cudaMemcpyAsync(memory, from, bytes, cudaMemcpyHostToDevice, x); });
}

bool works() {
  return on_own_stream("testing the device", [](cudaStream_t) { return cudaSuccess; }).has_value();
}

result<stream> make_stream(priority which) {
  int lowest = 0;
  int highest = 0;
  if (auto ok = check(cudaDeviceGetStreamPriorityRange(&lowest, &highest), "querying stream priorities"); !ok)
    return tl::unexpected(ok.error());
  cudaStream_t out = nullptr;
  if (auto ok =
          check(cudaStreamCreateWithPriority(&out, cudaStreamNonBlocking, which == priority::high ? highest : lowest),
                "creating a stream");
      !ok)
    return tl::unexpected(ok.error());
  return stream(out);
}

result<event> make_event(awaited_by who) {
  cudaEvent_t out = nullptr;
  const auto flags =
      who == awaited_by::threads ? cudaEventBlockingSync | cudaEventDisableTiming : cudaEventDisableTiming;
  if (auto ok = check(cudaEventCreateWithFlags(&out, static_cast<unsigned>(flags)), "creating an event"); !ok)
    return tl::unexpected(ok.error());
  return event(out);
}

} // namespace troupe::cuda
