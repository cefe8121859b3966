#include "connector/capi/connection.hpp"
#include "connector/capi/conversions.hpp"
#include "connector/capi/statistics.hpp"
#include "connector/wire.hpp"
#include "connector/worker_half.hpp"

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

using namespace troupe;

struct troupe_worker : capi::handle {
  std::shared_ptr<capi::connection_core> core;
  std::unique_ptr<connector::worker_half> half;
  /// The shape of one group's pages: of the only one, where there is one. Of the groups that this worker has.
  struct shape {
    kv_geometry geometry;
    std::uint32_t blocks_per_page = 1;
    std::uint64_t opaque_block_bytes = 0;
  };
  std::vector<shape> shapes;

  /// Metadata that was decoded and is not bound yet, since preemptions are in the same bytes.
  std::optional<connector::connector_metadata> decoded;
  std::vector<std::uint8_t> decoded_from;

  // Buffers that are reused.
  std::vector<std::string_view> ids;
  capi::id_list sent;
  capi::id_list received;
  capi::id_list failed;
  std::vector<connector::block_id> load_errors;
  std::vector<std::uint8_t> meta;
  std::string stats;

  ~troupe_worker() {
    half.reset(); // before the threads that it uses
  }

  /// Decodes the metadata into `decoded`.
  result<void> decode(const std::uint8_t* data, std::size_t length);
};

result<void> troupe_worker::decode(const std::uint8_t* data, std::size_t length) {
  const auto bytes = capi::array_of(data, length, "meta");
  if (!bytes)
    return tl::unexpected(bytes.error());
  if (decoded && std::ranges::equal(*bytes, decoded_from))
    return {};
  decoded.reset();
  auto read = connector::decode_metadata(*bytes);
  if (!read)
    return tl::unexpected(std::move(read.error()));
  decoded = std::move(*read);
  decoded_from.assign(bytes->begin(), bytes->end());
  return {};
}

namespace {

using made_worker = result<std::unique_ptr<troupe_worker>>;

std::optional<int> device_of(std::int32_t gpu) {
  return gpu < 0 ? std::nullopt : std::optional<int>(gpu);
}

} // namespace

std::int32_t troupe_worker_create(troupe_connection* connection, const troupe_namespace* ns,
                                  const troupe_engine* engine, std::uint32_t worker, std::int32_t gpu,
                                  troupe_worker** out, troupe_error* error) {
  return capi::create(connection, engine, out, error, [&](auto& runtime, const auto& terms) -> made_worker {
    const auto& options = terms.options;
    auto wanted = capi::namespace_of(ns, connector::kv_world_size(options.parallel), options.block_tokens);
    if (!wanted)
      return tl::unexpected(wanted.error());
    auto half = runtime.make_worker_half(options, worker, device_of(gpu), wanted->spec);
    if (!half)
      return tl::unexpected(half.error());
    auto made = std::make_unique<troupe_worker>();
    made->half = std::move(*half);
    const auto blocks = wanted->spec.geometry.block_tokens / options.block_tokens;
    made->shapes.push_back({std::move(wanted->spec.geometry), blocks, wanted->opaque_block_bytes});
    return made;
  });
}

std::int32_t troupe_worker_create_groups(troupe_connection* connection, const troupe_groups* groups,
                                         const troupe_engine* engine, std::uint32_t worker, std::int32_t gpu,
                                         troupe_worker** out, troupe_error* error) {
  return capi::create(connection, engine, out, error, [&](auto& runtime, const auto& terms) -> made_worker {
    const auto wanted = capi::groups_of(groups, terms.options);
    if (!wanted)
      return tl::unexpected(wanted.error());
    auto half = runtime.make_grouped_worker_half(terms.options, wanted->layout, worker, device_of(gpu));
    if (!half)
      return tl::unexpected(half.error());
    auto made = std::make_unique<troupe_worker>();
    made->half = std::move(*half);
    for (const auto g : connector::groups_of_worker(wanted->layout.groups, terms.options.parallel, worker)) {
      const auto& geometry = wanted->layout.namespaces[g].geometry;
      made->shapes.push_back({geometry, geometry.block_tokens, wanted->opaque_block_bytes[g]});
    }
    return made;
  });
}

void troupe_worker_destroy(troupe_worker* worker) {
  capi::destroy(worker);
}

std::int32_t troupe_worker_register(troupe_worker* worker, const troupe_layer* layers, std::size_t layer_count,
                                    std::uint32_t blocks, troupe_error* error) {
  return capi::guarded_use(worker, error, [&](troupe_worker& x) -> result<void> {
    std::vector<kv_cache_view> caches;
    std::size_t first = 0;
    for (std::size_t g = 0; g < x.shapes.size(); ++g) {
      const auto& its = x.shapes[g];
      // The last group takes all that is left, so that a wrong number is an error of its own.
      const auto left = layer_count - first;
      const auto count = g + 1 == x.shapes.size() ? left : std::min<std::size_t>(left, its.geometry.layer_count());
      auto cache = capi::cache_of(its.geometry, its.blocks_per_page, its.opaque_block_bytes,
                                  layers == nullptr ? nullptr : layers + first, count, blocks);
      if (!cache)
        return tl::unexpected(cache.error());
      caches.push_back(std::move(*cache));
      first += count;
    }
    return x.half->register_groups(caches);
  });
}

