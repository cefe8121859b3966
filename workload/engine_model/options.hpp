#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace troupe::engine {

enum class load_failure_policy : std::uint8_t {
  /// What was not loaded is computed.
  recompute,
  /// The request ends with an error: what vLLM does unless it is told otherwise.
  fail,
};

/// What an engine is started with. Names are vLLM's where it has one.
struct engine_options {
  std::uint32_t block_tokens = 16;
  /// Of the block pool, block 0 included, which is never given out.
  std::uint32_t num_blocks = 1024;
  /// Tokens that a step computes at most; longer prompts are computed in chunks.
  std::uint32_t max_num_batched_tokens = 2048;
  std::uint32_t max_num_seqs = 64;
  /// Tokens of a request, with its outputs and drafts.
  std::uint32_t max_model_len = 8192;
  bool enable_prefix_caching = true;
  /// Tokens that attention reaches back, the new one included; 0: all. Of a prefix that the engine has, only the blocks
  /// within reach of the next token are held: the list of a request begins with `null_block` then.
  std::uint32_t sliding_window = 0;
  /// A step is scheduled before the output of the one before it is there.
  bool async_scheduling = false;
  std::uint32_t num_speculative_tokens = 0;
  /// Outputs are below this.
  std::uint32_t vocabulary = 32'000;
  /// Whether the connector is told hashes of blocks.
  bool tell_block_hashes = false;
  load_failure_policy kv_load_failure_policy = load_failure_policy::recompute;
  /// The engine hears of failed loads by the names of requests, and computes all of their tokens, as it has to where
  /// several KV cache groups have blocks of the same number. Of synchronous loads it hears by their blocks all the
  /// same.
  bool load_failures_by_request = false;
  /// Whether an output that comes after its request was preempted is of no use, since others wait for the KV of a
  /// request that ends. A cache says no.
  bool requires_kv_delivery = false;
  /// Requests that come back are told like new ones, as by vLLM's second model runner.
  bool resumed_are_new = false;
  /// `wait_for_save` comes at the end of a step, behind all reports, as with a draft model.
  bool late_saves = false;
  /// Look at all KV that a forward pass reads in each step; otherwise only in the first one after a request was
  /// scheduled anew, which is when a connector can have done harm.
  bool check_every_step = true;
};

/// Something that a connector must never do has happened. `property` is a short name, `text` a sentence.
struct violation {
  std::string property;
  std::string text;
};

/// Collects violations; a few are enough.
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

/// What an engine has done so far.
struct engine_statistics {
  std::uint64_t steps = 0;
  std::uint64_t steps_without_tokens = 0;
  std::uint64_t scheduled_tokens = 0;
  std::uint64_t generated_tokens = 0;
  std::uint64_t rejected_drafts = 0;
  std::uint64_t preemptions = 0;
  /// Outputs of steps before a preemption that came after it.
  std::uint64_t outputs_of_preempted = 0;
  /// Tokens that a request found in the prefix cache when it was scheduled.
  std::uint64_t prefix_cache_tokens = 0;
  /// Questions to the connector, and those that it had no answer for yet.
  std::uint64_t questions = 0;
  std::uint64_t questions_unanswered = 0;
  /// A request that the connector had tokens for got no blocks, and has to ask again.
  std::uint64_t hits_without_blocks = 0;
  /// The engine had no room for what could be loaded, and said so.
  std::uint64_t hits_declined = 0;
  std::uint64_t loads = 0;
  std::uint64_t loads_after_preemption = 0;
  std::uint64_t loads_failed = 0;
  /// Of `loads`, those that a step waited for, and of these, those that failed.
  std::uint64_t loads_synchronous = 0;
  std::uint64_t loads_synchronous_failed = 0;
  /// Requests that had blocks of such a load from the prefix cache, and had to begin anew.
  std::uint64_t shared_loads_failed = 0;
  /// Tokens that loads have brought.
  std::uint64_t external_tokens = 0;
  std::uint64_t requests_stopped = 0;
  std::uint64_t requests_aborted = 0;
  /// Ended with an error, because of a load.
  std::uint64_t requests_failed = 0;
  /// Prefix caches that were to be reset and were not, because of blocks in use.
  std::uint64_t resets_refused = 0;
  std::uint64_t resumed_in_the_same_step = 0;
  std::uint64_t aborted_during_load = 0;
  /// Blocks of finished requests that had to be kept for the connector.
  std::uint64_t requests_kept = 0;
};

} // namespace troupe::engine
