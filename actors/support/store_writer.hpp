#pragma once

#include "base/error.hpp"
#include "base/log.hpp"
#include "messages/messages.hpp"
#include "store/journal.hpp"
#include "store/metadata_store.hpp"

#include <caf/all.hpp>

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

/// How an actor that owns a journal writes its batches to the store, one after the other: it calls `write_next` after
/// changes, `take_written` with the store's answer, which comes as `written_atom`, and `fail_with_store` with the error
/// of either.

namespace troupe {

/// What has become of the next batch of a journal.
enum class batch_state : std::uint8_t {
  /// There is none, or the one before is being written.
  none,
  /// The store writes it.
  taken,
  /// The store has no room in its queue. The batch is in the journal again, to be passed on later.
  refused,
};

/// Passes the next batch to the store, which answers `whom` with `written_atom`, a code and a text. Errors: those of
/// the store, which writes nothing any more.
template <class Actor>
result<batch_state> write_next(store::journal& from, store::metadata_store& to, Actor whom) {
  auto batch = from.begin_write();
  if (!batch)
    return batch_state::none;
  // The store's thread calls back, so the callback may only send. An anonymous message keeps no actor alive and needs
  // no answer.
  const auto taken = to.commit(std::move(*batch), [whom = std::move(whom)](const result<void>& outcome) {
    if (outcome)
      caf::anon_send(whom, written_atom_v, static_cast<std::uint8_t>(errc::ok), std::string());
    else
      caf::anon_send(whom, written_atom_v, static_cast<std::uint8_t>(outcome.error().code), outcome.error().text);
  });
  if (taken)
    return batch_state::taken;
  if (taken.error().code != errc::limit_exceeded)
    return tl::unexpected<error>(taken.error());
  // A batch that was refused is left as it was.
  from.refused(std::move(*batch));
  return batch_state::refused;
}

/// The store's answer: what waits for the batch goes on. Error: the batch could not be written.
inline result<void> take_written(store::journal& of, std::uint8_t code, const std::string& text) {
  if (const auto outcome = errc_from_wire(code); outcome != errc::ok)
    return fail(outcome, text);
  of.written();
  return {};
}

/// Ends the actor, whose changes cannot be made durable any more. `what`: of which it is the journal, for the log.
template <class Self>
void fail_with_store(Self& self, store::journal& journal, std::string_view what, const error& why) {
  log::get(self.name())->critical("{} not durable: {}; the node shuts down", what, to_string(why));
  journal.fail(why);
  self.quit(to_caf(why));
}

} // namespace troupe
