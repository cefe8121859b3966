#pragma once

#include "gpu/remote_cache.hpp"
#include "gpu/remote_layout.hpp"
#include "messages/messages.hpp"

#include <memory>

namespace troupe {

/// Requests a worker's memory; answered with `opened_memory`. Never leaves the process, like its answer.
struct open_order {
  std::shared_ptr<const remote_layout> layout;
};

struct opened_memory {
  std::shared_ptr<remote_cache> cache;
  /// The error, if there is none.
  error why_not;
};

using memory_opener_actor = caf::typed_actor<caf::replies_to<open_order>::with<opened_memory>>;

/// Opens a worker's memory, in a thread of its own, since a device may be slow or never answer. Answers once, and ends.
class memory_opener : public memory_opener_actor::base {
public:
  using memory_opener_actor::base::base;

  const char* name() const override { return "memory_opener"; }

protected:
  behavior_type make_behavior() override;
};

} // namespace troupe

CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::open_order)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::opened_memory)
