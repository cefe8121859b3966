#pragma once

#include <string_view>

namespace troupe::cli {

/// Notifies the service manager that started the program of its state, as sd_notify(3) does: "READY=1", "RELOADING=1",
/// "STOPPING=1" and so on. Does nothing if there is none (NOTIFY_SOCKET is not set) or if it does not listen; neither
/// is an error.
void tell_service_manager(std::string_view state);

} // namespace troupe::cli
