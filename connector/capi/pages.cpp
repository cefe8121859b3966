#include "base/message_digest.hpp"
#include "connector/capi/connection.hpp"
#include "connector/capi/conversions.hpp"
#include "connector/capi/descriptions.hpp"
#include "connector/capi/statistics.hpp"
#include "connector/pages/page_pool.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <mutex>
#include <string>
#include <vector>

using namespace troupe;

namespace {

/// The most keys of one call.
constexpr std::size_t pool_keys_max = std::size_t{1} << 20U;
constexpr std::uint32_t pool_key_bytes_max = 64;
constexpr std::uint32_t copy_threads_max = 256;
constexpr std::uint32_t devices_max = 1024;

} // namespace

struct troupe_pages : capi::handle {
  std::shared_ptr<capi::connection_core> core;
  std::unique_ptr<connector::page_pool> pool;
  /// The namespace's id, with which longer keys are hashed.
  std::array<std::byte, 16> scope{};
  std::uint32_t key_bytes = 16;

  std::mutex stats_mutex;
  std::string stats;

  ~troupe_pages() {
    pool.reset(); // before the threads that it uses
  }

  result<std::vector<key_digest>> keys_of(const std::uint8_t* keys, std::size_t count) const;
};

result<std::vector<key_digest>> troupe_pages::keys_of(const std::uint8_t* keys, std::size_t count) const {
  if (count > pool_keys_max)
    return fail(errc::limit_exceeded,
                std::to_string(count) + " keys; a call accepts at most " + std::to_string(pool_keys_max));
  const auto bytes = capi::array_of(keys, count * key_bytes, "keys");
  if (!bytes)
    return tl::unexpected(bytes.error());
  std::vector<key_digest> out(count);
  thread_local message_digest sha256("SHA256");
  for (std::size_t i = 0; i < count; ++i) {
    const auto* key = keys + i * key_bytes;
    std::array<std::uint8_t, 32> digest{};
    if (key_bytes == 16) {
      std::copy_n(key, 16, digest.begin());
    } else if (!sha256.digest({scope, std::as_bytes(std::span(key, key_bytes))},
                              std::as_writable_bytes(std::span(digest)))) {
      return fail(errc::unsupported, "OpenSSL has no SHA-256, which is needed for keys of other than 16 bytes");
    }
    out[i] = capi::digest_of(digest.data());
    if (out[i].is_null())
      return fail(errc::invalid_argument, "key " + std::to_string(i) + " is all zeroes");
  }
  return out;
}

namespace {

/// For handles that several threads may use at once.
template <class F>
std::int32_t with_pool(troupe_pages* pages, troupe_error* error, F f) noexcept {
  return capi::guarded(error, [&]() -> result<void> {
    if (pages == nullptr)
      return fail(errc::invalid_argument, "the handle is NULL");
    if (auto sound = pages->check(); !sound)
      return sound;
    return f(*pages);
  });
}

/// Passes the keys and the limit of a lookup to `then`.
template <class Then>
result<void> look_up(troupe_pages& x, const std::uint8_t* keys, std::size_t count, double limit_seconds, Then then) {
  const auto digests = x.keys_of(keys, count);
  if (!digests)
    return tl::unexpected(digests.error());
  const auto limit = capi::seconds_of(limit_seconds, duration::zero(), "limit_seconds");
  if (!limit)
    return tl::unexpected(limit.error());
  then(std::span<const key_digest>(*digests), *limit);
  return {};
}

result<void> move_pages(troupe_pages& x, bool get, const std::uint8_t* keys, const std::uint32_t* blocks,
                        std::size_t count, double limit_seconds, std::int32_t* results, std::size_t* done) {
  const auto digests = x.keys_of(keys, count);
  if (!digests)
    return tl::unexpected(digests.error());
  const auto where = capi::array_of(blocks, count, "blocks");
  if (!where)
    return tl::unexpected(where.error());
  const auto limit = capi::seconds_of(limit_seconds, duration::zero(), "limit_seconds");
  if (!limit)
    return tl::unexpected(limit.error());
  const auto outcomes = get ? x.pool->get(*digests, *where, *limit) : x.pool->put(*digests, *where, *limit);
  if (!outcomes)
    return tl::unexpected(outcomes.error());
  std::size_t good = 0;
  for (std::size_t i = 0; i < count; ++i) {
    auto code = (*outcomes)[i];
    if (!get && code == errc::exists)
      code = errc::ok;
    if (code == errc::ok)
      ++good;
    if (results != nullptr)
      results[i] = static_cast<std::int32_t>(code);
  }
  if (done != nullptr)
    *done = good;
  return {};
}

} // namespace

