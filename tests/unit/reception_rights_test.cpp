#include "actors/node/reception/client_rights.hpp"
#include "tests/catch.hpp"

#include <thread>
#include <vector>

namespace reception_rights_test {

using namespace troupe;

namespace {

const namespace_id ns{1, 2};
const namespace_id foreign{1, 3};
constexpr owner_id me = 77;
constexpr owner_id other_client = 78;

client_scope scope() {
  return {me, ns, 4, 3, 5};
}

packed<key_digest> keys(std::size_t count) {
  packed<key_digest> out;
  for (std::size_t i = 0; i < count; ++i)
    out.items.push_back({i + 1, 9});
  return out;
}

packed<page_ref> pages(std::size_t count) {
  packed<page_ref> out;
  for (std::uint32_t i = 0; i < count; ++i)
    out.items.push_back({{i + 1, 9}, {i, 5}});
  return out;
}

/// The answer that gives slots 0 to count - 1, generation 5.
reserve_reply granted(std::uint32_t count) {
  reserve_reply out;
  for (std::uint32_t i = 0; i < count; ++i)
    out.results.items.push_back({{i, 5}, static_cast<std::uint32_t>(errc::ok)});
  return out;
}

frame_request batch(const std::vector<slot_ref>& slots) {
  frame_request out{{}, std::chrono::seconds(1)};
  for (const auto& x : slots)
    out.pages.items.push_back({key_digest{x.slot, 1}, x});
  return out;
}

errc code(const result<void>& x) {
  return x ? errc::ok : x.error().code;
}

/// Checks a request of this kind with these arguments.
errc asked(const client_rights& rights, int kind, owner_id owner, const namespace_id& where, std::size_t count) {
  const ticket t{owner, 1};
  switch (kind) {
  case 0:
    return code(rights.may(match_request{where, t, {}, keys(count)}));
  case 1:
    return code(rights.may(locate_request{where, 0, t, {}, keys(count)}));
  case 2:
    return code(rights.may(reserve_request{where, 0, t, {}, keys(count), {}}));
  case 3:
    return code(rights.may(reserve_request{where, 0, t, {}, {}, keys(count)}));
  case 4:
    return code(rights.may(finish_request{where, 0, t, pages(count)}));
  case 5:
    return code(rights.may(release_request{where, t, 0}));
  case 6:
    return code(rights.may(renew_request{where, t, {}}));
  case 7:
    return code(rights.may(invalidate_request{where, 0, {}, std::vector<std::uint8_t>(count), {}}));
  case 8:
    return code(rights.may(invalidate_request{where, 0, {}, {}, std::vector<std::uint8_t>(count)}));
  default:
    return code(rights.may(invalidate_request{where, 0, pages(count), {}, {}}));
  }
}

} // namespace

TEST_CASE("reception rights: a client may only use its own name and namespace, within its limits", "[reception]") {
  const client_rights rights(scope());
  const auto kind = GENERATE(0, 1, 2, 3, 4, 5, 6, 7, 8, 9);
  const bool has_owner = kind < 7;
  const bool has_batch = kind != 5 && kind != 6;
  CHECK(asked(rights, kind, me, ns, 4) == errc::ok);
  for (const owner_id other : {other_client, owner_id{0}})
    CHECK(asked(rights, kind, other, ns, 1) == (has_owner ? errc::not_owner : errc::ok));
  for (const auto& other : {foreign, namespace_id{}})
    CHECK(asked(rights, kind, me, other, 1) == errc::unknown_namespace);
  CHECK(asked(rights, kind, me, ns, 5) == (has_batch ? errc::limit_exceeded : errc::ok));
}

TEST_CASE("reception rights: a client may write to its reserved slots until it reports the end", "[reception]") {
  client_rights rights(scope());
  CHECK(code(rights.may_place(0, batch({{0, 5}}))) == errc::not_owner);
  rights.reserved(0, granted(3));
  CHECK(code(rights.may_place(0, batch({{0, 5}, {1, 5}, {2, 5}}))) == errc::ok);
  CHECK(code(rights.may_place(1, batch({{0, 5}}))) == errc::not_owner);
  CHECK(code(rights.may_place(0, batch({{0, 5}, {3, 5}}))) == errc::not_owner);
  for (const generation_number other : {0U, 4U, 6U, 0xffffffffU})
    CHECK(code(rights.may_place(0, batch({{1, other}}))) == errc::not_owner);
  rights.finished({ns, 1, {me, 1}, pages(3)}); // of another rank
  CHECK(code(rights.may_place(0, batch({{0, 5}}))) == errc::ok);
  rights.finished({ns, 0, {me, 1}, pages(2)});
  CHECK(code(rights.may_place(0, batch({{0, 5}}))) == errc::not_owner);
  CHECK(code(rights.may_place(0, batch({{1, 5}}))) == errc::not_owner);
  CHECK(code(rights.may_place(0, batch({{2, 5}}))) == errc::ok);
}

TEST_CASE("reception rights: a reassigned slot is reserved with its new generation, and only that ends it",
          "[reception]") {
  client_rights rights(scope());
  rights.reserved(0, granted(1));
  auto again = granted(1);
  again.results[0].where.generation = 6;
  rights.reserved(0, again);
  CHECK(code(rights.may_place(0, batch({{0, 5}}))) == errc::not_owner);
  rights.finished({ns, 0, {me, 1}, pages(1)}); // a late abort of the generation before
  CHECK(code(rights.may_place(0, batch({{0, 6}}))) == errc::ok);
}

TEST_CASE("reception rights: keys without a granted slot permit no write", "[reception]") {
  client_rights rights(scope());
  for (const auto refused : {errc::exists, errc::busy, errc::full, errc::not_found}) {
    auto reply = granted(1);
    reply.results[0].status = static_cast<std::uint32_t>(refused);
    rights.reserved(0, reply);
    CHECK(code(rights.may_place(0, batch({{0, 5}}))) == errc::not_owner);
  }
}

TEST_CASE("reception rights: a peer may look up and fetch, and not write", "[reception]") {
  auto of_node = scope();
  of_node.reads_only = true;
  const client_rights rights(of_node);
  const ticket mine{me, 1};
  CHECK(code(rights.may(match_request{ns, mine, {}, keys(2)})) == errc::ok);
  CHECK(code(rights.may(locate_request{ns, 0, mine, {}, keys(2)})) == errc::ok);
  CHECK(code(rights.may(release_request{ns, mine})) == errc::ok);
  CHECK(code(rights.may(release_request{ns, mine, 0, 0, false, keys(4)})) == errc::ok);
  CHECK(code(rights.may(release_request{ns, mine, 0, 0, false, keys(5)})) == errc::limit_exceeded);
  client_rights engine(scope());
  CHECK(code(engine.may(release_request{ns, mine, 0, 0, false, keys(1)})) == errc::not_owner);
  CHECK(code(rights.may(invalidate_request{ns, 0, pages(1)})) == errc::ok);
  CHECK(code(rights.may(reuse_request{ns})) == errc::ok);
  CHECK(code(rights.may(reuse_request{foreign})) == errc::unknown_namespace);
  CHECK(code(engine.may(reuse_request{ns})) == errc::not_owner);
  page_descriptions described;
  described.keys = keys(4);
  CHECK(code(rights.may(describe_pages_request{ns, described})) == errc::not_owner);
  CHECK(code(engine.may(describe_pages_request{ns, described})) == errc::ok);
  CHECK(code(engine.may(describe_pages_request{foreign, described})) == errc::unknown_namespace);
  described.keys = keys(5);
  CHECK(code(engine.may(describe_pages_request{ns, described})) == errc::limit_exceeded);
  CHECK(code(rights.may(reserve_request{ns, 0, mine, {}, keys(2), {}})) == errc::not_owner);
  CHECK(code(rights.may(finish_request{ns, 0, mine, pages(1)})) == errc::not_owner);
  CHECK(code(rights.may_place(0, batch({{0, 5}}))) == errc::not_owner);
}

TEST_CASE("reception rights: a client may request keys of peers in its namespace, a batch at a time", "[reception]") {
  const client_rights rights(scope());
  CHECK(code(rights.may(prefix_fetch_request{ns, {}, keys(4)})) == errc::ok);
  CHECK(code(rights.may(prefix_fetch_request{ns, {}, keys(5)})) == errc::limit_exceeded);
  CHECK(code(rights.may(prefix_fetch_request{foreign, {}, keys(1)})) == errc::unknown_namespace);
  CHECK(code(rights.may(search_peers_request{ns, keys(4), {}})) == errc::ok);
  CHECK(code(rights.may(search_peers_request{ns, keys(5), {}})) == errc::limit_exceeded);
  CHECK(code(rights.may(search_peers_request{foreign, keys(1), {}})) == errc::unknown_namespace);
  CHECK(code(rights.may(fetch_pages_request{ns, 1, keys(4), keys(4)})) == errc::ok);
  CHECK(code(rights.may(fetch_pages_request{ns, 1, keys(5), {}})) == errc::limit_exceeded);
  CHECK(code(rights.may(fetch_pages_request{ns, 1, keys(1), keys(5)})) == errc::limit_exceeded);
  CHECK(code(rights.may(fetch_pages_request{foreign, 1, {}, {}})) == errc::unknown_namespace);
}

TEST_CASE("reception rights: a client may fetch and place one batch at a time", "[reception]") {
  client_rights rights(scope());
  CHECK(code(rights.may_fetch(batch({{0, 1}, {1, 1}, {7, 0xffffffff}}))) == errc::ok);
  CHECK(code(rights.may_fetch(batch({{0, 1}, {1, 1}, {2, 1}, {3, 1}}))) == errc::limit_exceeded);
  rights.reserved(0, granted(4));
  CHECK(code(rights.may_place(0, batch({{0, 5}, {1, 5}, {2, 5}}))) == errc::ok);
  CHECK(code(rights.may_place(0, batch({{0, 5}, {1, 5}, {2, 5}, {3, 5}}))) == errc::limit_exceeded);
}

TEST_CASE("reception rights: the number of requests in progress is bounded for each client", "[reception]") {
  client_rights rights(scope());
  for (int i = 0; i < 5; ++i)
    CHECK(rights.begin_request());
  for (int i = 0; i < 3; ++i)
    CHECK(code(rights.begin_request()) == errc::limit_exceeded);
  rights.end_request();
  CHECK(rights.begin_request());
  CHECK_FALSE(rights.begin_request());
}

TEST_CASE("reception rights: after its attachment a client may request nothing, and whether it had memory is recorded",
          "[reception]") {
  client_rights silent(scope());
  CHECK(silent.begin_request());
  silent.end_request();
  CHECK_FALSE(silent.end());
  CHECK(code(silent.begin_request(true)) == errc::unreachable);
  client_rights rights(scope());
  CHECK(rights.begin_request(true));
  rights.end_request();
  CHECK(rights.end());
  CHECK(rights.end());
  CHECK(code(rights.begin_request()) == errc::unreachable);
}

TEST_CASE("reception rights: several threads share the rights of a client", "[reception]") {
  client_rights rights(scope());
  std::vector<std::thread> all;
  std::atomic<int> wrong{0};
  for (rank_number rank = 0; rank < 4; ++rank)
    all.emplace_back([&, rank] {
      for (int i = 0; i < 2000; ++i) {
        const bool begun = rights.begin_request().has_value();
        rights.reserved(rank, granted(3));
        wrong += rights.may_place(rank, batch({{2, 5}})) ? 0 : 1;
        rights.finished({ns, rank, {me, 1}, pages(3)});
        wrong += rights.may_place(rank, batch({{2, 5}})) ? 1 : 0;
        if (begun)
          rights.end_request();
      }
    });
  for (auto& x : all)
    x.join();
  CHECK(wrong == 0);
}

} // namespace reception_rights_test
