#include "actors/cluster/takeover/adopter.hpp"

#include "base/incarnation.hpp"
#include "base/log.hpp"

#include <algorithm>
#include <chrono>
#include <system_error>
#include <utility>

namespace troupe::cluster {

namespace {

namespace fs = std::filesystem;

constexpr std::size_t directories_max = 1024;
constexpr duration longest_pause = std::chrono::seconds(2);
constexpr duration read_pause = std::chrono::seconds(10);
/// The pause before a directory of another cluster is looked at again.
constexpr duration strange_pause = std::chrono::seconds(60);

/// Whether this node has made the claim after that of an adopter: the directory is not written to, and this node does
/// not hold the claim for certain yet.
bool follows_an_adopter(const io::claim_status& x) {
  return x.state == io::claim_state::waiting && x.other && x.other->kind == io::claim_kind::adopter &&
         x.other->phase != io::claim_phase::waiting;
}

/// Whether the directory is not written to until there is a higher claim.
bool is_quiesced(const io::claim_status& x) {
  if (x.state == io::claim_state::holding)
    return true;
  return x.state == io::claim_state::watching && x.other && x.other->kind == io::claim_kind::adopter &&
         x.other->phase != io::claim_phase::waiting;
}

} // namespace

adopter::adopter(adopter_options options) : options_(std::move(options)), incarnation_(fresh_incarnation()) {}

result<std::unique_ptr<adopter>> adopter::start(adopter_options options) {
  std::unique_ptr<adopter> made(new adopter(std::move(options)));
  auto thread =
      serial_executor::start(thread_name("troupe-adopter"), "the thread that watches directories of other nodes");
  if (!thread)
    return tl::unexpected<error>(std::move(thread.error()));
  made->thread_ = std::move(*thread);
  const auto pause = std::min(made->options_.lease / 4, longest_pause);
  const auto begun = made->thread_->repeat(pause, pause, [self = made.get()] {
    self->follow_all();
    return true;
  });
  if (!begun)
    return tl::unexpected<error>(begun.error());
  return made;
}

adopter::~adopter() {
  // The claims are given back when the thread uses them no more.
  if (thread_)
    thread_->end();
  directories_.clear();
}

std::vector<adopted_node> adopter::nodes() const {
  const std::lock_guard guard(mutex_);
  return nodes_;
}

std::uint64_t adopter::claims_lost() const {
  const std::lock_guard guard(mutex_);
  return lost_;
}

std::size_t adopter::watched() const {
  const std::lock_guard guard(mutex_);
  return watched_;
}

void adopter::follow_all() {
  if (const auto now = std::chrono::steady_clock::now(); now >= next_look_) {
    next_look_ = now + options_.lease;
    look_for_directories();
  }
  bool is_news = false;
  for (auto& [name, x] : directories_)
    is_news = follow(name, x) || is_news;
  std::erase_if(directories_, [](const auto& x) { return x.second.is_gone; });
  {
    const std::lock_guard guard(mutex_);
    watched_ = directories_.size();
  }
  if (is_news) {
    publish();
    report_new();
  }
}

void adopter::add(const std::string& name, const fs::path& own) {
  std::error_code ignored;
  const auto path = options_.shared / name;
  if (!directories_.contains(name) && directories_.size() < directories_max &&
      fs::weakly_canonical(path, ignored) != own)
    directories_[name];
}

// A node's directory is in the shared one, or one level below.
void adopter::look_for_directories() {
  const auto names_in = [](const fs::path& where) {
    std::vector<std::string> out;
    std::error_code failed;
    for (auto at = fs::directory_iterator(where, failed); !failed && at != fs::directory_iterator();
         at.increment(failed))
      out.push_back(at->path().filename().string());
    return out;
  };
  std::error_code ignored;
  const auto own = fs::weakly_canonical(options_.own, ignored);
  const auto has_claims = [&](const std::string& name) {
    return fs::is_directory(options_.shared / name / "claims", ignored);
  };
  for (const auto& name : names_in(options_.shared)) {
    if (directories_.contains(name) || !fs::is_directory(options_.shared / name, ignored))
      continue;
    if (has_claims(name)) {
      add(name, own);
      continue;
    }
    for (const auto& inner : names_in(options_.shared / name))
      if (has_claims(name + "/" + inner))
        add(name + "/" + inner, own);
  }
}

bool adopter::follow(const std::string& name, directory& x) {
  if (!x.claim) {
    if (std::chrono::steady_clock::now() < x.again)
      return false;
    auto begun = io::claim_keeper::begin(
        std::make_unique<io::claim_directory>(options_.shared / name),
        {options_.node_name, incarnation_, io::claim_kind::adopter, options_.lease, options_.cluster},
        std::make_shared<write_gate>());
    if (begun)
      x.claim = std::move(*begun);
    return false;
  }
  const auto now = x.claim->status();
  if (is_quiesced(now)) {
    const bool was_own = std::exchange(x.own, now.state == io::claim_state::holding);
    // The claim before this node's was an adopter's, with no claim of another node between them, so the index is valid.
    if (x.index && x.own && x.of + 1 == now.number)
      x.of = now.number;
    if (x.index && x.of == now.in_force)
      return was_own != x.own;
    return read(name, x, now.in_force);
  }
  const bool had = x.index != nullptr;
  if (had && follows_an_adopter(now))
    return false;
  const bool changes_hands = now.other && now.other->kind == io::claim_kind::adopter;
  if (had && changes_hands)
    log::get("cluster")->info(
        "directory released: {} (its claim is changing hands); its pages are unavailable meanwhile", name);
  else if (had)
    log::get("cluster")->info("directory released: {} (its node is back)", name);
  x.index.reset();
  if (now.state == io::claim_state::lost || now.state == io::claim_state::refused) {
    if (std::exchange(x.own, false)) {
      const std::lock_guard guard(mutex_);
      ++lost_;
    }
    if (now.state == io::claim_state::refused && now.other)
      x.again = std::chrono::steady_clock::now() + strange_pause;
    // The next search for directories finds it when it has claims again.
    x.is_gone = now.state == io::claim_state::refused && !now.other;
    x.claim.reset(); // another claim object continues to watch
  }
  x.own = false;
  return had;
}

bool adopter::read(const std::string& name, directory& x, io::claim_number of) {
  const auto clock_now = std::chrono::steady_clock::now();
  const bool had = x.index != nullptr;
  x.index.reset();
  if (clock_now < x.again)
    return had;
  auto index = adopted_index::read(options_.shared / name, options_.shared, options_.memory,
                                   [this] { return thread_->is_ending(); });
  if (!index && index.error().code == errc::shutting_down)
    return had;
  if (!index) {
    log::get("cluster")->warn("cannot read the index of dead node {}: {}; retrying", name, index.error().text);
    x.again = clock_now + read_pause;
    return had;
  }
  // The node may have come back meanwhile.
  if (const auto after = x.claim->status(); !is_quiesced(after) || after.in_force != of)
    return had;
  x.index = std::move(*index);
  x.of = of;
  x.is_new = true;
  return true;
}

void adopter::report_new() {
  for (auto& [name, x] : directories_)
    if (x.index && std::exchange(x.is_new, false))
      log::get("cluster")->info("directory adopted: {} (its node is dead): {} keys, {} pages; {}", name,
                                x.index->keys(), x.index->pages(),
                                x.own ? "this node holds the claim" : "another node holds the claim");
}

void adopter::publish() {
  std::vector<adopted_node> all;
  for (const auto& [name, x] : directories_)
    if (x.index)
      all.push_back({name, x.own, x.index, timestamp::min()});
  {
    const std::lock_guard guard(mutex_);
    nodes_ = std::move(all);
  }
  if (options_.changed)
    options_.changed();
}

} // namespace troupe::cluster
