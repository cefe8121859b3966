#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace troupe::engine {

enum class load_failure_policy : std::uint8_t {
  /// Tokens that were not loaded are computed.
  recompute,
  /// The request ends with an error, vLLM's default.
  fail,
};

/// The options of an engine. Names are vLLM's where it has one.
struct engine_options {
  std::uint32_t block_tokens = 16;
  /// The size of the block pool, including block 0, which is never allocated.
  std::uint32_t num_blocks = 1024;
  /// The most tokens that a step computes; longer prompts are computed in chunks.
  std::uint32_t max_num_batched_tokens = 2048;
  std::uint32_t max_num_seqs = 64;
  /// The most tokens of a request, with its outputs and drafts.
  std::uint32_t max_model_len = 8192;
  bool enable_prefix_caching = true;
  /// Tokens within reach of attention, including the new one; 0: all. Of a prefix that the engine has, only the blocks
  /// within reach of the next token are held: a request's list then begins with `null_block`.
  std::uint32_t sliding_window = 0;
  /// A step is scheduled before the output of the previous one exists.
  bool async_scheduling = false;
  std::uint32_t num_speculative_tokens = 0;
  /// Outputs are below this number.
  std::uint32_t vocabulary = 32'000;
  /// Whether the connector receives hashes of blocks.
  bool report_block_hashes = false;
  load_failure_policy kv_load_failure_policy = load_failure_policy::recompute;
  /// The engine receives failed loads by the names of requests, and computes all of their tokens, as it must where
  /// several KV cache groups have blocks of the same number. Synchronous loads are reported by their blocks all the
  /// same.
  bool load_failures_by_request = false;
  /// Whether an output is dropped that arrives after its request was preempted, because others wait for the KV of a
  /// request that ends. A cache answers no.
  bool requires_kv_delivery = false;
  /// Resumed requests are reported like new ones, as by vLLM's second model runner.
  bool resumed_are_new = false;
  /// `wait_for_save` comes at the end of a step, after all reports, as with a draft model.
  bool late_saves = false;
  /// Checks all KV that a forward pass reads in each step; otherwise only in the first step after a request was
  /// scheduled anew, in which a connector's fault shows.
  bool check_every_step = true;
};

/// A forbidden action of a connector. `property` is a short name, `text` a sentence.
struct violation {
  std::string property;
  std::string text;
};

/// Collects a bounded number of violations.
class violations {
public:
  void add(std::string_view property, std::string text) {
    if (found_.size() < most)
      found_.push_back({std::string(property), std::move(text)});
  }
  bool empty() const noexcept { return found_.empty(); }
  const std::vector<violation>& found() const noexcept { return found_; }

private:
  static constexpr std::size_t most = 16;
  std::vector<violation> found_;
};

/// Counters of an engine since its start.
struct engine_statistics {
  std::uint64_t steps = 0;
  std::uint64_t steps_without_tokens = 0;
  std::uint64_t scheduled_tokens = 0;
  std::uint64_t generated_tokens = 0;
  std::uint64_t rejected_drafts = 0;
  std::uint64_t preemptions = 0;
  /// Outputs of steps that preceded a preemption and arrived after it.
  std::uint64_t outputs_of_preempted = 0;
  /// Tokens that were found in the prefix cache when a request was scheduled.
  std::uint64_t prefix_cache_tokens = 0;
  /// Lookups at the connector, and those without an answer yet.
  std::uint64_t questions = 0;
  std::uint64_t questions_unanswered = 0;
  /// A request with tokens at the connector got no blocks, and has to retry.
  std::uint64_t hits_without_blocks = 0;
  /// The engine had no room for loadable tokens, and declined them.
  std::uint64_t hits_declined = 0;
  std::uint64_t loads = 0;
  std::uint64_t loads_after_preemption = 0;
  std::uint64_t loads_failed = 0;
  /// The loads that a step waited for, and how many of these failed.
  std::uint64_t loads_synchronous = 0;
  std::uint64_t loads_synchronous_failed = 0;
  /// Requests that had found blocks of a failed load in the prefix cache, and had to restart.
  std::uint64_t shared_loads_failed = 0;
  /// Tokens that were loaded.
  std::uint64_t external_tokens = 0;
  std::uint64_t requests_stopped = 0;
  std::uint64_t requests_aborted = 0;
  /// Requests that ended with an error because of a load.
  std::uint64_t requests_failed = 0;
  /// Resets of the prefix cache that were refused because of blocks in use.
  std::uint64_t resets_refused = 0;
  std::uint64_t resumed_in_the_same_step = 0;
  std::uint64_t aborted_during_load = 0;
  /// Finished requests whose blocks were kept for the connector.
  std::uint64_t requests_kept = 0;
};

} // namespace troupe::engine
