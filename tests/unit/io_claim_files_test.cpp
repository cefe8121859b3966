#include "io/claims/claim_files.hpp"
#include "io/claims/claim_keeper.hpp"
#include "tests/catch.hpp"
#include "tests/unit/io_support.hpp"

#include <atomic>
#include <fstream>
#include <sys/stat.h>

namespace io_claim_files_test {

using namespace troupe;
using namespace troupe::io;
using namespace troupe::test;
using std::chrono::milliseconds;
using std::chrono::seconds;
namespace fs = std::filesystem;

namespace {

const claim_record sample{"cache-1", 0xfeed, claim_kind::owner, claim_phase::holding, seconds(10), 42, "chat"};

/// The lease of a live holder is longer than a busy machine delays a thread; that of a dead one is short to wait for.
constexpr duration long_lease = seconds(4);
constexpr duration short_lease = milliseconds(200);

std::unique_ptr<claim_keeper> begin(const fs::path& where, const std::string& name, claim_kind kind, duration lease,
                                    std::shared_ptr<write_gate> gate = std::make_shared<write_gate>()) {
  static std::atomic<incarnation_number> last = 0;
  auto out =
      claim_keeper::begin(std::make_unique<claim_directory>(where), {name, ++last, kind, lease}, std::move(gate));
  REQUIRE(out);
  return std::move(*out);
}

claim_status settled(const claim_keeper& x) {
  return x.wait([](const claim_status&) { return true; });
}

} // namespace

TEST_CASE("claim files: a claim is read back unchanged, and other contents are refused", "[claims][files]") {
  for (const auto kind : {claim_kind::owner, claim_kind::adopter})
    for (const auto phase : {claim_phase::waiting, claim_phase::holding, claim_phase::released}) {
      auto x = sample;
      x.kind = kind;
      x.phase = phase;
      const auto text = text_of(x);
      CHECK(text.size() == claim_record_bytes);
      CHECK(read_claim(std::as_bytes(std::span(text))) == x);
    }
  const auto text = text_of(sample);
  for (std::size_t i = 0; i < 260; ++i) {
    auto damaged = text;
    damaged[i] = damaged[i] == '7' ? '8' : '7';
    const auto read = read_claim(std::as_bytes(std::span(damaged)));
    CHECK((!read || read == sample)); // behind the sum there is nothing to damage
  }
  for (std::size_t size = 0; size < text.size(); size += 13)
    CHECK_FALSE(read_claim(std::as_bytes(std::span(text).first(size))));
  auto strange = sample;
  strange.holder = "two\nlines" + std::string(1000, 'x');
  const auto cut = text_of(strange);
  const auto read = read_claim(std::as_bytes(std::span(cut)));
  REQUIRE(read);
  CHECK(read->holder.starts_with("two?lines"));
}

TEST_CASE("claim files: each claim file is created once", "[claims][files]") {
  scratch_directory data;
  claim_directory files(data.path());
  CHECK(files.look().value().number == 0);
  REQUIRE(files.make(1, sample));
  CHECK(files.make(1, sample).error().code == errc::exists);
  auto seen = files.look().value();
  CHECK(seen.number == 1);
  CHECK(seen.record == sample);
  struct stat status {};
  REQUIRE(::stat((data / "claims/00000001").c_str(), &status) == 0);
  CHECK((status.st_mode & 0777U) == 0600U);
  auto next = sample;
  next.counter = 43;
  REQUIRE(files.write(1, next));
  CHECK(files.look().value().fingerprint != seen.fingerprint);
  CHECK(files.write(2, next).error().code == errc::not_found);
  CHECK(files.look().value().number == 1);
  REQUIRE(files.make(12, next));
  CHECK(files.look().value().number == 12);
  REQUIRE(files.remove_below(12));
  CHECK_FALSE(fs::exists(data / "claims/00000001"));
  CHECK(files.look().value().number == 12);
  // Other files in the directory are ignored.
  std::ofstream(data / "claims/notes") << "text";
  std::ofstream(data / "claims/0") << "text";
  CHECK(files.look().value().number == 12);
  // A claim file was created and not written.
  std::ofstream(data / "claims/00000013").flush();
  seen = files.look().value();
  CHECK(seen.number == 13);
  CHECK_FALSE(seen.record);
}

TEST_CASE("claim files: a claim keeper opens its write gate while it holds its claim and closes it before the release",
          "[claims][files]") {
  scratch_directory data;
  const auto gate = std::make_shared<write_gate>();
  CHECK_FALSE(gate->is_open());
  auto a = begin(data.path(), "a", claim_kind::owner, long_lease, gate);
  REQUIRE(settled(*a).state == claim_state::holding);
  CHECK(eventually([&] { return gate->is_open(); }));
  // Another node is refused while this one renews.
  const auto b = begin(data.path(), "b", claim_kind::owner, long_lease);
  const auto refused = settled(*b);
  CHECK(refused.state == claim_state::refused);
  CHECK(missing(describe(refused), {"'a'"}) == "");
  a.reset();
  CHECK(gate->is_shut());
  CHECK_FALSE(gate->is_open());
  CHECK(claim_directory(data.path()).look().value().record->phase == claim_phase::released);
  const auto c = begin(data.path(), "c", claim_kind::owner, long_lease);
  CHECK(settled(*c).state == claim_state::holding);
}

TEST_CASE("claim files: a silent claim keeper loses its claim and learns it at its next look", "[claims][files]") {
  scratch_directory data;
  const auto gate = std::make_shared<write_gate>();
  auto dead = begin(data.path(), "dead", claim_kind::owner, short_lease, gate);
  REQUIRE(settled(*dead).state == claim_state::holding);
  dead->abandon();
  CHECK(claim_directory(data.path()).look().value().record->phase == claim_phase::holding);
  std::atomic<int> lost = 0;
  const auto adopter = begin(data.path(), "adopter", claim_kind::adopter, short_lease);
  REQUIRE(settled(*adopter).state == claim_state::holding);
  CHECK_FALSE(adopter->gate()->is_open());
  // A claim file is created before its owner is written to it.
  adopter->on_lost([&](const claim_status& x) { lost += !x.other || x.other->holder == "back" ? 1 : 100; });
  const auto back = begin(data.path(), "back", claim_kind::owner, long_lease);
  REQUIRE(settled(*back).state == claim_state::holding);
  CHECK(eventually([&] { return lost == 1; }));
  CHECK(adopter->status().state == claim_state::lost);
  CHECK(eventually([&] { return back->gate()->is_open(); }));
}

TEST_CASE("claim files: a write gate is open until a time and can be closed for good", "[claims]") {
  write_gate gate;
  const timestamp now{seconds(100)};
  CHECK_FALSE(gate.is_open_at(now));
  gate.open_until(now);
  CHECK_FALSE(gate.is_open_at(now));
  gate.open_until(now + seconds(2));
  gate.open_until(now + seconds(1));
  CHECK(gate.is_open_at(now + milliseconds(1999)));
  CHECK_FALSE(gate.is_open_at(now + seconds(2)));
  gate.shut();
  gate.open_until(now + seconds(9));
  CHECK_FALSE(gate.is_open_at(now));
  CHECK(gate.is_shut());
  CHECK(boot_time() > timestamp{});
}

TEST_CASE("claim files: the gate of a directory that no other node can take over is always open", "[claims]") {
  const auto gate = write_gate::always_open();
  REQUIRE(gate);
  CHECK(gate->is_open());
  CHECK(gate->is_open_at(boot_time() + std::chrono::hours(24 * 365 * 100)));
  CHECK(gate->check("write"));
  CHECK(gate == write_gate::always_open());
  const auto closed = write_gate().check("write 'a'", errc::no_space);
  REQUIRE_FALSE(closed);
  CHECK(closed.error().code == errc::no_space);
  CHECK(closed.error().text == "cannot write 'a': " + std::string(no_claim));
}

} // namespace io_claim_files_test
