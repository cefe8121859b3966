#pragma once

#include "actors/client/transfer/load_state.hpp"
#include "actors/cluster/etcd/etcd_rules.hpp"
#include "actors/cluster/pages/fetching.hpp"
#include "actors/cluster/pages/searching.hpp"
#include "actors/cluster/pages/session_rules.hpp"
#include "actors/cluster/peers/membership.hpp"
#include "io/tcp/stream_schedule.hpp"
#include "tests/cluster_simulation/catalogue.hpp"
#include "tests/cluster_simulation/defect.hpp"
#include "tests/cluster_simulation/slab_model.hpp"
#include "tests/cluster_simulation/stored_pages.hpp"
#include "tests/sim_main/sim_main.hpp"
#include "tests/simulation/random.hpp"

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

/// Nodes of a cluster, one of another cluster among them, and their engines, on a network that delays, reorders and
/// loses messages and is partitioned at times; they find each other by their configs, by an etcd, or by both. All of it
/// in virtual time, from one seed.

namespace troupe::cluster_simulation {

using cluster::peer_number;
using cluster::session_name;

using sim_main::outcome;

class world {
public:
  world(std::uint64_t seed, std::uint64_t steps, defect built_in);

  outcome run();

private:
  using number = std::uint64_t;
  /// The time that engines wait for pages of others, and the interval at which the world checks deadlines.
  static constexpr auto wait_limit = std::chrono::seconds(2);
  static constexpr auto slack = std::chrono::milliseconds(60);
  using action = std::function<void()>;

  /// The staging buffer of a namespace: the content of its blocks, by rank.
  struct memory {
    std::vector<std::vector<contents>> ranks;
    bool gone = false;
  };
  /// The state of a node at a peer; `attachment` is 0 while it is not attached, and its owner id there otherwise.
  struct session {
    number serial = 0;
    number attachment = 0;
    number peer_life = 0;
    bool refused = false;
    /// Which file the peer has named, where the disk is shared.
    number file = 0;
  };
  /// A request of a coordinator that has no answer yet.
  struct call {
    session_name over;
    number attachment = 0;
    std::function<void(errc)> fail;
  };
  /// A load whose pages may be read from files, as a load coordinator makes it.
  struct file_load {
    file_load(const cluster::fetch_move& x, std::size_t at, const session& there, std::shared_ptr<memory> room);

    cluster::fetch_move what;
    session_name over;
    /// Which node that is.
    std::size_t peer = 0;
    number attachment = 0;
    number peer_life = 0;
    number file = 0;
    std::shared_ptr<memory> into;
    transfer::load_state state;
    bool done = false;
    /// The bytes that the peer has sent, by frame.
    std::map<std::uint64_t, contents> frames;
    pin_number pins = 0;
    std::uint64_t offsets = 0;
    std::set<key_digest> refused;
  };
  /// A load whose pages come over several connections.
  struct stream_load {
    stream_load(std::size_t node, std::size_t sender, const cluster::fetch_move& x, std::shared_ptr<memory> room,
                std::vector<std::optional<contents>> what, std::uint32_t streams);

    /// A connection: when its last piece arrives, whether the sender has closed it, whether the receiver has ended it,
    /// and how often it was opened again.
    struct line {
      timestamp last{};
      bool failed = false;
      bool ended = false;
      std::uint32_t attempt = 0;
    };

    std::size_t to = 0;
    std::size_t from = 0;
    cluster::fetch_move task;
    std::shared_ptr<memory> into;
    std::vector<std::optional<contents>> pages;
    std::vector<contents> source;
    io::tcp::stream_schedule rules;
    std::vector<line> lines;
    bool landed = false;
    bool closed = false;
  };
  /// A lookup of an engine that waits for pages of others.
  struct waiting_engine {
    namespace_id ns;
    std::vector<key_digest> keys;
    std::uint32_t before = 0;
    timestamp begun{};
    number pauses = 0;
    bool must_find = false;
  };
  /// A lookup of some pages, for one group of layers: first what others have of them, then those that it wants.
  struct searching_engine {
    namespace_id ns;
    std::vector<key_digest> keys;
    std::vector<key_digest> wanted;
    timestamp begun{};
    number pauses = 0;
    bool must_find = false;
  };

