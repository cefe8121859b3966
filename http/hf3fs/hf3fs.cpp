#include "http/hf3fs/hf3fs.hpp"

#include "http/hf3fs/hf3fs_body.hpp"
#include "http/registry/metadata_service.hpp"
#include "http/server/json_text.hpp"
#include "http/slots/slot_calls.hpp"

#include <functional>
#include <limits>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

namespace troupe::http::hf3fs {

namespace {

/// State shared by the handlers.
class api {
public:
  api(slots::service_ptr service, const options& options)
      : service_(std::move(service)), options_(options), keys_(options.key_secret), rules_{options.max_keys, keys_},
        default_namespace_(slots::make_namespace(options.ns, options.world_size)) {}

  void initialize(const request& r, responder reply) const {
    const auto ns = namespace_of(r, true);
    const auto rank = slots::rank_from_text(r.path("rank"));
    const auto wanted = read_initialize(r.body());
    if (!ns || !rank || !wanted)
      return refuse(std::move(reply), !ns ? ns.error() : !rank ? rank.error() : wanted.error());
    if (wanted->is_scheduler)
      return std::move(reply).send(response::json(R"({"message":"A scheduler has nothing to initialize"})"));
    slots::register_rank(service_, *ns, *rank, wanted->pages, limit(*ns),
                         [to = share(std::move(reply)), rank = *rank, pages = wanted->pages](result<void> done) {
                           if (!done)
                             return slots::fail_initialize(to, done.error());
                           std::move(*to).send(response::json(R"({"message":"Rank )" + std::to_string(rank) +
                                                              " initialized with " + std::to_string(pages) +
                                                              R"( pages"})"));
                         });
  }

  void allocate(const request& r, responder reply) const {
    with_body(r, std::move(reply), read_allocate(r.body(), rules_), [&](const auto& ns, const auto& to, auto body) {
      auto& pages = body.wanted;
      service_->allocate(
          ns->id, body.rank, options_.reservation_deadline, std::move(pages.keys), std::move(pages.parents),
          slots::answer({to, ns, body.rank}, [rank = body.rank, text = std::move(pages.text),
                                              ends = std::move(pages.text_ends)](const std::vector<location>& given) {
            return response::json(allocated(rank, text, ends, given));
          }));
    });
  }

  void confirm(const request& r, responder reply) const {
    with_body(r, std::move(reply), read_confirm(r.body(), rules_), [&](const auto& ns, const auto& to, auto body) {
      slots::finish_writing(service_, {to, ns, body.rank}, std::move(body.pages), refused_);
    });
  }

  void exists(const request& r, responder reply) const {
    with_body(r, std::move(reply), read_exists(r.body(), rules_), [&](const auto& ns, const auto& to, auto keys) {
      const auto count = keys.size();
      service_->exists(ns->id, all_ranks, std::move(keys), [to, count](result<std::vector<std::uint8_t>> codes) {
        // Before the first rank initializes, the namespace does not exist and has no keys.
        if (!codes && codes.error().code == errc::unknown_namespace)
          codes = std::vector(count, static_cast<std::uint8_t>(errc::not_found));
        if (!codes)
          return std::move(*to).fail(codes.error());
        std::move(*to).send(response::json(existing(*codes)));
      });
    });
  }

  void locate(const request& r, responder reply) const {
    with_body(r, std::move(reply), read_locate(r.body(), rules_), [&](const auto& ns, const auto& to, auto body) {
      service_->protect(ns->id, body.rank, true, options_.protect_for, options_.limits.readers_share_of(*r.who()),
                        std::move(body.keys),
                        slots::answer({to, ns, body.rank}, [](const std::vector<location>& found) {
                          return response::json(located(found));
                        }));
    });
  }

