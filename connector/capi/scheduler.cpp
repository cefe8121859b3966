#include "connector/capi/connection.hpp"
#include "connector/capi/conversions.hpp"
#include "connector/capi/descriptions.hpp"
#include "connector/capi/statistics.hpp"
#include "connector/scheduler_half.hpp"
#include "connector/wire.hpp"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <chrono>
#include <limits>
#include <string>
#include <unordered_map>
#include <vector>

using namespace troupe;

namespace {

/// The most tokens or hashes of all requests of a step together.
constexpr std::size_t elements_max = std::numeric_limits<std::uint32_t>::max();

/// The range of the elements of request i in an array of all requests.
struct piece {
  std::size_t first = 0;
  std::size_t count = 0;
};

/// Checks that `ends` never decreases and ends within `total`.
result<void> check_ends(const std::uint32_t* ends, std::size_t requests, std::size_t total, const char* name) {
  std::uint32_t last = 0;
  for (std::size_t i = 0; i < requests; ++i) {
    if (ends[i] < last)
      return fail(errc::invalid_argument, std::string(name) + " decreases");
    last = ends[i];
  }
  if (last > total)
    return fail(errc::out_of_range,
                std::string(name) + " ends at " + std::to_string(last) + " of " + std::to_string(total) + " elements");
  return {};
}

piece piece_of(const std::uint32_t* ends, std::size_t i) noexcept {
  if (ends == nullptr)
    return {};
  const std::size_t first = i == 0 ? 0 : ends[i - 1];
  return {first, ends[i] - first};
}

} // namespace

struct troupe_scheduler : capi::handle {
  std::shared_ptr<capi::connection_core> core;
  std::unique_ptr<connector::scheduler_half> half;
  std::uint32_t hash_bytes = 32;
  bool counts_tokens = false;

  std::uint64_t hit_requests = 0;
  std::uint64_t hit_tokens = 0;

  // Buffers that are reused.
  std::vector<connector::block_hash> hashes;
  std::vector<connector::token_id> unknown_tokens;
  std::vector<connector::multimodal_item> items;
  std::vector<std::string_view> ids;
  std::vector<std::string_view> preempted;
  std::vector<connector::scheduled_request> scheduled;
  std::vector<std::uint32_t> table_ends;
  std::vector<connector::state_offer> states;
  connector::block_holds holds;
  std::vector<std::uint8_t> meta;
  std::string stats;
  connector::worker_output output;
  struct {
    capi::id_list requests;
    std::vector<std::uint8_t> kinds;
    std::vector<std::uint8_t> parents;
    std::vector<std::uint32_t> key_ends;
    std::vector<std::uint8_t> keys;
    std::vector<std::uint32_t> first_pages;
    std::vector<std::uint32_t> page_counts;
    std::vector<std::uint32_t> groups;
    std::vector<std::uint64_t> saves;
  } events;

  ~troupe_scheduler() {
    half.reset(); // before the threads that it uses
  }

  /// Tokens of the caller, which may be left out where they are only counted.
  result<std::span<const connector::token_id>> tokens_of(const std::uint32_t* data, std::size_t count,
                                                         const char* name) {
    if (data != nullptr || count == 0 || !counts_tokens)
      return capi::array_of(data, count, name);
    if (count > std::size_t{64} << 20U)
      return fail(errc::limit_exceeded, std::string(name) + ": more than 64 Mi tokens");
    if (unknown_tokens.size() < count)
      unknown_tokens.resize(count);
    return std::span<const connector::token_id>(unknown_tokens.data(), count);
  }

  result<connector::engine_request> request_of(const troupe_request* said);
  result<void> read_step(const troupe_step& step);
  /// The blocks of each request, by table; `scheduled` has the requests.
  result<void> read_tables(const troupe_step& step, std::span<const connector::block_id> blocks);
  result<void> read_states(const troupe_step& step);
};

