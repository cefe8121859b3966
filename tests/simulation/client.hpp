#pragma once

#include "tests/simulation/engine_host.hpp"
#include "tests/simulation/load_watch.hpp"
#include "tests/simulation/process.hpp"
#include "tests/simulation/server.hpp"
#include "tests/simulation/tap.hpp"
#include "tests/simulation/wires.hpp"

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace troupe::simulation {

/// A client's process: the link, the coordinators and the copy engines that an engine's process runs, and an engine's
/// memory. Its messages to the node and from it are checked against the engine's requests.
class client final : public engine_host, public line_watch {
public:
  client(environment& world, server& node, std::uint32_t number);
  ~client() override;

  void start();
  /// kill -9.
  void kill();
  /// Stops as a program does on request; `kill` when it has ended.
  void leave();
  bool running() const noexcept { return in_ != nullptr; }
  process* in() noexcept { return in_.get(); }
  /// The line to the node breaks.
  void cut();
  owner_id owner() const noexcept { return owner_; }
  /// The permanent error of its link, or empty.
  std::string refused() const { return refused_; }

  /// Frames that it has asked its node for, and has not been given, in words.
  std::string requests() const;

  std::uint32_t number() const noexcept override { return number_; }
  device& device_of(rank_number rank) override { return *ranks_[rank].memory; }
  bool attached() const noexcept override { return bound_; }
  std::uint64_t epoch() const noexcept override { return epoch_; }
  duration paused() const override { return in_ ? in_->paused_in_all() : duration{}; }
  void after(duration time, std::function<void()> run) override;
  void lookup(const lookup_task& work, std::function<void(result<lookup_result>)> done) override;
  void release(const ticket& lease) override;
  void save(rank_number rank, const transfer_task& work, std::function<void(result<transfer_result>)> done) override;
  void load(rank_number rank, const transfer_task& work, std::function<void(result<transfer_result>)> done) override;
  void cancel_save(rank_number rank, std::uint64_t tag, std::function<void()> done) override;
  void cancel_load(rank_number rank, std::uint64_t tag, std::function<void()> done) override;

  // -- line_watch
  std::int32_t process_number() const noexcept override { return process_number_; }
  bool says(const caf::strong_actor_ptr& by, const caf::strong_actor_ptr& to, caf::message_id id,
            caf::message& what) override;
  bool hears(const caf::strong_actor_ptr& from, const caf::strong_actor_ptr& who, caf::message_id id,
             caf::message& what) override;
  void line_is_lost(const line& which) override;

private:
  struct open_task {
    rank_number rank = 0;
    bool is_load = false;
    std::vector<key_digest> keys;
    timestamp due;
  };

  /// An order of a copy engine without an answer yet.
  struct copy_under_way {
    rank_number rank = 0;
    bool scatter = false;
    copy_order order;
    /// The number of the copy on the host.
    std::uint64_t number = 0;
  };

  struct rank_parts {
    std::unique_ptr<device> memory;
    copy_engine_actor copier;
    transfer_actor load;
    transfer_actor save;
    load_watch loads;
    /// Attachments that the copy engine was asked to end.
    std::set<owner_id> ended;
  };

  /// A request of a coordinator that is not answered yet.
  struct asked {
    std::uint32_t shard = 0;
    std::uint64_t epoch = 0;
    caf::message what;
  };

  /// The leases of one lookup, by shard.
  struct part {
    std::vector<key_digest> leased;
    std::uint32_t kept = ~0U;
  };

  void spawn_rank(rank_number rank);
  caf::strong_actor_ptr connect();
  /// Asks the link to say when all are bound.
  void await_binding();
  void ask(const caf::strong_actor_ptr& to, caf::message what, asker::then done);
  void transfer(rank_number rank, bool is_load, const transfer_task& work,
                std::function<void(result<transfer_result>)> done);

  // -- copy engines, which take their time
  bool at_copier(rank_number rank, passing& x);
  bool begins_copy(rank_number rank, passing& x);
  bool copied(const passing& asked, caf::message& answer);
  bool ends_attachment(rank_number rank, passing& x);
  /// Words of the end of attachments that were held back until their copies had ended.
  void pass_what_may();
  bool has_copies(rank_number rank, owner_id owner) const;
  void check_copy(rank_number rank, const copy_order& order, bool scatter);
  /// Copies of devices continue until the process has really ended.
  void copy_on_until(timestamp gone);
  void late_copy(const copy_under_way& x, std::span<std::byte> memory);
  /// Scatters the pages of an order without looking at all of them.
  void scatter_unchecked(rank_number rank, const copy_order& order, bool look_at_header);
  /// The memory that the attachment's node has named.
  std::span<std::byte> memory_of(owner_id owner) const;

  bool load_says(rank_number rank, const caf::strong_actor_ptr& by, const caf::strong_actor_ptr& to, caf::message_id id,
                 caf::message& what);
  bool save_says(rank_number rank, const caf::strong_actor_ptr& by, const caf::strong_actor_ptr& to, caf::message_id id,
                 caf::message& what);
  bool lookup_says(const caf::strong_actor_ptr& to, caf::message& what);
  void forge_answer(const caf::strong_actor_ptr& by, caf::message_id id, duration after, caf::message what);
  bool is_open(rank_number rank, bool is_load, const key_digest& key) const;
  void check_lookup(const lookup_task& work, const lookup_result& found);
  void judge(std::string_view property, const std::string& who, const std::string& wrong);

  environment& world_;
  server& node_;
  std::uint32_t number_;
  random_source random_;
  namespace_id ns_;
  std::uint64_t slot_bytes_;

  std::unique_ptr<process> in_;
  std::shared_ptr<line> line_;
  /// Earlier connections, until this side has noticed that they are cut.
  std::vector<std::shared_ptr<line>> old_lines_;
  std::vector<caf::strong_actor_ptr> taps_;
  caf::strong_actor_ptr asker_;
  link_actor link_;
  lookup_actor lookup_;
  std::vector<rank_parts> ranks_;
  /// Actors by their numbers in their processes.
  std::map<caf::actor_id, rank_number> loads_;
  std::map<caf::actor_id, rank_number> saves_;
  std::map<caf::actor_id, std::uint32_t> shards_;
  std::map<caf::actor_id, caf::strong_actor_ptr> proxies_;
  /// Requests by sender and number.
  std::map<std::pair<caf::actor_id, std::uint64_t>, copy_under_way> copies_;
  struct held_word {
    rank_number rank = 0;
    passing what;
  };
  std::vector<held_word> held_words_;
  /// The name of an attachment's arena.
  std::map<owner_id, io::shared_memory_name> arenas_;
  std::int32_t process_number_ = 0;

  std::map<std::uint64_t, open_task> tasks_;
  std::uint64_t last_task_ = 0;
  std::map<std::pair<caf::actor_id, std::uint64_t>, asked> asked_;
  std::map<ticket, std::map<std::uint32_t, part>> lookups_;
  owner_id owner_ = 0;
  bool bound_ = false;
  std::uint64_t epoch_ = 0;
  /// Counts starts.
  std::uint64_t run_ = 0;
  std::string refused_;
  bool leaving_ = false;
};

} // namespace troupe::simulation
