#include "actors/support/node_condition.hpp"

#include <algorithm>
#include <utility>

namespace troupe {

namespace {

errc code_of(trouble what) noexcept {
  return what == trouble::slab_damaged ? errc::slab_damaged : errc::io_error;
}

} // namespace

std::string_view to_string(trouble what) noexcept {
  switch (what) {
  case trouble::slab_damaged:
    return "slab_damaged";
  case trouble::index_failed:
    return "index_failed";
  case trouble::claim_lost:
    return "claim_lost";
  case trouble::index_slow:
    return "index_slow";
  case trouble::index_full:
    return "index_full";
  case trouble::memory_full:
    return "memory_full";
  case trouble::log_dropped:
    return "log_dropped";
  case trouble::writes_fail:
    return "writes_fail";
  case trouble::disk_full:
    return "disk_full";
  case trouble::peer_unreachable:
    return "peer_unreachable";
  case trouble::etcd_unreachable:
    return "etcd_unreachable";
  case trouble::claim_late:
    return "claim_late";
  case trouble::memory_short:
    return "memory_short";
  case trouble::clients_full:
    return "clients_full";
  case trouble::socket_lost:
    return "socket_lost";
  }
  return "unknown";
}

std::string runbook_of(trouble what) {
  return "docs/operations.md#" + std::string(to_string(what));
}

void node_condition::add_slab(slab_name name) {
  std::lock_guard guard(mutex_);
  slabs_.push_back({std::move(name), false});
}

void node_condition::remove_slab(const namespace_id& ns, rank_number rank) {
  std::lock_guard guard(mutex_);
  std::erase_if(slabs_, [&](const slab& x) { return x.name.ns == ns && x.name.rank == rank; });
  std::erase_if(reasons_, [&](const reason& x) { return x.part == rank && x.ns == ns; });
  const bool lasting = std::ranges::any_of(reasons_, [](const reason& x) { return lasts(x.what); });
  degraded_.store(lasting, std::memory_order_release);
}

bool node_condition::begin(reason why) {
  std::lock_guard guard(mutex_);
  const auto same = [&](const reason& x) { return x.what == why.what && x.text == why.text && x.ns == why.ns; };
  if (std::ranges::any_of(reasons_, same))
    return false;
  reasons_.push_back(std::move(why));
  degraded_.store(true, std::memory_order_release);
  return true;
}

bool node_condition::slab_damaged(const namespace_id& ns, rank_number rank, std::string text) {
  {
    std::lock_guard guard(mutex_);
    const auto of_rank = [&](const slab& x) { return x.name.ns == ns && x.name.rank == rank; };
    const auto found = std::ranges::find_if(slabs_, of_rank);
    if (found == slabs_.end())
      slabs_.push_back({{ns, {}, rank}, true});
    else if (std::exchange(found->damaged, true))
      return false;
  }
  return begin({trouble::slab_damaged, std::move(text), ns, rank});
}

bool node_condition::index_failed(std::string text) {
  return begin({trouble::index_failed, std::move(text), {}, 0});
}

bool node_condition::claim_lost(std::string text) {
  return begin({trouble::claim_lost, std::move(text), {}, 0});
}

bool node_condition::begin_or_renew(reason why) {
  std::lock_guard guard(mutex_);
  const auto same = [&](const reason& x) { return x.what == why.what && x.part == why.part && x.ns == why.ns; };
  const auto known = std::ranges::find_if(reasons_, same);
  if (known != reasons_.end()) {
    known->text = std::move(why.text);
    return false;
  }
  reasons_.push_back(std::move(why));
  return true;
}

bool node_condition::begins(trouble what, part_number part, std::string text) {
  return begin_or_renew({what, std::move(text), {}, part});
}

bool node_condition::begins(trouble what, const namespace_id& ns, rank_number rank, std::string text) {
  return begin_or_renew({what, std::move(text), ns, rank});
}

bool node_condition::ends(trouble what, part_number part) {
  return ends(what, {}, part);
}

bool node_condition::ends(trouble what, const namespace_id& ns, rank_number rank) {
  std::lock_guard guard(mutex_);
  return std::erase_if(reasons_, [&](const reason& x) { return x.what == what && x.part == rank && x.ns == ns; }) > 0;
}

result<void> node_condition::ready() const {
  if (!degraded_.load(std::memory_order_acquire))
    return {};
  std::lock_guard guard(mutex_);
  std::string all;
  auto code = errc::ok;
  for (const auto& x : reasons_)
    if (lasts(x.what)) {
      all.append(all.empty() ? "degraded: " : "; ").append(x.text);
      code = code == errc::ok ? code_of(x.what) : code;
    }
  // The last reason may have ended with its slab.
  if (code == errc::ok)
    return {};
  return fail(code, std::move(all));
}

std::vector<std::string> node_condition::degradations() const {
  std::lock_guard guard(mutex_);
  std::vector<std::string> out;
  for (const auto& x : reasons_)
    if (!lasts(x.what))
      out.push_back(x.text);
  return out;
}

std::vector<node_condition::known_trouble> node_condition::troubles() const {
  std::lock_guard guard(mutex_);
  std::vector<known_trouble> out;
  for (const auto& x : reasons_)
    out.push_back({x.what, x.text});
  std::stable_partition(out.begin(), out.end(), [](const known_trouble& x) { return lasts(x.what); });
  return out;
}

std::optional<error> node_condition::refuses_saves(const namespace_id& ns) const {
  if (!degraded_.load(std::memory_order_acquire))
    return std::nullopt;
  std::lock_guard guard(mutex_);
  for (const auto& x : reasons_)
    if (x.what == trouble::index_failed || x.what == trouble::claim_lost ||
        (x.what == trouble::slab_damaged && x.ns == ns))
      return error{code_of(x.what), "nothing can be saved in this namespace: " + x.text};
  return std::nullopt;
}

bool node_condition::has(trouble what) const {
  std::lock_guard guard(mutex_);
  return std::ranges::any_of(reasons_, [&](const reason& x) { return x.what == what; });
}

std::vector<node_condition::slab> node_condition::slabs() const {
  std::lock_guard guard(mutex_);
  return slabs_;
}

} // namespace troupe
