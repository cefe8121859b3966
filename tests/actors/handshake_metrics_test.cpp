#include "actors/node/directory/directory.hpp"
#include "actors/node/metrics/exposition.hpp"
#include "tests/actors/sim.hpp"
#include "tests/unit/record_store.hpp"

#include <chrono>
#include <cstdlib>
#include <map>
#include <set>
#include <sstream>
#include <string>

/// The metrics of the handshake directory as a scraper reads them: each sample after the event that it counts.

namespace handshake_metrics_test {

using namespace troupe;
using namespace troupe::test;
using std::chrono::seconds;

namespace {

using samples = std::map<std::string, double>;

struct world : sim {
  explicit world(const handshake::directory_options& options, std::shared_ptr<store::metadata_store> store = nullptr)
      : it(spawn<directory>(options, std::move(store), restored_handshakes{}, room)) {}

  samples read() {
    std::string page;
    source([&](const result<std::string>& x) { page = x.value(); });
    run();
    samples out;
    std::istringstream lines(page);
    const std::string prefix = "troupe_handshake_";
    for (std::string line; std::getline(lines, line);) {
      if (!line.starts_with(prefix))
        continue;
      const auto end = line.rfind(' ');
      out[line.substr(prefix.size(), end - prefix.size())] = std::strtod(line.c_str() + end, nullptr);
    }
    return out;
  }

  /// The samples that have changed since the last call.
  samples changes() {
    auto all = read();
    samples out;
    for (const auto& [name, value] : all)
      if (value != before[name]) {
        out[name] = value - before[name];
        changed.insert(name);
      }
    before = std::move(all);
    return out;
  }

  void publish(const std::string& engine, incarnation_number incarnation, const std::string& payload = "12345") {
    handshake_publish_request x;
    x.engine = engine;
    x.incarnation = incarnation;
    x.compat = "abc";
    x.payload = payload;
    x.ttl = seconds(100);
    ask(it, x);
  }
  handshake_fetch_request fetch_of(const std::string& engine) const {
    handshake_fetch_request x;
    x.engine = engine;
    return x;
  }

