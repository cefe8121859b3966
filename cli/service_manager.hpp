#pragma once

#include <string_view>

namespace troupe::cli {

/// Tells the service manager that has started the program how it is, as sd_notify(3) does: "READY=1", "RELOADING=1",
/// "STOPPING=1" and so on. Nothing happens where there is none (NOTIFY_SOCKET is not set), or where it does not listen:
/// no node fails for that.
void tell_service_manager(std::string_view state);

} // namespace troupe::cli
