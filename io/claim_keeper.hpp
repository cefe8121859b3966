#pragma once

#include "base/error.hpp"
#include "base/write_gate.hpp"
#include "io/claim_files.hpp"
#include "io/claim_rules.hpp"

#include <atomic>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

namespace troupe::io {

/// How a claim is, for whoever asks.
struct claim_status {
  claim_state state = claim_state::watching;
  /// The own one.
  claim_number number = 0;
  claim_number in_force = 0;
  /// The claim in force as it was last seen, of somebody else; or the one that this one was lost to.
  std::optional<claim_record> other{};
  /// Of the last step, where it failed; empty else.
  std::string trouble{};
};

/// Makes a claim on a data directory and keeps it: carries out what `claim_rules` say, in a thread of its own, and
/// opens and shuts a gate by what they find.
class claim_keeper {
public:
  /// `gate` is opened while the claim is valid, and shut for good when it is lost; of an adopter it stays closed.
  /// Begins at once. io_error when no thread can be started.
  static result<std::unique_ptr<claim_keeper>> begin(std::unique_ptr<claim_files> files, const claim_options& options,
                                                     std::shared_ptr<write_gate> gate);
  claim_keeper(const claim_keeper&) = delete;
  claim_keeper& operator=(const claim_keeper&) = delete;
  /// Gives back a claim that is held: nothing may be under way by then. Waits for the file system.
  ~claim_keeper();

  /// Blocks until the claim is held, refused or lost, for as long as `go_on` says: it is asked now and then, and told
  /// how things are. Any thread.
  claim_status wait(const std::function<bool(const claim_status&)>& go_on) const;

  /// Any thread.
  claim_status status() const;
  const std::shared_ptr<write_gate>& gate() const noexcept { return gate_; }

  /// Called once, by the keeper's thread, when a claim that was held is lost. At once if it is already.
  void on_lost(std::function<void(const claim_status&)> what);

  /// Ends the thread without giving the claim back, as when the process dies: for tests.
  void abandon();

private:
  claim_keeper(std::unique_ptr<claim_files> files, const claim_options& options, std::shared_ptr<write_gate> gate);

  void run();
  void carry_out(const claim_step& what);
  /// Takes over what the rules say now.
  void publish();
  void end_thread();

  std::unique_ptr<claim_files> files_;
  const bool is_owner_;
  std::shared_ptr<write_gate> gate_;
  /// Of the thread.
  claim_rules rules_;
  bool was_held_ = false;
  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  claim_status status_;
  std::function<void(const claim_status&)> lost_;
  bool is_ending_ = false;
  bool gives_back_ = true;
  std::thread thread_;
};

/// "node 'cache-1' (claim 7)", for messages.
std::string describe(const claim_status& x);

} // namespace troupe::io
