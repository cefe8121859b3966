#include "messages/messages.hpp"

namespace troupe {

void register_messages(caf::actor_system_config& config) {
  config.add_message_types<caf::id_block::troupe>();
  config.add_error_category(caf::atom("troupe"), [](std::uint8_t code, caf::atom_value, const caf::message& context) {
    std::string out(code < errc_count ? to_string(static_cast<errc>(code)) : "unknown");
    if (!context.empty())
      out.append(": ").append(caf::deep_to_string(context));
    return out;
  });
}

} // namespace troupe