result<connector::engine_request> troupe_scheduler::request_of(const troupe_request* said) {
  const auto x = capi::read(said, "request");
  if (!x)
    return tl::unexpected(x.error());
  const auto id = capi::id_of(x->id);
  const auto tokens_said = tokens_of(x->tokens, x->token_count, "request.tokens");
  const auto hashes_said = capi::hashes_of(x->hashes, x->hash_count, hash_bytes, "request.hashes", hashes);
  const auto lora = capi::text_of(x->lora, "request.lora");
  const auto salt = capi::text_of(x->cache_salt, "request.cache_salt");
  const auto items_said = capi::array_of(x->multimodal, x->multimodal_count, "request.multimodal");
  for (const auto* text : {&id, &lora, &salt})
    if (!*text)
      return tl::unexpected(text->error());
  if (!tokens_said)
    return tl::unexpected(tokens_said.error());
  if (!hashes_said)
    return tl::unexpected(hashes_said.error());
  if (!items_said)
    return tl::unexpected(items_said.error());
  items.clear();
  for (const auto& item : *items_said) {
    if ((item.hash == nullptr && item.hash_length > 0) || item.hash_length > capi::text_bytes_max)
      return fail(errc::invalid_argument, "request.multimodal: a hash is NULL or has more than 4096 bytes");
    items.push_back({item.first_token, item.tokens, {item.hash, item.hash_length}});
  }
  connector::engine_request out;
  out.id = *id;
  out.tokens = {x->first_token, *tokens_said};
  out.hashes = {x->first_hash, *hashes_said};
  out.lora = *lora;
  out.cache_salt = *salt;
  out.multimodal = items;
  out.cacheable = x->uncacheable == 0;
  return out;
}

result<void> troupe_scheduler::read_step(const troupe_step& step) {
  if (auto sound = capi::read_ids(step.requests, "step.requests", ids); !sound)
    return sound;
  if (auto sound = capi::read_ids(step.preempted, "step.preempted", preempted); !sound)
    return sound;
  const auto count = ids.size();
  if (step.new_requests > count)
    return fail(errc::invalid_argument, "step.new_requests is larger than the number of requests");
  if (count > 0 && (step.computed_tokens == nullptr || step.scheduled_tokens == nullptr))
    return fail(errc::invalid_argument, "step.computed_tokens or step.scheduled_tokens is NULL");
  if (std::max({step.blocks.count, step.token_count, step.hash_count}) > elements_max)
    return fail(errc::limit_exceeded, "step: more than 2^32 elements");
  const auto blocks = capi::array_of(step.blocks.data, step.blocks.count, "step.blocks");
  if (!blocks)
    return tl::unexpected(blocks.error());
  const auto tokens = tokens_of(step.tokens, step.token_count, "step.tokens");
  if (!tokens)
    return tl::unexpected(tokens.error());
  const auto all_hashes = capi::hashes_of(step.hashes, step.hash_count, hash_bytes, "step.hashes", hashes);
  if (!all_hashes)
    return tl::unexpected(all_hashes.error());
  if ((step.token_ends != nullptr && step.token_firsts == nullptr) ||
      (step.hash_ends != nullptr && step.hash_firsts == nullptr))
    return fail(errc::invalid_argument, "step: token_ends requires token_firsts, and hash_ends requires hash_firsts");
  result<void> sound;
  if (step.token_ends != nullptr)
    sound = check_ends(step.token_ends, count, tokens->size(), "step.token_ends");
  if (sound && step.hash_ends != nullptr)
    sound = check_ends(step.hash_ends, count, all_hashes->size(), "step.hash_ends");
  if (!sound)
    return sound;
  scheduled.clear();
  scheduled.reserve(count);
  for (std::size_t i = 0; i < count; ++i) {
    connector::scheduled_request x;
    x.id = ids[i];
    x.computed_tokens = step.computed_tokens[i];
    x.scheduled_tokens = step.scheduled_tokens[i];
    x.resumed = step.resumed != nullptr && step.resumed[i] != 0;
    if (const auto own = piece_of(step.token_ends, i); own.count > 0)
      x.tokens = {step.token_firsts[i], tokens->subspan(own.first, own.count)};
    if (const auto own = piece_of(step.hash_ends, i); own.count > 0)
      x.hashes = {step.hash_firsts[i], all_hashes->subspan(own.first, own.count)};
    scheduled.push_back(x);
  }
  if (auto read = read_tables(step, *blocks); !read)
    return read;
  return read_states(step);
}

