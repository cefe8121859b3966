#include "tests/simulation/slot_store.hpp"

#include <algorithm>
#include <iterator>
#include <utility>

namespace troupe::simulation {

namespace {

/// Pages that a visitor gets at once: more than one, and not all.
constexpr std::size_t pages_at_once = 4;

error process_is_gone() {
  return {errc::io_error, "the process is killed here"};
}

} // namespace

/// The view of one run of the node.
class slot_store::handle final : public store::metadata_store {
public:
  explicit handle(slot_store& of) : of_(of), run_(of.run_), identity_(store::first_identity()) {
    for (const auto& [key, value] : of.records_)
      if (key.starts_with(store::first_of(store::table::identity)))
        identity_ = store::decode_identity(key, value).value();
  }

  const store::node_identity& identity() const noexcept override { return identity_; }

  result<void> commit(store::write_batch&& batch, store::commit_callback done) override {
    if (run_ != of_.run_)
      return {}; // by a process that has ended, and is not notified any more
    return of_.commit(std::move(batch), std::move(done));
  }

  result<store::load_summary> load(store::load_visitor& visitor, unsigned) override { return of_.load(visitor); }
  /// No node of this simulation publishes events.
  result<std::uint64_t>
  load_descriptions(const std::function<result<void>(std::span<const store::description_record>)>&) override {
    return std::uint64_t{0};
  }
  result<void> close() override { return {}; }
  store::store_stats stats() const override { return {}; }

private:
  slot_store& of_;
  std::uint64_t run_;
  store::node_identity identity_;
};

std::shared_ptr<store::metadata_store> slot_store::open(bool may_be_killed) {
  ++run_;
  starting_ = true;
  may_be_killed_ = may_be_killed;
  killed_ = false;
  return std::make_shared<handle>(*this);
}

void slot_store::crash() {
  ++run_;
  const auto kept = random_.below(waiting_.size() + 1);
  for (std::size_t i = 0; i < kept; ++i)
    apply(records_, waiting_[i].batch);
  if (kept < waiting_.size())
    world_.count("store: lost what was not durable");
  newest_ = records_;
  waiting_.clear();
  syncing_ = 0;
}

// -- what a run asks of it --------------------------------------------------------------------------------------------

bool slot_store::dies_now() {
  killed_ = killed_ || (starting_ && may_be_killed_ && random_.one_in(24));
  return killed_;
}

result<void> slot_store::commit(store::write_batch&& batch, store::commit_callback done) {
  if (dies_now())
    return tl::unexpected<error>(process_is_gone());
  if (is_full()) {
    world_.count("store: refused a batch");
    return fail(errc::limit_exceeded, "the queue of the simulated store is full");
  }
  apply(newest_, batch);
  end_promises(batch);
  if (starting_) {
    apply(records_, batch);
    if (dies_now())
      return tl::unexpected<error>(process_is_gone());
    done({});
    return {};
  }
  if (world_.has(batch.must_sync() ? defect::early_reuse : defect::early_answer))
    std::exchange(done, [](const result<void>&) {})({});
  waiting_.push_back({std::move(batch), std::move(done)});
  if (syncing_ == 0)
    begin_sync();
  return {};
}

bool slot_store::is_full() {
  if (!refuses_ || starting_ || world_.winding_down)
    return false;
  if (world_.now() >= full_until_ && random_.one_in(8))
    full_until_ = world_.now() + random_.skewed_time(std::chrono::microseconds(1), std::chrono::seconds(1));
  return world_.now() < full_until_;
}

void slot_store::end_promises(const store::write_batch& batch) {
  using kind = store::write_batch::change::kind;
  batch.for_each([this](const store::write_batch::change& x) {
    if (x.what == kind::put && x.key.starts_with(store::first_of(store::table::ranks))) {
      const auto rank = store::decode_rank(x.key, x.value).value();
      // The record of an earlier registration, if a shard writes it late, ends nothing.
      if (registered_.emplace(rank.rank, rank.incarnation).second && !starting_)
        std::erase_if(promised_, [&](const auto& page) { return page.second.rank == rank.rank; });
    } else if (starting_) {
      return;
    } else if (x.what == kind::erase_prefix) {
      std::erase_if(promised_, [&](const auto& page) { return page.first.starts_with(x.key); });
    } else {
      promised_.erase(std::string(x.key));
    }
  });
}

void slot_store::begin_sync() {
  syncing_ = waiting_.size();
  world_.schedule.after(random_.time(sync_time_ / 4, sync_time_), [this, run = run_] {
    if (run != run_)
      return world_.schedule.idle();
    const auto end = waiting_.begin() + static_cast<std::ptrdiff_t>(std::exchange(syncing_, 0));
    std::vector<waiting_batch> written(std::make_move_iterator(waiting_.begin()), std::make_move_iterator(end));
    waiting_.erase(waiting_.begin(), end);
    for (const auto& x : written)
      apply(records_, x.batch);
    for (const auto& x : written)
      x.done({});
    if (!waiting_.empty() && syncing_ == 0)
      begin_sync();
  });
}

result<store::load_summary> slot_store::load(store::load_visitor& visitor) {
  const auto records = records_; // as a snapshot: shards write meanwhile
  store::load_summary sum;
  std::vector<store::page_record> pages;
  const auto give_pages = [&]() -> result<void> {
    return dies_now() ? tl::unexpected<error>(process_is_gone()) : visitor.on_pages(std::exchange(pages, {}));
  };
  for (const auto& [key, value] : records) {
    result<void> taken;
    if (key.starts_with(store::first_of(store::table::namespaces))) {
      ++sum.namespaces;
      taken = visitor.on_namespace(store::decode_namespace(key, value).value());
    } else if (key.starts_with(store::first_of(store::table::ranks))) {
      ++sum.ranks;
      taken = visitor.on_rank(store::decode_rank(key, value).value());
    } else if (key.starts_with(store::first_of(store::table::pages))) {
      ++sum.pages;
      pages.push_back(stored_page(key, value).value());
      if (pages.size() == pages_at_once)
        taken = give_pages();
    }
    if (!taken)
      return tl::unexpected<error>(taken.error());
  }
  if (auto taken = give_pages(); !taken)
    return tl::unexpected<error>(taken.error());
  return sum;
}

result<store::page_record> slot_store::stored_page(const std::string& key, const std::string& value) const {
  auto page = store::decode_page(key, value);
  if (page && world_.has(defect::forget_incarnation))
    for (const auto& [rank_key, rank_value] : records_)
      if (rank_key.starts_with(store::first_of(store::table::ranks)))
        if (const auto rank = store::decode_rank(rank_key, rank_value).value(); rank.rank == page->rank)
          page->incarnation = rank.incarnation;
  return page;
}

void slot_store::apply(record_map& to, const store::write_batch& batch) const {
  using kind = store::write_batch::change::kind;
  batch.for_each([&](const store::write_batch::change& x) {
    if (x.what == kind::put)
      to[std::string(x.key)] = std::string(x.value);
    else if (world_.has(defect::keep_record) && x.key.starts_with(store::first_of(store::table::namespaces)))
      return;
    else if (x.what == kind::erase)
      to.erase(std::string(x.key));
    else
      std::erase_if(to, [&](const auto& r) { return r.first.starts_with(x.key); });
  });
}

// -- what the checks look at ------------------------------------------------------------------------------------------

void slot_store::promise(const slot_page& page) {
  std::string key;
  store::append_page_key(key, ns_, page.key, page.rank);
  // It may have been unpublished while the answer waited.
  const auto found = newest_.find(key);
  if (found != newest_.end() && store::decode_page(key, found->second).value().where.slot == page.slot)
    promised_[key] = page;
}

} // namespace troupe::simulation
