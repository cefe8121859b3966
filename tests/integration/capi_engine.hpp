#pragma once

#include "connector/capi/troupe.h"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

/// An engine that knows nothing of Troupe but its C interface.

namespace troupe::test {

template <class T>
T sized() {
  T out{};
  out.size = static_cast<std::uint32_t>(sizeof out);
  return out;
}

struct capi_destroyer {
  void operator()(troupe_connection* x) const { troupe_connection_destroy(x); }
  void operator()(troupe_scheduler* x) const { troupe_scheduler_destroy(x); }
  void operator()(troupe_worker* x) const { troupe_worker_destroy(x); }
  void operator()(troupe_pages* x) const { troupe_pages_destroy(x); }
};
template <class T>
using capi_handle = std::unique_ptr<T, capi_destroyer>;

/// The error of a function.
struct capi_outcome {
  std::int32_t code = 0;
  std::string text;
};

/// Calls `function` with the arguments and a place for an error.
template <class F, class... Ts>
capi_outcome said_by(F function, Ts... values) {
  auto error = sized<troupe_error>();
  const auto code = function(values..., &error);
  return {code, code == TROUPE_OK ? "" : error.text};
}

/// Requires success.
void demand_ok(const capi_outcome& x);

template <class F, class... Ts>
void call(F function, Ts... values) {
  demand_ok(said_by(function, values...));
}

std::vector<std::string> ids_of(const troupe_ids& ids);

capi_handle<troupe_connection> connect_to(const std::string& address, double wait_seconds = 0);

struct capi_shape {
  std::uint32_t workers = 1;
  std::uint32_t layers = 2;
  std::uint32_t blocks = 32;
  std::uint32_t block_tokens = 16;
  std::uint32_t blocks_per_page = 1;
  bool opaque = false;
  std::uint32_t keys = TROUPE_KEYS_ROLLING;
  std::uint32_t min_load_tokens = 0;
  std::uint32_t disk_hits = TROUPE_DISK_HITS_ALWAYS;
  bool synchronous_loads = false;
  std::uint32_t events = TROUPE_EVENTS_CHANGES;
  std::string name{};
  std::string model = "test/model";
  std::string hash_algorithm{};
  std::string dtype = "bfloat16";

  /// The bytes of one layer's block: two heads of 64 pairs of 2 bytes.
  std::uint64_t block_bytes() const { return std::uint64_t{block_tokens} * 2 * 128 * 2; }
};

/// A scheduler half, and worker halves with caches in host memory whose bytes say what they are.
class capi_engine {
public:
  capi_engine(troupe_connection* connection, capi_shape shape);

  /// The same, where it may fail.
  static capi_outcome try_scheduler(troupe_connection* connection, const capi_shape& shape);

  troupe_scheduler* scheduler() const { return scheduler_.get(); }
  troupe_worker* worker(std::size_t i) const { return workers_[i].get(); }

  /// After `troupe_worker_unregister`.
  void register_again() { register_all(); }

  /// Tokens that are in the cache; waits until it is known. `tokens` is the prompt.
  std::uint32_t matched(const std::string& id, const std::vector<std::uint32_t>& prompt);

  /// Computes the prompt, without loading, into these blocks, and lets the request finish.
  void run(const std::string& id, const std::vector<std::uint32_t>& prompt, const std::vector<std::uint32_t>& blocks);

  /// The outcome of a load.
  struct loaded {
    std::uint32_t tokens = 0;
    std::set<std::uint32_t> errors;
    std::vector<std::string> failed;
    /// Whether all blocks but those in `errors` have the right content.
    bool right = true;
  };
  loaded load(const std::string& id, const std::vector<std::uint32_t>& prompt,
              const std::vector<std::uint32_t>& blocks);

  struct part {
    std::string id;
    std::uint32_t computed = 0;
    std::uint32_t scheduled = 0;
    std::vector<std::uint32_t> blocks{};
  };
  /// The reports of the workers, joined.
  struct outputs {
    std::vector<std::string> sent;
    std::vector<std::string> received;
    std::vector<std::string> failed;
    std::vector<std::uint32_t> load_errors;
  };
  outputs step(const std::vector<part>& fresh, const std::vector<std::string>& preempted = {},
               const std::function<void()>& forward = {});
  /// A step in which nothing runs, after a moment.
  outputs idle_step();
  void finish(const std::string& id);

  /// Writes what the KV of these tokens is into blocks, on all workers.
  void compute(const std::vector<std::uint32_t>& prompt, const std::vector<std::uint32_t>& blocks);
  bool holds(const std::vector<std::uint32_t>& prompt, std::size_t block_index, std::uint32_t block) const;

  std::size_t tracked() const;

private:
  struct terms;
  void register_all();
  void fill(std::uint8_t* to, std::size_t worker, std::size_t layer, const std::vector<std::uint32_t>& prompt,
            std::size_t block_index) const;
  const std::uint8_t* place(std::size_t worker, std::size_t layer, std::uint32_t block) const;

  capi_shape shape_;
  /// The memory of each worker: all layers, one after the other.
  std::vector<std::vector<std::uint8_t>> caches_;
  capi_handle<troupe_scheduler> scheduler_;
  std::vector<capi_handle<troupe_worker>> workers_;
  std::unordered_map<std::string, std::size_t> sent_;
  std::unordered_map<std::string, std::size_t> received_;
};

} // namespace troupe::test
