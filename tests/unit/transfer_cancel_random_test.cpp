#include "tests/unit/transfer_saver.hpp"

#include <algorithm>
#include <map>
#include <random>
#include <set>

namespace transfer_cancel_random_test {

/// Saves that are cancelled at random moments, while all operations end in any order and with any result.

namespace {

using namespace troupe;
using namespace troupe::transfer;
using namespace troupe::test;

class random_saves {
public:
  explicit random_saves(std::uint64_t seed)
      : random_(seed), window_(1 + below(6)), saver_(test_binding(window_, 1 + below(3)), test_options(1 + below(3))) {
    saver_.places_at_once = false;
  }

  void run() {
    for (int i = 0; i < 150; ++i)
      step(true);
    for (int i = 0; i < 5000 && (saver_.state.calls_under_way() > 0 || saver_.state.open_tasks() > 0); ++i)
      step(false);
    saver_.check_quiesced(window_);
    CHECK(saver_.worker.in_use() == 0);
    CHECK(answered_.size() == tasks_.size());
    for (const auto& [where, slot] : slots_) {
      INFO("slot " << where);
      CHECK(slot.committed != slot.aborted);
    }
  }

  std::uint64_t cancelled_pages = 0;
  std::uint64_t saved_pages = 0;

private:
  struct slot_fate {
    bool committed = false;
    bool aborted = false;
  };
  struct started_task {
    std::uint64_t tag = 0;
    bool cancelled = false;
    /// The keys whose gather ended well after the cancel or was started again.
    std::set<key_digest> unsafe;
    std::set<key_digest> committed;
    std::vector<key_digest> keys;
  };
  /// The states number their tickets as they number their tasks.
  started_task& task_of(const ticket& name) { return tasks_.at(name.sequence); }

  std::uint32_t below(std::uint32_t n) { return static_cast<std::uint32_t>(random_() % n); }
  bool one_in(std::uint32_t n) { return below(n) == 0; }

  void step(bool more) {
    if (more && one_in(6))
      start();
    else if (more && one_in(8))
      cancel();
    else if (one_in(8))
      saver_.state.on_tick(t0);
    else
      answer_something(!more);
    look_around();
  }

  void start() {
    auto work = tagged(1 + below(6), test_task(1 + below(6), 100 * ++started_));
    const auto id = saver_.state.start(work, t0);
    REQUIRE(id);
    // A reservation names the ticket of its task; so does all that follows.
    auto reserves = saver_.take<save_reserve>();
    REQUIRE_FALSE(reserves.empty());
    auto& t = tasks_[reserves.front().request.ticket.sequence];
    t.tag = work.tag;
    t.keys = work.keys.items;
    by_id_[*id] = reserves.front().request.ticket.sequence;
    for (auto& x : reserves)
      reserves_.push_back(std::move(x));
    for (const auto& key : t.keys)
      owner_of_[key] = reserves.front().request.ticket.sequence;
  }

  void cancel() {
    const std::uint64_t tag = 1 + below(6);
    saver_.state.cancel(std::vector{tag, std::uint64_t{77}}, t0);
    for (auto& [name, t] : tasks_)
      t.cancelled |= t.tag == tag && !answered_.contains(name);
  }

  /// Takes the effects of the state, and checks what can be checked at once.
  void look_around() {
    for (auto& x : saver_.take<save_reserve>())
      reserves_.push_back(std::move(x));
    for (auto& x : saver_.take<save_place>())
      places_.push_back(std::move(x));
    for (auto& x : saver_.take<save_gather>()) {
      for (const auto& item : x.order.items)
        CHECK_FALSE(tasks_.at(owner_of_.at(item.key)).cancelled);
      gathers_.push_back(std::move(x));
    }
    for (auto& x : saver_.take<save_fill>())
      fills_.push_back(std::move(x));
    CHECK(saver_.worker.in_use() + saver_.state.window_left() <= window_);
    for (auto& x : saver_.take<save_commit>()) {
      auto& t = task_of(x.request.ticket);
      for (const auto& page : x.request.pages) {
        CHECK_FALSE(t.unsafe.contains(page.key));
        CHECK_FALSE(slots_.at(page.where.slot).aborted);
        slots_.at(page.where.slot).committed = true;
      }
      commits_.push_back(std::move(x));
    }
    for (auto& x : saver_.take<save_abort>()) {
      for (const auto& page : x.request.pages) {
        CHECK_FALSE(slots_.at(page.where.slot).aborted);
        CHECK_FALSE(slots_.at(page.where.slot).committed);
        slots_.at(page.where.slot).aborted = true;
      }
      aborts_.push_back(std::move(x));
    }
    for (const auto& x : saver_.take<task_finished>()) {
      const auto sequence = by_id_.at(x.task);
      CHECK(answered_.insert(sequence).second);
      const auto& t = tasks_.at(sequence);
      const auto codes = results_of(x.result);
      REQUIRE(codes.size() == t.keys.size());
      for (std::size_t i = 0; i < codes.size(); ++i) {
        CHECK((codes[i] == errc::ok) == t.committed.contains(t.keys[i]));
        CHECK((codes[i] != errc::cancelled || t.cancelled));
        cancelled_pages += codes[i] == errc::cancelled ? 1 : 0;
        saved_pages += codes[i] == errc::ok ? 1 : 0;
      }
    }
  }