  struct node {
    std::string name;
    std::string of_cluster;
    stored_pages has{64, 1};
    /// Evicts first the originals of what it fetches, and not its own copies.
    bool keeps_copies = true;
    bool lives = false;
    /// Counts its runs: messages for an earlier one are lost.
    number life = 0;
    number incarnation = 0;
    timestamp paused_until{};
    number pauses = 0;
    bool slow = false;
    /// The rate of its clock and its offset, relative to the world's.
    double rate = 1;
    duration ahead{};
    std::map<namespace_id, std::string> here;
    /// The name that it announces, which others may use as well; the node whose address it announces; and the nodes
    /// that its config names.
    std::string called;
    std::size_t says = 0;
    std::vector<std::size_t> seeds;
    /// It does not restart when all is well.
    bool retired = false;
    timestamp ended{};

    std::optional<cluster::membership> members;
    std::optional<cluster::etcd_rules> listing;
    /// The node that a number of its members stands for, also a removed one.
    std::map<peer_number, std::size_t> lines;
    std::set<peer_number> left_out;
    /// The last list that it received, the last watch that it began, and since when its connection to etcd is
    /// undisturbed.
    std::vector<std::string> notified;
    number watch = 0;
    bool has_put = false;
    timestamp undisturbed{};
    timestamp cut_from_etcd{};
    std::optional<cluster::fetching> pages;
    std::optional<cluster::searching> searches;
    std::optional<cluster::session_rules> rules;
    timestamp next_look{};
    timestamp next_tick = timestamp::max();

    /// On the disk; outlive a run.
    std::map<namespace_id, slab_model> slabs;
    std::map<session_name, number> first_files;

    std::map<session_name, session> sessions;
    std::map<namespace_id, std::shared_ptr<memory>> staging;
    std::map<cluster::fetch_call, call> calls;
    std::map<cluster::prefix_fetch_number, waiting_engine> waiting;
    std::map<cluster::search_number, searching_engine> searching;
    std::map<peer_number, number> last_hello;
    /// Other nodes that are clients of this one, by owner id.
    std::map<number, std::size_t> clients;
    /// Leases that were given back before they were asked for.
    std::set<ticket> given_back;

    /// State of the checks: peers that were late and have sent no hello since; the latest known run of each peer;
    /// blocks with a transfer in progress.
    std::set<peer_number> late;
    std::map<peer_number, number> heard_of;
    std::set<std::tuple<namespace_id, std::uint32_t, std::uint32_t>> busy;
  };

  // time
  void at(timestamp when, action what) { agenda_.emplace(std::pair(when, ++sequence_), std::move(what)); }
  void after(duration time, action what) { at(later(now_, time), std::move(what)); }
  void count(std::string_view what) { ++out_.counts[std::string(what)]; }
  void broken(std::string_view property, std::string what);
  bool has(defect x) const noexcept { return defect_ == x; }
  void trace(std::uint64_t x) { out_.trace_hash = (out_.trace_hash ^ x) * 0x100000001b3ULL; }
  timestamp local(std::size_t i) const;
  /// A span of a node's clock, by the world's.
  duration by_world(std::size_t i, duration x) const;
  /// Runs in that life of the node or not at all; if the node is frozen, as soon as it resumes.
  void run_on(std::size_t i, number life, const action& what);
  void later_on(std::size_t i, duration time, action what);

  // the network: to that run of the node, or to any where `life` is 0
  bool is_cut(std::size_t a, std::size_t b) const { return cuts_.contains(std::minmax(a, b)); }
  void carry(std::size_t from, std::size_t to, number life, action deliver);
  void cut(std::size_t a, std::size_t b);
  void break_connection(std::size_t a, std::size_t b);
  void on_connection_lost(std::size_t who, std::size_t whom, number up_to);

  // nodes
  void start(std::size_t i);
  void end(std::size_t i, bool in_good_order);
  void pause(std::size_t i, duration time);
  void make_namespace(std::size_t i, const namespace_id& ns);
  void remove_namespace(std::size_t i, const namespace_id& ns);
  void settle(std::size_t i);
  void tick(std::size_t i);
  void look(std::size_t i);
  void plan_tick(std::size_t i);

  // actions of a node's rules
  void perform(std::size_t i, const cluster::say_hello& x);
  void perform(std::size_t i, const cluster::peer_news& x);
  void perform(std::size_t i, const cluster::peer_came& x);
  void perform(std::size_t i, const cluster::peer_went& x);
  void perform(std::size_t i, const cluster::open_namespace& x);
  void perform(std::size_t i, const cluster::leave_namespace& x);
  void perform(std::size_t i, const cluster::open_session& x);
  void perform(std::size_t i, const cluster::leave_session& x);
  void perform(std::size_t i, const cluster::fetch_ask& x);
  void perform(std::size_t i, const cluster::fetch_release& x);
  void perform(std::size_t i, const cluster::fetch_move& x);
  void perform(std::size_t i, const cluster::fetch_answer& x);
  void perform(std::size_t i, const cluster::fetch_late& x);
  void perform(std::size_t i, const cluster::search_ask& x);
  void perform(std::size_t i, const cluster::search_retain& x);
  void perform(std::size_t i, const cluster::search_found& x);
  void perform(std::size_t i, const cluster::search_fetched& x);

