#include "actors/support/closing_middleman.hpp"

#include <caf/actor_cast.hpp>
#include <caf/exit_reason.hpp>
#include <caf/io/basp_broker.hpp>

namespace troupe {

void closing_middleman::stop() {
  // The broker belongs to the thread of connections, which runs this before it ends.
  backend().dispatch([this, broker = named_broker<caf::io::basp_broker>(caf::atom("BASP"))] {
    auto* const x = static_cast<caf::io::basp_broker*>(caf::actor_cast<caf::abstract_actor*>(broker));
    // What CAF's own function does next, which then finds it done.
    x->context(&backend());
    x->quit();
    x->finalize();
    // CAF's brokers leave out this part of the end of an actor, which closes the mailbox.
    x->caf::scheduled_actor::cleanup(caf::make_error(caf::exit_reason::user_shutdown), &backend());
  });
  caf::io::middleman::stop();
}

} // namespace troupe
