#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace troupe::engine {

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
  /// Tokens that loads have brought.
  std::uint64_t external_tokens = 0;
  std::uint64_t requests_stopped = 0;
  std::uint64_t requests_aborted = 0;
  std::uint64_t aborted_during_load = 0;
  /// Blocks of finished requests that had to be kept for the connector.
  std::uint64_t requests_kept = 0;
};

} // namespace troupe::engine
