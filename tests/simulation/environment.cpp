#include "tests/simulation/environment.hpp"

#include <cstdio>

namespace troupe::simulation {

environment::environment(std::uint64_t seed, defect built_in_, bool verbose)
    : random(mix(seed, 0x7472)), p(make_parameters(random)), built_in(built_in_), verbose_(verbose) {}

void environment::trace(std::string_view what, std::initializer_list<std::uint64_t> numbers,
                        const std::string& comment) {
  const auto time = static_cast<std::uint64_t>((now() - schedule::start).count());
  mix_in(time);
  for (const auto c : what)
    mix_in(static_cast<unsigned char>(c));
  for (const auto x : numbers)
    mix_in(x);
  if (!verbose_)
    return;
  std::printf("%12.6f %.*s", static_cast<double>(time) / 1e9, static_cast<int>(what.size()), what.data());
  if (comment.empty())
    for (const auto x : numbers)
      std::printf(" %llu", static_cast<unsigned long long>(x));
  else
    std::printf(" %s", comment.c_str());
  std::printf("\n");
}

void environment::count(std::string_view what, std::uint64_t n) {
  const auto i = counts_.find(what);
  if (i != counts_.end())
    i->second += n;
  else
    counts_.emplace(what, n);
}

void environment::count(std::string_view what, errc code) {
  count(std::string(what).append(": ").append(troupe::to_string(code)));
}

void environment::fail(std::string_view property, std::string text) {
  if (failed())
    return;
  property_ = property;
  failure_ = std::move(text);
}

void environment::judge(std::string_view property, std::string wrong) {
  if (!wrong.empty())
    fail(property, std::move(wrong));
}

} // namespace troupe::simulation
