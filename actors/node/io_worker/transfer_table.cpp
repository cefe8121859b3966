#include "actors/node/io_worker/transfer_table.hpp"

namespace troupe {

std::uint64_t transfer_table::begin(const page_transfer& x) {
  const auto tag = ++last_;
  transfers_.emplace(tag, x);
  reads_ += x.read ? 1 : 0;
  reads_ahead_ += x.read && x.ahead ? 1 : 0;
  return tag;
}

std::optional<page_transfer> transfer_table::find(std::uint64_t tag) const {
  const auto found = transfers_.find(tag);
  return found == transfers_.end() ? std::nullopt : std::optional(found->second);
}

std::optional<page_transfer> transfer_table::end(std::uint64_t tag) {
  const auto found = transfers_.find(tag);
  if (found == transfers_.end())
    return std::nullopt;
  const auto out = found->second;
  transfers_.erase(found);
  reads_ -= out.read ? 1 : 0;
  reads_ahead_ -= out.read && out.ahead ? 1 : 0;
  return out;
}

} // namespace troupe
