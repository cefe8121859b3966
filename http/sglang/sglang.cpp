#include "http/sglang/sglang.hpp"

#include "actors/node/gateway/metadata_service.hpp"
#include "http/server/json_text.hpp"
#include "http/sglang/sglang_body.hpp"
#include "http/slots/foreign_calls.hpp"

#include <string_view>
#include <utility>
#include <vector>

namespace troupe::http {

namespace {

/// All that handlers share.
class sglang_api {
public:
  sglang_api(service_ptr service, const sglang_options& options)
      : service_(std::move(service)), options_(options), keys_(options.key_secret), rules_{options.max_keys, keys_},
        default_space_(make_foreign_space(options.prefix + std::string{sglang_default_namespace}, 0)) {}

  void initialize(const request& r, responder reply) const {
    const auto rank = rank_from_text(r.path("rank"));
    const auto wanted = read_sglang_initialize(r.body());
    if (!rank || !wanted)
      return refuse(std::move(reply), !rank ? rank.error() : wanted.error());
    const auto space = space_of(wanted->space);
    if (const auto wrong = check_space(r, *space, true))
      return refuse(std::move(reply), *wrong);
    register_foreign_rank(service_, space, *rank, wanted->pages, {options_.max_namespaces, options_.prefix},
                          [to = share(std::move(reply))](result<void> done) {
                            if (!done)
                              return fail_initialize(to, done.error());
                            std::move(*to).send(response::no_content());
                          });
  }

  void exists(const request& r, responder reply) const {
    const auto rank = rank_from_text(r.path("rank"));
    auto wanted = read_sglang_keys(r.body(), rules_);
    if (!rank || !wanted)
      return refuse(std::move(reply), !rank ? rank.error() : wanted.error());
    const auto space = space_of(wanted->space);
    if (const auto wrong = check_space(r, *space))
      return refuse(std::move(reply), *wrong);
    service_->exists(space->id, *rank, std::move(wanted->keys),
                     [to = share(std::move(reply)), space, rank = *rank](result<std::vector<std::uint8_t>> codes) {
                       if (!codes)
                         return fail_call(to, codes.error(), space, rank);
                       std::string out = R"({"exists":)";
                       append_found(out, *codes);
                       std::move(*to).send(response::json(out += '}'));
                     });
  }

  void reserve(const request& r, responder reply) const {
    const auto rank = rank_from_text(r.path("rank"));
    auto wanted = read_sglang_reserve(r.body(), rules_);
    if (!rank || !wanted)
      return refuse(std::move(reply), !rank ? rank.error() : wanted.error());
    const auto space = space_of(wanted->space);
    if (const auto wrong = check_space(r, *space))
      return refuse(std::move(reply), *wrong);
    auto& pages = wanted->wanted;
    service_->allocate(space->id, *rank, options_.reservation_deadline, std::move(pages.keys), std::move(pages.parents),
                       [to = share(std::move(reply)), space, rank = *rank,
                        places = std::move(pages.places)](result<std::vector<location>> given) {
                         if (!given)
                           return fail_call(to, given.error(), space, rank);
                         std::move(*to).send(response::json(reserved(places, *given)));
                       });
  }

  void confirm(const request& r, responder reply) const {
    const auto rank = rank_from_text(r.path("rank"));
    auto done = read_sglang_confirm(r.body(), rules_);
    if (!rank || !done)
      return refuse(std::move(reply), !rank ? rank.error() : done.error());
    const auto space = space_of(done->space);
    if (const auto wrong = check_space(r, *space))
      return refuse(std::move(reply), *wrong);
    finish_writing(service_, space, *rank, std::move(done->pages), refused_, share(std::move(reply)));
  }

  void locate(const request& r, responder reply) const {
    const auto rank = rank_from_text(r.path("rank"));
    auto wanted = read_sglang_keys(r.body(), rules_);
    if (!rank || !wanted)
      return refuse(std::move(reply), !rank ? rank.error() : wanted.error());
    const auto space = space_of(wanted->space);
    if (const auto wrong = check_space(r, *space))
      return refuse(std::move(reply), *wrong);
    service_->protect(space->id, *rank, false, options_.protect_for, options_.limits.readers_share_of(*r.who()),
                      std::move(wanted->keys),
                      [to = share(std::move(reply)), space, rank = *rank](result<std::vector<location>> found) {
                        if (!found)
                          return fail_call(to, found.error(), space, rank);
                        std::string out = R"({"indices":)";
                        append_slots(out, *found);
                        std::move(*to).send(response::json(out += '}'));
                      });
  }