std::int32_t troupe_pages_create(troupe_connection* connection, const troupe_namespace* ns,
                                 const troupe_pages_options* options, const troupe_layer* layers,
                                 std::size_t layer_count, std::uint32_t blocks, troupe_pages** out,
                                 troupe_error* error) {
  return capi::create(connection, out, error, [&](auto& runtime) -> result<std::unique_ptr<troupe_pages>> {
    const auto said = capi::read(options, "options");
    if (!said)
      return tl::unexpected(said.error());
    const auto key_bytes = said->key_bytes == 0 ? 16 : said->key_bytes;
    if (key_bytes < 8 || key_bytes > pool_key_bytes_max)
      return fail(errc::invalid_argument, "options.key_bytes is " + std::to_string(key_bytes) + "; it must be 8 to 64");
    connector::pool_options how;
    how.rank = said->rank;
    how.batch_pages = said->batch_pages;
    if (said->copy_threads > copy_threads_max)
      return fail(errc::invalid_argument, "options.copy_threads is " + std::to_string(said->copy_threads) +
                                              "; at most " + std::to_string(copy_threads_max) + " are allowed");
    if (said->device > devices_max)
      return fail(errc::invalid_argument, "options.device is " + std::to_string(said->device) + "; at most " +
                                              std::to_string(devices_max) + " is allowed");
    if (said->device > 0)
      how.gpu = static_cast<int>(said->device - 1);
    how.copy_threads = said->copy_threads;
    // A caller that was built before there were these threads is served as it was.
    if (options->size < offsetof(troupe_pages_options, copy_threads) + sizeof options->copy_threads) {
      how.copy_threads = 1;
      how.keeps_unread_blocks = true;
    }
    const auto lease = capi::seconds_of(said->lease_seconds, how.lease, "options.lease_seconds");
    if (!lease)
      return tl::unexpected(lease.error());
    how.lease = *lease;
    // A page is one block, whatever its number of tokens.
    auto wanted = capi::namespace_of(ns, 1, 0);
    if (!wanted)
      return tl::unexpected(wanted.error());
    if (how.rank >= wanted->spec.world_size)
      return fail(errc::out_of_range, "options.rank is " + std::to_string(how.rank) + "; the world size is " +
                                          std::to_string(wanted->spec.world_size));
    const auto cache =
        capi::cache_of(wanted->spec.geometry, 1, wanted->opaque_block_bytes, layers, layer_count, blocks);
    if (!cache)
      return tl::unexpected(cache.error());
    auto pool = runtime.make_page_pool(how, *cache, wanted->spec);
    if (!pool)
      return tl::unexpected(pool.error());
    auto made = std::make_unique<troupe_pages>();
    const auto id = wanted->spec.id();
    std::array<std::uint8_t, 16> scope{};
    capi::put_digest({id.hi, id.lo}, scope.data());
    std::ranges::copy(std::as_bytes(std::span(scope)), made->scope.begin());
    made->pool = std::move(*pool);
    made->key_bytes = key_bytes;
    return made;
  });
}

void troupe_pages_destroy(troupe_pages* pages) {
  capi::destroy(pages);
}

std::int32_t troupe_pages_attached(troupe_pages* pages, troupe_error* error) {
  return with_pool(pages, error, [](troupe_pages& x) { return x.pool->attached(); });
}

std::int32_t troupe_pages_exist(troupe_pages* pages, const std::uint8_t* keys, std::size_t count, double limit_seconds,
                                std::size_t* found, troupe_error* error) {
  return with_pool(pages, error, [&](troupe_pages& x) -> result<void> {
    if (found == nullptr)
      return fail(errc::invalid_argument, "found is NULL");
    return look_up(x, keys, count, limit_seconds,
                   [&](auto digests, duration limit) { *found = x.pool->exist(digests, limit); });
  });
}

std::int32_t troupe_pages_exist_each(troupe_pages* pages, const std::uint8_t* keys, std::size_t count,
                                     double limit_seconds, std::uint8_t* found, troupe_error* error) {
  return with_pool(pages, error, [&](troupe_pages& x) -> result<void> {
    if (found == nullptr && count > 0)
      return fail(errc::invalid_argument, "found is NULL");
    return look_up(x, keys, count, limit_seconds,
                   [&](auto digests, duration limit) { std::ranges::copy(x.pool->exist_each(digests, limit), found); });
  });
}

std::int32_t troupe_pages_wants_descriptions(troupe_pages* pages, std::uint32_t* wanted, troupe_error* error) {
  return with_pool(pages, error, [&](troupe_pages& x) { return capi::tell_whether_wanted(*x.pool, wanted); });
}

std::int32_t troupe_pages_describe(troupe_pages* pages, const troupe_descriptions* descriptions, troupe_error* error) {
  return with_pool(pages, error, [&](troupe_pages& x) {
    return capi::describe(
        x.pool->wants_descriptions(), descriptions,
        [&](const std::uint8_t* keys, std::size_t count) { return x.keys_of(keys, count); },
        [&x](std::uint32_t, page_descriptions copied) -> result<void> {
          x.pool->describe(std::move(copied));
          return {};
        });
  });
}

std::int32_t troupe_pages_get(troupe_pages* pages, const std::uint8_t* keys, const std::uint32_t* blocks,
                              std::size_t count, double limit_seconds, std::int32_t* results, std::size_t* done,
                              troupe_error* error) {
  return with_pool(pages, error, [&](troupe_pages& x) {
    return move_pages(x, true, keys, blocks, count, limit_seconds, results, done);
  });
}

std::int32_t troupe_pages_put(troupe_pages* pages, const std::uint8_t* keys, const std::uint32_t* blocks,
                              std::size_t count, double limit_seconds, std::int32_t* results, std::size_t* done,
                              troupe_error* error) {
  return with_pool(pages, error, [&](troupe_pages& x) {
    return move_pages(x, false, keys, blocks, count, limit_seconds, results, done);
  });
}

std::int32_t troupe_pages_stats(troupe_pages* pages, troupe_bytes* out, troupe_error* error) {
  return with_pool(pages, error, [&](troupe_pages& x) -> result<void> {
    if (out == nullptr)
      return fail(errc::invalid_argument, "out is NULL");
    const std::lock_guard guard(x.stats_mutex);
    x.stats = capi::stats_text(x.pool->take_stats());
    *out = capi::bytes_of(x.stats);
    return {};
  });
}

std::int32_t troupe_pages_shutdown(troupe_pages* pages, troupe_error* error) {
  return with_pool(pages, error, [](troupe_pages& x) -> result<void> {
    x.close();
    x.pool->shutdown();
    return {};
  });
}
