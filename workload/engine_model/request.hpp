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

/// Tokens that stand for an image.
struct multimodal_input {
  std::uint32_t first_token = 0;
  std::uint32_t tokens = 0;
  std::string hash;
};

/// What a user asks for.
struct request_spec {
  std::string id;
  std::vector<token_id> prompt;
  /// The model says that it is done after so many tokens, which the scheduler does not know before.
  std::uint32_t output_tokens = 1;
  /// The scheduler stops there.
  std::uint32_t max_tokens = 1;
  std::string lora;
  std::string cache_salt;
  std::vector<multimodal_input> multimodal;
  bool cacheable = true;
};

enum class request_status : std::uint8_t { waiting, waiting_for_remote_kvs, running, preempted, finished };

/// What a model would say, and the KV it would compute. Every token follows from the context, so that equal requests
/// have equal outputs, and all of a request is known from the beginning to those who may know it.
struct course {
  /// Prompt and outputs.
  std::vector<token_id> tokens;
  /// Of each token's KV.
  std::vector<content> contents;
};

/// `tokens` is how many to know, prompt included.
course make_course(const request_spec& spec, std::uint32_t tokens, std::uint32_t vocabulary);

/// What a slot holds when a draft was wrong.
constexpr content wrong_draft(content right) noexcept {
  return right ^ 0xd4af7d4af7d4af70ULL;
}

/// How many of `drafts` tokens guessed after a token with this content are right.
constexpr std::uint32_t accepted_drafts(content last, std::uint32_t drafts) noexcept {
  return static_cast<std::uint32_t>(((last ^ (last >> 31)) * 0x9e3779b97f4a7c15ULL >> 40) % (drafts + 1));
}

/// A request inside the engine. Names are vLLM's where it has one.
struct request {
  request_spec spec;
  course truth;
  /// Of full blocks, as the engine names them.
  std::vector<connector::block_hash> block_hashes;

  request_status status = request_status::waiting;
  bool aborted = false;
  /// The request was in `new_requests` of a step.
  bool known_to_workers = false;

  /// Tokens that the scheduler knows: prompt, and outputs that it was told.
  std::uint32_t num_tokens = 0;
  /// Tokens whose KV is there when all that was scheduled has been done; with drafts, at most so many.
  std::uint32_t num_computed_tokens = 0;
  /// Tokens that steps under way will produce at most.
  std::uint32_t num_output_placeholders = 0;
  /// Guesses to be checked by the next step.
  std::uint32_t num_spec_tokens = 0;
  std::uint32_t num_preemptions = 0;
  /// Outputs of steps before so many preemptions are dropped.
  std::uint32_t outputs_since = 0;

  /// In order of positions; `null_block` where the engine has let go of them.
  std::vector<block_id> blocks;
  /// Leading blocks that the prefix cache knows.
  std::uint32_t num_cached_blocks = 0;

  /// Of the last load: tokens that the engine had, and those that the connector was to load.
  std::uint32_t num_local_tokens = 0;
  std::uint32_t num_external_tokens = 0;
  /// The load has ended, and the scheduler was told.
  bool received = false;
  /// Blocks of the load were reported as failed.
  bool load_failed = false;

  /// What workers know: tokens, sampled ones included, and how many of them have their KV.
  std::uint32_t worker_tokens = 0;
  std::uint32_t worker_computed = 0;

  std::uint32_t prompt_tokens() const noexcept { return static_cast<std::uint32_t>(spec.prompt.size()); }
  /// Tokens when it is done.
  std::uint32_t last_tokens() const noexcept {
    return prompt_tokens() + (spec.output_tokens < spec.max_tokens ? spec.output_tokens : spec.max_tokens);
  }
  bool finished() const noexcept { return status == request_status::finished; }

  /// As the connector sees it.
  connector::token_range token_range() const noexcept { return {0, std::span(truth.tokens).first(num_tokens)}; }
  connector::hash_range hash_range(std::uint32_t block_tokens) const noexcept {
    return {0, block_hashes.empty() ? std::span<const connector::block_hash>{}
                                    : std::span(block_hashes).first(num_tokens / block_tokens)};
  }
};

} // namespace troupe::engine
