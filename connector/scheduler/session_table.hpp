#pragma once

#include "connector/types.hpp"

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>

namespace troupe::connector {

/// The requests of an engine that a scheduler half tracks, by session and by name. `Request` is a `request_tracker` or
/// a `grouped_request`.
template <class Request>
class session_table {
public:
  /// The request that the engine has under this name; null if it has none, or if it is not tracked.
  Request* find(std::string_view name) const { return found(present_, name); }
  /// The finished request of this name whose blocks the engine keeps; null if there is none.
  Request* find_leaving(std::string_view name) const { return found(leaving_, name); }
  /// The request of a session; null once it was dropped.
  Request* find(session_id session) const {
    const auto i = sessions_.find(session);
    return i == sessions_.end() ? nullptr : i->second.get();
  }
  /// The same for a session that is known not to be dropped.
  Request& at(session_id session) const { return *sessions_.at(session); }

  /// Adds the tokens that the engine has sent to its request, which is tracked from now on: `make(session)` returns a
  /// new one. Null where the request is excluded.
  template <class Make>
  Request* track(const engine_request& request, Make make) {
    auto* x = find(request.id);
    if (x == nullptr && request.cacheable) {
      std::unique_ptr<Request> made = make(++last_session_);
      x = made.get();
      sessions_.emplace(x->session(), std::move(made));
      present_.emplace(x->name(), x);
    }
    if (x != nullptr)
      x->add(request.tokens, request.hashes);
    return x;
  }

  /// The engine has finished the request. Its session stays until it is dropped.
  void finish(const Request& x) { present_.erase(x.name()); }
  /// The engine keeps the blocks of a finished request until it is notified of its name.
  void leave(Request& x) { leaving_.emplace(x.name(), &x); }
  /// The engine was notified: returns the request, which is not leaving any more; null if it was not.
  Request* take_leaving(std::string_view name) {
    const auto i = leaving_.find(name);
    return i == leaving_.end() ? nullptr : leaving_.extract(i).mapped();
  }
  void drop(session_id session) { sessions_.erase(session); }

  /// Sessions, with those of finished requests.
  std::size_t size() const noexcept { return sessions_.size(); }
  bool empty() const noexcept { return sessions_.empty(); }
  /// Requests that the engine has.
  std::size_t present() const noexcept { return present_.size(); }

  auto begin() const noexcept { return sessions_.begin(); }
  auto end() const noexcept { return sessions_.end(); }

private:
  struct name_hash {
    using is_transparent = void;
    std::size_t operator()(std::string_view x) const noexcept { return std::hash<std::string_view>{}(x); }
  };
  using names = std::unordered_map<std::string, Request*, name_hash, std::equal_to<>>;

  static Request* found(const names& in, std::string_view name) {
    const auto i = in.find(name);
    return i == in.end() ? nullptr : i->second;
  }

  std::unordered_map<session_id, std::unique_ptr<Request>> sessions_;
  names present_;
  names leaving_;
  session_id last_session_ = 0;
};

} // namespace troupe::connector
