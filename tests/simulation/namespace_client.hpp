#pragma once

#include "tests/sim_main/asked_requests.hpp"
#include "tests/simulation/namespace_node.hpp"

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace troupe::simulation {

/// A client that attaches to namespaces, creates them as it goes, and saves and loads pages with the messages of
/// coordinators and copy engines. Its copies take time, and continue after its death until its process has ended.
class namespace_client {
public:
  namespace_client(environment& world, namespace_node& node, const namespace_parameters& p, std::uint32_t number);

  bool running() const noexcept { return running_; }
  void start();
  /// kill -9.
  void kill();
  /// Detaches, and attaches again somewhere.
  void leave();
  /// The node's process is another one.
  void node_restarted();

  /// Copies and requests that are not over.
  std::size_t under_way() const noexcept { return busy_; }

  /// Attaches to this namespace, saves a page on each rank and loads it; answers what goes wrong, or nothing.
  void try_out(std::size_t ns, std::function<void(std::string)> done);

private:
  struct attachment {
    attach_reply reply;
    std::size_t ns = 0;
    /// By rank.
    std::vector<incarnation_number> incarnations;
    std::shared_ptr<namespace_memory> memory;
    std::size_t copies = 0;
    bool over = false;
    std::int32_t process = 0;
    caf::strong_actor_ptr by;
    std::uint64_t life = 0;
  };
  using attached = std::shared_ptr<attachment>;

  /// A save or a load.
  struct task {
    attached at;
    rank_number rank = 0;
    std::uint32_t shard = 0;
    ticket name;
    std::vector<key_digest> keys;
    std::vector<page_ref> pages;
    /// A save: which pages have an encoding, and which are known to have none, after a frame was too small.
    std::vector<bool> encoded;
    bool needs_whole = false;
    std::vector<page_frame> frames;
    pin_number pin = 0;
    std::vector<std::uint8_t> gathered;
    std::size_t copied = 0;
    std::function<void(std::string)> done;
  };
  using task_ptr = std::shared_ptr<task>;

  void after(duration time, std::function<void()> run);
  void next();
  void attach(std::size_t ns, namespace_wish wish, std::function<void(errc)> then);
  void detach(attached x);
  void rest(const attached& x);
  task_ptr make_task();
  void ask(const task_ptr& t, const caf::strong_actor_ptr& to, caf::message what, asker::then done);
  caf::strong_actor_ptr shard_of(const task& t) const;
  caf::strong_actor_ptr worker_of(const task& t) const;
  /// What is stored of the page, as it is or encoded: other bytes, and fewer.
  std::vector<std::byte> content(const task& t, const key_digest& key, bool encoded) const;
  bool chooses_encoding();
  std::span<std::byte> frame_of(const task& t, std::size_t i) const;
  bool overruns(const task& t, std::size_t i) const;
  io::page_identity identity(const task& t, const page_ref& page) const;

  void save(const task_ptr& t);
  void place(const task_ptr& t);
  void gather(const task_ptr& t, std::size_t i);
  void fill(const task_ptr& t);
  /// Pages that found no room in their frames get whole ones.
  task_ptr split_off(const task_ptr& t);
  void commit(const task_ptr& t, const std::vector<page_ref>& pages);
  void abort(const task_ptr& t, const std::string& why);
  void load(const task_ptr& t);
  void fetch(const task_ptr& t);
  void scatter(const task_ptr& t, std::size_t i);
  /// Whether its content is the expected one.
  bool check_page(const task& t, std::size_t i, bool again);
  void end_load(const task_ptr& t, const std::string& why);
  void copied(const task_ptr& t);
  /// A process that has ended does not copy any more.
  std::function<bool()> while_there(const task& t) const;

  environment& world_;
  namespace_node& node_;
  const namespace_parameters& p_;
  random_source random_;
  std::uint32_t number_;
  bool running_ = false;
  std::uint64_t life_ = 0;
  std::int32_t process_ = 0;
  attached at_;
  bool attaching_ = false;
  std::size_t busy_ = 0;
  std::uint64_t last_ticket_ = 0;
  /// Requests of this life.
  sim_main::asked_requests<std::uint64_t> requests_;
  std::uint64_t last_request_ = 0;
};

} // namespace troupe::simulation