  // the list of nodes, in a world that has an etcd
  void make_catalogue();
  void begin_listing(std::size_t i);
  void take_out(std::size_t i);
  void leave_out(std::size_t i);
  void perform(std::size_t i, const cluster::etcd_request& x);
  void perform(std::size_t i, const cluster::etcd_login& x);
  void perform(std::size_t i, const cluster::etcd_watch& x);
  void perform(std::size_t i, const cluster::etcd_members& x);
  void perform(std::size_t i, const cluster::etcd_notified& x);
  using etcd_answered = std::function<void(const result<cluster::etcd_reply>&)>;
  void ask_etcd(std::size_t i, const cluster::etcd_request& x, const etcd_answered& then);
  void serve(std::size_t i, number life, const cluster::etcd_request& x, const etcd_answered& then);
  void carry_lines();
  void end_watches(bool in_silence);
  void end_watch(std::uint64_t which, bool in_silence);
  void etcd_step();
  void etcd_is_lost();
  void etcd_goes_on();
  void etcd_calms();
  void put_nonsense();
  void end_leases();
  void look_at_lists();
  void follow_lists();
  void follow_list(const std::string& prefix);
  void check_list(std::size_t i);
  void check_forgotten(std::size_t i);
  void check_entries();
  bool is_cut_from_etcd(std::size_t i) const { return nodes_[i].cut_from_etcd > now_; }
  bool etcd_is_well() const;
  duration etcd_limit() const { return list_->lease / 4; }
  duration etcd_delay();
  bool is_undisturbed(std::size_t i) const;
  bool has_lasted(timestamp since) const { return later(since, list_->bound) < now_; }
  std::string prefix(std::size_t i) const;
  std::string address(std::size_t i) const { return nodes_[i].name + ":7000"; }
  /// The nodes beyond the last one are those that are not there.
  std::size_t at_address(const std::string& address) const;
  std::size_t node_of(std::size_t i, peer_number peer) const { return nodes_[i].lines.at(peer); }
  bool lives(std::size_t who) const { return who < nodes_.size() && nodes_[who].lives; }
  /// Once all is well, it finds the pages of that other node.
  bool is_to_find(std::size_t i, std::size_t other) const;

  void on_hello(std::size_t i, peer_number peer, number hello, const result<cluster_welcome>& answer);
  result<cluster_welcome> welcome(std::size_t at, std::size_t asker) const;
  /// Replies of a peer: an owner id, its run, and its file.
  struct attachment {
    number owner = 0;
    number life = 0;
    number file = 0;
  };
  using attached = std::function<void(result<attachment>)>;
  void attach(std::size_t i, const session_name& name, attached then);
  void attach_again(std::size_t i, const session_name& name, number serial);
  void lose_session(std::size_t i, const session_name& name);
  /// Asks for leading keys, or for `each`, whose calls have this bit.
  static constexpr cluster::fetch_call search_call = cluster::fetch_call{1} << 62U;
  void ask_peer(std::size_t i, const cluster::fetch_ask& x, bool each);
  void on_found(std::size_t i, cluster::fetch_call which, const result<lookup_result>& found);
  void give_back(std::size_t i, std::size_t whom, number life, const ticket& lease, const namespace_id& ns,
                 const std::vector<key_digest>& kept);
  /// Notifies that node that another one has pages of these keys and keeps them.
  void on_kept_there(std::size_t at, const ticket& lease, const namespace_id& ns, const std::vector<key_digest>& kept);
  void put(std::size_t i, const namespace_id& ns, const key_digest& key, std::uint32_t rank, contents what,
           bool transient = false);
  /// Takes a call out: false if it has been answered.
  bool take(std::size_t i, cluster::fetch_call which);
  void land(std::size_t i, const cluster::fetch_move& x, const std::shared_ptr<memory>& into,
            const std::vector<std::optional<contents>>& what);
  void answer_load(std::size_t i, const cluster::fetch_move& x, const result<transfer_result>& outcome);
  void save(std::size_t i, const cluster::fetch_move& x, transfer_result codes, const cluster::sending_counts& sent,
            const std::shared_ptr<memory>& from);

