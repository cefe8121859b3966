#include "workload/replay/trace.hpp"

#include "base/nearest_name.hpp"

#include <nlohmann/json.hpp>
#include <spdlog/fmt/fmt.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <utility>

namespace troupe::replay {

namespace {

constexpr std::size_t line_bytes_max = std::size_t{16} << 20;

/// Reads the lines of a file of any size or kind: never holds more than one line.
class line_reader {
public:
  explicit line_reader(std::ifstream in) : in_(std::move(in)), buffer_(std::size_t{256} << 10) {
    // nop
  }

  enum class outcome { line, end, too_long, failed };

  outcome next(std::string& line) {
    line.clear();
    while (true) {
      if (position_ == filled_) {
        in_.read(buffer_.data(), static_cast<std::streamsize>(buffer_.size()));
        position_ = 0;
        filled_ = static_cast<std::size_t>(in_.gcount());
        if (in_.bad())
          return outcome::failed;
        if (filled_ == 0)
          return line.empty() ? outcome::end : outcome::line;
      }
      const auto* start = buffer_.data() + position_;
      const auto* newline = static_cast<const char*>(std::memchr(start, '\n', filled_ - position_));
      const auto bytes = newline != nullptr ? static_cast<std::size_t>(newline - start) : filled_ - position_;
      if (line.size() + bytes > line_bytes_max)
        return outcome::too_long;
      line.append(start, bytes);
      position_ += bytes;
      if (newline != nullptr) {
        ++position_;
        return outcome::line;
      }
    }
  }

private:
  std::ifstream in_;
  std::vector<char> buffer_;
  std::size_t position_ = 0;
  std::size_t filled_ = 0;
};

/// A value from the file, shortened.
std::string excerpt(const nlohmann::json& value) {
  auto text = value.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
  return text.size() <= 40 ? text : text.substr(0, 37) + "...";
}

tl::unexpected<error> not_natural(std::string_view name, const nlohmann::json& value) {
  return fail(errc::invalid_argument,
              fmt::format("{} is {}, must be an integer from 0 to 2^64 - 1", name, excerpt(value)));
}

result<std::uint64_t> natural_field(const nlohmann::json& object, const char* name) {
  const auto found = object.find(name);
  if (found == object.end())
    return fail(errc::invalid_argument, fmt::format("\"{}\" is missing", name));
  if (!found->is_number_unsigned())
    return not_natural(name, *found);
  return found->get<std::uint64_t>();
}

result<trace_request> parse_request(const std::string& line) {
  nlohmann::json object;
  try {
    object = nlohmann::json::parse(line);
  } catch (const nlohmann::json::exception& e) {
    std::string_view what = e.what();
    // "[json.exception.parse_error.101] parse error at line 1, column 5: …": the prefix is replaced by the line of the
    // file.
    if (const auto detail = what.find("column "); detail != std::string_view::npos)
      what.remove_prefix(detail);
    return fail(errc::invalid_argument, fmt::format("not JSON: {}", what));
  }
  if (!object.is_object())
    return fail(errc::invalid_argument, fmt::format("{} is not a JSON object", excerpt(object)));
  trace_request request;
  for (const auto& [name, field] :
       {std::pair{"timestamp", &trace_request::timestamp_ms}, std::pair{"input_length", &trace_request::input_length},
        std::pair{"output_length", &trace_request::output_length}}) {
    auto value = natural_field(object, name);
    if (!value)
      return tl::unexpected(std::move(value.error()));
    request.*field = *value;
  }
  const auto ids = object.find("hash_ids");
  if (ids == object.end())
    return fail(errc::invalid_argument, "\"hash_ids\" is missing");
  if (!ids->is_array())
    return fail(errc::invalid_argument, fmt::format("hash_ids is {}, must be an array", excerpt(*ids)));
  request.hash_ids.reserve(ids->size());
  for (const auto& id : *ids) {
    if (!id.is_number_unsigned())
      return not_natural(fmt::format("hash_ids[{}]", request.hash_ids.size()), id);
    request.hash_ids.push_back(id.get<std::uint64_t>());
  }
  return request;
}

} // namespace

std::uint64_t trace::blocks() const noexcept {
  std::uint64_t sum = 0;
  for (const auto& request : requests)
    sum += request.hash_ids.size();
  return sum;
}

result<std::vector<trace_request>> read_trace(const std::filesystem::path& file, std::optional<std::size_t> limit) {
  std::error_code ignored;
  if (std::filesystem::is_directory(file, ignored))
    return fail(errc::io_error, fmt::format("{}: is a directory, a trace is a file of JSON lines", file.string()));
  errno = 0;
  std::ifstream in(file, std::ios::binary);
  if (!in)
    return tl::unexpected(system_error(errno, fmt::format("{}: cannot be opened", file.string())));
  line_reader reader(std::move(in));
  std::vector<trace_request> requests;
  std::string line;
  std::size_t empty_line = 0;
  for (std::size_t number = 1; !limit || requests.size() < *limit; ++number) {
    const auto place = [&] { return fmt::format("{}:{}: ", file.string(), number); };
    const auto outcome = reader.next(line);
    if (outcome == line_reader::outcome::failed)
      return tl::unexpected(system_error(EIO, place() + "cannot be read"));
    if (outcome == line_reader::outcome::too_long)
      return fail(errc::limit_exceeded, place() + "longer than 16 MiB, this is not a trace of JSON lines");
    if (outcome == line_reader::outcome::end)
      break;
    if (line.find_first_not_of(" \t\r") == std::string::npos) {
      empty_line = empty_line == 0 ? number : empty_line;
      continue;
    }
    if (empty_line != 0)
      return fail(errc::invalid_argument,
                  fmt::format("{}:{}: empty line amid the requests", file.string(), empty_line));
    auto request = parse_request(line);
    if (!request)
      return fail(request.error().code, place() + request.error().text);
    requests.push_back(std::move(*request));
  }
  if (requests.empty() && limit != 0U)
    return fail(errc::invalid_argument, fmt::format("{}: has no requests", file.string()));
  return requests;
}

namespace {

bool is_generator(std::string_view spec, std::string_view name) {
  return spec.starts_with(name) && (spec.size() == name.size() || spec[name.size()] == ':');
}

result<trace> generate_mixed(std::string_view spec, std::uint32_t block_tokens, std::optional<std::size_t> limit) {
  const auto parameters = parse_mixed(spec);
  if (!parameters)
    return tl::unexpected(parameters.error());
  auto requests = make_mixed(*parameters, block_tokens, limit);
  if (!requests)
    return tl::unexpected(std::move(requests.error()));
  trace out;
  out.name = fmt::format("mixed:{},{},{},{},{},{}", parameters->seed, parameters->requests, parameters->chats,
                         parameters->agents, parameters->documents, parameters->prompts);
  out.requests = std::move(*requests);
  return out;
}

} // namespace

result<trace> generate_trace(std::string_view spec, std::uint32_t block_tokens, std::optional<std::size_t> limit) {
  if (is_generator(spec, "mixed"))
    return generate_mixed(spec, block_tokens, limit);
  const auto parameters = parse_loogle(spec);
  if (!parameters)
    return tl::unexpected(parameters.error());
  auto requests = make_loogle(*parameters, block_tokens, limit);
  if (!requests)
    return tl::unexpected(std::move(requests.error()));
  trace out;
  out.name = fmt::format("loogle:{},{},{},{}", parameters->groups, parameters->prefix_tokens, parameters->queries,
                         parameters->query_tokens);
  out.requests = std::move(*requests);
  return out;
}

std::string to_json(const trace_request& x) {
  // In the form of published traces.
  return fmt::format(R"({{"timestamp": {}, "input_length": {}, "output_length": {}, "hash_ids": [{}]}})",
                     x.timestamp_ms, x.input_length, x.output_length, fmt::join(x.hash_ids, ", "));
}

namespace {

/// A missing file may be a misspelt generator.
error meant_generator(std::string_view spec, const std::filesystem::path& file, error why) {
  constexpr std::array<std::string_view, 2> generators{"loogle", "mixed"};
  std::error_code ignored;
  const auto word = spec.substr(0, spec.find(':'));
  if (const auto meant = nearest_name(word, generators); !meant.empty() && !std::filesystem::exists(file, ignored))
    why.text += fmt::format("; did you mean the generator '{}{}'?", meant, spec.substr(word.size()));
  return why;
}

} // namespace

result<trace> open_trace(std::string_view spec, std::uint32_t block_tokens, std::optional<std::size_t> limit) {
  if (is_generator(spec, "loogle") || is_generator(spec, "mixed"))
    return generate_trace(spec, block_tokens, limit);
  trace out;
  const std::filesystem::path file(spec);
  auto requests = read_trace(file, limit);
  if (!requests)
    return tl::unexpected(meant_generator(spec, file, std::move(requests.error())));
  out.name = file.filename().string();
  out.requests = std::move(*requests);
  return out;
}

} // namespace troupe::replay
