#include "http/sglang/sglang.hpp"

#include "http/registry/metadata_service.hpp"
#include "http/server/json_text.hpp"
#include "http/sglang/sglang_body.hpp"
#include "http/slots/slot_calls.hpp"

#include <string_view>
#include <utility>
#include <vector>

namespace troupe::http::sglang {

namespace {

/// State shared by the handlers.
class api {
public:
  api(slots::service_ptr service, const options& options)
      : service_(std::move(service)), options_(options), keys_(options.key_secret), rules_{options.max_keys, keys_},
        default_namespace_(slots::make_namespace(options.prefix + std::string{default_namespace}, 0)) {}

  void initialize(const request& r, responder reply) const {
    const auto rank = slots::rank_from_text(r.path("rank"));
    const auto wanted = read_initialize(r.body());
    if (!rank || !wanted)
      return refuse(std::move(reply), !rank ? rank.error() : wanted.error());
    const auto ns = namespace_of(r, wanted->ns, true);
    if (!ns)
      return refuse(std::move(reply), ns.error());
    slots::register_rank(service_, *ns, *rank, wanted->pages, {options_.max_namespaces, options_.prefix},
                         [to = share(std::move(reply))](result<void> done) {
                           if (!done)
                             return slots::fail_initialize(to, done.error());
                           std::move(*to).send(response::no_content());
                         });
  }

  void exists(const request& r, responder reply) const {
    const auto rank = slots::rank_from_text(r.path("rank"));
    auto wanted = read_keys(r.body(), rules_);
    if (!rank || !wanted)
      return refuse(std::move(reply), !rank ? rank.error() : wanted.error());
    const auto ns = namespace_of(r, wanted->ns);
    if (!ns)
      return refuse(std::move(reply), ns.error());
    service_->exists((*ns)->id, *rank, std::move(wanted->keys),
                     [to = share(std::move(reply)), ns = *ns, rank = *rank](result<std::vector<std::uint8_t>> codes) {
                       if (!codes)
                         return slots::fail_call(to, codes.error(), ns, rank);
                       std::string out = R"({"exists":)";
                       slots::append_found(out, *codes);
                       std::move(*to).send(response::json(out += '}'));
                     });
  }

  void reserve(const request& r, responder reply) const {
    const auto rank = slots::rank_from_text(r.path("rank"));
    auto wanted = read_reserve(r.body(), rules_);
    if (!rank || !wanted)
      return refuse(std::move(reply), !rank ? rank.error() : wanted.error());
    const auto ns = namespace_of(r, wanted->ns);
    if (!ns)
      return refuse(std::move(reply), ns.error());
    auto& pages = wanted->wanted;
    service_->allocate((*ns)->id, *rank, options_.reservation_deadline, std::move(pages.keys), std::move(pages.parents),
                       [to = share(std::move(reply)), ns = *ns, rank = *rank,
                        places = std::move(pages.places)](result<std::vector<location>> given) {
                         if (!given)
                           return slots::fail_call(to, given.error(), ns, rank);
                         std::move(*to).send(response::json(reserved(places, *given)));
                       });
  }

  void confirm(const request& r, responder reply) const {
    const auto rank = slots::rank_from_text(r.path("rank"));
    auto done = read_confirm(r.body(), rules_);
    if (!rank || !done)
      return refuse(std::move(reply), !rank ? rank.error() : done.error());
    const auto ns = namespace_of(r, done->ns);
    if (!ns)
      return refuse(std::move(reply), ns.error());
    slots::finish_writing(service_, *ns, *rank, std::move(done->pages), refused_, share(std::move(reply)));
  }

  void locate(const request& r, responder reply) const {
    const auto rank = slots::rank_from_text(r.path("rank"));
    auto wanted = read_keys(r.body(), rules_);
    if (!rank || !wanted)
      return refuse(std::move(reply), !rank ? rank.error() : wanted.error());
    const auto ns = namespace_of(r, wanted->ns);
    if (!ns)
      return refuse(std::move(reply), ns.error());
    service_->protect((*ns)->id, *rank, false, options_.protect_for, options_.limits.readers_share_of(*r.who()),
                      std::move(wanted->keys),
                      [to = share(std::move(reply)), ns = *ns, rank = *rank](result<std::vector<location>> found) {
                        if (!found)
                          return slots::fail_call(to, found.error(), ns, rank);
                        std::string out = R"({"indices":)";
                        slots::append_slots(out, *found);
                        std::move(*to).send(response::json(out += '}'));
                      });
  }

