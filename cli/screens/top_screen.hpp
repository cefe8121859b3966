#pragma once

#include "base/clock.hpp"

#include <nlohmann/json.hpp>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace troupe::cli {

/// The style of a line on the screen.
enum class line_style : std::uint8_t { plain, title, healthy, trouble, head, quiet };

struct screen_line {
  std::string text;
  line_style style = line_style::plain;
};

/// The keys of `troupe top`.
enum class top_key : std::uint8_t { none, quit, pause, sort, ranks, view, up, down };

/// The screen of `troupe top`: what a node has done between two answers, with a history. Pure rules: answers, time,
/// keys and the size of the terminal are arguments.
class top_screen {
public:
  /// History of each number: one value per column of a wide terminal.
  static constexpr std::size_t values_most = 240;

  /// `unicode`: whether the terminal has blocks of different heights. `interval`: the usual time between two answers.
  explicit top_screen(bool unicode, duration interval = std::chrono::seconds(1))
      : unicode_(unicode), interval_(interval) {}

  /// Adds an answer to `/v1/status` that arrived at `now`. The history of the first one fills the pictures of the node.
  void observe(const nlohmann::json& status, timestamp now);
  /// Notes that no answer came.
  void miss(std::string why);

  /// Handles a key; false to quit.
  bool press(top_key key);

  /// Exactly this many lines of exactly this many columns.
  std::vector<screen_line> lines(std::size_t columns, std::size_t rows) const;

  /// The newest numbers in one line, for output without a terminal.
  std::string plain_line() const;

  /// The state in the newest answer.
  bool is_healthy() const noexcept { return health_ == "healthy"; }
  bool is_reached() const noexcept { return why_.empty() && !health_.empty(); }

private:
  enum class order : std::uint8_t { name, hits, lookups, load, save, evictions };
  static constexpr std::size_t order_count = 6;
  /// What the table lists.
  enum class view : std::uint8_t { namespaces, clients, cluster };

  /// A table other than that of namespaces. The first two columns are names, which are cut; the others are as wide as
  /// their content.
  struct listing {
    std::vector<std::string> head;
    std::vector<std::vector<std::string>> rows;
  };

  /// Totals since the start of the node.
  struct counts {
    double lookups = 0;
    double asked = 0;
    double found = 0;
    double evicted = 0;
    double loaded_bytes = 0;
    double saved_bytes = 0;
  };

  /// Rates per second, between two answers.
  struct rates {
    std::optional<double> hits;
    double lookups = 0;
    double evicted = 0;
    double load_gbps = 0;
    double save_gbps = 0;
    /// In microseconds, of the last minute.
    double p99 = 0;
  };

  struct row {
    std::string name;
    /// The namespace of the row.
    std::string ns;
    bool is_rank = false;
    /// The number of keys of a namespace.
    std::string keys;
    bool damaged = false;
    double live_slots = 0;
    double slots = 0;
    counts before;
    bool seen = false;
    rates now;
    std::deque<rates> series;
  };

  using rows_by_key = std::map<std::string, row>;

  static counts counts_of(const nlohmann::json& ns);
  static counts counts_of_rank(const nlohmann::json& rank, double page_bytes);
  /// `minute`: the node's numbers of the last minute.
  static rates rates_of(const nlohmann::json& minute);
  static void advance(row& x, const counts& now, double seconds, const nlohmann::json& minute);
  static bool are_equal(const std::vector<const row*>& ranks);
  row& row_of(const std::string& key);
  void fill_history(const nlohmann::json& history);
  void observe_namespace(const nlohmann::json& ns, double seconds, counts& all);
  void observe_lists(const nlohmann::json& status);
  std::string sparkline(const row& x, std::size_t columns, double (*value)(const rates&), double least) const;
  std::vector<const row*> sorted() const;
  /// The rate that the rows' sparklines show: the one by which they are sorted.
  struct pictured_rate {
    const char* head;
    double (*of)(const rates&);
    /// The least upper end of the sparkline's scale.
    double least;
  };
  pictured_rate pictured() const;
  void add_node(std::vector<screen_line>& to, std::size_t columns) const;
  void add_table(std::vector<screen_line>& to, std::size_t columns, std::size_t rows) const;
  void add_listing(std::vector<screen_line>& to, const listing& x, std::size_t columns, std::size_t rows) const;
  std::size_t rows_of_view() const;
  view next_view() const;
  screen_line title(std::size_t columns) const;
  std::string help() const;

  bool unicode_;
  duration interval_;
  bool paused_ = false;
  /// Whether ranks are listed also where all ranks of a namespace are equal.
  bool shows_all_ranks_ = false;
  view view_ = view::namespaces;
  order order_ = order::name;
  std::size_t first_ = 0;
  std::string health_;
  std::string why_;
  std::string name_;
  std::string facts_;
  std::string when_;
  std::vector<std::string> warnings_;
  timestamp last_{};
  /// The rows of the node, and of its namespaces and ranks by a name that sorts ranks after their namespace.
  row node_;
  rows_by_key rows_;
  listing clients_;
  /// Empty if the node is not part of a cluster.
  listing cluster_;
};

} // namespace troupe::cli