result<void> troupe_scheduler::read_tables(const troupe_step& step, std::span<const connector::block_id> blocks) {
  if (step.block_ends == nullptr)
    return {};
  constexpr std::uint32_t tables_max = 256;
  const std::size_t tables = std::max(step.tables, 1U);
  if (tables > tables_max)
    return fail(errc::limit_exceeded, "step.tables: more than " + std::to_string(tables_max));
  const auto count = scheduled.size();
  if (auto sound = check_ends(step.block_ends, count * tables, blocks.size(), "step.block_ends"); !sound)
    return sound;
  table_ends.resize(count * tables);
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t first = i == 0 ? 0 : step.block_ends[i * tables - 1];
    const auto all = blocks.subspan(first, step.block_ends[(i + 1) * tables - 1] - first);
    for (std::size_t t = 0; t < tables; ++t)
      table_ends[i * tables + t] = static_cast<std::uint32_t>(step.block_ends[i * tables + t] - first);
    scheduled[i].blocks = tables == 1 ? connector::block_tables(all)
                                      : connector::block_tables(all, std::span(table_ends).subspan(i * tables, tables));
  }
  return {};
}

result<void> troupe_scheduler::read_states(const troupe_step& step) {
  if (step.state_ends == nullptr)
    return {};
  const auto said = capi::array_of(step.states, step.state_count, "step.states");
  if (!said)
    return tl::unexpected(said.error());
  if (auto sound = check_ends(step.state_ends, scheduled.size(), said->size(), "step.state_ends"); !sound)
    return sound;
  states.clear();
  for (const auto& x : *said)
    states.push_back({x.table, x.block, x.tokens});
  for (std::size_t i = 0; i < scheduled.size(); ++i) {
    const auto own = piece_of(step.state_ends, i);
    scheduled[i].states = std::span<const connector::state_offer>(states).subspan(own.first, own.count);
  }
  return {};
}

namespace {

using made_scheduler = result<std::unique_ptr<troupe_scheduler>>;

made_scheduler handle_of(result<std::unique_ptr<connector::scheduler_half>> half, const capi::engine_terms& terms) {
  if (!half)
    return tl::unexpected(half.error());
  auto made = std::make_unique<troupe_scheduler>();
  made->half = std::move(*half);
  made->hash_bytes = terms.hash_bytes;
  made->counts_tokens = terms.options.keys == connector::key_source::engine_hashes;
  return made;
}

/// Writes what `f` says of a request into a struct with a size.
template <class Out, class F>
std::int32_t write_about(troupe_scheduler* scheduler, const char* request, Out* out, troupe_error* error, F f) {
  return capi::guarded_use(scheduler, error, [&](troupe_scheduler& x) -> result<void> {
    if (auto room = capi::check_room(out, "out"); !room)
      return room;
    const auto id = capi::id_of(request);
    if (!id)
      return tl::unexpected(id.error());
    capi::write(f(*x.half, *id), out);
    return {};
  });
}

} // namespace

std::int32_t troupe_scheduler_create_groups(troupe_connection* connection, const troupe_groups* groups,
                                            const troupe_engine* engine, troupe_scheduler** out, troupe_error* error) {
  return capi::create(connection, engine, out, error, [&](auto& runtime, const auto& terms) -> made_scheduler {
    auto wanted = capi::groups_of(groups, terms.options);
    if (!wanted)
      return tl::unexpected(wanted.error());
    return handle_of(runtime.make_grouped_scheduler_half(terms.options, std::move(wanted->layout)), terms);
  });
}

std::int32_t troupe_scheduler_allocated_tables(troupe_scheduler* scheduler, const char* request,
                                               const std::uint32_t* blocks, std::size_t block_count,
                                               const std::uint32_t* block_ends, std::size_t table_count,
                                               std::uint32_t external_tokens, troupe_error* error) {
  return capi::guarded_use(scheduler, error, [&](troupe_scheduler& x) -> result<void> {
    const auto id = capi::id_of(request);
    if (!id)
      return tl::unexpected(id.error());
    const auto all = capi::array_of(blocks, block_count, "blocks");
    if (!all)
      return tl::unexpected(all.error());
    const auto ends = capi::array_of(block_ends, table_count, "block_ends");
    if (!ends)
      return tl::unexpected(ends.error());
    if (auto sound = check_ends(ends->data(), ends->size(), all->size(), "block_ends"); !sound)
      return sound;
    x.half->update_state_after_alloc(*id, {*all, *ends}, external_tokens);
    if (external_tokens > 0) {
      ++x.hit_requests;
      x.hit_tokens += external_tokens;
    }
    return {};
  });
}

