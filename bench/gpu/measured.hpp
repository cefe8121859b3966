#pragma once

#include "base/error.hpp"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cuda_runtime_api.h>
#include <functional>
#include <utility>
#include <vector>

/// What the programs here share: calls that must succeed, and times.

namespace troupe::bench {

inline void must(cudaError_t code) {
  if (code == cudaSuccess)
    return;
  std::fprintf(stderr, "%s: %s\n", cudaGetErrorName(code), cudaGetErrorString(code));
  std::exit(1);
}

template <class T>
T must(result<T> x) {
  if (x) {
    if constexpr (std::is_void_v<T>)
      return;
    else
      return std::move(*x);
  }
  std::fprintf(stderr, "%s\n", to_string(x.error()).c_str());
  std::exit(1);
}

inline double seconds_once(const std::function<void()>& work) {
  const auto started = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - started).count();
}

inline double middle(std::vector<double> all) {
  std::sort(all.begin(), all.end());
  return all[all.size() / 2];
}

} // namespace troupe::bench
