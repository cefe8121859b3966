#include "actors/node/registry/registry_records.hpp"

#include <variant>

namespace troupe {

namespace {

store::stored_origin stored(namespace_origin origin) {
  switch (origin) {
  case namespace_origin::config:
    return store::stored_origin::config;
  case namespace_origin::protocol:
    return store::stored_origin::protocol;
  case namespace_origin::client:
    return store::stored_origin::client;
  case namespace_origin::api:
    break;
  }
  return store::stored_origin::api;
}

/// Adds one change to a batch.
struct registry_encoder {
  store::write_batch& batch;
  std::chrono::sys_seconds today;

  void operator()(const namespace_added& x) const {
    store::namespace_record record;
    record.id = x.spec->id();
    record.spec = *x.spec;
    record.mode = x.options.automatic ? store::world_size_mode::automatic : store::world_size_mode::fixed;
    record.slot_index = x.options.slot_index;
    record.max_ranks = x.options.max_ranks;
    record.created = today;
    record.origin = stored(x.options.origin);
    batch.put(record);
  }

  void operator()(const namespace_removed& x) const {
    batch.erase_pages(x.ns);
    batch.erase_ranks(x.ns);
    batch.erase_namespace(x.ns);
  }

  void operator()(const rank_added& x) const {
    batch.put(store::rank_record{x.ns, x.rank, x.slots, x.incarnation});
    // A new incarnation erases the pages of earlier ones, whose slots are about to be written.
    batch.require_sync();
  }

  void operator()(const page_published& x) const {
    const auto& page = x.page;
    batch.put(store::page_record{page.ns, page.key, page.rank, page.where, page.parent, x.incarnation});
  }

  void operator()(const key_described& x) const { batch.put(store::description_record{x.ns, x.key, x.text}); }

  void operator()(const description_ended& x) const { batch.erase_description(x.ns, x.key); }

  void operator()(const page_unpublished& x) const { batch.erase_page(x.ns, x.key, x.rank); }
};

} // namespace

void write(store::write_batch& to, const registry_change& x, std::chrono::sys_seconds today) {
  std::visit(registry_encoder{to, today}, x);
}

} // namespace troupe