  void clear(const request& r, responder reply) const {
    const auto ns = namespace_of(r);
    if (!ns)
      return refuse(std::move(reply), ns.error());
    service_->clear((*ns)->id, all_ranks, [to = share(std::move(reply))](result<std::uint64_t> cleared) {
      if (!cleared && cleared.error().code != errc::unknown_namespace)
        return std::move(*to).fail(cleared.error());
      std::move(*to).send(response::no_content());
    });
  }

private:
  static void refuse(responder reply, const rejection& why) { std::move(reply).send(to_response(why)); }

  /// Passes the namespace, the responder and the body to `then`, or rejects the request.
  template <class Body, class Then>
  void with_body(const request& r, responder reply, accepted<Body> body, Then then) const {
    const auto ns = namespace_of(r);
    if (!ns || !body)
      return refuse(std::move(reply), !ns ? ns.error() : body.error());
    then(*ns, share(std::move(reply)), std::move(*body));
  }

  accepted<slots::namespace_ptr> namespace_of(const request& r, bool makes = false) const {
    auto ns = default_namespace_;
    if (const auto given = r.path("namespace"); !given.empty()) {
      const auto name = slots::checked_name(given);
      if (!name)
        return tl::unexpected(name.error());
      ns = slots::make_namespace(prefix() + *name, options_.world_size);
    }
    if (auto wrong = slots::check_namespace(r, *ns, makes))
      return tl::unexpected(std::move(*wrong));
    return ns;
  }

  std::string prefix() const { return options_.ns + "-"; }

  slots::namespace_limit limit(const slots::namespace_ptr& ns) const {
    if (ns->id == default_namespace_->id)
      return {std::numeric_limits<std::uint32_t>::max(), {}};
    return {options_.max_namespaces, prefix()};
  }

  static std::string allocated(rank_number rank, std::string_view keys, const std::vector<std::size_t>& ends,
                               const std::vector<location>& given) {
    std::string out = R"({"rank":)" + std::to_string(rank) + R"(,"results":[)";
    out.reserve(out.size() + keys.size() + 16 * given.size() + 2);
    std::size_t begin = 0;
    for (std::size_t i = 0; i < given.size(); ++i) {
      const auto code = given[i].code();
      out += i == 0 ? "[" : ",[";
      out += keys.substr(begin, ends[i] - begin);
      out += ',';
      append_json(out, code == errc::ok || code == errc::exists ? std::int64_t{given[i].where.slot} : slots::no_page);
      out += ']';
      begin = ends[i];
    }
    return out += "]}";
  }

  static std::string existing(const std::vector<std::uint8_t>& codes) {
    std::string out = R"({"exists":)";
    slots::append_found(out, codes);
    return out += '}';
  }

  static std::string located(const std::vector<location>& found) {
    std::string out = R"({"locations":)";
    slots::append_slots(out, found);
    return out += '}';
  }

  const slots::service_ptr service_;
  const options options_;
  const slots::client_keys keys_;
  const slots::body_rules rules_;
  const slots::namespace_ptr default_namespace_;
  const std::shared_ptr<slots::refusals> refused_ = std::make_shared<slots::refusals>("hf3fs", options_.count_refused);
};

} // namespace

void add_routes(router& routes, std::shared_ptr<const metadata_service> service, const options& options) {
  slots::add_slot_routes<api>(routes, "/hf3fs", std::make_shared<const api>(std::move(service), options),
                              {
                                  {"/rank/{rank}/initialize", "hf3fs_initialize", role::write, &api::initialize},
                                  {"/keys/batch_allocate", "hf3fs_batch_allocate", role::write, &api::allocate},
                                  {"/keys/confirm_write", "hf3fs_confirm_write", role::write, &api::confirm},
                                  {"/keys/batch_exists", "hf3fs_batch_exists", role::read, &api::exists},
                                  {"/keys/get_locations", "hf3fs_get_locations", role::read, &api::locate},
                                  {"/clear", "hf3fs_clear", role::admin, &api::clear},
                              });
}

} // namespace troupe::http::hf3fs
