#include "tests/simulation/foreign_store.hpp"

#include <iterator>
#include <utility>

namespace troupe::simulation {

void foreign_store::commit(store::write_batch batch, std::function<void()> done) {
  waiting_.push_back({std::move(batch), std::move(done)});
  if (syncing_ == 0)
    begin_sync();
}

void foreign_store::begin_sync() {
  syncing_ = waiting_.size();
  net_.after(node_process, random_.time(sync_time_ / 4, sync_time_), [this] {
    const auto end = waiting_.begin() + static_cast<std::ptrdiff_t>(std::exchange(syncing_, 0));
    std::vector<waiting_batch> written(std::make_move_iterator(waiting_.begin()), std::make_move_iterator(end));
    waiting_.erase(waiting_.begin(), end);
    for (const auto& x : written)
      apply(x.batch);
    for (const auto& x : written)
      x.done();
    if (!waiting_.empty() && syncing_ == 0)
      begin_sync();
  });
}

void foreign_store::crash() {
  const auto kept = random_.below(waiting_.size() + 1);
  for (std::size_t i = 0; i < kept; ++i)
    apply(waiting_[i].batch);
  if (kept < waiting_.size())
    world_.count("store: lost what was not durable");
  waiting_.clear();
  syncing_ = 0;
}

void foreign_store::apply(const store::write_batch& batch) {
  using kind = store::write_batch::change::kind;
  batch.for_each([this](const store::write_batch::change& x) {
    if (x.what == kind::put)
      records_[std::string(x.key)] = std::string(x.value);
    else if (x.what == kind::erase)
      records_.erase(std::string(x.key));
    else
      std::erase_if(records_, [&](const auto& r) { return r.first.starts_with(x.key); });
  });
}

} // namespace troupe::simulation