  std::shared_ptr<outgoing_budget> room = std::make_shared<outgoing_budget>(1000, 1000);
  directory_actor it;
  metrics_source source = source_of(system(), it);
  samples before;
  std::set<std::string> changed;
};

} // namespace

TEST_CASE("handshake metrics: each sample counts exactly what its labels name", "[directory][metrics]") {
  handshake::directory_options options;
  options.engines_max = 2;
  options.bytes_max = 20;
  options.waiting_max = 1;
  options.watches_max = 1;
  world w(options);
  CHECK(w.changes().empty());
  const samples one_engine{{"engines", 1}, {"ranks", 1}, {"bytes", 5}};
  const auto with = [](samples x, const samples& more) {
    x.insert(more.begin(), more.end());
    return x;
  };
  const auto less = [](samples x) {
    for (auto& [name, value] : x)
      value = -value;
    return x;
  };
  // Publishing.
  w.publish("a", 7);
  CHECK(w.changes() == with(one_engine, {{"publications_total{outcome=\"added\"}", 1}}));
  w.publish("a", 7);
  CHECK(w.changes() == samples{{"publications_total{outcome=\"repeated\"}", 1}});
  w.publish("a", 8);
  CHECK(w.changes() ==
        samples{{"publications_total{outcome=\"added\"}", 1}, {"endings_total{reason=\"replaced\"}", 1}});
  w.ask(w.it, handshake_heartbeat_request{"a", 8, {}});
  CHECK(w.changes() == samples{{"heartbeats_total", 1}});
  // Refused.
  w.publish("a", 7);
  CHECK(w.changes() == samples{{"refused_total{reason=\"stale\"}", 1}});
  w.publish("a", 8, "other");
  CHECK(w.changes() == samples{{"refused_total{reason=\"conflict\"}", 1}});
  w.publish("a", 0);
  CHECK(w.changes() == samples{{"refused_total{reason=\"malformed\"}", 1}});
  w.publish("b", 1, std::string(16, 'x'));
  CHECK(w.changes() == samples{{"refused_total{reason=\"bytes\"}", 1}});
  w.publish("b", 1);
  CHECK(w.changes() == with(one_engine, {{"publications_total{outcome=\"added\"}", 1}}));
  w.publish("c", 1);
  CHECK(w.changes() == samples{{"refused_total{reason=\"engines\"}", 1}});
  w.room->refuse();
  CHECK(w.changes() == samples{{"refused_total{reason=\"answers\"}", 1}});
  // Fetching.
  auto x = w.fetch_of("a");
  const auto found = w.ask(w.it, x).value<handshake_fetch_reply>();
  CHECK(w.changes() == samples{{"fetches_total{outcome=\"found\"}", 1}});
  x.etag = found.etag;
  w.ask(w.it, x);
  CHECK(w.changes() == samples{{"fetches_total{outcome=\"not_modified\"}", 1}});
  w.ask(w.it, w.fetch_of("c"));
  CHECK(w.changes() == samples{{"fetches_total{outcome=\"not_found\"}", 1}});
  x = w.fetch_of("a");
  x.incarnation = 7;
  w.ask(w.it, x);
  CHECK(w.changes() == samples{{"fetches_total{outcome=\"gone\"}", 1}});
  x.incarnation = 0;
  x.compat = "other";
  w.ask(w.it, x);
  CHECK(w.changes() == samples{{"fetches_total{outcome=\"incompatible\"}", 1}});
  // Waiting.
  x = w.fetch_of("c");
  x.wait = seconds(5);
  w.begin(w.it, x);
  const samples begun{{"waits_total{outcome=\"begun\"}", 1}, {"waiting", 1}};
  CHECK(w.changes() == begun);
  w.ask(w.it, x);
  CHECK(w.changes() == samples{{"refused_total{reason=\"waiting\"}", 1}});
  w.advance(seconds(6));
  CHECK(w.changes() == samples{{"waits_total{outcome=\"timed_out\"}", 1},
                               {"fetches_total{outcome=\"not_found\"}", 1},
                               {"waiting", -1}});
  {
    probe asker(w.system());
    asker.request(caf::actor_cast<caf::strong_actor_ptr>(w.it), caf::make_message(x));
    w.run();
    CHECK(w.changes() == begun);
    asker.die();
    w.run();
    CHECK(w.changes() == samples{{"waits_total{outcome=\"cancelled\"}", 1}, {"waiting", -1}});
  }
  // Watching.
  probe watcher(w.system());
  const auto watch = [&](const std::string& engine) {
    return w.ask(w.it, watch_atom_v, engine, watcher.as<handshake_watcher_actor>());
  };
  watch("x");
  CHECK(w.changes() == samples{{"watches", 1}});
  watch("y");
  CHECK(w.changes() == samples{{"refused_total{reason=\"watches\"}", 1}});
  // Endings.
  w.ask(w.it, handshake_withdraw_request{"b", 1});
  CHECK(w.changes() == with(less(one_engine), {{"endings_total{reason=\"withdrawn\"}", 1}}));
  watcher.die();
  w.run();
  CHECK(w.changes() == samples{{"watches", -1}});
  w.advance(seconds(101));
  CHECK(w.changes() == with(less(one_engine), {{"endings_total{reason=\"expired\"}", 1}}));
  // Changes refused because the disk accepts no more.
  options.changes_waiting_max = 0;
  world slow(options, std::make_shared<record_store>());
  slow.publish("a", 7);
  CHECK(slow.changes() == samples{{"refused_total{reason=\"disk\"}", 1}});
  w.changed.merge(slow.changed);
  // There are no other samples.
  for (const auto& [name, value] : w.read()) {
    INFO(name);
    CHECK(w.changed.contains(name));
  }
}

} // namespace handshake_metrics_test
