#pragma once

#include "messages/messages.hpp"

#include <functional>
#include <memory>

namespace troupe::cluster {

/// A function to run in the actor's own turn, sent from another thread of this process.
struct posted_task {
  std::shared_ptr<std::function<void()>> what;
};

} // namespace troupe::cluster

CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::cluster::posted_task)