std::int32_t troupe_scheduler_take_holds(troupe_scheduler* scheduler, troupe_blocks* hold, troupe_blocks* release,
                                         troupe_error* error) {
  return capi::guarded_use(scheduler, error, [&](troupe_scheduler& x) -> result<void> {
    if (hold == nullptr || release == nullptr)
      return fail(errc::invalid_argument, "hold or release is NULL");
    x.holds = x.half->take_block_holds();
    *hold = {x.holds.hold.data(), x.holds.hold.size()};
    *release = {x.holds.release.data(), x.holds.release.size()};
    return {};
  });
}

std::int32_t troupe_scheduler_create(troupe_connection* connection, const troupe_namespace* ns,
                                     const troupe_engine* engine, troupe_scheduler** out, troupe_error* error) {
  return capi::create(connection, engine, out, error, [&](auto& runtime, const auto& terms) -> made_scheduler {
    const auto& options = terms.options;
    auto wanted = capi::namespace_of(ns, connector::kv_world_size(options.parallel), options.block_tokens);
    if (!wanted)
      return tl::unexpected(wanted.error());
    return handle_of(runtime.make_scheduler_half(options, wanted->spec), terms);
  });
}

void troupe_scheduler_destroy(troupe_scheduler* scheduler) {
  capi::destroy(scheduler);
}

std::int32_t troupe_scheduler_shutdown(troupe_scheduler* scheduler, troupe_error* error) {
  return capi::guarded_use(scheduler, error, [](troupe_scheduler& x) -> result<void> {
    x.close();
    x.half.reset();
    return {};
  });
}

std::int32_t troupe_scheduler_attached(troupe_scheduler* scheduler, troupe_error* error) {
  return capi::guarded_use(scheduler, error, [](troupe_scheduler& x) { return x.half->attached(); });
}

std::int32_t troupe_scheduler_on_new_request(troupe_scheduler* scheduler, const troupe_request* request,
                                             troupe_error* error) {
  return capi::guarded_use(scheduler, error, [&](troupe_scheduler& x) -> result<void> {
    const auto said = x.request_of(request);
    if (!said)
      return tl::unexpected(said.error());
    x.half->on_new_request(*said);
    return {};
  });
}

std::int32_t troupe_scheduler_matched(troupe_scheduler* scheduler, const troupe_request* request,
                                      std::uint32_t computed_tokens, troupe_matched* out, troupe_error* error) {
  return capi::guarded_use(scheduler, error, [&](troupe_scheduler& x) -> result<void> {
    if (auto room = capi::check_room(out, "out"); !room)
      return room;
    const auto said = x.request_of(request);
    if (!said)
      return tl::unexpected(said.error());
    const auto found = x.half->get_num_new_matched_tokens(*said, computed_tokens);
    troupe_matched answer{};
    answer.known = found.tokens ? 1 : 0;
    answer.tokens = found.tokens.value_or(0);
    answer.asynchronous = found.asynchronous ? 1 : 0;
    capi::write(answer, out);
    return {};
  });
}

std::int32_t troupe_scheduler_allocated(troupe_scheduler* scheduler, const char* request, const std::uint32_t* blocks,
                                        std::size_t block_count, std::uint32_t external_tokens, troupe_error* error) {
  return capi::guarded_use(scheduler, error, [&](troupe_scheduler& x) -> result<void> {
    const auto id = capi::id_of(request);
    if (!id)
      return tl::unexpected(id.error());
    const auto all = capi::array_of(blocks, block_count, "blocks");
    if (!all)
      return tl::unexpected(all.error());
    x.half->update_state_after_alloc(*id, *all, external_tokens);
    if (external_tokens > 0) {
      ++x.hit_requests;
      x.hit_tokens += external_tokens;
    }
    return {};
  });
}

std::int32_t troupe_scheduler_hit_sources(troupe_scheduler* scheduler, const char* request, std::uint32_t tokens,
                                          troupe_hit_sources* out, troupe_error* error) {
  return write_about(scheduler, request, out, error, [&](const connector::scheduler_half& half, std::string_view id) {
    const auto found = half.get_external_cache_hit_sources(id, tokens);
    return troupe_hit_sources{0, found.memory, found.disk, found.unknown};
  });
}

