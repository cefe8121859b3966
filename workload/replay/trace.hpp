#pragma once

#include "base/error.hpp"

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace troupe::replay {

/// One request to an engine. Two requests with a common prefix of `hash_ids` have that prefix of their prompts in
/// common.
struct trace_request {
  /// Milliseconds since the start of the trace. The replay keeps the order of the file and does not wait.
  std::uint64_t timestamp_ms = 0;
  /// Tokens.
  std::uint64_t input_length = 0;
  std::uint64_t output_length = 0;
  /// One per full block of the prompt, in prompt order. Empty where the prompt is shorter than a block: such a request
  /// looks up, loads and saves nothing, and counts as a request of 0 blocks.
  std::vector<std::uint64_t> hash_ids;

  friend bool operator==(const trace_request&, const trace_request&) = default;
};

struct trace {
  /// The file's name or the generator's full form, for reports.
  std::string name;
  std::vector<trace_request> requests;

  /// The blocks of all requests.
  std::uint64_t blocks() const noexcept;
};

/// Reads a trace of JSON lines, in the format of the traces published with Mooncake: each line one object with the
/// non-negative integers `timestamp`, `input_length`, `output_length` and the array of non-negative integers
/// `hash_ids`; other fields are ignored. The whole trace is read first, so that a bad line stops a replay before its
/// first request. With `limit`, lines after the first `limit` requests are not read.
///
/// Errors: `io_error` where the file cannot be read; `invalid_argument` "file:line: what" for a malformed line (an
/// empty line is one, unless only empty lines follow), or where there is no request; `limit_exceeded` for a line longer
/// than 16 MiB.
result<std::vector<trace_request>> read_trace(const std::filesystem::path& file, std::optional<std::size_t> limit);

/// The parameters of a built-in generator: groups of questions about long documents, in the shape of the LooGLE
/// benchmark. All requests of a group start with the group's document.
struct loogle_spec {
  std::uint64_t groups = 100;
  std::uint64_t prefix_tokens = 20480;
  std::uint64_t queries = 20;
  std::uint64_t query_tokens = 128;

  friend bool operator==(const loogle_spec&, const loogle_spec&) = default;
};

/// Parses `loogle:GROUPS,PREFIX_TOKENS,QUERIES,QUERY_TOKENS`; any trailing part may be omitted, and so may the colon.
/// Error: `invalid_argument`, showing the form.
result<loogle_spec> parse_loogle(std::string_view text);

/// Makes the requests of a generated trace. A request's tokens are its group's prefix and then tokens of its own; only
/// full blocks of `block_tokens` count, and a block that contains a token of the query belongs to that query alone. So
/// a group's first request finds nothing and each other one finds the prefix's full blocks.
///
/// Order: 16 groups are in use at a time. Each next request comes from one of them, chosen by a fixed pseudo-random
/// sequence; a finished group is replaced by the next one. So the number of other requests between two of the same
/// group varies around 16, as with users who each ask a few questions about a document; the same parameters always give
/// the same trace. With `limit`, the first `limit` requests.
///
/// Errors: `invalid_argument` where no request would have a full block; `limit_exceeded` above 2^28 blocks in all.
result<std::vector<trace_request>> make_loogle(const loogle_spec& spec, std::uint32_t block_tokens,
                                               std::optional<std::size_t> limit);

/// The parameters of the other built-in generator: mixed traffic of sessions that begin one per second; the last four
/// numbers are the shares of the kinds.
struct mixed_spec {
  std::uint64_t seed = 1;
  std::uint64_t requests = 20000;
  /// Conversations: one of 20 system prompts of very different popularity, and some turns about a minute apart, each of
  /// which adds a few blocks.
  std::uint64_t chats = 60;
  /// Agents: one of 8 tool descriptions, and about a dozen calls with seconds between them, and sometimes ten minutes.
  std::uint64_t agents = 5;
  /// Long documents, most of which are used by one request.
  std::uint64_t documents = 15;
  /// One of 1,500 prompts of very different popularity, and a few blocks that are never seen again. One request in
  /// fifty replaces a prompt by a new one.
  std::uint64_t prompts = 20;

  friend bool operator==(const mixed_spec&, const mixed_spec&) = default;
};

/// Parses `mixed:SEED,REQUESTS,CHATS,AGENTS,DOCUMENTS,PROMPTS`, as `parse_loogle` does. Error: `invalid_argument`,
/// showing the form.
result<mixed_spec> parse_mixed(std::string_view text);

/// Makes the requests of a generated trace; the same parameters always give the same trace. Lengths are in blocks of
/// any size. With `limit`, the first `limit` requests. Errors: `limit_exceeded` above 2^20 requests; `invalid_argument`
/// for blocks of 0 tokens.
result<std::vector<trace_request>> make_mixed(const mixed_spec& spec, std::uint32_t block_tokens,
                                              std::optional<std::size_t> limit);

/// A trace of a built-in generator; `spec` as for `parse_loogle` or `parse_mixed`.
result<trace> generate_trace(std::string_view spec, std::uint32_t block_tokens, std::optional<std::size_t> limit);

/// A request as one line of a trace file, without a newline: `read_trace` reads it back to an equal one.
std::string to_json(const trace_request& request);

/// Opens the trace in the argument of `--trace`: `loogle`, `mixed`, or one of them with a colon and numbers is a
/// generator, anything else is a file (a file of such a name can be given as `./loogle`). Only generators use
/// `block_tokens`: a file has blocks already.
result<trace> open_trace(std::string_view spec, std::uint32_t block_tokens, std::optional<std::size_t> limit);

} // namespace troupe::replay
