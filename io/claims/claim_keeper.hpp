#pragma once

#include "base/error.hpp"
#include "base/write_gate.hpp"
#include "io/claims/claim_files.hpp"
#include "io/claims/claim_rules.hpp"

#include <atomic>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

namespace troupe::io {

/// The state of a claim.
struct claim_status {
  claim_state state = claim_state::watching;
  /// The number of this node's claim.
  claim_number number = 0;
  claim_number in_force = 0;
  /// The claim in force of another node, as last seen; or the claim that displaced this one.
  std::optional<claim_record> other{};
  /// The error of the last step, if it failed; otherwise empty.
  std::string trouble{};
};

/// Makes a claim on a data directory and renews it: carries out the steps of `claim_rules` in a thread of its own, and
/// opens and closes a gate accordingly.
class claim_keeper {
public:
  /// Starts at once. `gate` is opened while the claim is valid and closed for good when it is lost; for an adopter it
  /// stays closed. Error: `io_error` when no thread can be started.
  static result<std::unique_ptr<claim_keeper>> begin(std::unique_ptr<claim_files> files, const claim_options& options,
                                                     std::shared_ptr<write_gate> gate);
  claim_keeper(const claim_keeper&) = delete;
  claim_keeper& operator=(const claim_keeper&) = delete;
  /// Releases a claim that is held; all writes must have ended by then. Waits for the file system.
  ~claim_keeper();

  /// Blocks until the claim is held, refused or lost, or until `go_on`, which is called now and then with the current
  /// state, returns false. Any thread.
  claim_status wait(const std::function<bool(const claim_status&)>& go_on) const;

  /// Any thread.
  claim_status status() const;
  const std::shared_ptr<write_gate>& gate() const noexcept { return gate_; }

  /// Registers a function that the keeper's thread calls once when a held claim is lost. Is called at once if it is
  /// lost already.
  void on_lost(std::function<void(const claim_status&)> what);

  /// Ends the thread without releasing the claim, as when the process dies. For tests.
  void abandon();

private:
  claim_keeper(std::unique_ptr<claim_files> files, const claim_options& options, std::shared_ptr<write_gate> gate);

  void run();
  void carry_out(const claim_step& what);
  /// Publishes the state of the rules.
  void publish();
  void end_thread();

  std::unique_ptr<claim_files> files_;
  const bool is_owner_;
  std::shared_ptr<write_gate> gate_;
  /// Used by the thread only.
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
