#include "http/registry/asking_rounds.hpp"

#include "actors/support/asking_round.hpp"

namespace troupe::http {

namespace {

class round_of_questions final : public request_round {
public:
  explicit round_of_questions(caf::actor_system& system) : round_(system) {}

  void end() noexcept override { round_.end(); }
  timestamp waiting_since() const noexcept override { return round_.waiting_since(); }

private:
  asking_round round_;
};

} // namespace

request_round_maker asking_rounds(caf::actor_system& system) {
  return [&system] { return std::make_unique<round_of_questions>(system); };
}

} // namespace troupe::http
