#pragma once

#include "tests/actors/message_types.hpp"
#include "tests/actors/sim.hpp"

#include <chrono>
#include <cstring>
#include <memory>
#include <random>
#include <type_traits>
#include <vector>

/// Messages with random contents, written and read back as between two nodes.

namespace troupe::test {

/// Walks a message as a serialiser does and fills it with random values.
class random_filler {
public:
  using result_type = void;
  static constexpr bool reads_state = false;
  static constexpr bool writes_state = true;

  random_filler(std::uint64_t seed, const std::vector<std::unique_ptr<probe>>& actors, bool empty_batches)
      : random_(seed), actors_(actors), empty_batches_(empty_batches) {}

  template <class... Ts>
  void operator()(Ts&&... xs) {
    (field(xs), ...);
  }

  template <class T>
  void fill(T& x) {
    field(x);
  }

private:
  std::size_t length() { return empty_batches_ ? 0 : random_() % 5; }

  template <class T>
  void field(T& x) {
    if constexpr (caf::meta::is_annotation<T>::value) {
    } else if constexpr (std::is_same_v<T, bool>) {
      x = random_() % 2 == 0;
    } else if constexpr (std::is_integral_v<T>) {
      x = static_cast<T>(random_());
    } else if constexpr (std::is_enum_v<T>) {
      x = static_cast<T>(static_cast<std::underlying_type_t<T>>(random_()));
    } else {
      inside(x);
    }
  }

  template <class T>
  void inside(T& x) {
    inspect(*this, x);
  }
  void inside(duration& x) { x = duration(static_cast<duration::rep>(random_())); }
  void inside(std::string& x) {
    x.resize(empty_batches_ ? 0 : random_() % 40);
    for (auto& c : x)
      c = static_cast<char>(random_());
  }
  template <class T>
  void inside(std::vector<T>& x) {
    x.resize(length());
    for (auto& y : x)
      field(y);
  }
  template <class T>
  void inside(packed<T>& x) {
    std::string bytes(length() * sizeof(T), '\0');
    for (auto& c : bytes)
      c = static_cast<char>(random_());
    CHECK(x.from_bytes(bytes));
  }
  template <class... Sigs>
  void inside(caf::typed_actor<Sigs...>& x) {
    const auto at = random_() % (actors_.size() + 1);
    x = at < actors_.size() ? actors_[at]->as<caf::typed_actor<Sigs...>>() : caf::typed_actor<Sigs...>{};
  }

  std::mt19937_64 random_;
  const std::vector<std::unique_ptr<probe>>& actors_;
  bool empty_batches_;
};

/// Counts the fields that `inspect` visits.
class field_counter {
public:
  using result_type = std::size_t;
  static constexpr bool reads_state = true;
  static constexpr bool writes_state = false;

  template <class... Ts>
  std::size_t operator()(Ts&&...) {
    return ((caf::meta::is_annotation<std::decay_t<Ts>>::value ? 0U : 1U) + ... + 0U);
  }
};

/// Counts the fields of an aggregate: the largest number of values that can initialize it.
struct any_field {
  template <class T>
  operator T() const; // NOLINT(google-explicit-constructor): never called, only has to convert
};

template <class T, class... Fields>
constexpr std::size_t aggregate_fields() {
  if constexpr (requires { T{Fields{}..., any_field{}}; })
    return aggregate_fields<T, Fields..., any_field>();
  else
    return sizeof...(Fields);
}

using buffer = std::vector<char>;

inline buffer save_message(caf::actor_system& system, const caf::message& x) {
  buffer out;
  caf::binary_serializer sink(system, out);
  const auto failed = x.save(sink);
  INFO(system.render(failed));
  CHECK_FALSE(failed);
  return out;
}

inline caf::error load_message(caf::actor_system& system, const buffer& bytes, caf::message& x) {
  caf::binary_deserializer source(system, bytes);
  return x.load(source);
}

/// Actors to put into messages, known to their system as it would have sent them to another node.
struct named_probes {
  explicit named_probes(caf::actor_system& system) {
    for (int i = 0; i < 3; ++i) {
      all.push_back(std::make_unique<probe>(system));
      system.registry().put(all.back()->as<>().id(), all.back()->as<>());
    }
  }
  std::vector<std::unique_ptr<probe>> all;
};

template <class T>
void round_trip(caf::actor_system& system, const named_probes& actors, std::uint64_t seed, bool empty_batches) {
  INFO("type " << caf::type_name_by_id<caf::type_id<T>::value>::value << ", seed " << seed);
  T x{};
  random_filler(seed, actors.all, empty_batches).fill(x);
  const auto sent = caf::make_message(x);
  const auto bytes = save_message(system, sent);
  caf::message got;
  const auto failed = load_message(system, bytes, got);
  INFO(system.render(failed));
  REQUIRE_FALSE(failed);
  REQUIRE(got.match_elements<T>());
  // Field by field, since both walk all fields; below is checked that none is left out.
  CHECK(save_message(system, got) == bytes);
  if constexpr (requires(const T& a, const T& b) { a == b; })
    CHECK(got.get_as<T>(0) == x);
  // An object that was in use before reads the same: nothing of it is left.
  T used{};
  random_filler(seed + 1, actors.all, false).fill(used);
  buffer object;
  caf::binary_serializer sink(system, object);
  REQUIRE_FALSE(sink(x));
  caf::binary_deserializer source(system, object);
  REQUIRE_FALSE(source(used));
  CHECK(save_message(system, caf::make_message(used)) == bytes);
}

template <class T>
void check_all_fields_inspected() {
  if constexpr (std::is_aggregate_v<T>) {
    T x{};
    field_counter count;
    INFO("type " << caf::type_name_by_id<caf::type_id<T>::value>::value);
    CHECK(inspect(count, x) == aggregate_fields<T>());
  }
}

template <class... Ts>
void check_types(const std::tuple<Ts...>*) {
  sim s;
  named_probes actors(s.system());
  for (std::uint64_t seed = 0; seed < 50; ++seed)
    (round_trip<Ts>(s.system(), actors, seed, seed % 5 == 0), ...);
  (check_all_fields_inspected<Ts>(), ...);
}

} // namespace troupe::test
