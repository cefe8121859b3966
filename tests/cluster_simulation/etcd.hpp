#pragma once

#include "actors/cluster/etcd/etcd_protocol.hpp"
#include "base/clock.hpp"

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace troupe::cluster_simulation {

/// The part of etcd that a list of nodes uses: keys under leases, a revision for each change, watches from a revision
/// on, compaction. Requests and answers are those of its JSON gateway. It is always available and answers at once;
/// delays and losses on the way to it are the world's.
class etcd {
public:
  struct entry {
    std::string value;
    /// 0: stays whatever happens to the node that has put it.
    std::int64_t lease = 0;
    std::int64_t revision = 0;
  };
  /// A line of a watch; `ended` marks the last one.
  struct line {
    std::uint64_t watch = 0;
    std::string text;
    bool ended = false;
  };

  cluster::etcd_reply answer(std::string_view path, const std::string& body, timestamp now);
  /// Begins one, and says which.
  std::uint64_t watch(const std::string& body);
  void end_watch(std::uint64_t which) { watches_.erase(which); }
  /// The lines that watches have received since.
  std::vector<line> take_lines();

  /// The expired leases, to be ended by `end_lease`.
  std::vector<std::int64_t> over(timestamp now) const;
  bool end_lease(std::int64_t which);

  const std::map<std::string, entry>& keys() const noexcept { return keys_; }
  /// As an administrator does.
  void put(const std::string& key, const std::string& value, std::int64_t lease = 0);
  bool remove(const std::string& key);
  void compact() noexcept { compacted_ = revision_; }

  /// Its quota is used up: nothing can be written.
  void set_full(bool full) noexcept { full_ = full; }
  void lose_all();
  /// As it is now, for `set_back`.
  void keep_copy();
  bool has_copy() const noexcept { return copy_.revision > 0; }
  /// All as it was at the copy, but for leases, which last as long as when they were granted.
  void set_back(timestamp now);

private:
  struct held {
    std::int64_t seconds = 0;
    timestamp until{};
  };
  struct change {
    std::int64_t revision = 0;
    std::string key;
    std::string value;
    bool removed = false;
  };
  struct watching {
    std::string first;
    std::string end;
    std::int64_t next = 0;
    bool notified = false;
  };
  struct copy {
    std::map<std::string, entry> keys;
    std::map<std::int64_t, held> leases;
    std::int64_t revision = 0;
  };

  std::map<std::string, entry> keys_;
  std::map<std::int64_t, held> leases_;
  std::vector<change> changes_;
  std::map<std::uint64_t, watching> watches_;
  std::uint64_t last_watch_ = 0;
  /// Ids are drawn by chance, and not used again after a loss.
  std::int64_t last_lease_ = 7'000'000'000'000;
  std::int64_t revision_ = 1;
  std::int64_t compacted_ = 0;
  bool full_ = false;
  copy copy_;
};

} // namespace troupe::cluster_simulation
