#pragma once

#include "base/clock.hpp"
#include "base/error.hpp"
#include "base/identifiers.hpp"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace troupe {

struct metadata_client_options {
  /// "http://host:port", "https://…", also with a path in front of those of the service.
  std::string url = "http://localhost:18000";
  /// Sent with each request as a bearer token; empty: none.
  std::string token;

  // PEM files, for https.

  /// Whose certificates servers must show; not set: those that the system trusts.
  std::optional<std::filesystem::path> ca;
  /// The client's own certificate, if servers request one.
  std::optional<std::filesystem::path> certificate;
  std::optional<std::filesystem::path> key;

  /// The limit of one attempt until a connection is established, its name resolved and TLS included.
  duration connect_time = std::chrono::seconds{2};
  /// The limit of one attempt until the answer has been read.
  duration answer_time = std::chrono::seconds{30};

  /// After the first attempt.
  std::uint32_t retries = 3;
  /// Before the first retry; doubled with each. The actual pause is drawn between half of it and all of it, so that
  /// clients that failed together do not retry together.
  duration first_pause = std::chrono::milliseconds{300};
  duration max_pause = std::chrono::seconds{5};

  /// Open at once. A call that finds all of them taken waits for one, `connect_time` at most.
  std::size_t connections = 16;
  /// A connection that was unused for longer is not used again; the server's limit is five minutes.
  duration max_idle_time = std::chrono::minutes{1};
  std::size_t max_answer_bytes = std::size_t{64} << 20U;

  /// Waits before a retry; if not set, the thread sleeps. For tests.
  std::function<void(duration)> pause;
};

/// A client of a metadata service over the protocol of vLLM's HF3FS connector. Thread-safe: each call takes a
/// connection of its own for its duration. Calls block until there is an answer, or the attempts are used up.
///
/// Attempts that end without an answer, or with a status of 500 or above, are repeated; 4xx and 501 are not, since the
/// same answer would come. Repeating is safe also where the answer to an attempt was lost: `initialize` and `confirm`
/// are idempotent, look-ups have no effect, and the service is single-flight: a key that is being written gets the same
/// page again, not a second one. Only the release of pages must not be repeated, since another writer may have them by
/// then; see `confirm_write_for_keys`.
///
/// Errors: `unreachable` (no connection, or 5xx), `timeout`, `invalid_argument` (400, 422, and requests that cannot be
/// sent), `not_owner` (401, 403), `not_found`, `identity_mismatch` (409), `limit_exceeded` (413, 429, or no free
/// connection), `internal` (an invalid answer).
class metadata_client {
public:
  enum class client_role : std::uint8_t { worker, scheduler };

  struct key_and_prefix {
    std::string key;
    /// The key before it; may be empty.
    std::string prefix = {};
  };
  struct key_and_page {
    std::string key;
    slot_number page = 0;
  };
  struct allocation {
    std::string key;
    /// No value where there is no page for it.
    std::optional<slot_number> page;
  };

  /// Checks the options and loads certificates; does not connect yet.
  static result<std::unique_ptr<metadata_client>> make(metadata_client_options options);

  ~metadata_client();
  metadata_client(const metadata_client&) = delete;
  metadata_client& operator=(const metadata_client&) = delete;

  /// Registers a rank with its number of pages; a scheduler says only that it is there.
  result<void> initialize(rank_number rank, std::uint64_t pages = 0, client_role role = client_role::worker);

  /// Pages to write the keys to; a key that is complete gets the page it has. One per key, in the order in which keys
  /// first occur: a key that is asked for twice is answered once.
  result<std::vector<allocation>> allocate_pages_for_keys(rank_number rank, std::span<const key_and_prefix> keys);

  /// Says which pages have been written, and gives back those whose writing failed. The latter is a request of its own,
  /// after the first has been answered, and is repeated only where it cannot have arrived: with an error, pages may
  /// or may not be back, and the service takes them back by itself when their time to be written has passed.
  result<void> confirm_write_for_keys(rank_number rank, std::span<const key_and_page> confirmations,
                                      std::span<const slot_number> pages_to_release = {});

  /// Which keys are complete on all ranks; one per key.
  result<std::vector<bool>> batch_key_exists(std::span<const std::string> keys);

  /// The locations of the pages of complete keys; one per key.
  result<std::vector<std::optional<slot_number>>> get_key_locations(rank_number rank,
                                                                    std::span<const std::string> keys);

  /// Connections that are open and unused.
  std::size_t idle_connections() const;

private:
  struct implementation;
  explicit metadata_client(std::unique_ptr<implementation> x);

  std::unique_ptr<implementation> implementation_;
};

} // namespace troupe
