#include "http/slots/slot_calls.hpp"

#include "base/layouts.hpp"
#include "http/registry/metadata_service.hpp"
#include "http/server/json_text.hpp"

#include <algorithm>
#include <limits>
#include <utility>
#include <vector>

namespace troupe::http::slots {

namespace_ptr make_namespace(std::string name, std::uint32_t world_size) {
  slot_namespace out;
  out.spec.name = std::move(name);
  // Names are not part of an identity, and nothing else distinguishes these namespaces.
  out.spec.model = out.spec.name;
  out.spec.layout = layout_of_slot_clients;
  out.spec.world_size = world_size;
  out.options.automatic = world_size == 0;
  out.options.slot_index = true;
  out.options.origin = namespace_origin::protocol;
  out.id = out.spec.id();
  return std::make_shared<const slot_namespace>(std::move(out));
}

namespace {

std::string not_initialized(const slot_namespace& ns) {
  return "namespace \"" + ns.spec.name + "\" is not initialized; initialize it first";
}

} // namespace

std::optional<rejection> check_namespace(const request& r, const slot_namespace& ns, bool makes) {
  if (r.who()->may_use(ns.spec.name))
    return std::nullopt;
  if (makes)
    return rejection{status::forbidden, "the token is limited to other namespaces than \"" + ns.spec.name + "\""};
  return rejection{status::not_found, not_initialized(ns)};
}

void register_rank(const service_ptr& service, const namespace_ptr& ns, rank_number rank, std::uint32_t pages,
                   const namespace_limit& limit, std::function<void(result<void>)> then) {
  service->register_rank(ns->id, rank, pages, [=](result<void> registered) {
    if (registered || registered.error().code != errc::unknown_namespace)
      return then(std::move(registered));
    if (service->names().count_with_prefix(limit.prefix) >= limit.most)
      return then(fail(errc::limit_exceeded, "namespace \"" + ns->spec.name + "\" would exceed the limit of " +
                                                 std::to_string(limit.most) +
                                                 " namespaces that clients may create; remove an unused one"));
    service->add_namespace(ns->spec, ns->options, [=](result<void> added) {
      if (!added)
        return then(std::move(added));
      service->register_rank(ns->id, rank, pages, then);
    });
  });
}

void append_found(std::string& out, const std::vector<std::uint8_t>& codes) {
  append_short_items(out, codes,
                     [](char* to, std::uint8_t x) { return write_json(to, x == static_cast<std::uint8_t>(errc::ok)); });
}

void append_slots(std::string& out, const std::vector<location>& found) {
  append_short_items(out, found, [](char* to, const location& x) {
    return x.code() == errc::ok ? write_json(to, x.where.slot) : write_json(to, nullptr);
  });
}

void fail_initialize(const shared_responder& to, const error& why) {
  if (why.code == errc::busy)
    return std::move(*to).fail(status::service_unavailable, why.text);
  std::move(*to).fail(why);
}

void rank_call::fail(const error& why) const {
  switch (why.code) {
  case errc::unknown_namespace:
  case errc::out_of_range:
    return std::move(*to).fail(status::not_found, "rank " + std::to_string(rank) + " of " + not_initialized(*ns));
  case errc::busy:
    return std::move(*to).fail(status::service_unavailable, why.text);
  default:
    return std::move(*to).fail(why);
  }
}

void finish_writing(const service_ptr& service, const rank_call& call, written_pages pages,
                    const std::shared_ptr<refusals>& refused) {
  const auto end = [=, impossible = pages.impossible] {
    refused->note("page numbers of rank " + std::to_string(call.rank), impossible, errc::out_of_range);
    std::move(*call.to).send(response::no_content());
  };
  const auto release = [=, released = std::make_shared<std::vector<slot_number>>(std::move(pages.released))] {
    if (released->empty())
      return end();
    service->reclaim(call.ns->id, call.rank, std::move(*released), [=](result<std::vector<std::uint8_t>> codes) {
      if (!codes)
        return call.fail(codes.error());
      refused->note("releases of rank " + std::to_string(call.rank), *codes);
      end();
    });
  };
  if (pages.written.empty())
    return release();
  service->confirm(call.ns->id, call.rank, std::move(pages.written), [=](result<std::vector<std::uint8_t>> codes) {
    if (!codes)
      return call.fail(codes.error());
    refused->note("confirmations of rank " + std::to_string(call.rank), *codes);
    release();
  });
}

} // namespace troupe::http::slots