std::int32_t troupe_scheduler_fetched_pages(troupe_scheduler* scheduler, const char* request, troupe_fetched_pages* out,
                                            troupe_error* error) {
  return write_about(scheduler, request, out, error, [](const connector::scheduler_half& half, std::string_view id) {
    const auto found = half.get_fetched_pages(id);
    const auto seconds = std::chrono::duration<double>(found.took).count();
    return troupe_fetched_pages{0, found.requests, found.pages, 0, seconds};
  });
}

std::int32_t troupe_scheduler_build_meta(troupe_scheduler* scheduler, const troupe_step* step, troupe_bytes* out,
                                         troupe_error* error) {
  return capi::guarded_use(scheduler, error, [&](troupe_scheduler& x) -> result<void> {
    if (out == nullptr)
      return fail(errc::invalid_argument, "out is NULL");
    const auto said = capi::read(step, "step");
    if (!said)
      return tl::unexpected(said.error());
    if (auto sound = x.read_step(*said); !sound)
      return sound;
    const std::span<const connector::scheduled_request> all(x.scheduled);
    connector::scheduler_output scheduled;
    scheduled.new_requests = all.first(said->new_requests);
    scheduled.cached_requests = all.subspan(said->new_requests);
    scheduled.preempted = x.preempted;
    encode(x.half->build_connector_meta(scheduled), x.meta);
    *out = {x.meta.data(), x.meta.size()};
    return {};
  });
}

std::int32_t troupe_scheduler_finished(troupe_scheduler* scheduler, const char* request, std::int32_t* keep_blocks,
                                       troupe_error* error) {
  return capi::guarded_use(scheduler, error, [&](troupe_scheduler& x) -> result<void> {
    if (keep_blocks == nullptr)
      return fail(errc::invalid_argument, "keep_blocks is NULL");
    const auto id = capi::id_of(request);
    if (!id)
      return tl::unexpected(id.error());
    *keep_blocks = x.half->request_finished(*id) ? 1 : 0;
    return {};
  });
}

std::int32_t troupe_scheduler_worker_output(troupe_scheduler* scheduler, const troupe_worker_output* output,
                                            troupe_error* error) {
  return capi::guarded_use(scheduler, error, [&](troupe_scheduler& x) -> result<void> {
    const auto said = capi::read(output, "output");
    if (!said)
      return tl::unexpected(said.error());
    auto& to = x.output;
    const auto take = [&](const troupe_ids& from, const char* name, std::vector<std::string>& ids) -> result<void> {
      if (auto sound = capi::read_ids(from, name, x.ids); !sound)
        return sound;
      ids.assign(x.ids.begin(), x.ids.end());
      return {};
    };
    if (auto sound = take(said->sent, "output.sent", to.sent); !sound)
      return sound;
    if (auto sound = take(said->received, "output.received", to.received); !sound)
      return sound;
    if (auto sound = take(said->failed, "output.failed", to.failed); !sound)
      return sound;
    const auto errors = capi::array_of(said->load_errors.data, said->load_errors.count, "output.load_errors");
    if (!errors)
      return tl::unexpected(errors.error());
    to.load_errors.assign(errors->begin(), errors->end());
    const auto meta = capi::array_of(said->worker_meta, said->worker_meta_count, "output.worker_meta");
    if (!meta)
      return tl::unexpected(meta.error());
    to.stores.clear();
    for (const auto& bytes : *meta) {
      const auto whole = capi::array_of(bytes.data, bytes.length, "output.worker_meta.data");
      if (!whole)
        return tl::unexpected(whole.error());
      if (whole->empty())
        continue;
      auto outcomes = connector::decode_outcomes(*whole);
      if (!outcomes)
        return tl::unexpected(outcomes.error());
      std::move(outcomes->begin(), outcomes->end(), std::back_inserter(to.stores));
    }
    x.half->update_connector_output(to);
    return {};
  });
}