  template <class T>
  T take_one_of(std::vector<T>& from) {
    std::swap(from[below(static_cast<std::uint32_t>(from.size()))], from.back());
    auto out = std::move(from.back());
    from.pop_back();
    return out;
  }

  void answer_something(bool soundly) {
    const auto kind = below(6);
    if (kind == 0 && !reserves_.empty())
      answer(take_one_of(reserves_), soundly);
    else if (kind == 1 && !gathers_.empty())
      answer(take_one_of(gathers_), soundly);
    else if (kind == 2 && !fills_.empty())
      answer(take_one_of(fills_), soundly);
    else if (kind == 3 && !commits_.empty())
      answer(take_one_of(commits_), soundly);
    else if (kind == 4 && !aborts_.empty())
      saver_.aborted(take_one_of(aborts_));
    else if (kind == 5 && !places_.empty())
      answer(take_one_of(places_), soundly);
  }

  void answer(const save_reserve& x, bool soundly) {
    const bool lost = !soundly && one_in(4);
    if (lost && one_in(2)) {
      saver_.state.on_reserve(x.call, no_answer(), t0); // the request was
      return;
    }
    reserve_reply reply;
    for (const auto& key : x.request.keys) {
      // A repeated ticket gets the first answer.
      auto known = grants_.find({x.request.ticket, key});
      if (known == grants_.end()) {
        location granted{{static_cast<slot_number>(slots_.size()), 7}, 0};
        if (one_in(10))
          granted = {{}, static_cast<std::uint32_t>(errc::busy)};
        else
          slots_[granted.where.slot] = {};
        known = grants_.emplace(std::pair(x.request.ticket, key), granted).first;
      }
      reply.results.items.push_back(known->second);
    }
    if (lost)
      saver_.state.on_reserve(x.call, no_answer(), t0);
    else
      saver_.state.on_reserve(x.call, std::move(reply), t0);
  }

  void answer(const save_gather& x, bool soundly) {
    for (const auto& item : x.order.items)
      if (auto& t = tasks_.at(owner_of_.at(item.key)); t.cancelled)
        t.unsafe.insert(item.key);
    if (!soundly && one_in(10)) {
      saver_.state.on_gather(x.call, fail(errc::device_error, "?"), t0);
      return;
    }
    copy_reply reply{same_codes(x.order.items.size()), {}};
    if (!soundly && one_in(6))
      reply.results.items.back() = static_cast<std::uint8_t>(errc::out_of_range);
    saver_.state.on_gather(x.call, std::move(reply), t0);
  }

  void answer(const save_place& x, bool soundly) {
    if (!soundly && one_in(3)) {
      saver_.state.on_place(x.call, fail(errc::limit_exceeded, "busy"), t0);
      return;
    }
    std::vector<errc> codes(x.request.pages.size(), errc::ok);
    if (!soundly && one_in(4))
      codes[below(static_cast<std::uint32_t>(codes.size()))] = errc::full;
    saver_.placed(x, t0, codes);
  }

  void answer(const save_fill& x, bool soundly) {
    io_reply reply{x.request.gathered};
    if (!soundly && one_in(6))
      reply.results.items.front() = static_cast<std::uint8_t>(errc::io_error);
    saver_.state.on_fill(x.call, std::move(reply), t0);
  }

  void answer(const save_commit& x, bool soundly) {
    if (!soundly && one_in(3)) {
      saver_.state.on_commit(x.call, no_answer(), t0);
      return;
    }
    for (const auto& page : x.request.pages)
      task_of(x.request.ticket).committed.insert(page.key);
    saver_.committed(x);
  }

  std::mt19937_64 random_;
  std::uint32_t window_;
  saver saver_;
  std::uint64_t started_ = 0;
  std::map<std::uint64_t, started_task> tasks_;
  std::map<task_id, std::uint64_t> by_id_;
  std::map<key_digest, std::uint64_t> owner_of_;
  std::map<std::pair<ticket, key_digest>, location> grants_;
  std::map<slot_number, slot_fate> slots_;
  std::set<std::uint64_t> answered_;
  std::vector<save_reserve> reserves_;
  std::vector<save_gather> gathers_;
  std::vector<save_place> places_;
  std::vector<save_fill> fills_;
  std::vector<save_commit> commits_;
  std::vector<save_abort> aborts_;
};

} // namespace

TEST_CASE("save: a cancel at any moment ends each slot once and publishes nothing late", "[save_state][cancel]") {
  std::uint64_t cancelled = 0;
  std::uint64_t saved = 0;
  for (std::uint64_t seed = 0; seed < 400; ++seed) {
    INFO("seed " << seed);
    random_saves world(seed);
    world.run();
    cancelled += world.cancelled_pages;
    saved += world.saved_pages;
  }
  CHECK(cancelled > 1000);
  CHECK(saved > 1000);
}

} // namespace transfer_cancel_random_test