  void erase(const request& r, responder reply) const {
    const auto rank = slots::rank_from_text(r.path("rank"));
    auto wanted = read_keys(r.body(), rules_);
    if (!rank || !wanted)
      return refuse(std::move(reply), !rank ? rank.error() : wanted.error());
    const auto ns = namespace_of(r, wanted->ns);
    if (!ns)
      return refuse(std::move(reply), ns.error());
    service_->erase(
        (*ns)->id, *rank, std::move(wanted->keys),
        [to = share(std::move(reply)), ns = *ns, rank = *rank](const result<std::vector<std::uint8_t>>& codes) {
          if (!codes)
            return slots::fail_call(to, codes.error(), ns, rank);
          std::move(*to).send(response::no_content());
        });
  }

  void clear(const request& r, responder reply) const {
    const auto rank = slots::rank_from_text(r.path("rank"));
    const auto name = read_clear(r.body());
    if (!rank || !name)
      return refuse(std::move(reply), !rank ? rank.error() : name.error());
    const auto ns = namespace_of(r, *name);
    if (!ns)
      return refuse(std::move(reply), ns.error());
    service_->clear((*ns)->id, *rank,
                    [to = share(std::move(reply)), ns = *ns, rank = *rank](const result<std::uint64_t>& pages) {
                      if (!pages)
                        return slots::fail_call(to, pages.error(), ns, rank);
                      std::move(*to).send(response::no_content());
                    });
  }

private:
  static void refuse(responder reply, const rejection& why) { std::move(reply).send(to_response(why)); }

  /// The namespace `given` in the body, below the one of the path, if there is one.
  accepted<slots::namespace_ptr> namespace_of(const request& r, const std::string& given, bool makes = false) const {
    auto ns = default_namespace_;
    if (const auto base = r.path("namespace"); !base.empty()) {
      const auto name = slots::checked_name(base);
      if (!name)
        return tl::unexpected(name.error());
      ns = slots::make_namespace(options_.prefix + *name + std::string{between} + given, 0);
    } else if (given != default_namespace) {
      ns = slots::make_namespace(options_.prefix + given, 0);
    }
    if (auto wrong = slots::check_namespace(r, *ns, makes))
      return tl::unexpected(std::move(*wrong));
    return ns;
  }

  /// A character that no client's name has, so that no two pairs of path and body name the same namespace.
  static constexpr std::string_view between = ":";

  static std::string reserved(const std::vector<std::uint32_t>& places, const std::vector<location>& given) {
    std::string out = R"({"indices":[)";
    out.reserve(out.size() + 20 * places.size() + 2);
    for (std::size_t i = 0; i < places.size(); ++i) {
      const auto& x = given[places[i]];
      const bool exists = x.code() == errc::exists;
      out += i == 0 ? "[" : ",[";
      append_json(out, exists);
      out += ',';
      append_json(out, exists || x.code() == errc::ok ? std::int64_t{x.where.slot} : slots::no_page);
      out += ']';
    }
    return out += "]}";
  }

  const slots::service_ptr service_;
  const options options_;
  const slots::client_keys keys_;
  const slots::body_rules rules_;
  const slots::namespace_ptr default_namespace_;
  const std::shared_ptr<slots::refusals> refused_ = std::make_shared<slots::refusals>("sglang", options_.count_refused);
};

} // namespace

void add_routes(router& routes, std::shared_ptr<const metadata_service> service, const options& options) {
  const auto shared = std::make_shared<const api>(std::move(service), options);
  using call = void (api::*)(const request&, responder) const;
  const auto add = [&](std::string_view path, std::string name, role needs, call what) {
    const auto handle = [shared, what](const request& r, responder reply) { ((*shared).*what)(r, std::move(reply)); };
    routes.add(method::post, path, {name, needs, handle, 0});
    routes.add(method::post, "/sglang/{namespace}" + std::string{path}, {std::move(name), needs, handle, 0});
  };
  add("/{rank}/initialize", "sglang_initialize", role::write, &api::initialize);
  add("/{rank}/exists", "sglang_exists", role::read, &api::exists);
  add("/{rank}/reserve_and_allocate_page_indices", "sglang_reserve", role::write, &api::reserve);
  add("/{rank}/confirm_write", "sglang_confirm_write", role::write, &api::confirm);
  add("/{rank}/get_page_indices", "sglang_get_page_indices", role::read, &api::locate);
  add("/{rank}/delete_keys", "sglang_delete_keys", role::admin, &api::erase);
  add("/{rank}/clear", "sglang_clear", role::admin, &api::clear);
}

} // namespace troupe::http::sglang
