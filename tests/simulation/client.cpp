#include "tests/simulation/client.hpp"

#include "io/page.hpp"

#include <utility>

namespace troupe::simulation {

namespace {

/// As in actors/client/link/link.cpp.
constexpr std::uint32_t load_stream(rank_number rank) {
  return 1 + 2 * rank;
}
constexpr std::uint32_t save_stream(rank_number rank) {
  return 2 + 2 * rank;
}

constexpr auto attach_timeout = std::chrono::seconds(1);

} // namespace

client::client(environment& world, network& net, node& serving, process_number process)
    : world_(world), net_(net), node_(serving), process_(process), random_(world.random.fork()),
      space_(world.p.space.id()), slot_bytes_(io::slot_bytes(world.p.space.geometry.page_bytes())) {}

// -- life and death ---------------------------------------------------------------------------------------------------

void client::make_parts() {
  const auto& p = world_.p;
  const auto& geometry = p.space.geometry;
  parts_ = std::make_unique<parts>();
  parts_->lookup = std::make_unique<transfer::lookup_state>(p.lookups_max, 3 * p.request_timeout);
  for (rank_number rank = 0; rank < p.ranks; ++rank) {
    transfer::coordinator_options options;
    options.space = space_;
    options.rank = rank;
    options.page_bytes = geometry.page_bytes();
    options.slot_bytes = slot_bytes_;
    options.batch_pages = p.batch_pages;
    options.tasks_max = p.tasks_max;
    copy_engine_options copy;
    copy.space = space_;
    copy.rank = rank;
    auto& r = parts_->ranks.emplace_back();
    r.memory = std::make_unique<device>(geometry, p.blocks, rank);
    r.copier = std::make_unique<copy_engine_state>(copy, r.memory->make_mover());
    r.load = std::make_unique<loads>(at(role::load, rank), options);
    r.save = std::make_unique<saves>(at(role::save, rank), options);
  }
}

void client::start() {
  world_.trace("client starts", {process_});
  net_.start(process_);
  make_parts();
  backoff_ =
      std::make_unique<reconnect_backoff>(std::chrono::milliseconds(5), std::chrono::milliseconds(500), random_.next());
  connect();
}

void client::kill() {
  if (!running())
    return;
  world_.trace("client is killed", {process_});
  ++epoch_;
  owner_ = 0;
  connection_ = local;
  net_.kill(process_);
  parts_.reset();
}

void client::retire() {
  retired_ = true;
  if (running() && connection_ != local)
    detach();
}

// -- link -------------------------------------------------------------------------------------------------------------

bool client::attached() const noexcept {
  return running() && owner_ != 0 && unbound_ == 0;
}

void client::connect() {
  if (connection_ != local || retired_)
    return;
  const auto epoch = ++epoch_;
  const auto noticed = std::make_shared<connection_id>(local);
  connection_ = net_.connect(
      process_,
      [this, epoch] {
        if (epoch == epoch_)
          lost();
      },
      [this, noticed] { node_.peer_down(*noticed); });
  *noticed = connection_;
  if (connection_ == local) {
    retry();
    return;
  }
  net_.request<owner_id>(
      at(role::link), node::supervisor(), connection_, attach_timeout, "attach",
      [this, via = connection_](const promise<owner_id>& answer) { node_.attach(via, answer); },
      [this, epoch](const result<owner_id>& owner) {
        if (epoch != epoch_)
          return;
        if (owner)
          attached_as(*owner);
        else
          detach();
      });
}

void client::retry() {
  net_.after(process_, backoff_->next(), [this] { connect(); });
}

void client::attached_as(owner_id owner) {
  const auto& p = world_.p;
  owner_ = owner;
  backoff_->reset();
  unbound_ = 1 + p.ranks;
  world_.count("attachment");
  net_.send(at(role::link), at(role::lookup), local, "bind", [this, owner, via = connection_, epoch = epoch_] {
    parts_->watch.clear();
    parts_->lookup->unbind(errc::unreachable);
    flush_lookup();
    parts_->lookup_via = via;
    parts_->lookup->bind({owner, 0, space_, world_.p.shards, world_.p.batch_keys, world_.p.lease_max});
    if (epoch == epoch_)
      --unbound_;
  });
  for (rank_number rank = 0; rank < p.ranks; ++rank)
    open_segment(rank, epoch_);
}

void client::open_segment(rank_number rank, std::uint64_t epoch) {
  net_.request<opened_segment>(
      at(role::link), node::worker(rank), connection_, attach_timeout, "open segment",
      [this, rank, owner = owner_](const promise<opened_segment>& answer) {
        node_.open_segment(rank, owner, world_.p.buffers * slot_bytes_, answer);
      },
      [this, rank, epoch](const result<opened_segment>& segment) {
        if (epoch != epoch_)
          return;
        if (!segment)
          detach();
        else
          net_.request<void>(
              at(role::link), at(role::copier, rank), local, attach_timeout, "bind",
              [this, rank, segment = *segment](const promise<void>& answer) {
                auto& r = parts_->ranks[rank];
                r.segment = segment.segment;
                r.buffers = segment.memory;
                if (!r.copier->bind(segment.segment, segment.memory))
                  world_.fail("memory", "memory of the host is refused by the copy engine");
                answer.deliver({});
              },
              [this, rank, epoch, segment = *segment](const result<void>&) {
                if (epoch == epoch_)
                  bind_rank(rank, segment, epoch);
              });
      });
}

void client::bind_rank(rank_number rank, const opened_segment& segment, std::uint64_t epoch) {
  const auto& p = world_.p;
  const auto for_loads = p.buffers / 2;
  transfer::node_binding binding{owner_,      load_stream(rank), p.shards, p.batch_keys, p.reservation_max,
                                 p.lease_max, segment.segment,   0,        for_loads};
  net_.send(at(role::link), at(role::load, rank), local, "bind", [this, rank, binding, via = connection_] {
    auto& c = *parts_->ranks[rank].load;
    unbind(c);
    c.via = via;
    c.state.bind(binding);
  });
  binding.ticket_stream = save_stream(rank);
  binding.buffer_offset = for_loads * slot_bytes_;
  binding.buffer_count = p.buffers - for_loads;
  net_.send(at(role::link), at(role::save, rank), local, "bind", [this, rank, binding, via = connection_, epoch] {
    auto& c = *parts_->ranks[rank].save;
    unbind(c);
    c.via = via;
    c.state.bind(binding);
    if (epoch == epoch_)
      --unbound_;
  });
}

void client::lost() {
  world_.trace("client lost the node", {process_});
  world_.count("lost node");
  detach();
}

void client::leave() {
  if (!attached())
    return;
  world_.trace("client leaves", {process_});
  world_.count("fault: client leaves");
  detach();
}

void client::detach() {
  ++epoch_;
  if (owner_ != 0)
    net_.send(at(role::link), node::supervisor(), connection_, "leave", [this, owner = owner_] { node_.leave(owner); });
  connection_ = local;
  owner_ = 0;
  unbound_ = 0;
  net_.send(at(role::link), at(role::lookup), local, "unbind", [this] {
    parts_->watch.clear();
    parts_->lookup->unbind(errc::unreachable);
    flush_lookup();
  });
  for (rank_number rank = 0; rank < world_.p.ranks; ++rank) {
    net_.send(at(role::link), at(role::load, rank), local, "unbind",
              [this, rank] { unbind(*parts_->ranks[rank].load); });
    net_.send(at(role::link), at(role::save, rank), local, "unbind",
              [this, rank] { unbind(*parts_->ranks[rank].save); });
  }
  if (!retired_)
    retry();
}

// -- checks -----------------------------------------------------------------------------------------------------------

std::string client::check_counts() const {
  if (!running())
    return {};
  const auto name = "client " + std::to_string(process_) + ": ";
  if (parts_->lookup->under_way() > world_.p.lookups_max)
    return name + "more lookups are under way than may be";
  for (const auto& r : parts_->ranks) {
    if (r.load->state.open_tasks() > world_.p.tasks_max || r.save->state.open_tasks() > world_.p.tasks_max)
      return name + "more tasks are under way than may be";
    if (r.load->state.open_tasks() != r.load->promises.size() || r.save->state.open_tasks() != r.save->promises.size())
      return name + "a task without a caller, or a caller without a task";
    if (r.load->state.free_buffers() > world_.p.buffers || r.save->state.free_buffers() > world_.p.buffers)
      return name + "more page buffers are free than there are";
  }
  return {};
}

std::string client::check_at_rest() const {
  if (!running())
    return {};
  const auto name = "client " + std::to_string(process_) + ": ";
  if (parts_->lookup->under_way() > 0 || parts_->lookup->held() > 0)
    return name + "a lookup is under way, or its lease still held";
  for (rank_number rank = 0; rank < world_.p.ranks; ++rank) {
    const auto& r = parts_->ranks[rank];
    const auto wrong = [&](const transfer::coordinator_core& c, std::uint32_t buffers) -> std::string {
      if (c.open_tasks() > 0)
        return "a task was never answered";
      if (c.calls_under_way() > 0)
        return "a call is still under way";
      if (attached() && c.free_buffers() != buffers)
        return std::to_string(buffers - c.free_buffers()) + " page buffers are lost";
      return {};
    };
    if (auto text = wrong(r.load->state, world_.p.buffers / 2); !text.empty())
      return name + "load on rank " + std::to_string(rank) + ": " + text;
    if (auto text = wrong(r.save->state, world_.p.buffers - world_.p.buffers / 2); !text.empty())
      return name + "save on rank " + std::to_string(rank) + ": " + text;
    if (!r.memory->free_blocks_are_sound())
      return name + "a block that no task has was written on rank " + std::to_string(rank);
  }
  return {};
}

} // namespace troupe::simulation
