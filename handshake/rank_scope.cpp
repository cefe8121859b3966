#include "handshake/rank_scope.hpp"

namespace troupe::handshake {

result<rank_scope> rank_scope::make(const handshake_fetch_request& x, const handshake_sizes& sizes) {
  rank_scope out(x.scope, x.rank, sizes);
  if (x.scope == handshake_scope::peers) {
    const auto met = ranks_to_meet(x.rank.tp, x.own_tp_size, sizes.tp);
    if (!met)
      return tl::unexpected(met.error());
    out.met_ = *met;
  }
  return out;
}

std::string rank_scope::describe(const handshake_fetch_request& x) {
  switch (x.scope) {
  case handshake_scope::rank:
    return "rank dp " + std::to_string(x.rank.dp) + ", pp " + std::to_string(x.rank.pp) + ", tp " +
           std::to_string(x.rank.tp);
  case handshake_scope::row:
    return "dp rank " + std::to_string(x.rank.dp);
  case handshake_scope::peers:
    return "ranks of dp rank " + std::to_string(x.rank.dp) + " that tp rank " + std::to_string(x.rank.tp) + " of " +
           std::to_string(x.own_tp_size) + " meets";
  case handshake_scope::all:
    break;
  }
  return "all ranks";
}

bool rank_scope::contains(const handshake_rank& x) const noexcept {
  switch (scope_) {
  case handshake_scope::rank:
    return x == rank_;
  case handshake_scope::row:
    return x.dp == rank_.dp;
  case handshake_scope::peers:
    return x.dp == rank_.dp && met_.contains(x.tp);
  case handshake_scope::all:
    break;
  }
  return true;
}

std::uint64_t rank_scope::count() const noexcept {
  switch (scope_) {
  case handshake_scope::rank:
    return 1;
  case handshake_scope::row:
    return sizes_.row();
  case handshake_scope::peers:
    return std::uint64_t{sizes_.pp} * met_.count;
  case handshake_scope::all:
    break;
  }
  return sizes_.count();
}

bool rank_scope::exists() const noexcept {
  switch (scope_) {
  case handshake_scope::rank:
    return sizes_.contains(rank_);
  case handshake_scope::row:
  case handshake_scope::peers:
    return rank_.dp < sizes_.dp;
  case handshake_scope::all:
    break;
  }
  return true;
}

} // namespace troupe::handshake
