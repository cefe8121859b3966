#include "lmcache/client_list.hpp"

#include "base/kernel_text.hpp"

#include <utility>

namespace troupe::lmcache {

namespace {

/// Clients whose process is looked for at a time: each search goes through all processes of the host.
constexpr std::size_t names_per_call_max = 8;

/// Process names have 15 arbitrary bytes in the kernel.
std::string name_of_process(std::int32_t process) {
  auto text = text_of_file("/proc/" + std::to_string(process) + "/comm");
  while (!text.empty() && text.back() == '\n')
    text.pop_back();
  for (auto& c : text)
    if (c < ' ' || c > '~')
      c = '?';
  return text;
}

} // namespace

std::string to_string(const client_info& x) {
  auto out = "client " + std::to_string(x.number) + " (";
  if (x.process != 0)
    out += "process " + std::to_string(x.process) + " '" + x.name + "', ";
  return out + "user " + std::to_string(x.user) + ", LMCache " + protocol::to_string(x.versions) + ")";
}

void client_list::connected(client_number number, const peer_socket& socket) {
  const std::lock_guard guard(mutex_);
  auto& x = clients_[number];
  x.info.number = number;
  x.info.user = socket.user;
  x.inode = socket.inode;
}

void client_list::disconnected(client_number number) {
  const std::lock_guard guard(mutex_);
  clients_.erase(number);
}

void client_list::served(client_number number, protocol::version_set versions) {
  const std::lock_guard guard(mutex_);
  const auto i = clients_.find(number);
  if (i == clients_.end())
    return;
  auto& x = i->second.info;
  ++x.requests;
  // If no version fits all messages, the newest message counts: the client knows what it sends.
  const auto both = x.versions & versions;
  x.versions = both.empty() ? versions : both;
}

void client_list::found(client_number number, std::int32_t process) {
  auto name = process == 0 ? std::string() : name_of_process(process);
  const std::lock_guard guard(mutex_);
  const auto i = clients_.find(number);
  if (i == clients_.end())
    return;
  i->second.is_named = true;
  i->second.info.process = process;
  i->second.info.name = std::move(name);
}

void client_list::malformed(client_number number) {
  const std::lock_guard guard(mutex_);
  if (const auto i = clients_.find(number); i != clients_.end()) {
    ++i->second.info.requests;
    ++i->second.info.malformed;
  }
}

void client_list::differed(client_number number, std::string difference) {
  const std::lock_guard guard(mutex_);
  if (const auto i = clients_.find(number); i != clients_.end())
    i->second.info.difference = std::move(difference);
}

std::optional<client_info> client_list::find(client_number number) {
  name_processes({number});
  const std::lock_guard guard(mutex_);
  const auto i = clients_.find(number);
  return i == clients_.end() ? std::nullopt : std::optional(i->second.info);
}

std::vector<client_info> client_list::all(std::size_t most) {
  std::vector<client_number> unnamed;
  {
    const std::lock_guard guard(mutex_);
    for (const auto& [number, x] : clients_)
      if (!x.is_named && unnamed.size() < names_per_call_max)
        unnamed.push_back(number);
  }
  name_processes(unnamed);
  const std::lock_guard guard(mutex_);
  std::vector<client_info> out;
  for (auto i = clients_.begin(); i != clients_.end() && out.size() < most; ++i)
    out.push_back(i->second.info);
  return out;
}

std::size_t client_list::size() const {
  const std::lock_guard guard(mutex_);
  return clients_.size();
}

void client_list::name_processes(const std::vector<client_number>& which) {
  for (const auto number : which) {
    peer_socket socket;
    {
      const std::lock_guard guard(mutex_);
      const auto i = clients_.find(number);
      if (i == clients_.end() || std::exchange(i->second.is_named, true))
        continue;
      socket = {i->second.inode, i->second.info.user};
    }
    const auto process = process_with(socket);
    auto name = process == 0 ? std::string() : name_of_process(process);
    const std::lock_guard guard(mutex_);
    if (const auto i = clients_.find(number); i != clients_.end()) {
      i->second.info.process = process;
      i->second.info.name = std::move(name);
    }
  }
}

} // namespace troupe::lmcache
