#include "offline/slab_check.hpp"

#include "actors/node/namespaces/slab_places.hpp"
#include "actors/node/supervisor/restore_plan.hpp"
#include "io/claims/claim_files.hpp"
#include "io/page.hpp"
#include "io/slab/slab_reader.hpp"
#include "store/epoch_file.hpp"
#include "store/rocksdb_store.hpp"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <fcntl.h>
#include <map>
#include <memory>
#include <span>
#include <sys/file.h>
#include <thread>
#include <utility>

namespace troupe::offline {

namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t progress_bytes = std::uint64_t{64} << 20U;

/// Takes a shared lock on the data directory, against the exclusive one of a node. Empty where no node ever ran.
result<unique_descriptor> keep_nodes_out(const fs::path& directory) {
  std::error_code ignored;
  if (!fs::is_directory(directory, ignored))
    return fail(errc::not_found, "there is no directory " + directory.string() + " (data_dir)");
  unique_descriptor lock(::open((directory / "lock").c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
  if (!lock && errno != ENOENT)
    return tl::unexpected(system_error(errno, "cannot open " + (directory / "lock").string()));
  if (lock && ::flock(lock.get(), LOCK_SH | LOCK_NB) != 0) {
    if (errno == EWOULDBLOCK)
      return fail(errc::busy, "a node runs on " + directory.string() +
                                  ": stop it first, or use its own scrub (storage.scrub_bytes_per_second)");
    return tl::unexpected(system_error(errno, "cannot lock " + (directory / "lock").string()));
  }
  return lock;
}

/// Error: `busy` where an owner renews its claim; it is watched for as long as a renewal may take. An adopter, which
/// only reads, does no harm.
result<void> look_for_writers(const fs::path& directory) {
  using clock = std::chrono::steady_clock;
  io::claim_directory claims(directory);
  const auto first = claims.look();
  if (!first)
    return tl::unexpected(first.error());
  const auto& record = first->record;
  const bool quiesced =
      record && (record->phase == io::claim_phase::released || record->kind == io::claim_kind::adopter);
  if (first->number == 0 || quiesced)
    return {};
  const auto lease = record ? record->lease : io::longest_claim_lease;
  const auto patience = clock::now() + lease;
  while (clock::now() < patience) {
    std::this_thread::sleep_for(lease / 20);
    const auto again = claims.look();
    if (!again)
      return tl::unexpected(again.error());
    if (again->number == first->number && again->fingerprint == first->fingerprint)
      continue;
    const auto& who = again->record ? again->record : record;
    return fail(errc::busy, "node '" + (who ? who->holder : std::string("?")) + "' keeps its claim on " +
                                directory.string() +
                                ", and may write there: stop it first, or check all the same "
                                "(--ignore-claims)");
  }
  return {};
}

/// One slab file, and the pages that it should contain.
struct opened_rank {
  rank_check found;
  std::optional<io::slab_reader> file;
  std::vector<page_ref> pages;
  /// The size of each page.
  std::uint64_t page_bytes = 0;
  /// Pages in the index that are not trusted.
  std::uint64_t forgotten = 0;
  /// A file of a client-made namespace is missing: it was removed, or the pages were in memory only.
  bool may_never_have_been = false;
};

/// How long transfers of a node may outlive it.
constexpr auto dying_time = std::chrono::seconds(5);

using rank_name = std::pair<namespace_id, rank_number>;

/// Opens slab files, and collects their pages from the index.
class collector final : public store::load_visitor {
public:
  explicit collector(const config::node_config& options) : options_(options) {}

  /// Opens the files of the config. Error: `busy`.
  result<void> open_own() {
    if (!keeps_slabs(options_))
      return {};
    for (const auto& ns : options_.namespaces)
      for (rank_number rank = 0; rank < ns.world_size && rank < options_.storage.ranks.size(); ++rank) {
        if (options_.storage.ranks[rank].slab_bytes == 0)
          continue;
        if (auto opened = open(ns, rank, slab_path(options_, ns, rank)); !opened)
          return opened;
      }
    return {};
  }

  store::load_visitor& begin(const store::node_identity& kept, const std::optional<incarnation_number>& epoch) {
    restore_terms terms;
    terms.continues = store::continues_epoch(kept.epoch, kept.next_epoch, epoch);
    terms.wires = options_.hf3fs;
    for (const auto& x : options_.namespaces)
      terms.own.insert(x.id());
    for (const auto& [name, rank] : ranks_)
      if (rank.file)
        terms.own_ranks[name] = rank.file->spec().incarnation;
    state_ = terms.continues ? index_state::believed : index_state::left_aside;
    plan_.emplace(std::move(terms));
    return *this;
  }

  result<void> on_namespace(const store::namespace_record& record) override {
    if (!plan_->admit(record) || origin_of(record) != store::stored_origin::client)
      return {};
    for (rank_number rank = 0; rank < record.spec.world_size; ++rank) {
      const auto path = made_slabs(options_) / made_slab_name(record.id, rank);
      if (std::error_code ignored; !fs::exists(path, ignored)) {
        // Pages in the index show whether the file ever existed.
        if (keeps_made_slabs(options_))
          miss(record.spec, rank, path);
        plan_->serve(record.id, rank, 0);
        continue;
      }
      if (auto opened = open(record.spec, rank, path); !opened)
        return opened;
      const auto& file = ranks_[{record.id, rank}].file;
      plan_->serve(record.id, rank, file ? file->spec().incarnation : 0);
    }
    return {};
  }

  result<void> on_rank(const store::rank_record& record) override {
    static_cast<void>(plan_->admit(record));
    return {};
  }

  result<void> on_pages(std::span<const store::page_record> pages) override {
    for (const auto& x : pages) {
      const auto rank = ranks_.find({x.ns, x.rank});
      if (!plan_->admit(x)) {
        ++forgotten_;
        if (rank != ranks_.end())
          ++rank->second.forgotten;
      } else if (rank == ranks_.end())
        ++foreign_;
      else
        rank->second.pages.push_back({x.key, x.where});
    }
    // What a start would erase does not matter here.
    static_cast<void>(plan_->take_changes());
    return {};
  }

  slab_check_report verify(const check_progress& progress) {
    slab_check_report out{state_, {}, forgotten_, foreign_};
    std::uint64_t all = 0;
    for (const auto& [name, rank] : ranks_)
      all += rank.pages.size() * rank.found.slot_bytes;
    std::uint64_t done = 0;
    progress(done, all);
    for (auto& [name, rank] : ranks_) {
      if (rank.may_never_have_been && rank.forgotten == 0)
        continue;
      if (rank.may_never_have_been)
        rank.found.fault->text += "; the " + std::to_string(rank.forgotten) +
                                  " pages that the index has of it are lost, and the next start of the node creates "
                                  "it anew, empty";
      if (rank.file)
        verify(rank, [&, slot_bytes = rank.found.slot_bytes] {
          const auto before = done / progress_bytes;
          done += slot_bytes;
          if (done / progress_bytes != before)
            progress(done, all);
        });
      out.ranks.push_back(std::move(rank.found));
    }
    return out;
  }

private:
  opened_rank& begin_rank(const namespace_spec& ns, rank_number rank, const fs::path& path) {
    auto& into = ranks_[{ns.id(), rank}];
    auto& found = into.found;
    found.ns = ns.id();
    found.namespace_name = ns.name;
    found.rank = rank;
    found.file = path;
    into.page_bytes = ns.geometry.page_bytes();
    found.slot_bytes = io::slot_bytes(into.page_bytes);
    return into;
  }

  /// Handles a missing file of a rank of a client-made namespace.
  void miss(const namespace_spec& ns, rank_number rank, const fs::path& path) {
    auto& into = begin_rank(ns, rank, path);
    into.may_never_have_been = true;
    into.found.fault = error{errc::not_found, "slab '" + path.string() + "' is missing"};
  }

  result<void> open(const namespace_spec& ns, rank_number rank, const fs::path& path) {
    auto& into = begin_rank(ns, rank, path);
    auto& found = into.found;
    auto opened = io::slab_reader::open(path);
    // No node runs, since its data directory is not locked; but the kernel may still complete its transfers.
    const auto deadline = std::chrono::steady_clock::now() + dying_time;
    while (!opened && opened.error().code == errc::busy && std::chrono::steady_clock::now() < deadline) {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      opened = io::slab_reader::open(path);
    }
    if (!opened && opened.error().code == errc::busy)
      return tl::unexpected(std::move(opened.error()));
    if (!opened) {
      found.fault = std::move(opened.error());
      return {};
    }
    const auto& is = opened->spec();
    if (is.ns != found.ns || is.rank != rank || is.slot_bytes != found.slot_bytes) {
      found.fault =
          error{errc::identity_mismatch, "slab '" + path.string() + "' is that of rank " + std::to_string(is.rank) +
                                             " of namespace '" + is.namespace_name + "' (" + to_string(is.ns) +
                                             ") with slots of " + std::to_string(is.slot_bytes) + " bytes"};
      return {};
    }
    found.slots = opened->slots();
    into.file.emplace(std::move(*opened));
    return {};
  }

  template <class F>
  static void verify(opened_rank& rank, F&& looked_at) {
    auto& found = rank.found;
    auto& pages = rank.pages;
    // In the order on disk, so that the file is read sequentially.
    std::ranges::sort(pages, {}, &page_ref::where);
    const auto buffer = std::make_unique<std::byte[]>(found.slot_bytes);
    const std::span bytes(buffer.get(), found.slot_bytes);
    for (const auto& page : pages) {
      auto verdict = rank.file->read(page.where.slot, bytes);
      if (verdict == errc::ok) {
        verdict = io::verify_page(bytes, {found.ns, page.key, found.rank, page.where, rank.page_bytes});
        rank.file->forget(page.where.slot);
      }
      found.count(page, verdict);
      looked_at();
    }
  }

  const config::node_config& options_;
  std::map<rank_name, opened_rank> ranks_;
  std::optional<restore_plan> plan_;
  index_state state_ = index_state::none;
  std::uint64_t forgotten_ = 0;
  std::uint64_t foreign_ = 0;
};

} // namespace

void rank_check::count(const page_ref& page, errc verdict) {
  ++live;
  switch (verdict) {
  case errc::ok:
    ++sound;
    return;
  case errc::corrupt:
    ++corrupt;
    break;
  case errc::identity_mismatch:
    ++misplaced;
    break;
  default:
    ++unreadable;
    break;
  }
  if (unsound.size() < named_pages_max)
    unsound.push_back({page, verdict});
}

bool slab_check_report::sound() const noexcept {
  return std::ranges::all_of(ranks, [](const rank_check& x) { return !x.fault && x.unsound_pages() == 0; });
}

result<slab_check_report> check_slabs(const config::node_config& options, const check_progress& progress,
                                      bool ignore_claims) {
  const auto lock = keep_nodes_out(options.data_dir);
  if (!lock)
    return tl::unexpected(lock.error());
  if (!ignore_claims)
    if (auto alone = look_for_writers(options.data_dir); !alone)
      return tl::unexpected(std::move(alone.error()));
  collector pages(options);
  if (auto opened = pages.open_own(); !opened)
    return tl::unexpected(std::move(opened.error()));
  const auto epoch = store::read_epoch(options.data_dir);
  if (!epoch)
    return tl::unexpected(epoch.error());
  const auto seen = store::rocksdb_store::look(
      index_directory(options),
      [&](const store::node_identity& kept) -> store::load_visitor& { return pages.begin(kept, *epoch); });
  if (!seen)
    return tl::unexpected(seen.error());
  return pages.verify(progress);
}

} // namespace troupe::offline
