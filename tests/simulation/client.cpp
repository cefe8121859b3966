#include "tests/simulation/client.hpp"

#include "actors/client/copy_engine/copy_engine.hpp"
#include "actors/client/link/link.hpp"
#include "actors/client/transfer/load_coordinator.hpp"
#include "actors/client/transfer/lookup_coordinator.hpp"
#include "actors/client/transfer/save_coordinator.hpp"
#include "io/page.hpp"

#include <caf/io/all.hpp>

#include <algorithm>
#include <utility>

namespace troupe::simulation {

namespace {

/// In the place of CAF's middleman: makes a connection of the world.
class dialer final : public caf::io::middleman_actor::base {
public:
  dialer(caf::actor_config& config, std::function<caf::strong_actor_ptr()> connect)
      : caf::io::middleman_actor::base(config), connect_(std::move(connect)) {}

  const char* name() const override { return "entrance"; }
  void on_exit() override { connect_ = {}; }

protected:
  behavior_type make_behavior() override {
    const auto no = caf::make_error(caf::sec::bad_function_call);
    return {
        [no](caf::publish_atom, std::uint16_t, const caf::strong_actor_ptr&, const std::set<std::string>&,
             const std::string&, bool) -> caf::result<std::uint16_t> { return no; },
        [no](caf::open_atom, std::uint16_t, const std::string&, bool) -> caf::result<std::uint16_t> { return no; },
        [this](caf::connect_atom, const std::string&,
               std::uint16_t) -> caf::result<caf::node_id, caf::strong_actor_ptr, std::set<std::string>> {
          auto found = connect_();
          if (!found)
            return caf::sec::cannot_connect_to_node;
          const auto id = found->node();
          return {id, std::move(found), system().message_types<reception_actor>()};
        },
        [](caf::unpublish_atom, const caf::actor_addr&, std::uint16_t) {},
        [](caf::close_atom, std::uint16_t) {},
        [no](caf::spawn_atom, const caf::node_id&, const std::string&, const caf::message&,
             const std::set<std::string>&) -> caf::result<caf::strong_actor_ptr> { return no; },
        [no](caf::get_atom, const caf::node_id&) -> caf::result<caf::node_id, std::string, std::uint16_t> {
          return no;
        },
    };
  }

private:
  std::function<caf::strong_actor_ptr()> connect_;
};

template <class Handle>
caf::strong_actor_ptr strong(const Handle& x) {
  return caf::actor_cast<caf::strong_actor_ptr>(x);
}

} // namespace

client::client(environment& world, server& node, std::uint32_t number)
    : world_(world), node_(node), number_(number), random_(world.random.fork()), ns_(world.p.ns.id()),
      slot_bytes_(io::slot_bytes(world.p.ns.geometry.page_bytes())) {}

client::~client() {
  kill();
}

// -- life and death ---------------------------------------------------------------------------------------------------

void client::spawn_rank(rank_number rank) {
  const auto& p = world_.p;
  auto& r = ranks_[rank];
  r.memory = std::make_unique<device>(p.ns.geometry, p.blocks, rank);
  transfer::coordinator_options how;
  how.ns = ns_;
  how.rank = rank;
  how.page_bytes = p.ns.geometry.page_bytes();
  how.slot_bytes = slot_bytes_;
  how.batch_pages = p.batch_pages;
  how.tasks_max = p.tasks_max;
  copy_engine_options copy;
  copy.ns = ns_;
  copy.rank = rank;
  copy.finder = node_.memory().finder();
  const auto copier = in_->keep(*spawn_copy_engine(
      in_->system(), std::make_shared<copy_engine_state>(copy, r.memory->make_mover()), lane_threads::none));
  r.copier = put_tap(in_->system(), copier,
                     {[this, rank](passing& x) { return at_copier(rank, x); },
                      [this](const passing& x, caf::message& a) { return copied(x, a); }});
  taps_.push_back(strong(r.copier));
  r.load = in_->keep(spawn_actor<load_coordinator>(in_->system(), how, r.copier, p.request_timeout));
  r.save = in_->keep(spawn_actor<save_coordinator>(in_->system(), how, r.copier, p.request_timeout));
  loads_[r.load.id()] = rank;
  saves_[r.save.id()] = rank;
}

void client::start() {
  const auto& p = world_.p;
  world_.trace("client starts", {number_});
  ++run_;
  ++epoch_;
  refused_.clear();
  leaving_ = false;
  in_ = std::make_unique<process>(world_, "client " + std::to_string(number_));
  process_number_ = node_.processes().begin();
  asker_ = asker::make(in_->system());
  lookup_ = in_->keep(spawn_actor<lookup_coordinator>(in_->system(), p.lookups_max, p.request_timeout));
  ranks_.resize(p.ranks);
  client_parts parts{lookup_, {}};
  for (rank_number rank = 0; rank < p.ranks; ++rank) {
    spawn_rank(rank);
    parts.ranks.push_back({rank, ranks_[rank].copier, ranks_[rank].load, ranks_[rank].save});
  }
  link_options where;
  where.dialer = in_->keep(caf::io::middleman_actor(spawn_actor<dialer>(in_->system(), [this] { return connect(); })));
  where.client_name = "client";
  where.window_bytes = p.pinned_pages * slot_bytes_;
  where.attach.reconnect_backoff_min = std::chrono::milliseconds(5);
  where.attach.reconnect_backoff_max = std::chrono::milliseconds(500);
  where.attach.request_timeout = std::chrono::seconds(1);
  where.seed = random_.next();
  link_ = in_->keep(spawn_actor<link>(in_->system(), where));
  ask(strong(link_), caf::make_message(bind_atom_v, parts, duration(std::chrono::hours(1))), [](caf::message&) {});
  await_binding();
}

void client::await_binding() {
  ask(strong(link_), caf::make_message(wait_attached_atom_v, duration(std::chrono::hours(24))),
      [this](caf::message& answer) {
        const auto reply = answer_as<attach_reply>(answer);
        if (!reply) {
          if (!leaving_)
            refused_ = to_string(reply.error());
          return;
        }
        world_.count("attachment");
        owner_ = reply->owner;
        bound_ = true;
        ++epoch_;
      });
}

void client::kill() {
  if (!running())
    return;
  world_.trace("client ends", {number_});
  const bool hangs = world_.p.nemesis.hang_process && !world_.winding_down && random_.one_in(2);
  const auto gone =
      world_.now() + (hangs ? random_.skewed_time(std::chrono::milliseconds(1), world_.p.process_hang) : duration{});
  if (hangs)
    world_.count("fault: a killed process stays for a while");
  node_.processes().end(process_number_, gone);
  copy_on_until(gone);
  held_words_.clear();
  arenas_.clear();
  ++epoch_;
  bound_ = false;
  owner_ = 0;
  if (line_)
    line_->forget(line::client);
  line_ = nullptr;
  for (const auto& x : std::exchange(old_lines_, {}))
    x->forget(line::client);
  for (const auto& x : taps_)
    static_cast<tap*>(x->get())->forget();
  taps_.clear();
  static_cast<asker*>(asker_->get())->forget();
  asker_ = nullptr;
  link_ = nullptr;
  lookup_ = nullptr;
  tasks_.clear();
  asked_.clear();
  lookups_.clear();
  loads_.clear();
  saves_.clear();
  shards_.clear();
  proxies_.clear();
  for (auto& r : ranks_)
    r.copier = nullptr, r.load = nullptr, r.save = nullptr;
  in_.reset();
  ranks_.clear(); // the KV cache, which copies may have been using until now
}

void client::leave() {
  if (!running())
    return;
  world_.trace("client leaves", {number_});
  world_.count("fault: client leaves");
  leaving_ = true;
  // Like a program: first the actors that give orders, then the link, which waits until copies have ended, then all.
  for (const auto& r : ranks_) {
    caf::anon_send_exit(r.load, caf::exit_reason::user_shutdown);
    caf::anon_send_exit(r.save, caf::exit_reason::user_shutdown);
  }
  caf::anon_send_exit(lookup_, caf::exit_reason::user_shutdown);
  strong(link_)->get()->attach_functor([this, run = run_](const caf::error&) {
    if (run == run_ && running())
      in_->leave();
  });
  caf::anon_send_exit(link_, caf::exit_reason::user_shutdown);
}

void client::cut() {
  if (line_ && line_->open()) {
    world_.trace("line is cut", {number_});
    world_.count("fault: cut line");
    line_->cut();
  }
}

caf::strong_actor_ptr client::connect() {
  if (line_ && line_->open())
    line_->cut();
  // While the client is killed, its actors finish their turns, and have no process any more to connect from.
  if (!in_ || !node_.running())
    return nullptr;
  std::erase_if(old_lines_, [](const auto& x) { return x->ended(line::client); });
  if (line_) {
    if (!line_->ended(line::client))
      line_is_lost(*line_);
    old_lines_.push_back(std::move(line_));
  }
  line_ = std::make_shared<line>(world_, *in_, *node_.in(), *this);
  node_.add_line(line_);
  return line_->far(line::client, strong(node_.reception()));
}

void client::line_is_lost(const line& which) {
  if (&which != line_.get())
    return; // later messages belong to the next one
  world_.count("lost node");
  ++epoch_;
  bound_ = false;
  owner_ = 0;
  asked_.clear();
  lookups_.clear();
  proxies_.clear();
  for (auto& r : ranks_)
    r.loads.clear();
  world_.schedule.after(duration(1), [this, run = run_] {
    if (run == run_ && running())
      await_binding();
  });
}

// -- what an engine asks ----------------------------------------------------------------------------------------------

void client::after(duration time, std::function<void()> run) {
  world_.schedule.after(time, [this, life = run_, run = std::move(run)] {
    if (life != run_ || !running())
      world_.schedule.idle();
    else if (in_->paused())
      world_.schedule.postpone(in_->goes_on());
    else
      run();
  });
}

void client::ask(const caf::strong_actor_ptr& to, caf::message what, asker::then done) {
  static_cast<asker*>(asker_->get())->ask(to, std::move(what), std::move(done));
}

void client::lookup(const lookup_task& work, std::function<void(result<lookup_result>)> done) {
  ask(strong(lookup_), caf::make_message(work), [this, work, done = std::move(done)](caf::message& answer) {
    if (leaving_)
      return;
    const auto found = answer_as<lookup_result>(answer);
    if (found)
      check_lookup(work, *found);
    done(found);
  });
}

void client::release(const ticket& lease) {
  ask(strong(lookup_), caf::make_message(release_atom_v, lease), [](caf::message&) {});
}

void client::transfer(rank_number rank, bool is_load, const transfer_task& work,
                      std::function<void(result<transfer_result>)> done) {
  const auto task = ++last_task_;
  tasks_.emplace(task, open_task{rank, is_load, work.keys.items, world_.now() + work.deadline});
  const auto& r = ranks_[rank];
  ask(strong(is_load ? r.load : r.save), caf::make_message(work),
      [this, task, done = std::move(done)](caf::message& a) {
        tasks_.erase(task);
        if (leaving_) // the engine has ended; transfers in progress may still use its blocks, which no other task gets
          return;
        done(answer_as<transfer_result>(a));
      });
}

void client::load(rank_number rank, const transfer_task& work, std::function<void(result<transfer_result>)> done) {
  transfer(rank, true, work, std::move(done));
}

void client::save(rank_number rank, const transfer_task& work, std::function<void(result<transfer_result>)> done) {
  transfer(rank, false, work, std::move(done));
}

void client::cancel_save(rank_number rank, std::uint64_t tag, std::function<void()> done) {
  if (world_.has(defect::ignore_cancel))
    return done();
  ask(strong(ranks_[rank].save), caf::make_message(cancel_atom_v, packed<std::uint64_t>{std::vector{tag}}),
      [done = std::move(done)](caf::message&) { done(); });
}

void client::cancel_load(rank_number rank, std::uint64_t tag, std::function<void()> done) {
  ask(strong(ranks_[rank].load), caf::make_message(cancel_atom_v, packed<std::uint64_t>{std::vector{tag}}),
      [done = std::move(done)](caf::message&) { done(); });
}

} // namespace troupe::simulation