std::int32_t troupe_scheduler_take_events(troupe_scheduler* scheduler, troupe_events* out, troupe_error* error) {
  return capi::guarded_use(scheduler, error, [&](troupe_scheduler& x) -> result<void> {
    if (auto room = capi::check_room(out, "out"); !room)
      return room;
    auto& to = x.events = {};
    troupe_events answer{};
    const auto put = [](const key_digest& key, std::vector<std::uint8_t>& bytes) {
      bytes.resize(bytes.size() + 16);
      capi::put_digest(key, bytes.data() + bytes.size() - 16);
    };
    for (const auto& event : x.half->take_events()) {
      to.requests.add(event.request);
      to.kinds.push_back(static_cast<std::uint8_t>(event.what));
      put(event.parent, to.parents);
      for (const auto& key : event.keys)
        put(key, to.keys);
      to.key_ends.push_back(static_cast<std::uint32_t>(to.keys.size() / 16));
      to.first_pages.push_back(event.first_page);
      to.page_counts.push_back(event.pages);
      to.groups.push_back(event.group);
      to.saves.push_back(event.save);
      answer.page_tokens = event.page_tokens;
    }
    answer.count = to.kinds.size();
    answer.kinds = to.kinds.data();
    answer.requests = to.requests.view();
    answer.parents = to.parents.data();
    answer.key_ends = to.key_ends.data();
    answer.keys = to.keys.data();
    answer.key_count = to.keys.size() / 16;
    answer.first_pages = to.first_pages.data();
    answer.page_counts = to.page_counts.data();
    answer.groups = to.groups.data();
    answer.saves = to.saves.data();
    capi::write(answer, out);
    return {};
  });
}

std::int32_t troupe_scheduler_reset_cache(troupe_scheduler* scheduler, troupe_error* error) {
  return capi::guarded_use(scheduler, error, [](troupe_scheduler& x) -> result<void> {
    if (!x.half->reset_cache())
      return fail(errc::internal, "the cache could not be reset");
    return {};
  });
}

std::int32_t troupe_scheduler_finished_count(troupe_scheduler* scheduler, std::uint32_t* out, troupe_error* error) {
  return capi::guarded_use(scheduler, error, [&](troupe_scheduler& x) -> result<void> {
    if (out == nullptr)
      return fail(errc::invalid_argument, "out is NULL");
    *out = x.half->get_finished_count();
    return {};
  });
}

std::int32_t troupe_scheduler_wants_descriptions(troupe_scheduler* scheduler, std::uint32_t* wanted,
                                                 troupe_error* error) {
  return capi::guarded_use(scheduler, error,
                           [&](troupe_scheduler& x) { return capi::tell_whether_wanted(*x.half, wanted); });
}

std::int32_t troupe_scheduler_describe(troupe_scheduler* scheduler, const troupe_descriptions* pages,
                                       troupe_error* error) {
  const auto digests_of = [](const std::uint8_t* keys, std::size_t count) -> result<std::vector<key_digest>> {
    const auto bytes = capi::array_of(keys, 16 * count, "keys");
    if (!bytes)
      return tl::unexpected(bytes.error());
    std::vector<key_digest> out(count);
    for (std::size_t i = 0; i < count; ++i)
      out[i] = capi::digest_of(keys + 16 * i);
    return out;
  };
  return capi::guarded_use(scheduler, error, [&](troupe_scheduler& x) {
    return capi::describe(
        x.half->wants_descriptions(), pages, digests_of,
        [&x](std::uint32_t group, page_descriptions copied) { return x.half->describe(group, std::move(copied)); });
  });
}

std::int32_t troupe_scheduler_tracked_requests(troupe_scheduler* scheduler, std::size_t* out, troupe_error* error) {
  return capi::guarded_use(scheduler, error, [&](troupe_scheduler& x) -> result<void> {
    if (out == nullptr)
      return fail(errc::invalid_argument, "out is NULL");
    *out = x.half->tracked_requests();
    return {};
  });
}

std::int32_t troupe_scheduler_stats(troupe_scheduler* scheduler, troupe_bytes* out, troupe_error* error) {
  return capi::guarded_use(scheduler, error, [&](troupe_scheduler& x) -> result<void> {
    if (out == nullptr)
      return fail(errc::invalid_argument, "out is NULL");
    x.stats = nlohmann::json{{"attached", x.half->attached() ? 1 : 0},
                             {"tracked_requests", x.half->tracked_requests()},
                             {"hit_requests", x.hit_requests},
                             {"hit_tokens", x.hit_tokens},
                             {"passed_over_tokens", x.half->passed_over_tokens()}}
                  .dump();
    *out = capi::bytes_of(x.stats);
    return {};
  });
}
