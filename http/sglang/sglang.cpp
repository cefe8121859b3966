#include "http/sglang/sglang.hpp"

#include "http/registry/metadata_service.hpp"
#include "http/server/json_text.hpp"
#include "http/sglang/sglang_body.hpp"
#include "http/slots/slot_calls.hpp"

#include <string_view>
#include <type_traits>
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
    with_call(r, std::move(reply), read_initialize(r.body()), [&](const auto& call, const auto& body) {
      slots::register_rank(service_, call.ns, call.rank, body.pages, {options_.max_namespaces, options_.prefix},
                           [to = call.to](result<void> done) {
                             if (!done)
                               return slots::fail_initialize(to, done.error());
                             std::move(*to).send(response::no_content());
                           });
    });
  }

  void exists(const request& r, responder reply) const {
    with_call(r, std::move(reply), read_keys(r.body(), rules_), [&](const auto& call, auto body) {
      service_->exists(call.ns->id, call.rank, std::move(body.keys),
                       slots::answer(call, [](const std::vector<std::uint8_t>& codes) {
                         std::string out = R"({"exists":)";
                         slots::append_found(out, codes);
                         return response::json(out += '}');
                       }));
    });
  }

  void reserve(const request& r, responder reply) const {
    with_call(r, std::move(reply), read_reserve(r.body(), rules_), [&](const auto& call, auto body) {
      auto& pages = body.wanted;
      service_->allocate(call.ns->id, call.rank, options_.reservation_deadline, std::move(pages.keys),
                         std::move(pages.parents),
                         slots::answer(call, [places = std::move(pages.places)](const std::vector<location>& given) {
                           return response::json(reserved(places, given));
                         }));
    });
  }

  void confirm(const request& r, responder reply) const {
    with_call(r, std::move(reply), read_confirm(r.body(), rules_), [&](const auto& call, auto body) {
      slots::finish_writing(service_, call, std::move(body.pages), refused_);
    });
  }

  void locate(const request& r, responder reply) const {
    with_call(r, std::move(reply), read_keys(r.body(), rules_), [&](const auto& call, auto body) {
      service_->protect(call.ns->id, call.rank, false, options_.protect_for, options_.limits.readers_share_of(*r.who()),
                        std::move(body.keys), slots::answer(call, [](const std::vector<location>& found) {
                          std::string out = R"({"indices":)";
                          slots::append_slots(out, found);
                          return response::json(out += '}');
                        }));
    });
  }

  void erase(const request& r, responder reply) const {
    with_call(r, std::move(reply), read_keys(r.body(), rules_), [&](const auto& call, auto body) {
      service_->erase(call.ns->id, call.rank, std::move(body.keys), slots::answer(call, no_content));
    });
  }

  void clear(const request& r, responder reply) const {
    with_call(r, std::move(reply), read_clear(r.body()), [&](const auto& call, const auto&) {
      service_->clear(call.ns->id, call.rank, slots::answer(call, no_content));
    });
  }

private:
  /// Passes the call and its body to `then`, or rejects the request.
  template <class Body, class Then>
  void with_call(const request& r, responder reply, accepted<Body> body, Then then) const {
    const auto refuse = [&](const rejection& why) { std::move(reply).send(to_response(why)); };
    const auto rank = slots::rank_from_text(r.path("rank"));
    if (!rank || !body)
      return refuse(!rank ? rank.error() : body.error());
    const auto ns = namespace_of(r, body->ns, std::is_same_v<Body, initialize_body>);
    if (!ns)
      return refuse(ns.error());
    then(slots::rank_call{share(std::move(reply)), *ns, *rank}, std::move(*body));
  }

  static constexpr auto no_content = [](const auto&) { return response::no_content(); };

  /// The namespace `given` in the body, below the one of the path, if there is one.
  accepted<slots::namespace_ptr> namespace_of(const request& r, const std::string& given, bool makes) const {
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
  slots::add_slot_routes<api>(
      routes, "/sglang", std::make_shared<const api>(std::move(service), options),
      {
          {"/{rank}/initialize", "sglang_initialize", role::write, &api::initialize},
          {"/{rank}/exists", "sglang_exists", role::read, &api::exists},
          {"/{rank}/reserve_and_allocate_page_indices", "sglang_reserve", role::write, &api::reserve},
          {"/{rank}/confirm_write", "sglang_confirm_write", role::write, &api::confirm},
          {"/{rank}/get_page_indices", "sglang_get_page_indices", role::read, &api::locate},
          {"/{rank}/delete_keys", "sglang_delete_keys", role::admin, &api::erase},
          {"/{rank}/clear", "sglang_clear", role::admin, &api::clear},
      });
}

} // namespace troupe::http::sglang
