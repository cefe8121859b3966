#include "gpu/cuda/locked_memory.hpp"

#include "gpu/cuda/cuda_handles.hpp"
#include "io/memory/fault_in.hpp"

#include <spdlog/fmt/fmt.h>

#include <map>
#include <mutex>

namespace troupe::cuda {

namespace {

using range_key = std::pair<std::byte*, std::size_t>;

struct lock_table {
  std::mutex mutex;
  std::map<range_key, std::size_t> owners;
};

lock_table& all_locks() {
  // Never destroyed: movers may outlive it.
  static auto* const out = new lock_table;
  return *out;
}

} // namespace

result<locked_memory> locked_memory::lock(std::span<std::byte> memory) {
  // Otherwise the kernel would clear these pages while CUDA holds its lock, and no thread of the process could launch
  // anything: 45 ms for 64 MiB, where locking alone takes 4 ms.
  io::fault_in(memory);
  auto& table = all_locks();
  const std::lock_guard guard(table.mutex);
  const range_key key(memory.data(), memory.size());
  const auto known = table.owners.find(key);
  if (known == table.owners.end()) {
    if (auto ok =
            check(cudaHostRegister(memory.data(), memory.size(), cudaHostRegisterPortable | cudaHostRegisterMapped),
                  fmt::format("locking {} MiB of shared memory for the GPU (the limit of locked memory, ulimit -l, "
                              "must allow it)",
                              memory.size() >> 20U));
        !ok)
      return tl::unexpected(ok.error());
    table.owners.emplace(key, 1);
  } else {
    ++known->second;
  }
  return locked_memory(memory);
}

locked_memory::~locked_memory() {
  if (memory_.empty())
    return;
  auto& table = all_locks();
  const std::lock_guard guard(table.mutex);
  const auto known = table.owners.find(range_key(memory_.data(), memory_.size()));
  if (known == table.owners.end() || --known->second > 0)
    return;
  table.owners.erase(known);
  static_cast<void>(cudaHostUnregister(memory_.data()));
  static_cast<void>(cudaGetLastError());
}

} // namespace troupe::cuda
