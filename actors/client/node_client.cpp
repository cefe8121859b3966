#include "actors/client/node_client.hpp"

#include "actors/client/copy_engine/copy_engine.hpp"
#include "actors/client/transfer/load_coordinator.hpp"
#include "actors/client/transfer/lookup_coordinator.hpp"
#include "actors/client/transfer/save_coordinator.hpp"
#include "actors/client/transfer/slab_reading.hpp"
#include "actors/support/actor_support.hpp"
#include "actors/support/remote_transport.hpp"
#include "actors/support/spawn_with_thread.hpp"
#include "base/log.hpp"
#include "gpu/cuda_page_mover.hpp"
#include "gpu/host_page_mover.hpp"
#include "io/memory/arena_name.hpp"
#include "io/page.hpp"

#include <algorithm>
#include <random>
#include <thread>
#include <utility>

namespace troupe {

result<node_client::rank_memory> node_client::rank_memory::of(rank_number rank, const kv_cache_view& cache,
                                                              std::optional<int> gpu, std::string_view encoding) {
  auto mover =
      gpu ? make_cuda_page_mover(cache, {.device = *gpu, .encodes = encoding != "raw"}) : make_host_page_mover(cache);
  if (!mover)
    return tl::unexpected(std::move(mover.error()));
  rank_memory out;
  out.rank = rank;
  out.mover = std::move(*mover);
  out.encodes_fast = gpu.has_value();
  return out;
}

node_client::node_client(caf::actor_system& system, options how) : system_(system), options_(std::move(how)) {}

node_client::~node_client() {
  // The result is ignored: a caller that needs it calls `stop` itself.
  static_cast<void>(stop(std::chrono::seconds(10)));
}

result<attach_reply> node_client::attach(link_options where, duration limit) {
  std::random_device entropy;
  where.window_bytes = options_.transfer.window_bytes;
  where.remote_bytes = options_.transfer.remote_bytes;
  where_ = where.where;
  dialer_ = where.dialer;
  handed_ = where.handed;
  local_ = where.local;
  where.attach = options_.attach;
  where.seed = entropy();
  link_ = spawn_actor<link>(system_, std::move(where));
  result<attach_reply> out = fail(errc::internal, "no answer");
  caf::scoped_actor self{system_};
  self->request(link_, caf::infinite, wait_attached_atom_v, limit)
      .receive([&](attach_reply& x) { out = std::move(x); },
               [&](const caf::error& e) { out = tl::unexpected<error>(from_caf(e)); });
  if (!out)
    return out;
  node_ = *out;
  parts_.lookup =
      spawn_actor<lookup_coordinator>(system_, options_.transfer.max_tasks, options_.attach.request_timeout);
  return out;
}

directory_opener node_client::directory() const {
  if (local_)
    return directory_of(system_, local_);
  return directory_of(system_, dialer_, where_, options_.attach.request_timeout);
}

result<void> node_client::add_rank(rank_memory memory) {
  const auto& ns = node_.ns;
  transfer::coordinator_options how;
  how.ns = node_.ns_id;
  how.rank = memory.rank;
  how.page_bytes = ns.geometry.page_bytes();
  how.slot_bytes = io::slot_bytes(how.page_bytes);
  how.blocks_per_page = memory.mover->cache().blocks_per_page;
  how.batch_pages = std::min(options_.transfer.batch_pages, node_.limits.batch_pages);
  how.tasks_max = options_.transfer.max_tasks;
  how.batches_in_window = std::max(memory.batches_in_window, 1U);
  copy_engine_options copies{how.ns, how.rank, how.batch_pages, std::make_shared<io::arena_finder>(handed_)};
  copies.exposer = make_memory_exposer(options_.remote, where_.host, where_.port, options_.attach.request_timeout / 2);
  copies.remote_bytes = options_.transfer.remote_bytes;
  const auto& encoding = options_.transfer.encoding;
  copies.encodes = encoding == "bf16" || (encoding == "auto" && memory.encodes_fast);
  how.encoded_frames = copies.encodes;
  how.expects_encoding = ns.dtype == "bfloat16";
  auto state = std::make_shared<copy_engine_state>(copies, std::move(memory.mover), std::move(memory.events));
  movers_.push_back(state);
  auto made =
      memory.make_copier ? memory.make_copier(system_, std::move(state)) : spawn_copy_engine(system_, std::move(state));
  if (!made)
    return tl::unexpected<error>(made.error());
  const auto copier = std::move(*made);
  slab_reading_actor reader;
  if (options_.storage.reader && !memory.as_pages.empty()) {
    // Without a reader, all pages come over the network.
    auto reads = spawn_with_thread<slab_reading>(
        system_, thread_name("troupe-readslab"), "the thread that reads slab files of other nodes",
        io::foreign_pages::options{options_.storage, how.ns, how.rank, how.page_bytes, memory.as_pages},
        node_.node_name);
    if (reads) {
      reader = *reads;
      readers_.push_back(reader);
    } else {
      log::get("cluster")->warn("cannot read slab files of node '{}', so its pages are fetched over the network: {}",
                                node_.node_name, reads.error().text);
    }
  }
  const auto timeout = options_.attach.request_timeout;
  parts_.ranks.push_back({memory.rank, copier, spawn_actor<load_coordinator>(system_, how, copier, timeout, reader),
                          spawn_actor<save_coordinator>(system_, how, copier, timeout)});
  return {};
}

result<void> node_client::bind(duration limit) {
  result<void> out;
  caf::scoped_actor self{system_};
  self->request(link_, caf::infinite, bind_atom_v, parts_, limit)
      .receive([] {}, [&](const caf::error& e) { out = tl::unexpected<error>(from_caf(e)); });
  return out;
}

result<void> node_client::stop(duration limit) {
  const auto until = std::chrono::steady_clock::now() + limit;
  if (link_)
    end_actors(until);
  // A copy in progress ends before its lane does, and keeps its mover until then.
  const auto busy = [&] {
    return std::any_of(movers_.begin(), movers_.end(), [](const auto& x) { return !x.expired(); });
  };
  while (busy()) {
    if (std::chrono::steady_clock::now() >= until)
      return fail(errc::timeout, "a copy between the arena and the KV cache has not ended");
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  movers_.clear();
  return {};
}

void node_client::end_actors(std::chrono::steady_clock::time_point until) {
  const auto left = [&] { return std::max<duration>(until - std::chrono::steady_clock::now(), duration::zero()); };
  caf::scoped_actor self{system_};
  caf::scoped_actor watch{system_};
  const auto end = [&](const auto& x, caf::exit_reason how = caf::exit_reason::user_shutdown) {
    if (x)
      self->send_exit(x, how);
  };
  // The coordinators, which give orders, end first. Then the link ends, which notifies the node when the remaining
  // orders have ended, and last the actors that carry them out.
  for (const auto& x : parts_.ranks)
    for (const auto& coordinator : {x.load, x.save}) {
      watch->monitor(coordinator);
      end(coordinator);
    }
  end(parts_.lookup);
  self->monitor(link_);
  end(link_);
  self->receive([](const caf::down_msg&) {}, caf::after(left()) >> [&] { end(link_, caf::exit_reason::kill); });
  for (const auto& x : parts_.ranks)
    end(x.copier);
  // A read in progress ends before its reader does, and writes to the memory of its rank until then.
  for (const auto& x : readers_)
    end(x);
  for (const auto& x : std::exchange(readers_, {}))
    self->wait_for(x);
  // Their callers have answers by then.
  for (std::size_t i = 0; i < 2 * parts_.ranks.size(); ++i)
    watch->receive([](const caf::down_msg&) {}, caf::after(left()) >> [] {});
  link_ = nullptr;
  parts_ = {};
}

} // namespace troupe
