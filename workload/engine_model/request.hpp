#pragma once

#include "connector/types.hpp"
#include "workload/engine_model/device.hpp"

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace troupe::engine {

using connector::block_id;
using connector::token_id;

/// Tokens that represent an image.
struct multimodal_input {
  std::uint32_t first_token = 0;
  std::uint32_t tokens = 0;
  std::string hash;
};

/// The request of a user.
struct request_spec {
  std::string id;
  std::vector<token_id> prompt;
  /// The output ends after so many tokens, which the scheduler does not know before.
  std::uint32_t output_tokens = 1;
  /// The scheduler's limit.
  std::uint32_t max_tokens = 1;
  std::string lora;
  std::string cache_salt;
  std::vector<multimodal_input> multimodal;
  bool cacheable = true;
};

enum class request_status : std::uint8_t { waiting, waiting_for_remote_kvs, running, preempted, finished };

/// The output of the model, and its KV. Every token follows from the context, so that equal requests have equal outputs
/// and a whole request is known from the start.
struct course {
  /// Prompt and outputs.
  std::vector<token_id> tokens;
  /// The content of each token's KV.
  std::vector<content> contents;
};

/// `tokens` is the number of tokens to generate, prompt included.
course make_course(const request_spec& spec, std::uint32_t tokens, std::uint32_t vocabulary);

/// The content of a slot after a wrong draft.
constexpr content wrong_draft(content right) noexcept {
  return right ^ 0xd4af7d4af7d4af70ULL;
}

/// The number of right ones among `drafts` tokens that were guessed after a token with this content.
constexpr std::uint32_t accepted_drafts(content last, std::uint32_t drafts) noexcept {
  return static_cast<std::uint32_t>(((last ^ (last >> 31)) * 0x9e3779b97f4a7c15ULL >> 40) % (drafts + 1));
}

/// A request in the engine. Names are vLLM's where it has one.
struct request {
  request_spec spec;
  course truth;
  /// The engine's hashes of full blocks.
  std::vector<connector::block_hash> block_hashes;

  request_status status = request_status::waiting;
  bool aborted = false;
  /// The request was in `new_requests` of a step.
  bool known_to_workers = false;

  /// Tokens that the scheduler knows: the prompt, and received outputs.
  std::uint32_t num_tokens = 0;
  /// Tokens whose KV exists when all scheduled work is done; with drafts, an upper bound.
  std::uint32_t num_computed_tokens = 0;
  /// The most tokens that steps in progress will produce.
  std::uint32_t num_output_placeholders = 0;
  /// Drafts that the next step checks.
  std::uint32_t num_spec_tokens = 0;
  std::uint32_t num_preemptions = 0;
  /// Outputs of steps before this number of preemptions are dropped.
  std::uint32_t outputs_since = 0;

  /// In order of positions; `null_block` where the engine has released them.
  std::vector<block_id> blocks;
  /// Leading blocks in the prefix cache.
  std::uint32_t num_cached_blocks = 0;

  /// For the last load: tokens that the engine had, and those that the connector was to load.
  std::uint32_t num_local_tokens = 0;
  std::uint32_t num_external_tokens = 0;
  /// The load has ended, and the scheduler was notified.
  bool received = false;
  /// Blocks of the load were reported as failed.
  bool load_failed = false;

  /// The workers' view: tokens, including sampled ones, and how many of them have their KV.
  std::uint32_t worker_tokens = 0;
  std::uint32_t worker_computed = 0;

  std::uint32_t prompt_tokens() const noexcept { return static_cast<std::uint32_t>(spec.prompt.size()); }
  /// The number of tokens at its end.
  std::uint32_t last_tokens() const noexcept {
    return prompt_tokens() + (spec.output_tokens < spec.max_tokens ? spec.output_tokens : spec.max_tokens);
  }
  bool finished() const noexcept { return status == request_status::finished; }

  /// The connector's view.
  connector::token_range token_range() const noexcept { return {0, std::span(truth.tokens).first(num_tokens)}; }
  connector::hash_range hash_range(std::uint32_t block_tokens) const noexcept {
    return {0, block_hashes.empty() ? std::span<const connector::block_hash>{}
                                    : std::span(block_hashes).first(num_tokens / block_tokens)};
  }
};

} // namespace troupe::engine