std::int32_t troupe_worker_unregister(troupe_worker* worker, troupe_error* error) {
  return capi::guarded_use(worker, error, [](troupe_worker& x) { return x.half->unregister_kv_caches(); });
}

std::int32_t troupe_worker_attached(troupe_worker* worker, troupe_error* error) {
  return capi::guarded_use(worker, error, [](troupe_worker& x) { return x.half->attached(); });
}

std::int32_t troupe_worker_handle_preemptions(troupe_worker* worker, const std::uint8_t* meta, std::size_t length,
                                              troupe_error* error) {
  return capi::guarded_use(worker, error, [&](troupe_worker& x) -> result<void> {
    if (auto sound = x.decode(meta, length); !sound)
      return sound;
    x.half->handle_preemptions(*x.decoded);
    return {};
  });
}

std::int32_t troupe_worker_bind(troupe_worker* worker, const std::uint8_t* meta, std::size_t length,
                                troupe_error* error) {
  return capi::guarded_use(worker, error, [&](troupe_worker& x) -> result<void> {
    if (auto sound = x.decode(meta, length); !sound)
      return sound;
    x.half->bind_connector_metadata(std::move(*x.decoded));
    x.decoded.reset();
    return {};
  });
}

std::int32_t troupe_worker_clear(troupe_worker* worker, troupe_error* error) {
  return capi::guarded_use(worker, error, [](troupe_worker& x) -> result<void> {
    x.half->clear_connector_metadata();
    return {};
  });
}

std::int32_t troupe_worker_start_load(troupe_worker* worker, void* event, troupe_error* error) {
  return capi::guarded_use(worker, error, [&](troupe_worker& x) -> result<void> {
    x.half->start_load_kv(event);
    return {};
  });
}

std::int32_t troupe_worker_save(troupe_worker* worker, void* event, troupe_error* error) {
  return capi::guarded_use(worker, error, [&](troupe_worker& x) -> result<void> {
    x.half->wait_for_save(event);
    return {};
  });
}

std::int32_t troupe_worker_get_finished(troupe_worker* worker, const troupe_ids* finished, troupe_finished* out,
                                        troupe_error* error) {
  return capi::guarded_use(worker, error, [&](troupe_worker& x) -> result<void> {
    if (auto room = capi::check_room(out, "out"); !room)
      return room;
    if (auto sound = capi::read_ids(finished == nullptr ? troupe_ids{} : *finished, "finished", x.ids); !sound)
      return sound;
    const auto said = x.half->get_finished(x.ids);
    x.sent.assign(said.sent);
    x.received.assign(said.received);
    x.failed.assign(said.failed);
    troupe_finished answer{};
    answer.sent = x.sent.view();
    answer.received = x.received.view();
    answer.failed = x.failed.view();
    capi::write(answer, out);
    return {};
  });
}

std::int32_t troupe_worker_load_errors(troupe_worker* worker, troupe_blocks* out, troupe_error* error) {
  return capi::guarded_use(worker, error, [&](troupe_worker& x) -> result<void> {
    if (out == nullptr)
      return fail(errc::invalid_argument, "out is NULL");
    x.load_errors = x.half->get_block_ids_with_load_errors();
    *out = {x.load_errors.data(), x.load_errors.size()};
    return {};
  });
}

std::int32_t troupe_worker_meta(troupe_worker* worker, troupe_bytes* out, troupe_error* error) {
  return capi::guarded_use(worker, error, [&](troupe_worker& x) -> result<void> {
    if (out == nullptr)
      return fail(errc::invalid_argument, "out is NULL");
    const auto outcomes = x.half->build_connector_worker_meta();
    if (outcomes.empty()) {
      *out = {nullptr, 0};
      return {};
    }
    encode(outcomes, x.meta);
    *out = {x.meta.data(), x.meta.size()};
    return {};
  });
}

std::int32_t troupe_worker_stats(troupe_worker* worker, troupe_bytes* out, troupe_error* error) {
  return capi::guarded_use(worker, error, [&](troupe_worker& x) -> result<void> {
    if (out == nullptr)
      return fail(errc::invalid_argument, "out is NULL");
    x.stats = capi::stats_text(x.half->get_kv_connector_stats());
    *out = capi::bytes_of(x.stats);
    return {};
  });
}

std::int32_t troupe_worker_shutdown(troupe_worker* worker, troupe_error* error) {
  return capi::guarded_use(worker, error, [](troupe_worker& x) -> result<void> {
    x.close();
    x.half->shutdown();
    return {};
  });
}