  void erase(const request& r, responder reply) const {
    const auto rank = rank_from_text(r.path("rank"));
    auto wanted = read_sglang_keys(r.body(), rules_);
    if (!rank || !wanted)
      return refuse(std::move(reply), !rank ? rank.error() : wanted.error());
    const auto space = space_of(wanted->space);
    if (const auto wrong = check_space(r, *space))
      return refuse(std::move(reply), *wrong);
    service_->erase(
        space->id, *rank, std::move(wanted->keys),
        [to = share(std::move(reply)), space, rank = *rank](const result<std::vector<std::uint8_t>>& codes) {
          if (!codes)
            return fail_call(to, codes.error(), space, rank);
          std::move(*to).send(response::no_content());
        });
  }

  void clear(const request& r, responder reply) const {
    const auto rank = rank_from_text(r.path("rank"));
    const auto name = read_sglang_clear(r.body());
    if (!rank || !name)
      return refuse(std::move(reply), !rank ? rank.error() : name.error());
    const auto space = space_of(*name);
    if (const auto wrong = check_space(r, *space))
      return refuse(std::move(reply), *wrong);
    service_->clear(space->id, *rank,
                    [to = share(std::move(reply)), space, rank = *rank](const result<std::uint64_t>& pages) {
                      if (!pages)
                        return fail_call(to, pages.error(), space, rank);
                      std::move(*to).send(response::no_content());
                    });
  }

private:
  static void refuse(responder reply, const rejection& why) { std::move(reply).send(to_response(why)); }

  space_ptr space_of(const std::string& name) const {
    return name == sglang_default_namespace ? default_space_ : make_foreign_space(options_.prefix + name, 0);
  }

  static std::string reserved(const std::vector<std::uint32_t>& places, const std::vector<location>& given) {
    std::string out = R"({"indices":[)";
    out.reserve(out.size() + 20 * places.size() + 2);
    for (std::size_t i = 0; i < places.size(); ++i) {
      const auto& x = given[places[i]];
      const bool exists = x.code() == errc::exists;
      out += i == 0 ? "[" : ",[";
      append_json(out, exists);
      out += ',';
      append_json(out, exists || x.code() == errc::ok ? std::int64_t{x.where.slot} : no_page);
      out += ']';
    }
    return out += "]}";
  }

  const service_ptr service_;
  const sglang_options options_;
  const client_keys keys_;
  const body_rules rules_;
  const space_ptr default_space_;
  const std::shared_ptr<refusals> refused_ = std::make_shared<refusals>("sglang", options_.count_refused);
};

} // namespace

void add_sglang_routes(router& routes, std::shared_ptr<const metadata_service> service, const sglang_options& options) {
  const auto api = std::make_shared<const sglang_api>(std::move(service), options);
  using call = void (sglang_api::*)(const request&, responder) const;
  const auto add = [&](std::string_view path, std::string name, role needs, call what) {
    routes.add(method::post, path,
               {std::move(name), needs,
                [api, what](const request& r, responder reply) { ((*api).*what)(r, std::move(reply)); }, 0});
  };
  add("/{rank}/initialize", "sglang_initialize", role::write, &sglang_api::initialize);
  add("/{rank}/exists", "sglang_exists", role::read, &sglang_api::exists);
  add("/{rank}/reserve_and_allocate_page_indices", "sglang_reserve", role::write, &sglang_api::reserve);
  add("/{rank}/confirm_write", "sglang_confirm_write", role::write, &sglang_api::confirm);
  add("/{rank}/get_page_indices", "sglang_get_page_indices", role::read, &sglang_api::locate);
  add("/{rank}/delete_keys", "sglang_delete_keys", role::admin, &sglang_api::erase);
  add("/{rank}/clear", "sglang_clear", role::admin, &sglang_api::clear);
}

} // namespace troupe::http
