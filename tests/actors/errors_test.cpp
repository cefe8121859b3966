#include "tests/actors/sim.hpp"

namespace errors_test {

using namespace troupe;

TEST_CASE("errors: every code and its text survive the conversion through CAF", "[errors]") {
  test::sim s;
  for (std::uint8_t i = 1; i < errc_count; ++i) {
    const error ours{static_cast<errc>(i), "slot 7 of rank 3: try another"};
    const auto carried = to_caf(ours);
    REQUIRE(carried);
    const auto back = from_caf(carried);
    INFO(to_string(ours));
    CHECK(back.code == ours.code);
    CHECK(back.text == ours.text);
    const auto shown = s.system().render(carried);
    CHECK(shown.find(to_string(ours.code)) != std::string::npos);
    CHECK(shown.find("try another") != std::string::npos);
  }
}

TEST_CASE("errors: an empty error, a missing text and an unexpected payload are converted", "[errors]") {
  CHECK(from_caf(caf::error{}).code == errc::internal);
  CHECK_FALSE(from_caf(caf::error{}).text.empty());
  CHECK(from_caf(caf::make_error(errc::busy)).code == errc::busy);
  CHECK(from_caf(caf::make_error(errc::busy)).text.empty());
  CHECK(from_caf(caf::make_error(errc::busy, 5, "x")).code == errc::busy);
  CHECK(from_caf(caf::make_error(errc::busy, 5, "x")).text.empty());
}

TEST_CASE("errors: unknown codes become internal", "[errors]") {
  test::sim s;
  for (const int code : {static_cast<int>(errc_count), 200, 255}) {
    const caf::error strange(static_cast<std::uint8_t>(code), caf::atom("troupe"), caf::make_message(std::string("x")));
    CHECK(from_caf(strange).code == errc::internal);
    CHECK(from_caf(strange).text == "x");
    CHECK(s.system().render(strange).find("unknown") != std::string::npos);
  }
  CHECK(from_caf(caf::error(3, caf::atom("other"))).code == errc::internal);
}

TEST_CASE("errors: errors of the actor system become codes of the product", "[errors]") {
  CHECK(from_caf(caf::make_error(caf::sec::request_timeout)).code == errc::timeout);
  for (const auto code : {caf::sec::request_receiver_down, caf::sec::no_route_to_receiving_node,
                          caf::sec::cannot_connect_to_node, caf::sec::remote_lookup_failed})
    CHECK(from_caf(caf::make_error(code)).code == errc::unreachable);
  const auto other = from_caf(caf::make_error(caf::sec::unexpected_message));
  CHECK(other.code == errc::internal);
  CHECK(other.text.find("unexpected_message") != std::string::npos);
  CHECK(from_caf(caf::make_error(caf::exit_reason::kill)).code == errc::unreachable);
  CHECK(from_caf(caf::make_error(caf::exit_reason::remote_link_unreachable)).code == errc::unreachable);
  CHECK(from_caf(caf::make_error(caf::pec::unexpected_character)).code == errc::internal);
}

TEST_CASE("errors: a result converts to a reply and back", "[errors]") {
  const auto value = to_caf(result<std::uint32_t>(7U));
  CHECK(value.value.match_elements<std::uint32_t>());
  const auto failure = to_caf(result<std::uint32_t>(fail(errc::full, "no slot")));
  CHECK(from_caf(failure.err).code == errc::full);
  CHECK(from_caf(to_caf(result<void>(fail(errc::full, "no slot"))).err).text == "no slot");
  const auto back = failed<std::uint32_t>(caf::make_error(errc::stale, std::string("x")));
  REQUIRE_FALSE(back);
  CHECK(back.error().code == errc::stale);
}

} // namespace errors_test