  // files (files.cpp)
  using open_load = std::shared_ptr<file_load>;
  /// A node that restarts has all its data, or files that its index does not know, or new ones.
  void forget_files(std::size_t i, bool keeps_pages);
  slab_model& slab_of(std::size_t i, const namespace_id& ns);
  void load_by_files(std::size_t i, const cluster::fetch_move& x, const session& there,
                     const std::shared_ptr<memory>& into);
  void tick_files(std::size_t i, const open_load& open);
  void settle_files(std::size_t i, const open_load& open);
  void perform(std::size_t i, const open_load& open, const transfer::load_locate& x);
  void perform(std::size_t i, const open_load& open, const transfer::load_fetch& x);
  void perform(std::size_t i, const open_load& open, const transfer::load_read& x);
  void perform(std::size_t i, const open_load& open, const transfer::load_scatter& x);
  void perform(std::size_t i, const open_load& open, const transfer::load_unpin& x);
  void perform(std::size_t i, const open_load& open, const transfer::load_invalidate& x);
  void perform(std::size_t i, const open_load& open, const transfer::load_release& x);
  void perform(std::size_t i, const open_load& open, const transfer::task_finished& x);
  locate_reply locate(const open_load& open, const locate_request& x);
  result<read_reply> read_file(std::size_t i, const open_load& open, const transfer::load_read& x);

  // several connections (streams.cpp)
  using open_streams = std::shared_ptr<stream_load>;
  void load_by_streams(std::size_t i, std::size_t from, const cluster::fetch_move& x,
                       const std::shared_ptr<memory>& into, const std::vector<std::optional<contents>>& what);
  /// Whether the attachment lasts, or the load has ended well.
  bool is_open(const open_streams& open);
  void settle_streams(const open_streams& open);
  void open_again(const open_streams& open, const io::tcp::stream_name& which);
  void on_piece(const open_streams& open, const io::tcp::stream_name& by, const io::tcp::piece& p);
  void on_piece_answered(const open_streams& open, const io::tcp::stream_name& by);
  void fail_stream(const open_streams& open, std::uint32_t s);
  void tick_streams(const open_streams& open);

  // engines
  contents truth(std::size_t i, const namespace_id& ns, const key_digest& key, std::uint32_t rank) const;
  std::vector<key_digest> some_keys();
  void look_up(std::size_t i, const namespace_id& ns, const std::vector<key_digest>& keys, bool must_find);
  void look_up_pages(std::size_t i, const namespace_id& ns, const std::vector<key_digest>& keys, bool must_find);
  void fetch_pages(std::size_t i, cluster::search_number search, const packed<std::uint8_t>& found,
                   searching_engine engine);
  void check_waited(std::size_t i, const searching_engine& engine);
  void load(std::size_t i, const waiting_engine& x, std::uint32_t matched);
  /// Text for the reader of a failure.
  std::string how_it_is(std::size_t i, const namespace_id& ns) const;
  void compute(std::size_t i, const namespace_id& ns, const std::vector<key_digest>& keys, bool whole);

  void step();
  void finish();
  void check_found();
  void check_rest();
  void check_copies();
  static std::vector<key_digest> calm_keys(std::size_t from, std::size_t to, number first = 10'000);

  simulation::random_source random_;
  const std::uint64_t steps_;
  const defect defect_;
  timestamp now_{std::chrono::hours(1000)};
  const timestamp begin_ = now_;
  std::map<std::pair<timestamp, std::uint64_t>, action> agenda_;
  std::uint64_t sequence_ = 0;
  std::vector<node> nodes_;
  std::optional<catalogue> list_;
  bool is_one_prefix_ = false;
  bool is_etcd_gone_ = false;
  std::vector<namespace_id> namespaces_;
  std::uint32_t ranks_ = 1;
  std::uint32_t blocks_ = 4;
  /// Nodes read each other's files.
  bool shares_disk_ = false;
  /// The connections of an attachment.
  std::uint32_t streams_ = 1;
  /// Which file was named, by attachment.
  std::map<number, number> named_files_;
  std::set<std::pair<std::size_t, std::size_t>> cuts_;
  /// Owner ids of ended connections, of which some nodes may not have been notified yet.
  std::set<number> ended_;
  number last_incarnation_ = 0;
  number last_attachment_ = 0;
  number last_serial_ = 0;
  /// When the last copy of a key in a cluster was made that is not transient.
  std::map<std::tuple<std::string, namespace_id, key_digest>, number> made_last_;
  number puts_ = 0;
  bool is_calm_ = false;
  outcome out_;
};

} // namespace troupe::cluster_simulation
